"""What Spark says is kept, in files that are bounded in size and number."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark import session
from penstock.spark.session import SparkLog

KILOBYTE = 1_024
# A process that says more than all files may hold, on both of its streams.
TALKER = """
import sys
for number in range(1000):
    print(f"out {number}", flush=True)
    print(f"err {number}", "x" * 20, file=sys.stderr, flush=True)
"""


def talk(log: SparkLog, program: str) -> None:
    """Run a program whose words go to the log."""
    with log.follow() as pipe:
        subprocess.run([sys.executable, "-c", program], stdout=pipe, stderr=pipe, check=True)
    log.close()


def test_what_a_process_says_is_kept_to_its_last_word(tmp_path: Path) -> None:
    path = tmp_path / "run-spark.log"

    talk(SparkLog(path), "import os; os.write(2, b'first\\nlast \\xff')")

    assert path.read_text().splitlines() == ["first", "last \ufffd"]


def test_what_is_said_is_rotated_at_its_size_and_the_oldest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "FILE_BYTES_MAX", KILOBYTE)
    monkeypatch.setattr(session, "FILES_KEPT", 2)
    path = tmp_path / "run-spark.log"

    talk(SparkLog(path), TALKER)

    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [f"{path.name}{end}" for end in ("", ".1", ".2")]
    assert all(file.stat().st_size <= KILOBYTE for file in files)
    assert path.read_text().splitlines()[-1].startswith("err 999")


def test_a_log_goes_on_behind_what_an_earlier_spark_said(tmp_path: Path) -> None:
    path = tmp_path / "run-spark.log"

    talk(SparkLog(path), "print('one')")
    talk(SparkLog(path), "print('two')")

    assert path.read_text() == "one\ntwo\n"
