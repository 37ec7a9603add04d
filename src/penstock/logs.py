"""Structured logs: files of JSON lines, one per process of a command, with Spark's beside it.

Libraries are imported when something is written: most statements log nothing.
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
FILES_KEPT = 5
RUNS_KEPT = 20
LATEST = "latest.log"
_NAME = re.compile(r"([a-z]+-\d{8}T\d{6}Z-(\d+))(?:-spark)?\.log(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """Where one process of a command logs."""

    folder: Path
    command: str
    name: str

    @property
    def product(self) -> Path:
        """The file of Penstock's own events."""
        return self.folder / f"{self.name}.log"

    @property
    def spark(self) -> Path:
        """The file of whatever Spark and its JVM say."""
        return self.folder / f"{self.name}-spark.log"


def log_files(home: Path, *, command: str, at: datetime) -> LogFiles:
    """Answer where this process logs; nothing is made yet."""
    name = f"{command}-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}"
    return LogFiles(folder=home / "logs", command=command, name=name)


def write_logs(files: LogFiles, *, verbose: bool = False) -> None:
    """Send what the product logs to its file; if verbose, in full and to standard error too.

    The logs of older processes of the command are removed, all but the newest.
    """
    import logging

    import structlog

    files.folder.mkdir(parents=True, exist_ok=True)
    remove_older(files)
    # A disk that is full must not put tracebacks between the lines of progress.
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
            *([_say] if verbose else []),
            structlog.processors.JSONRenderer(default=str),
        ],
        logger_factory=lambda *_: logger,
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )


def rotating_file(
    path: Path, *, bytes_max: int = FILE_BYTES_MAX, files_kept: int = FILES_KEPT
) -> "RotatingFileHandler":
    """Answer what writes a file that is rotated at its size, and of the older ones keeps few.

    The file is made with the first line.
    """
    from logging.handlers import RotatingFileHandler

    return RotatingFileHandler(
        path,
        maxBytes=bytes_max,
        backupCount=files_kept,
        encoding="utf-8",
        errors="replace",
        delay=True,
    )


def point_latest(files: LogFiles) -> None:
    """Let latest.log lead to this process's log."""
    link = files.folder / f".{files.name}.latest"
    # Some file systems know no links; the log itself is there.
    with suppress(OSError):
        link.symlink_to(files.product.name)
        link.replace(files.folder / LATEST)


def readable(event: MutableMapping[str, Any]) -> str:
    """Write an event as a line for people."""
    hidden = ("timestamp", "level", "event", "exception")
    values = " ".join(f"{k}={_quoted(v)}" for k, v in event.items() if k not in hidden)
    clock_time = str(event.get("timestamp", ""))[11:19]
    line = f"{clock_time}Z {event.get('level', ''):<7} {event.get('event', '')}  {values}"
    return "\n".join([line.rstrip(), *str(event.get("exception", "")).splitlines()])


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or '"' in text else text


def _say(logger: object, method: str, event: MutableMapping[str, Any]) -> Any:  # noqa: ANN401 - The signature is structlog's.
    del logger, method
    # Looked up every time: a live display puts its own stream in the place of this one.
    sys.stderr.write(readable(event) + "\n")
    return event


def remove_older(files: LogFiles) -> None:
    """Remove the logs of all but the newest processes of a command."""
    found = [path.name for path in files.folder.glob(f"{files.command}-*.log*")]
    for name in too_old({*found, files.product.name}, alive=_alive):
        # Another process may remove the same; one that must not be removed stays.
        with suppress(OSError):
            (files.folder / name).unlink()


def too_old(names: Iterable[str], *, alive: Callable[[int], bool]) -> list[str]:
    """Choose the log files that go: those of all but the newest runs, unless one still runs."""
    matches = [found for found in map(_NAME.fullmatch, sorted(names)) if found]
    newest = sorted({found[1] for found in matches})[-RUNS_KEPT:]
    return [
        found[0] for found in matches if found[1] not in newest and not alive(int(found[2]))
    ]


def _alive(process: int) -> bool:
    if process == os.getpid():
        # Whoever had our number has ended.
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
