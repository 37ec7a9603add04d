"""Creation and migration of the catalog's relations, and the imports of opening a catalog."""

import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from penstock.catalog import relations, upgrade
from penstock.catalog.catalog import TableRecord, open_catalog
from penstock.catalog.database import Database
from penstock.clock import SystemClock
from penstock.errors import Code, UserError
from tests.error_values import assert_names, raises

DEFINITIONS = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def stored(path: Path) -> Path:
    """A stored catalog of the first revision, with one table."""
    with closing(sqlite3.connect(path)) as file:
        file.executescript(Path(__file__).with_name("revision_0004.sql").read_text())
        file.execute(
            "INSERT INTO tables VALUES "
            "('orders', 'table-1', 'file:///orders', 1, 'all', '2026-03-01 12:30:15.123456')"
        )
        file.commit()
    return path


@pytest.fixture
def migrated(stored: Path) -> Path:
    """A stored catalog of the first revision, after all migrations."""
    database = _database(stored)
    with database.write() as connection:
        upgrade._migrate(connection)
    database.close()
    return stored


def _database(path: Path) -> Database:
    return Database(f"sqlite:///{path}", clock=SystemClock(), lock_wait=timedelta(seconds=1))


def test_the_migrations_create_the_relations_that_the_code_declares(migrated: Path) -> None:
    engine = create_engine(f"sqlite:///{migrated}")

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        differences = compare_metadata(context, relations.metadata)

    engine.dispose()
    assert differences == []


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///{path}"], ids=["memory", "file"])
def test_a_new_catalog_has_the_same_definitions_as_a_migrated_one(
    migrated: Path, tmp_path: Path, url: str
) -> None:
    new = Database(
        url.format(path=tmp_path / "new.db"),
        clock=SystemClock(),
        lock_wait=timedelta(seconds=1),
    )
    upgrade.upgrade(new)

    with new.read() as connection:
        created = connection.exec_driver_sql(DEFINITIONS).fetchall()
        revision = connection.exec_driver_sql("SELECT * FROM alembic_version").fetchall()
    new.close()

    with closing(sqlite3.connect(migrated)) as file:
        assert normal(created) == normal(file.execute(DEFINITIONS).fetchall())
        assert revision == file.execute("SELECT * FROM alembic_version").fetchall()


def normal(definitions: Iterable[Sequence[Any]]) -> dict[str, list[str]]:
    """Return the sorted parts of each definition, because columns may have been added later."""
    return {
        name: sorted(" ".join(one.split()) for one in parts(sql)) for name, sql in definitions
    }


def parts(sql: str) -> list[str]:
    """Split a definition at the commas outside of inner parentheses."""
    head, _, rest = sql.partition("(")
    inside, _, tail = rest.rpartition(")")
    return [head, tail, *re.split(r",(?![^(]*\))", inside)]


def test_a_table_of_the_first_revision_has_no_watermark_and_can_get_one(stored: Path) -> None:
    catalog = open_catalog(f"sqlite:///{stored}", clock=SystemClock())

    before = catalog.tables()
    catalog.set_watermark("orders", "placed_at", 300_000)
    after = catalog.table("orders")

    record = TableRecord(
        name="orders",
        id="table-1",
        location="file:///orders",
        managed=True,
        comment="all",
        created_at=datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC),
    )
    assert before == (record,)
    assert after == replace(record, watermark_column="placed_at", watermark_delay_ms=300_000)
    assert (catalog.jobs(), catalog.secrets()) == ((), ())
    catalog.close()


def test_an_interrupted_migration_leaves_the_older_revision(stored: Path) -> None:
    with closing(sqlite3.connect(stored)) as file:
        before = list(file.iterdump())
    database = _database(stored)

    with suppress(KeyboardInterrupt), database.write() as connection:
        upgrade._migrate(connection)
        raise KeyboardInterrupt

    with closing(sqlite3.connect(stored)) as file:
        assert list(file.iterdump()) == before
    upgrade.upgrade(database)
    database.close()


def test_the_newest_migration_is_the_revision_of_the_code() -> None:
    folder = Path(upgrade.__file__).parent / "migrations"

    scripts = ScriptDirectory(str(folder))

    assert scripts.get_current_head() == upgrade.HEAD
    assert {script.revision for script in scripts.walk_revisions()} == set(upgrade.REVISIONS)


@pytest.mark.parametrize("revision", ["0001", "0002", "0003"])
def test_a_catalog_with_unreadable_jobs_is_refused_and_not_changed(
    path: Path, revision: str
) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        file.execute("INSERT INTO alembic_version VALUES (?)", (revision,))
        file.execute("CREATE TABLE jobs (id TEXT)")
        file.commit()

    with raises(UserError, Code.CATALOG_ERR, f"{revision}") as refusal:
        open_catalog(f"sqlite:///{path}", clock=SystemClock())

    assert refusal.value.code is Code.CATALOG_ERR
    assert refusal.value.hint
    with closing(sqlite3.connect(path)) as file:
        names = [name for name, _ in file.execute(DEFINITIONS)]
        assert names == ["alembic_version", "jobs"]
        assert file.execute("SELECT * FROM alembic_version").fetchall() == [(revision,)]


def test_a_catalog_of_a_newer_version_is_refused(path: Path) -> None:
    open_catalog(f"sqlite:///{path}", clock=SystemClock()).close()
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE alembic_version SET version_num = '9999'")
        file.commit()

    with raises(UserError, Code.CATALOG_ERR, "9999") as refusal:
        open_catalog(f"sqlite:///{path}", clock=SystemClock())

    assert refusal.value.code is Code.CATALOG_ERR
    assert_names(refusal.value.hint, "Penstock")


def test_an_interrupted_creation_leaves_no_relations(path: Path) -> None:
    database = _database(path)
    with suppress(KeyboardInterrupt), database.write() as connection:
        upgrade._create(connection)
        raise KeyboardInterrupt

    with closing(sqlite3.connect(path)) as file:
        assert file.execute(DEFINITIONS).fetchall() == []
    upgrade.upgrade(database)


def test_opening_a_catalog_imports_neither_alembic_nor_engines(path: Path) -> None:
    program = (
        "import sys\n"
        "from penstock.catalog.catalog import open_catalog\n"
        "from penstock.clock import SystemClock\n"
        f"open_catalog('sqlite:///{path}', clock=SystemClock()).jobs()\n"
        "heavy = {'alembic', 'pyarrow', 'pyspark', 'deltalake', 'pandas', 'numpy'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


def test_processes_can_create_a_catalog_at_the_same_time(path: Path) -> None:
    program = (
        "from penstock.catalog.catalog import open_catalog\n"
        "from penstock.clock import SystemClock\n"
        f"print(open_catalog('sqlite:///{path}', clock=SystemClock()).jobs())\n"
    )

    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]

    assert [process.communicate()[0] for process in processes] == ["()\n"] * 3
