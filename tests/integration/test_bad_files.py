"""Files that are missing, forbidden, odd or moving: a clear error, and no lost rows.

A temporary fault pauses the job with a code that is resumed automatically. The fake clock
shortens the waits between attempts.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.errors import Code
from tests.error_values import assert_reason
from tests.integration.driving import (
    Failing,
    MovedClock,
    attempts,
    pause_reason,
    without_privileges,
)
from tests.mirrored_node import OpenNode
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

FOLDER = "<folder>"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of a job's source, the values in the reason, and the repair."""

    break_: Callable[[Path], object]
    names: tuple[str, ...]
    repair: Callable[[Path], object]


def move_away(folder: Path) -> None:
    write_rows(folder / "b.json", numbered(2))
    folder.rename(folder.with_name("away"))


def put_back(folder: Path) -> None:
    folder.with_name("away").rename(folder)


def invalid_name(name: bytes) -> Fault:
    """Return the fault of a file whose name is not UTF-8."""

    def invalid(folder: Path) -> Path:
        return Path(os.fsdecode(os.fsencode(folder) + b"/" + name))

    return Fault(
        break_=lambda folder: write_rows(invalid(folder), numbered(2)),
        names=(f'"{name.decode("utf-8", "backslashreplace")}"', f'"{FOLDER}"', "UTF-8"),
        repair=lambda folder: invalid(folder).rename(folder / "b.json"),
    )


FAULTS = {
    "a folder that disappears after CREATE": Fault(
        break_=move_away, names=(f'"{FOLDER}/"', "does not exist"), repair=put_back
    ),
    "a file without read permission": Fault(
        break_=lambda folder: write_rows(folder / "b.json", numbered(2)).chmod(0),
        names=(f'"{FOLDER}/b.json"', "permission denied"),
        repair=lambda folder: (folder / "b.json").chmod(0o644),
    ),
    "a name with a byte that is never UTF-8": invalid_name(b"b\xff.json"),
    "a name in Latin-1": invalid_name(b"\xe9t\xe9.json"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_source_fault_pauses_the_job_with_a_reason_until_it_is_repaired(
    foreign: Path, fault: Fault
) -> None:
    folder = foreign / "in"
    node = Node(foreign / "home", clock=MovedClock())
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.run()
    fault.break_(folder)

    with without_privileges(foreign):
        reason = pause_reason(node)

    names = [name.replace(FOLDER, str(folder)) for name in fault.names]
    assert_reason(reason, Code.GET_REMOTE_DATA_ERROR, *names)
    assert node.rows("t") == numbered(1)
    assert node.show("j")["position"] == str(folder / "a.json")
    fault.repair(folder)
    node.sql("RESUME JOB j")
    node.run()
    assert node.rows("t") == numbered(1, 2)
    assert node.show("j")["position"] == str(folder / "b.json")


def replace_file(path: Path) -> None:
    """Replace a file atomically, as careful writers do."""
    write_rows(path.with_name("new"), numbered(3, 4)).replace(path)


@dataclass(frozen=True, kw_only=True)
class Moved:
    """The file that moves after the listing, 0.json, 1.json, …, and the files that load."""

    files: int
    moved: str
    move: Callable[[Path], None]
    rows: tuple[int, ...]
    names: str

    @property
    def loaded(self) -> int:
        """Number of loaded files."""
        return self.files if self.move is replace_file else self.files - 1


MOVED = {
    "one of three files is deleted": Moved(
        files=3, moved="1.json", move=Path.unlink, rows=(0, 2), names="does not exist"
    ),
    "the last waiting file is deleted": Moved(
        files=1, moved="0.json", move=Path.unlink, rows=(), names="does not exist"
    ),
    "a file is replaced": Moved(
        files=2, moved="1.json", move=replace_file, rows=(0, 3, 4), names="changed"
    ),
}


@pytest.mark.parametrize("case", MOVED.values(), ids=MOVED)
def test_an_epoch_is_planned_again_if_a_file_moves_after_the_listing(
    open_node: OpenNode, folder: Path, case: Moved
) -> None:
    moving = Failing(first=lambda: case.move(folder / case.moved))
    node = open_node(clock=MovedClock(), work=moving)
    for number in range(case.files):
        write_rows(folder / f"{number}.json", numbered(number))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")

    node.run()

    failed, *later = attempts(node)
    assert failed == (1, 1, "FAILED")
    assert later == ([(1, 2, "COMMITTED")] if case.loaded else [])
    entry = next(row for row in node.sql("SHOW EPOCHS FOR j") if row["outcome"] == "FAILED")
    where = f'"{folder / case.moved}"'
    assert_reason(entry["reason"], Code.GET_REMOTE_DATA_ERROR, where, case.names)
    assert node.rows("t") == numbered(*case.rows)
    assert node.show("j")["files_loaded"] == case.loaded
    last = folder / f"{case.files - 1}.json"
    assert node.show("j")["position"] == (str(last) if case.loaded else "start")
    assert node.show("j")["reason"] == ""
    assert node.job("j").notices == ()


def test_a_deleted_file_that_is_restored_loads_once(open_node: OpenNode, folder: Path) -> None:
    vanish = Failing(first=(folder / "b.json").unlink)
    node = open_node(clock=MovedClock(), work=vanish)
    write_rows(folder / "a.json", numbered(1))
    write_rows(folder / "b.json", numbered(2))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.run()
    write_rows(folder / "b.json", numbered(2))

    node.run()

    assert node.rows("t") == numbered(1, 2)
    assert node.show("j")["position"] == str(folder / "b.json")


def test_a_file_that_keeps_changing_pauses_the_job_after_four_attempts(
    open_node: OpenNode, folder: Path
) -> None:
    rewriting = Failing(first=lambda: replace_file(folder / "a.json"), times=8)
    node = open_node(clock=MovedClock(), work=rewriting)
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")

    reason = pause_reason(node)

    assert_reason(reason, Code.GET_REMOTE_DATA_ERROR, f'"{folder}/a.json"', "changed")
    first = [(1, attempt, "FAILED") for attempt in range(1, 5)]
    assert attempts(node)[:4] == first
    assert node.show("j")["position"] == "start"
    node.sql("RESUME JOB j")
    node.run()
    assert node.rows("t") == numbered(3, 4)


def test_loaded_files_can_be_deleted(node: Node, folder: Path) -> None:
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.run()
    (folder / "a.json").unlink()

    node.run()

    assert node.rows("t") == numbered(1)
    assert node.show("j")["reason"] == ""
    assert node.show("j")["position"] == str(folder / "a.json")


def test_names_that_do_not_match_the_pattern_are_ignored(node: Node, folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/b\xff.txt")).touch()
    write_rows(folder / "a.json", numbered(1))
    (folder / "b.json").mkdir()
    os.mkfifo(folder / "c.json")
    (folder / "d.json").symlink_to(folder / "nowhere")
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")

    node.run()

    assert node.rows("t") == numbered(1)
    assert node.show("j")["files_loaded"] == 1
