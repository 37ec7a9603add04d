"""Disks that are full and catalogs that cannot be written: a clear error, and nothing lost."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Code, ExternalError
from tests.integration.driving import MovedClock, without_privileges
from tests.integration.small_disk import EXIT_NOT_ALLOWED
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

ROOT = Path(__file__).parents[2]


def findings(scenario: str, folder: Path) -> dict[str, Any]:
    """Run a scenario on a small disk of its own and answer what it found."""
    command = [sys.executable, "-m", "tests.integration.small_disk", scenario, str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode == EXIT_NOT_ALLOWED:
        pytest.skip("this machine lets nobody mount a small disk")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def assert_complete(found: dict[str, Any], folder: Path) -> None:
    """Require that both files are there once, after room was made."""
    assert found["rows"] == numbered(1, 2)
    assert found["shown"] == {
        "rows_loaded": 2,
        "files_loaded": 2,
        "position": str(folder / "in" / "b.json"),
        "reason": "",
    }


def test_a_full_disk_of_the_table_pauses_the_job_and_heals(tmp_path: Path) -> None:
    found = findings("table", tmp_path)

    assert found["reason"].startswith(f'STORAGE_ERR: file "{tmp_path}/small/t/')
    assert "could not be written: " in found["reason"]
    assert_complete(found, tmp_path)


def test_a_disk_that_becomes_full_while_rows_are_written_names_the_file_and_heals(
    tmp_path: Path,
) -> None:
    found = findings("task", tmp_path)

    assert f'STORAGE_ERR: data file "{tmp_path}/small/t/part-' in found["reason"]
    assert "could not be written. " in found["reason"]
    assert found["attempts"][1:5] == [[2, number, "FAILED"] for number in (1, 2, 3, 4)]
    assert_complete(found, tmp_path)


def test_a_disk_that_becomes_full_before_the_commit_aborts_the_epoch_and_heals(
    tmp_path: Path,
) -> None:
    found = findings("commit", tmp_path)

    assert found["reason"] == 'TABLE_ERR: table "t" did not take the commit'
    assert found["attempts"][1] == [2, 1, "FAILED"]
    assert_complete(found, tmp_path)


def test_a_disk_that_becomes_full_behind_the_commit_loads_nothing_twice(tmp_path: Path) -> None:
    found = findings("copy", tmp_path)

    assert found["attempts"] == [[1, 1, "COMMITTED"], [2, 1, "COMMITTED"]]
    assert_complete(found, tmp_path)


def test_a_full_disk_of_the_catalog_refuses_a_statement_and_stores_nothing(
    tmp_path: Path,
) -> None:
    found = findings("statement", tmp_path)

    assert found["code"] == "CATALOG_ERR"
    assert f'catalog "{tmp_path}/small/home/catalog.db"' in found["message"]
    assert found["state"] == "PENDING"
    assert_complete(found, tmp_path)


def test_a_full_disk_of_the_catalog_ends_the_runner_and_the_next_one_goes_on(
    tmp_path: Path,
) -> None:
    found = findings("run", tmp_path)

    assert found["code"] == "CATALOG_ERR"
    assert f'catalog "{tmp_path}/small/home/catalog.db"' in found["message"]
    assert_complete(found, tmp_path)


@pytest.fixture
def settled(foreign: Path) -> Node:
    """A node that has loaded one file and has another one waiting."""
    node = Node(foreign / "home", clock=MovedClock())
    write_rows(foreign / "in" / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(foreign / 'in')}")
    node.run()
    node.sql("PAUSE JOB j; RESUME JOB j")
    write_rows(foreign / "in" / "b.json", numbered(2))
    return node


def catalog_mode(foreign: Path, mode: int) -> None:
    """Set the permissions of the catalog's files."""
    for path in (foreign / "home").glob("catalog.db*"):
        path.chmod(mode)


def test_a_catalog_that_may_only_be_read_is_shown_but_not_changed(
    settled: Node, foreign: Path
) -> None:
    before = settled.show("j")
    settled.catalog.close()
    catalog_mode(foreign, 0o444)

    with without_privileges(foreign):
        node = Node(foreign / "home", clock=MovedClock())
        shown = node.show("j")
        with pytest.raises(ExternalError, match="is read-only") as refused:
            node.sql("PAUSE JOB j")
        node.catalog.close()

    assert shown == before
    assert refused.value.code is Code.CATALOG_ERR
    assert f'catalog "{foreign}/home/catalog.db"' in refused.value.message
    assert refused.value.hint.startswith("Let this user write the folder, the file")


def test_a_catalog_that_may_be_written_again_goes_on_without_a_restart(
    settled: Node, foreign: Path
) -> None:
    settled.catalog.close()
    catalog_mode(foreign, 0o444)

    with without_privileges(foreign):
        node = Node(foreign / "home", clock=MovedClock())
        with pytest.raises(ExternalError, match="is read-only"):
            node.run()
        catalog_mode(foreign, 0o644)
        node.run()

    assert node.rows("t") == numbered(1, 2)
    assert node.show("j")["rows_loaded"] == 2
    assert node.show("j")["position"] == str(foreign / "in" / "b.json")
