"""The database behind the catalog: its transactions and its clock.

What depends on the kind of database stands here, in the words of its errors and in the
relations' column types, and nowhere else.

Invariant: a write transaction holds the database's write lock from its beginning, so what it
reads is what it changes; and nothing is visible of a transaction that raised.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool, StaticPool

from penstock.catalog.failures import Place, explain, stayed_locked
from penstock.clock import Clock
from penstock.errors import Code, UserError

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
