"""Read the file of a catalog without opening the catalog: nothing is created or migrated.

Only the standard library is imported, because the completion of names in a shell must be fast.
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
class CatalogSummary:
    """Summary of the file of a catalog."""

    # The revision of the relations; None if the file is not a catalog yet.
    revision: str | None
    # The first fault that SQLite finds in the file; empty if there is none.
    damage: str
    jobs: int
    tables: int


def catalog_path(url: str) -> Path | None:
    """Return the file of a catalog; None if the catalog is not in a file."""
    path = url.removeprefix(_PREFIX).partition("?")[0]
    return Path(path) if url.startswith(_PREFIX) and path not in ("", ":memory:") else None


def read_summary(path: Path) -> CatalogSummary:
    """Read the summary of a catalog's file, which must exist."""
    with _opened(path) as connection:
        (check,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        return CatalogSummary(
            revision=_revision(connection),
            damage="" if check == "ok" else str(check),
            jobs=len(_values(connection, "jobs", column="name")),
            tables=len(_values(connection, "tables", column="name")),
        )


def stored_revision(path: Path) -> str | None:
    """Return the revision of a catalog's relations; None if the file is not a catalog yet."""
    with _opened(path) as connection:
        return _revision(connection)


def sealing_keys(path: Path) -> frozenset[str]:
    """Return the ids of the keys that encrypted the secrets."""
    with _opened(path) as connection:
        return frozenset(_values(connection, "secrets", column="key_id"))


def job_names(path: Path) -> list[str]:
    """Return the names of all jobs, in order."""
    with _opened(path) as connection:
        return sorted(_values(connection, "jobs", column="name"))


def _revision(connection: sqlite3.Connection) -> str | None:
    stored = _values(connection, "alembic_version", column="version_num")
    return stored[0] if stored else None


def _values(connection: sqlite3.Connection, relation: str, *, column: str) -> list[str]:
    """Return a column of a relation; an empty list if the relation does not exist."""
    known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", [relation])
    if known.fetchone() is None:
        return []
    return [value for (value,) in connection.execute(f"SELECT {column} FROM {relation}")]  # noqa: S608 - Our own names.


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=_LOCK_WAIT_SECONDS)) as connection:
        yield connection
