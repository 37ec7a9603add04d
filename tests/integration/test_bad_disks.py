"""Full disks and read-only catalogs: a clear error, and no lost rows."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Code, ExternalError
from tests.error_values import assert_names, raises
from tests.integration.driving import MovedClock, without_privileges
from tests.integration.small_disk import EXIT_NOT_ALLOWED
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

ROOT = Path(__file__).parents[2]
# Placeholder for the folder of the test.
FOLDER = "<folder>"


def findings(scenario: str, folder: Path) -> dict[str, Any]:
    """Run a scenario on its own small disk and return its findings."""
    command = [sys.executable, "-m", "tests.integration.small_disk", scenario, str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode == EXIT_NOT_ALLOWED:
        pytest.skip("this machine does not allow mounting a small disk")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@dataclass(frozen=True, kw_only=True)
class FullDisk:
    """A scenario, the values in its error, and the attempts from the second one on."""

    scenario: str
    names: tuple[str, ...]
    attempts: tuple[tuple[int, int, str], ...] = ()
    state: str | None = None


FULL_DISKS = {
    "a table disk that is full at the start": FullDisk(
        scenario="table", names=(Code.STORAGE_ERR, f"{FOLDER}/small/t/", "written")
    ),
    "a disk that becomes full while rows are written": FullDisk(
        scenario="task",
        names=(Code.STORAGE_ERR, f'"{FOLDER}/small/t/part-', "written"),
        attempts=tuple((2, number, "FAILED") for number in (1, 2, 3, 4)),
    ),
    "a disk that becomes full before the commit": FullDisk(
        scenario="commit", names=(Code.TABLE_ERR, '"t"'), attempts=((2, 1, "FAILED"),)
    ),
    "a disk that becomes full after the commit": FullDisk(
        scenario="copy", names=(), attempts=((2, 1, "COMMITTED"),)
    ),
    "a statement with a full catalog disk": FullDisk(
        scenario="statement",
        names=(Code.CATALOG_ERR, f'"{FOLDER}/small/home/catalog.db"'),
        state="PENDING",
    ),
    "a runner with a full catalog disk": FullDisk(
        scenario="run", names=(Code.CATALOG_ERR, f'"{FOLDER}/small/home/catalog.db"')
    ),
}


@pytest.mark.parametrize("case", FULL_DISKS.values(), ids=FULL_DISKS)
def test_a_full_disk_is_reported_and_every_file_loads_once_after_it_is_freed(
    tmp_path: Path, case: FullDisk
) -> None:
    found = findings(case.scenario, tmp_path)

    error = found.get("reason") or f"{found.get('code')}: {found.get('message')}"
    assert_names(error, *(name.replace(FOLDER, str(tmp_path)) for name in case.names))
    attempts = [tuple(attempt) for attempt in found.get("attempts", [])]
    assert tuple(attempts[1 : 1 + len(case.attempts)]) == case.attempts
    assert found.get("state") == case.state
    assert found["rows"] == numbered(1, 2)
    assert found["shown"] == {
        "rows_loaded": 2,
        "files_loaded": 2,
        "position": str(tmp_path / "in" / "b.json"),
        "reason": "",
    }


@pytest.fixture
def settled(foreign: Path) -> Node:
    """A node that has loaded one file, with a second file waiting."""
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


def test_jobs_of_a_read_only_catalog_are_shown_and_continue_once_it_is_writable(
    settled: Node, foreign: Path
) -> None:
    before = settled.show("j")
    settled.catalog.close()
    catalog_mode(foreign, 0o444)
    catalog = f'"{foreign}/home/catalog.db"'

    with without_privileges(foreign):
        node = Node(foreign / "home", clock=MovedClock())
        shown = node.show("j")
        with raises(ExternalError, Code.CATALOG_ERR, catalog, "read-only", hint=()):
            node.sql("PAUSE JOB j")
        with raises(ExternalError, Code.CATALOG_ERR, catalog, "read-only", hint=()):
            node.run()
        catalog_mode(foreign, 0o644)
        node.run()

    assert shown == before
    assert node.rows("t") == numbered(1, 2)
    assert node.show("j")["rows_loaded"] == 2
    assert node.show("j")["position"] == str(foreign / "in" / "b.json")
