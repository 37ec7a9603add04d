"""The database of the catalog: transactions, clock and errors.

What depends on the kind of database stands here, in the words of its errors and in the
relations' column types, and nowhere else.

Invariant: a write transaction holds the database's write lock from its beginning, so what it
reads is what it changes; and nothing is visible of a transaction that raised.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
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
    """An attachment does not follow the newest one; those between must be applied first."""

    code_default = Code.CATALOG_BEHIND_ERR


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a catalog lives; without a path it lives in memory."""

    path: Path | None
    lock_wait: timedelta

    def __str__(self) -> str:
        return "in memory" if self.path is None else f'"{self.path}"'


def explain(error: Exception, place: Place) -> PenstockError:
    """Turn an error of the database into one that says who must act."""
    if isinstance(error, IntegrityError):
        return InvariantError(
            f"catalog {place} refused a change that breaks its rules",
            detail=f"The database said: {_said(error)}.",
        )
    known = _EXPLANATIONS.get(_primary_code(error))
    if known is not None:
        return known(place)
    message = f"catalog {place} failed"
    return ExternalError(
        message, code=Code.CATALOG_ERR, detail=f"The database said: {_said(error)}."
    )


def stayed_locked(place: Place) -> ExternalError:
    """Tell that the write lock did not come free in time."""
    return ExternalError(
        f"catalog {place} stayed locked for longer than {place.lock_wait.total_seconds():g}s",
        code=Code.CATALOG_ERR,
        hint="Another process is stopped in the middle of a write; let it go on or end it.",
    )


def _read_only(place: Place) -> ExternalError:
    return ExternalError(
        f"catalog {place} is read-only",
        code=Code.CATALOG_ERR,
        hint="Let this user write the folder, the file and those beside it (-wal, -shm).",
    )


def _full(place: Place) -> ExternalError:
    return ExternalError(
        f"catalog {place} has no room left on its disk",
        code=Code.CATALOG_ERR,
        hint="Free some space; nothing was stored, and the same can be asked again.",
    )


def _not_a_database(place: Place) -> ExternalError:
    return ExternalError(
        f"catalog {place} is not a sound SQLite database",
        code=Code.CATALOG_ERR,
        hint="Restore the file from a copy, or choose another home.",
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


_EXPLANATIONS: dict[int, Callable[[Place], ExternalError]] = {
    sqlite3.SQLITE_READONLY: _read_only,
    sqlite3.SQLITE_FULL: _full,
    sqlite3.SQLITE_BUSY: stayed_locked,
    sqlite3.SQLITE_LOCKED: stayed_locked,
    sqlite3.SQLITE_NOTADB: _not_a_database,
    sqlite3.SQLITE_CORRUPT: _not_a_database,
    sqlite3.SQLITE_CANTOPEN: _cannot_open,
}


def _primary_code(error: Exception) -> int:
    code: int = getattr(_cause(error), "sqlite_errorcode", 0)
    # The low byte tells the kind; the rest of an extended code only refines it.
    return code & 0xFF


def _said(error: Exception) -> str:
    # The wrapper's own text would repeat the statement and its values.
    return str(_cause(error)).rstrip(".")


def _cause(error: Exception) -> BaseException:
    return error.orig or error if isinstance(error, DBAPIError) else error


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
        """Give a connection that sees one state of the database."""
        with self._transaction(self._reader, alone=self.place.path is None) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Give a connection whose changes are stored together, or not at all."""
        with self._transaction(self._writer, alone=True) as connection:
            yield connection

    def now(self) -> datetime:
        """Answer the database's time; SQLite runs in our process and has our clock."""
        return self._clock.now()

    def close(self) -> None:
        """Close all connections."""
        self._reader.dispose()

    @contextmanager
    def _transaction(self, engine: Engine, *, alone: bool) -> Iterator[Connection]:
        # Writing threads queue for this lock because SQLite makes them poll for its own, which
        # starves some; a database in memory has but one connection, so its readers queue too.
        if alone and not self._lock.acquire(timeout=self.place.lock_wait.total_seconds()):
            raise stayed_locked(self.place)
        try:
            with engine.begin() as connection:
                yield connection
        except (SQLAlchemyError, sqlite3.Error) as error:
            if self.place.path is not None:
                # A connection that was opened to a file which could not be written stays
                # read-only; whoever asks next gets a new one.
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
    # A dialect learns what the database can do from the first connection.
    engine.connect().close()
    return engine.dialect, {}


def _set_up_connection(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
    # The driver would begin transactions late and in the wrong mode; _begin does it instead.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))
