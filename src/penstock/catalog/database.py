"""The database of the catalog: transactions, clock and errors.

Only this module and the column types of the relations depend on the kind of database.

Invariant: a write transaction holds the write lock of the database from its start. So no other
transaction changes the data that the write transaction has read. A transaction that
raises changes nothing.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool, StaticPool

from penstock.clock import Clock
from penstock.errors import (
    Code,
    ExternalError,
    InvariantError,
    LeaseLostError,
    PenstockError,
    UserError,
)


class GenerationChangedError(LeaseLostError):
    """The job's generation was raised after it was read; nothing was stored."""


class JobDroppedError(LeaseLostError):
    """The job was dropped; nothing was stored."""


class LeaseHeldError(LeaseLostError):
    """Another node holds a live lease of the job."""


class CommitGapError(PenstockError):
    """An attachment does not follow the newest one; apply the missing attachments first."""

    code_default = Code.CATALOG_BEHIND_ERR


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Location of a catalog; in memory if there is no path."""

    path: Path | None
    lock_wait: timedelta

    def __str__(self) -> str:
        return "in memory" if self.path is None else f'"{self.path}"'


def convert_error(error: Exception, place: Place) -> PenstockError:
    """Convert a database error to an error of Penstock."""
    cause = error.orig or error if isinstance(error, DBAPIError) else error
    # The message of SQLAlchemy's own error contains the statement and its values.
    detail = f"Database error: {str(cause).rstrip('.')}."
    if isinstance(error, IntegrityError):
        return InvariantError(
            f"catalog {place} rejected a change that violates a constraint", detail=detail
        )
    # The low byte is the kind of error; the rest of an extended code only refines it.
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return lock_timeout(place)
    if code == sqlite3.SQLITE_CANTOPEN:
        return _cannot_open(place)
    if code in _FAULTS:
        fault, hint = _FAULTS[code]
        return ExternalError(f"catalog {place} {fault}", code=Code.CATALOG_ERR, hint=hint)
    return ExternalError(f"catalog {place} failed", code=Code.CATALOG_ERR, detail=detail)


_DAMAGED = (
    "is not an intact SQLite database",
    "Restore the file from a backup, or choose another home.",
)
_FAULTS = {
    sqlite3.SQLITE_READONLY: (
        "is read-only",
        "Allow this user to write the folder, the file, and the files ending in -wal and -shm.",
    ),
    sqlite3.SQLITE_FULL: (
        "cannot be written: the disk is full",
        "Free some disk space, then try again. Nothing was stored.",
    ),
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
}


def lock_timeout(place: Place) -> ExternalError:
    """Return the error for a write lock that was not released in time."""
    return ExternalError(
        f"catalog {place} was locked for more than {place.lock_wait.total_seconds():g}s",
        code=Code.CATALOG_ERR,
        hint="Another process holds the write lock. Wait for that process, or end it.",
    )


def _cannot_open(place: Place) -> ExternalError:
    folder = (place.path or Path()).absolute().parent
    if not folder.is_dir():
        reason, hint = "its folder does not exist", f'Create the folder "{folder}"'
    elif not os.access(folder, os.W_OK | os.X_OK):
        reason, hint = "this user cannot write to its folder", f'Allow writing to "{folder}"'
    else:
        reason, hint = "it is not a file that this user can read and write", f'Check "{folder}"'
    return ExternalError(
        f"catalog {place} cannot be opened: {reason}",
        code=Code.CATALOG_ERR,
        hint=f"{hint}, or choose another home.",
    )


_BEGIN_MODE = "penstock_begin_mode"
_CONNECTIONS_POOLED = 8
_CONNECTIONS_OVERFLOW = 56


class Database:
    """Short transactions on one database, from any thread."""

    def __init__(self, url: str, *, clock: Clock, lock_wait: timedelta) -> None:
        parsed = _parse(url)
        path = Path(parsed.database) if parsed.database else None
        self.place = Place(path=path, lock_wait=lock_wait)
        self._clock = clock
        self._lock = threading.Lock()
        self._reader = _file_engine(parsed, lock_wait) if path else _memory_engine()
        event.listen(self._reader, "connect", _set_up_connection)
        event.listen(self._reader, "begin", _start_transaction)
        self._writer = self._reader.execution_options(**{_BEGIN_MODE: "BEGIN IMMEDIATE"})

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a connection that reads one snapshot of the database."""
        with self._transaction(self._reader, exclusive=self.place.path is None) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a connection whose changes are stored together, or not at all."""
        with self._transaction(self._writer, exclusive=True) as connection:
            yield connection

    def now(self) -> datetime:
        """Return the time of the database; SQLite uses the clock of this process."""
        return self._clock.now()

    def close(self) -> None:
        """Close all connections."""
        self._reader.dispose()

    @contextmanager
    def _transaction(self, engine: Engine, *, exclusive: bool) -> Iterator[Connection]:
        # Writing threads queue for this lock. Without it, threads would poll for SQLite's own
        # lock, and some would starve. A database in memory has one connection, so its readers
        # queue too.
        if exclusive and not self._lock.acquire(timeout=self.place.lock_wait.total_seconds()):
            raise lock_timeout(self.place)
        try:
            with engine.begin() as connection:
                yield connection
        except (SQLAlchemyError, sqlite3.Error) as error:
            if self.place.path is not None:
                # A connection to a file that could not be written stays read-only. The next
                # transaction opens a new connection.
                self._reader.dispose()
            raise convert_error(error, self.place) from error
        finally:
            if exclusive:
                self._lock.release()


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise UserError(
            "catalog URL must have the form sqlite:///path", code=Code.CATALOG_ERR
        ) from error
    if parsed.get_backend_name() != "sqlite":
        raise UserError(
            f'catalog must be a SQLite database, not "{parsed.get_backend_name()}"',
            code=Code.CATALOG_ERR,
            hint="Use a URL of the form sqlite:///path.",
        )
    return parsed.set(database=None) if parsed.database == ":memory:" else parsed


def _file_engine(url: URL, lock_wait: timedelta) -> Engine:
    return create_engine(
        url,
        connect_args={"timeout": lock_wait.total_seconds(), "check_same_thread": False},
        poolclass=QueuePool,
        pool_size=_CONNECTIONS_POOLED,
        max_overflow=_CONNECTIONS_OVERFLOW,
        pool_timeout=lock_wait.total_seconds(),
    )


def _memory_engine() -> Engine:
    # Compiling a statement takes longer than running it. All databases in memory therefore
    # share one dialect with its compiled statements.
    dialect, compiled = _memory_dialect()
    pool = StaticPool(lambda: dialect.connect(":memory:", check_same_thread=False))
    url = make_url("sqlite://")
    return Engine(pool, dialect, url, execution_options={"compiled_cache": compiled})


@cache
def _memory_dialect() -> tuple[Dialect, dict[object, object]]:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    # The first connection of a dialect detects the features of the database.
    engine.connect().close()
    return engine.dialect, {}


def _set_up_connection(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
    # The driver would start transactions late and in the wrong mode.
    # _start_transaction starts them instead.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _start_transaction(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN_MODE, "BEGIN"))
