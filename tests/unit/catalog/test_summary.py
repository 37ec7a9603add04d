"""The summary of a catalog's file, which is read without opening the catalog."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from penstock.catalog.summary import (
    catalog_path,
    job_names,
    read_summary,
    sealing_keys,
    stored_revision,
)
from penstock.catalog.upgrade import HEAD
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////data/catalog.db", Path("/data/catalog.db")),
        ("sqlite:///catalog.db?timeout=3", Path("catalog.db")),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
        ("postgresql://host/db", None),
    ],
)
def test_the_url_of_a_catalog_contains_the_path_of_its_file(
    url: str, path: Path | None
) -> None:
    assert catalog_path(url) == path


def test_the_summary_counts_jobs_and_tables_of_a_running_catalog(
    node: Node, folder: Path
) -> None:
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, name='b')}; {create_job(folder, name='a')}")
    path = node.home / "catalog.db"

    summary = read_summary(path)

    assert (summary.revision, summary.damage, summary.jobs, summary.tables) == (HEAD, "", 2, 1)
    assert job_names(path) == ["a", "b"]
    assert sealing_keys(path) == frozenset()


def test_a_database_without_our_relations_has_no_revision(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")

    assert stored_revision(path) is None
    assert read_summary(path).jobs == 0


def test_a_missing_file_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        read_summary(tmp_path / "catalog.db")

    assert list(tmp_path.iterdir()) == []


def test_the_summary_imports_no_heavy_library() -> None:
    program = "import sys, penstock.catalog.summary; print('sqlalchemy' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "False\n"
