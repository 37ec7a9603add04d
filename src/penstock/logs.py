"""Structured logs: JSON lines in one file per process of a command, and a file for Spark.

Libraries are imported late: most statements log nothing.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logging.handlers import RotatingFileHandler

FILE_BYTES_MAX = 10 * 2**20
FILES_RETAINED = 5
RUNS_RETAINED = 20
LATEST = "latest.log"
_NAME = re.compile(r"([a-z]+-\d{8}T\d{6}Z-(\d+))(?:-spark)?\.log(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """Log files of one process of a command."""

    folder: Path
    command: str
    name: str

    @property
    def product(self) -> Path:
        """The file of Penstock's own events."""
        return self.folder / f"{self.name}.log"

    @property
    def spark(self) -> Path:
        """The file of the output of Spark and its JVM."""
        return self.folder / f"{self.name}-spark.log"


def log_files(home: Path, *, command: str, at: datetime) -> LogFiles:
    """Return the log files of this process, without creating them."""
    name = f"{command}-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}"
    return LogFiles(folder=home / "logs", command=command, name=name)


def configure_logging(files: LogFiles, *, verbose: bool = False) -> None:
    """Write log events to the file of this process; delete the oldest logs of the command.

    With ``verbose``, debug events are written too, and all events also go to standard error.
    """
    import logging

    import structlog

    files.folder.mkdir(parents=True, exist_ok=True)
    delete_old_logs(files)
    # A full disk must not print tracebacks between the lines of progress.
    logging.raiseExceptions = False
    level = logging.DEBUG if verbose else logging.INFO
    logger = logging.getLogger("penstock")
    logger.handlers = [rotating_file(files.product)]
    logger.setLevel(level)
    logger.propagate = False
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *([_echo] if verbose else []),
            structlog.processors.JSONRenderer(default=str),
        ],
        logger_factory=lambda *_: logger,
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )


def rotating_file(
    path: Path, *, bytes_max: int = FILE_BYTES_MAX, files_retained: int = FILES_RETAINED
) -> "RotatingFileHandler":
    """Return a handler that rotates its file by size; the first line creates the file."""
    from logging.handlers import RotatingFileHandler

    return RotatingFileHandler(
        path,
        maxBytes=bytes_max,
        backupCount=files_retained,
        encoding="utf-8",
        errors="replace",
        delay=True,
    )


def link_latest(files: LogFiles) -> None:
    """Link latest.log to this process's log."""
    link = files.folder / f".{files.name}.latest"
    # Some file systems have no links; the log itself is written anyway.
    with suppress(OSError):
        link.symlink_to(files.product.name)
        link.replace(files.folder / LATEST)


def format_event(event: MutableMapping[str, Any]) -> str:
    """Format an event as a readable line."""
    hidden = ("timestamp", "level", "event", "exception")
    values = " ".join(f"{k}={_quoted(v)}" for k, v in event.items() if k not in hidden)
    clock_time = str(event.get("timestamp", ""))[11:19]
    line = f"{clock_time}Z {event.get('level', ''):<7} {event.get('event', '')}  {values}"
    return "\n".join([line.rstrip(), *str(event.get("exception", "")).splitlines()])


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or '"' in text else text


def _echo(logger: object, method: str, event: MutableMapping[str, Any]) -> Any:  # noqa: ANN401 - The signature is structlog's.
    del logger, method
    # Read the stream for every event, because a live display replaces it.
    sys.stderr.write(format_event(event) + "\n")
    return event


def delete_old_logs(files: LogFiles) -> None:
    """Delete the logs of a command, except those of its newest processes."""
    found = [path.name for path in files.folder.glob(f"{files.command}-*.log*")]
    for name in expired_logs({*found, files.product.name}, alive=_alive):
        # Another process may delete the same file; a file that cannot be deleted stays.
        with suppress(OSError):
            (files.folder / name).unlink()


def expired_logs(names: Iterable[str], *, alive: Callable[[int], bool]) -> list[str]:
    """Return the log files to delete: those of old runs whose process has ended."""
    matches = [found for found in map(_NAME.fullmatch, sorted(names)) if found]
    newest = sorted({found[1] for found in matches})[-RUNS_RETAINED:]
    return [
        found[0] for found in matches if found[1] not in newest and not alive(int(found[2]))
    ]


def _alive(process: int) -> bool:
    if process == os.getpid():
        # An older process with the same id has ended.
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
