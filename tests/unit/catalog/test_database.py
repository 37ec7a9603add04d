"""Errors of the catalog's database, as users see them."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.catalog.catalog import Catalog, open_catalog
from penstock.catalog.database import Database
from penstock.clock import SystemClock
from penstock.errors import Code, ExternalError, InvariantError, UserError
from tests.error_values import assert_names, raises

SOON = timedelta(milliseconds=50)


def opened(path: Path, *, lock_wait: timedelta = SOON) -> Catalog:
    """Open a catalog in a file."""
    return open_catalog(f"sqlite:///{path}", clock=SystemClock(), lock_wait=lock_wait)


def write(database: Database, *statements: str) -> None:
    """Run statements in one transaction."""
    with database.write() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with raises(ExternalError, Code.CATALOG_ERR, "folder") as failure:
        opened(tmp_path / "absent" / "catalog.db")

    assert failure.value.code is Code.CATALOG_ERR
    assert str(tmp_path / "absent" / "catalog.db") in failure.value.message
    assert_names(failure.value.hint, f"{tmp_path / 'absent'}")


def test_a_folder_is_not_a_catalog(tmp_path: Path) -> None:
    with raises(ExternalError, Code.CATALOG_ERR, "not a file"):
        opened(tmp_path)


def test_a_file_that_is_not_a_database_is_refused(path: Path) -> None:
    path.write_text("these are not the bytes of a database" * 20)

    with raises(ExternalError, Code.CATALOG_ERR, "SQLite") as failure:
        opened(path)

    assert failure.value.code is Code.CATALOG_ERR
    assert isinstance(failure.value.__cause__, Exception)


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")

    with raises(UserError, Code.CATALOG_ERR, "Penstock", "recipes") as refusal:
        opened(path)

    assert "recipes" in refusal.value.detail


def test_a_read_only_catalog_is_reported(path: Path) -> None:
    opened(path).close()
    catalog = open_catalog(f"sqlite:///file:{path}?mode=ro&uri=true", clock=SystemClock())

    with raises(ExternalError, Code.CATALOG_ERR, "read-only") as failure:
        catalog.delete_leases_of_other_nodes("me")

    assert failure.value.code is Code.CATALOG_ERR
    assert catalog.jobs() == ()


def test_a_full_disk_is_reported_and_nothing_is_stored(path: Path) -> None:
    database = Database(f"sqlite:///{path}", clock=SystemClock(), lock_wait=SOON)
    write(database, "CREATE TABLE notes (text TEXT)")
    large = "INSERT INTO notes VALUES (hex(zeroblob(100000)))"

    with raises(ExternalError, Code.CATALOG_ERR, "disk"):
        write(database, "INSERT INTO notes VALUES ('')", "PRAGMA max_page_count = 3", large)

    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM notes").scalar() == 0


def test_a_lock_that_is_held_too_long_is_reported(path: Path) -> None:
    catalog = opened(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as frozen:
        frozen.execute("BEGIN IMMEDIATE")

        with raises(ExternalError, Code.CATALOG_ERR, "0.05s") as failure:
            catalog.delete_leases_of_other_nodes("me")

        assert failure.value.hint
        assert opened(path).jobs() == ()
    catalog.delete_leases_of_other_nodes("me")


@pytest.mark.parametrize("name", ["catalog.db", None])
def test_a_thread_does_not_wait_for_another_forever(tmp_path: Path, name: str | None) -> None:
    url = f"sqlite:///{tmp_path / name}" if name else "sqlite://"
    database = Database(url, clock=SystemClock(), lock_wait=SOON)

    with ThreadPoolExecutor(1) as threads, database.write():
        refused = threads.submit(write, database).exception()

    assert isinstance(refused, ExternalError)
    write(database)


def test_a_violated_constraint_is_an_internal_error(path: Path) -> None:
    database = Database(f"sqlite:///{path}", clock=SystemClock(), lock_wait=SOON)

    write(database, "CREATE TABLE notes (text TEXT NOT NULL)")

    with raises(InvariantError, Code.INTERNAL_ERR, "NOT NULL") as failure:
        write(database, "INSERT INTO notes VALUES (NULL)")

    assert_names(failure.value.detail, "NOT NULL")


def test_an_unexpected_error_does_not_show_the_statement(path: Path) -> None:
    database = Database(f"sqlite:///{path}", clock=SystemClock(), lock_wait=SOON)

    with pytest.raises(ExternalError) as failure, database.read() as connection:
        connection.exec_driver_sql("SELECT 'a secret' FROM absent")

    assert_names(failure.value.detail, "no such table: absent")


@pytest.mark.parametrize("url", ["mysql://root:secret@host/db", "postgresql://u:secret@h/db"])
def test_another_kind_of_database_is_refused_without_its_password(url: str) -> None:
    with raises(UserError, Code.CATALOG_ERR, "SQLite") as refusal:
        open_catalog(url, clock=SystemClock())

    assert "secret" not in f"{refusal.value}{refusal.value.hint}{refusal.value.detail}"


def test_a_text_that_is_not_a_url_is_refused() -> None:
    with raises(UserError, Code.CATALOG_ERR, "sqlite:///path"):
        open_catalog("catalog.db", clock=SystemClock())


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_catalogs_in_memory_are_independent(url: str) -> None:
    one, other = (open_catalog(url, clock=SystemClock()) for _ in range(2))

    one.delete_leases_of_other_nodes("me")

    assert one.jobs() == other.jobs() == ()


def test_every_connection_is_durable_and_checks_foreign_keys(path: Path) -> None:
    database = Database(f"sqlite:///{path}", clock=SystemClock(), lock_wait=SOON)

    with database.read() as connection:
        pragmas = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]

    assert pragmas == ["wal", 2, 1, 50]
