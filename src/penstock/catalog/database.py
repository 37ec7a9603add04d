"""The database of the catalog: transactions, clock and errors.

Only this module and the column types of the relations depend on the kind of database.

Invariant: a write transaction holds the write lock of the database from its start, so nobody
changes what it has read. Nothing of a transaction that raised is visible.
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
    """Someone raised the job's generation since it was read; nothing was stored."""


class JobGoneError(LeaseLostError):
    """The job was dropped; nothing was stored."""


class LeaseHeldError(LeaseLostError):
    """Another node holds a live lease of the job."""


class CommitGapError(PenstockError):
    """An attachment does not follow the newest one; apply those between them first."""

    code_default = Code.CATALOG_BEHIND_ERR


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a catalog is stored; in memory if it has no path."""

    path: Path | None
    lock_wait: timedelta

    def __str__(self) -> str:
        return "in memory" if self.path is None else f'"{self.path}"'


def explain(error: Exception, place: Place) -> PenstockError:
    """Convert an error of the database into one of the product."""
    cause = error.orig or error if isinstance(error, DBAPIError) else error
    # The text of the wrapper would repeat the statement and its values.
    detail = f"The database said: {str(cause).rstrip('.')}."
    if isinstance(error, IntegrityError):
        return InvariantError(
            f"catalog {place} refused a change that breaks its rules", detail=detail
        )
    # The low byte is the kind of error; the rest of an extended code only refines it.
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return stayed_locked(place)
    if code == sqlite3.SQLITE_CANTOPEN:
        return _cannot_open(place)
    if code in _FAULTS:
        fault, hint = _FAULTS[code]
        return ExternalError(f"catalog {place} {fault}", code=Code.CATALOG_ERR, hint=hint)
    return ExternalError(f"catalog {place} failed", code=Code.CATALOG_ERR, detail=detail)


_DAMAGED = (
    "is not a sound SQLite database",
    "Restore the file from a copy, or choose another home.",
)
_FAULTS = {
    sqlite3.SQLITE_READONLY: (
        "is read-only",
        "Let this user write the folder, the file and those beside it (-wal, -shm).",
    ),
    sqlite3.SQLITE_FULL: (
        "has no room left on its disk",
        "Free some space; nothing was stored, and the same can be asked again.",
    ),
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
}


def stayed_locked(place: Place) -> ExternalError:
    """Return the error for a write lock that was not released in time."""
    return ExternalError(
        f"catalog {place} stayed locked for longer than {place.lock_wait.total_seconds():g}s",
        code=Code.CATALOG_ERR,
        hint="Another process is stopped in the middle of a write; let it go on or end it.",
    )


def _cannot_open(place: Place) -> ExternalError:
    folder = (place.path or Path()).absolute().parent
    if not folder.is_dir():
        reason, hint = "its folder does not exist", f'Create the folder "{folder}"'
    elif not os.access(folder, os.W_OK | os.X_OK):
        reason, hint = "this user may not write its folder", f'Allow writing to "{folder}"'
    else:
        reason, hint = "it is not a file this user may read and write", f'Look at "{folder}"'
    return ExternalError(
        f"catalog {place} cannot be opened: {reason}",
        code=Code.CATALOG_ERR,
        hint=f"{hint}, or choose another home.",
    )


_BEGIN = "penstock_begin"
_CONNECTIONS_KEPT = 8
_CONNECTIONS_MORE = 56


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
        event.listen(self._reader, "begin", _begin)
        self._writer = self._reader.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a connection that sees one state of the database."""
        with self._transaction(self._reader, alone=self.place.path is None) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a connection whose changes are stored together, or not at all."""
        with self._transaction(self._writer, alone=True) as connection:
            yield connection

    def now(self) -> datetime:
        """Return the time of the database; SQLite runs in this process and has its clock."""
        return self._clock.now()

    def close(self) -> None:
        """Close all connections."""
        self._reader.dispose()

    @contextmanager
    def _transaction(self, engine: Engine, *, alone: bool) -> Iterator[Connection]:
        # Writing threads queue for this lock: SQLite lets them poll for its own lock, which
        # starves some. A database in memory has one connection, so its readers queue too.
        if alone and not self._lock.acquire(timeout=self.place.lock_wait.total_seconds()):
            raise stayed_locked(self.place)
        try:
            with engine.begin() as connection:
                yield connection
        except (SQLAlchemyError, sqlite3.Error) as error:
            if self.place.path is not None:
                # A connection to a file that could not be written stays read-only; the next
                # transaction gets a new one.
                self._reader.dispose()
            raise explain(error, self.place) from error
        finally:
            if alone:
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
            f'catalog must be kept in SQLite, not in "{parsed.get_backend_name()}"',
            code=Code.CATALOG_ERR,
            hint="Give a URL of the form sqlite:///path.",
        )
    return parsed.set(database=None) if parsed.database == ":memory:" else parsed


def _file_engine(url: URL, lock_wait: timedelta) -> Engine:
    return create_engine(
        url,
        connect_args={"timeout": lock_wait.total_seconds(), "check_same_thread": False},
        poolclass=QueuePool,
        pool_size=_CONNECTIONS_KEPT,
        max_overflow=_CONNECTIONS_MORE,
        pool_timeout=lock_wait.total_seconds(),
    )


def _memory_engine() -> Engine:
    # Compiling our statements takes longer than running them, so all databases in memory share
    # one dialect, to which compiled statements belong.
    dialect, compiled = _memory_dialect()
    pool = StaticPool(lambda: dialect.connect(":memory:", check_same_thread=False))
    url = make_url("sqlite://")
    return Engine(pool, dialect, url, execution_options={"compiled_cache": compiled})


@cache
def _memory_dialect() -> tuple[Dialect, dict[object, object]]:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    # A dialect detects on its first connection what the database supports.
    engine.connect().close()
    return engine.dialect, {}


def _set_up_connection(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
    # The driver would start transactions late and in the wrong mode; _begin starts them.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))
