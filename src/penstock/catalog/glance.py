"""Look at the file of a catalog without opening the catalog: nothing is made or migrated.

Only the standard library is used, so that a shell that completes a name can afford it.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

_PREFIX = "sqlite:///"
_LOCK_WAIT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """What the file of a catalog says about itself."""

    # The revision of its relations; None when it is no catalog yet.
    revision: str | None
    # What SQLite finds wrong with the file; empty when nothing is.
    damage: str
    jobs: int
    tables: int


def catalog_path(url: str) -> Path | None:
    """Answer the file of a catalog; None when it is kept elsewhere, such as in memory."""
    path = url.removeprefix(_PREFIX).partition("?")[0]
    return Path(path) if url.startswith(_PREFIX) and path not in ("", ":memory:") else None


def glance_at(path: Path) -> Glance:
    """Look at a catalog's file; it must exist."""
    with _opened(path) as connection:
        (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        return Glance(
            revision=_revision(connection),
            damage="" if answer == "ok" else str(answer),
            jobs=len(_values(connection, "jobs", column="name")),
            tables=len(_values(connection, "tables", column="name")),
        )


def stored_revision(path: Path) -> str | None:
    """Answer the revision of a catalog's relations; None when it is no catalog yet."""
    with _opened(path) as connection:
        return _revision(connection)


def sealing_keys(path: Path) -> frozenset[str]:
    """Answer the ids of the keys with which its secrets were sealed."""
    with _opened(path) as connection:
        return frozenset(_values(connection, "secrets", column="key_id"))


def job_names(path: Path) -> list[str]:
    """Answer the names of all jobs, in order."""
    with _opened(path) as connection:
        return sorted(_values(connection, "jobs", column="name"))


def _revision(connection: sqlite3.Connection) -> str | None:
    stored = _values(connection, "alembic_version", column="version_num")
    return stored[0] if stored else None


def _values(connection: sqlite3.Connection, relation: str, *, column: str) -> list[str]:
    """Answer a column of one of our relations; nothing if a revision has no such relation."""
    known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", [relation])
    if known.fetchone() is None:
        return []
    return [value for (value,) in connection.execute(f"SELECT {column} FROM {relation}")]  # noqa: S608 - Our own names.


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=_LOCK_WAIT_SECONDS)) as connection:
        yield connection
