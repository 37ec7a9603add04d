"""Where a process logs, what is kept, and how an event reads."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.logs import log_files, point_latest, readable, remove_older, too_old

START = datetime(2026, 11, 15, 10, 15, tzinfo=UTC)


def names(count: int) -> list[str]:
    """Answer the log files of as many runs, a minute apart."""
    stamps = [f"{START + timedelta(minutes=n):%Y%m%dT%H%M%SZ}" for n in range(count)]
    return [f"run-{stamp}-{100 + n}.log" for n, stamp in enumerate(stamps)]


def nobody(process: int) -> bool:
    del process
    return False


def test_a_log_is_called_after_its_command_its_start_and_its_process(tmp_path: Path) -> None:
    files = log_files(tmp_path, command="run", at=START)

    assert files.product == tmp_path / "logs" / f"run-20261115T101500Z-{os.getpid()}.log"
    assert files.spark == tmp_path / "logs" / f"run-20261115T101500Z-{os.getpid()}-spark.log"
    assert not files.folder.exists()


def test_the_logs_of_the_newest_twenty_runs_are_kept() -> None:
    assert too_old(names(20), alive=nobody) == []
    assert too_old(names(22), alive=nobody) == names(2)


def test_what_was_rotated_and_what_spark_said_goes_with_its_run() -> None:
    (oldest, *_) = names(21)
    more = [f"{oldest}.3", oldest.replace(".log", "-spark.log")]

    assert sorted(too_old([*names(21), *more], alive=nobody)) == sorted([oldest, *more])


def test_a_run_that_still_runs_keeps_its_log() -> None:
    assert too_old(names(22), alive=lambda process: process == 100) == [names(2)[1]]


def test_other_files_stay() -> None:
    assert too_old([*names(20), "aaa.log", "latest.log", "run-notes.log"], alive=nobody) == []


def test_older_logs_of_the_command_are_removed_from_the_folder(tmp_path: Path) -> None:
    files = log_files(tmp_path, command="run", at=START + timedelta(days=1))
    files.folder.mkdir()
    for name in (*names(20), "sql-20200101T000000Z-1.log"):
        (files.folder / name).touch()

    remove_older(files)

    left = sorted(path.name for path in files.folder.iterdir())
    assert left == [*names(20)[1:], "sql-20200101T000000Z-1.log"]


def test_the_latest_log_leads_to_the_newest_run(tmp_path: Path) -> None:
    older = log_files(tmp_path, command="run", at=START)
    newer = log_files(tmp_path, command="run", at=START + timedelta(hours=1))
    newer.folder.mkdir()
    newer.product.write_text("here")

    point_latest(older)
    point_latest(newer)

    assert (tmp_path / "logs" / "latest.log").read_text() == "here"


def test_an_event_reads_as_a_line() -> None:
    event = {
        "event": "job paused",
        "level": "warning",
        "timestamp": "2026-11-15T10:15:00.123Z",
        "job": "load_orders",
        "reason": 'no room on "/data"',
    }

    assert readable(event) == (
        '10:15:00Z warning job paused  job=load_orders reason="no room on \\"/data\\""'
    )
