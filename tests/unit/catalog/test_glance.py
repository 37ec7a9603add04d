"""A look at the file of a catalog changes nothing and needs little."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from penstock.catalog.glance import (
    catalog_path,
    glance_at,
    job_names,
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
def test_the_file_of_a_catalog_is_known_from_its_url(url: str, path: Path | None) -> None:
    assert catalog_path(url) == path


def test_a_glance_counts_what_a_running_catalog_holds(node: Node, folder: Path) -> None:
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, name='b')}; {create_job(folder, name='a')}")
    path = node.home / "catalog.db"

    seen = glance_at(path)

    assert (seen.revision, seen.damage, seen.jobs, seen.tables) == (HEAD, "", 2, 1)
    assert job_names(path) == ["a", "b"]
    assert sealing_keys(path) == frozenset()


def test_a_database_without_our_relations_has_no_revision(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")

    assert stored_revision(path) is None
    assert glance_at(path).jobs == 0


def test_a_file_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        glance_at(tmp_path / "catalog.db")

    assert list(tmp_path.iterdir()) == []


def test_a_glance_imports_no_heavy_library() -> None:
    program = "import sys, penstock.catalog.glance; print('sqlalchemy' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "False\n"
