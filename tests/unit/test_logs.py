"""Log files of a process, their retention, and the format of events."""

import logging
import os
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from logging.handlers import RotatingFileHandler
from pathlib import Path

import pytest
import structlog

from penstock.logs import (
    FILE_BYTES_MAX,
    FILES_RETAINED,
    configure_logging,
    delete_old_logs,
    expired_logs,
    format_event,
    link_latest,
    log_files,
    rotating_file,
)

START = datetime(2026, 11, 15, 10, 15, tzinfo=UTC)


def names(count: int) -> list[str]:
    """Return the log files of that many runs, a minute apart."""
    stamps = [f"{START + timedelta(minutes=n):%Y%m%dT%H%M%SZ}" for n in range(count)]
    return [f"run-{stamp}-{100 + n}.log" for n, stamp in enumerate(stamps)]


def never_alive(process: int) -> bool:
    del process
    return False


def test_a_log_is_named_by_its_command_start_and_process(tmp_path: Path) -> None:
    files = log_files(tmp_path, command="run", at=START)

    assert files.product == tmp_path / "logs" / f"run-20261115T101500Z-{os.getpid()}.log"
    assert files.spark == tmp_path / "logs" / f"run-20261115T101500Z-{os.getpid()}-spark.log"
    assert not files.folder.exists()


def test_the_logs_of_the_newest_twenty_runs_are_kept() -> None:
    assert expired_logs(names(20), alive=never_alive) == []
    assert expired_logs(names(22), alive=never_alive) == names(2)


def test_rotated_files_and_spark_logs_are_deleted_with_their_run() -> None:
    (oldest, *_) = names(21)
    more = [f"{oldest}.3", oldest.replace(".log", "-spark.log")]

    assert sorted(expired_logs([*names(21), *more], alive=never_alive)) == sorted(
        [oldest, *more]
    )


def test_a_run_that_still_runs_keeps_its_log() -> None:
    assert expired_logs(names(22), alive=lambda process: process == 100) == [names(2)[1]]


def test_other_files_are_not_deleted() -> None:
    assert (
        expired_logs([*names(20), "aaa.log", "latest.log", "run-notes.log"], alive=never_alive)
        == []
    )


def test_older_logs_of_the_command_are_deleted_from_the_folder(tmp_path: Path) -> None:
    files = log_files(tmp_path, command="run", at=START + timedelta(days=1))
    files.folder.mkdir()
    for name in (*names(20), "sql-20200101T000000Z-1.log"):
        (files.folder / name).touch()

    delete_old_logs(files)

    left = sorted(path.name for path in files.folder.iterdir())
    assert left == [*names(20)[1:], "sql-20200101T000000Z-1.log"]


def test_the_latest_log_points_to_the_newest_run(tmp_path: Path) -> None:
    older = log_files(tmp_path, command="run", at=START)
    newer = log_files(tmp_path, command="run", at=START + timedelta(hours=1))
    newer.folder.mkdir()
    newer.product.write_text("here")

    link_latest(older)
    link_latest(newer)

    assert (tmp_path / "logs" / "latest.log").read_text() == "here"


def test_a_log_is_rotated_at_its_size_and_the_oldest_file_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    handler = rotating_file(path, bytes_max=101, files_retained=2)
    records = [logging.makeLogRecord({"msg": f"{number:09}"}) for number in range(100)]

    deque(map(handler.handle, records), maxlen=0)
    handler.close()

    kept = {file.name: file.read_text().split() for file in tmp_path.iterdir()}
    assert {name: (lines[0], lines[-1]) for name, lines in kept.items()} == {
        "run.log": ("000000090", "000000099"),
        "run.log.1": ("000000080", "000000089"),
        "run.log.2": ("000000070", "000000079"),
    }


@pytest.fixture
def _restored_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the logging of this process after the test."""
    logger = logging.getLogger("penstock")
    for name in ("handlers", "level", "propagate"):
        monkeypatch.setattr(logger, name, getattr(logger, name))
    monkeypatch.setattr(logging, "raiseExceptions", logging.raiseExceptions)
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.mark.usefixtures("_restored_logging")
def test_the_log_of_a_process_is_rotated(tmp_path: Path) -> None:
    configure_logging(log_files(tmp_path, command="run", at=START))

    (handler,) = logging.getLogger("penstock").handlers
    assert isinstance(handler, RotatingFileHandler)
    assert (handler.maxBytes, handler.backupCount) == (FILE_BYTES_MAX, FILES_RETAINED)


def test_an_event_is_formatted_as_a_line() -> None:
    event = {
        "event": "job paused",
        "level": "warning",
        "timestamp": "2026-11-15T10:15:00.123Z",
        "job": "load_orders",
        "reason": 'no room on "/data"',
    }

    assert format_event(event) == (
        '10:15:00Z warning job paused  job=load_orders reason="no room on \\"/data\\""'
    )
