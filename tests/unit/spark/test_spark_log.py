"""The log of Spark is complete, and its files are limited in size and number."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark import session
from penstock.spark.session import SparkLog

KILOBYTE = 1_024
# A process that prints more than all files can store, to both of its streams.
LONG_OUTPUT = """
import sys
for number in range(1000):
    print(f"out {number}", flush=True)
    print(f"err {number}", "x" * 20, file=sys.stderr, flush=True)
"""


def run_logged(log: SparkLog, program: str) -> None:
    """Run a program with its output in the log."""
    with log.follow() as pipe:
        subprocess.run([sys.executable, "-c", program], stdout=pipe, stderr=pipe, check=True)
    log.close()


def test_the_log_has_the_output_of_a_process_up_to_its_last_byte(tmp_path: Path) -> None:
    path = tmp_path / "run-spark.log"

    run_logged(SparkLog(path), "import os; os.write(2, b'first\\nlast \\xff')")

    assert path.read_text().splitlines() == ["first", "last \ufffd"]


def test_a_full_log_is_rotated_and_its_oldest_file_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "FILE_BYTES_MAX", KILOBYTE)
    monkeypatch.setattr(session, "FILES_RETAINED", 2)
    path = tmp_path / "run-spark.log"

    run_logged(SparkLog(path), LONG_OUTPUT)

    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [f"{path.name}{end}" for end in ("", ".1", ".2")]
    assert all(file.stat().st_size <= KILOBYTE for file in files)
    assert path.read_text().splitlines()[-1].startswith("err 999")


def test_a_second_spark_appends_to_the_log(tmp_path: Path) -> None:
    path = tmp_path / "run-spark.log"

    run_logged(SparkLog(path), "print('one')")
    run_logged(SparkLog(path), "print('two')")

    assert path.read_text() == "one\ntwo\n"
