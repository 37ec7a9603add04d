"""Run a node on a disk that is full when it matters; a program of its own.

The disk is a small tmpfs in a mount namespace of this process, which nobody else sees and
which goes with it. The scenario's findings are written to standard output as JSON; where the
machine allows nobody to mount a disk, the exit code says so.
"""

import ctypes
import json
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from penstock.control.result import Cell
from penstock.crashpoints import CrashPoint, handle_in_this_thread
from penstock.epochs.task import run_task_text
from penstock.errors import PenstockError
from penstock.supervisor.supervisor import RunnerReport
from tests.integration.driving import (
    Failing,
    MovedClock,
    attempts,
    pause_reason,
    rounds_until,
    supervised,
)
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_PRIVATE_EVERYWHERE = 1 << 18 | 1 << 14
DISK_BYTES = 1 << 20
EXIT_NOT_ALLOWED = 77


class SmallDisk:
    """A small tmpfs that can be full."""

    def __init__(self, folder: Path) -> None:
        self._ballast = folder / "ballast"
        libc = ctypes.CDLL(None, use_errno=True)
        flags = CLONE_NEWNS if os.geteuid() == 0 else CLONE_NEWNS | CLONE_NEWUSER
        size = f"size={DISK_BYTES}".encode()
        for answer in (
            libc.unshare(flags),
            libc.mount(b"none", b"/", None, MS_PRIVATE_EVERYWHERE, None),
            libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, size),
        ):
            if answer != 0:
                sys.exit(EXIT_NOT_ALLOWED)

    def fill(self) -> None:
        """Leave no room."""
        with self._ballast.open("ab", buffering=0) as stream:
            while _written(stream.write):
                pass

    def free(self) -> None:
        """Make room again."""
        self._ballast.unlink()


def _written(write: Callable[[bytes], int | None]) -> bool:
    try:
        return bool(write(b"x" * 4096))
    except OSError:
        return False


Findings = dict[str, Any]


def table_is_full(node: Node, disk: SmallDisk) -> Findings:
    """The disk of the table is full when the job starts."""
    disk.fill()
    reason = pause_reason(node)
    disk.free()
    return {"reason": reason}


def task_finds_no_room(node: Node, disk: SmallDisk) -> Findings:
    """The disk of the table becomes full before a task writes its rows."""
    node.work = Failing(first=disk.fill)
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda looks: looks[0].state.desired.reason is not None)
    disk.free()
    return {"reason": _pause(node), "attempts": attempts(node)}


def commit_finds_no_room(node: Node, disk: SmallDisk) -> Findings:
    """The disk of the table becomes full between the rows and their commit."""

    def work(task: str, try_id: str) -> str:
        answer = run_task_text(task, try_id)
        disk.fill()
        return answer

    node.work = work
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda looks: looks[0].state.desired.reason is not None)
    node.work = run_task_text
    disk.free()
    failed = [row["reason"] for row in node.sql("SHOW EPOCHS FOR j") if row["reason"]]
    return {"reason": failed[0], "attempts": attempts(node)}


def copy_finds_no_room(node: Node, disk: SmallDisk) -> Findings:
    """The disk of the table becomes full when everything but the copy was written."""

    def handle(point: CrashPoint) -> None:
        if point is CrashPoint.CATALOG_APPLIED:
            disk.fill()

    def start(run: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=partial(_handled, run, handle), name=name)
        thread.start()
        return thread

    supervisor = node.supervisor(start_runner=start)
    supervisor.start(sole_process=True)
    rounds_until(supervisor, _loaded_twice)
    supervisor.stop()
    disk.free()
    return {"attempts": attempts(node)}


def _handled(run: Callable[[], None], handle: Callable[[CrashPoint], None]) -> None:
    handle_in_this_thread(handle)
    run()


def _loaded_twice(looks: tuple[RunnerReport, ...]) -> bool:
    return looks[0].state.cumulative.files_read == 2


def statement_finds_no_room(node: Node, disk: SmallDisk) -> Findings:
    """The disk of the catalog is full when a person pauses the job."""
    disk.fill()
    try:
        node.sql("PAUSE JOB j")
    except PenstockError as error:
        found = {"code": error.code, "message": error.message, "hint": error.hint}
    else:
        found = {}
    state = node.show("j")["state"]
    disk.free()
    return {**found, "state": state}


def run_finds_no_room(node: Node, disk: SmallDisk) -> Findings:
    """The disk of the catalog is full when the job is to run."""
    disk.fill()
    with supervised(node, sole_process=False) as supervisor:
        (look,) = rounds_until(supervisor, lambda looks: looks[0].last_words is not None)
    disk.free()
    assert look.last_words is not None
    error = look.last_words.error
    return {"code": error.code, "message": error.message} if error else {}


TABLE_SCENARIOS = {
    "table": table_is_full,
    "task": task_finds_no_room,
    "commit": commit_finds_no_room,
    "copy": copy_finds_no_room,
}
CATALOG_SCENARIOS = {"statement": statement_finds_no_room, "run": run_finds_no_room}


def main(scenario: str, folder: Path) -> Findings:
    """Load a file, meet the full disk with a second one, make room, and load it."""
    small, large, source = folder / "small", folder / "large", folder / "in"
    small.mkdir()
    disk = SmallDisk(small)
    on_table = scenario in TABLE_SCENARIOS
    node = Node(large / "home" if on_table else small / "home", clock=MovedClock())
    place = (small if on_table else large) / "t"
    write_rows(source / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE} LOCATION '{place}'; {create_job(source)}")
    node.run()
    write_rows(source / "b.json", numbered(2))
    found = {**TABLE_SCENARIOS, **CATALOG_SCENARIOS}[scenario](node, disk)
    if node.show("j")["state"] == "PAUSED":
        node.sql("RESUME JOB j")
    node.run()
    node.run()
    return {**found, "rows": node.rows("t"), "shown": _shown(node)}


def _pause(node: Node) -> str:
    """Answer what was said when the job paused; it may run again already."""
    events = [str(row["detail"]) for row in node.sql("SHOW EVENTS FOR j")]
    return next(detail for detail in reversed(events) if detail.startswith("PAUSE"))


def _shown(node: Node) -> dict[str, Cell]:
    shown = node.show("j")
    return {name: shown[name] for name in ("rows_loaded", "files_loaded", "position", "reason")}


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(sys.argv[1], Path(sys.argv[2]))) + "\n")
