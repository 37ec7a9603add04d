"""Run a node on a disk that becomes full; a separate program.

The disk is a small tmpfs in a private mount namespace, which disappears with this process. The
scenario's findings are written to standard output as JSON. A special exit code reports that
this machine does not allow mounts.
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
        for result in (
            libc.unshare(flags),
            libc.mount(b"none", b"/", None, MS_PRIVATE_EVERYWHERE, None),
            libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, size),
        ):
            if result != 0:
                sys.exit(EXIT_NOT_ALLOWED)

    def fill(self) -> None:
        """Fill the disk completely."""
        with self._ballast.open("ab", buffering=0) as stream:
            while _written(stream.write):
                pass

    def free(self) -> None:
        """Free the space again."""
        self._ballast.unlink()


def _written(write: Callable[[bytes], int | None]) -> bool:
    try:
        return bool(write(b"x" * 4096))
    except OSError:
        return False


Findings = dict[str, Any]


def full_disk_at_start(node: Node, disk: SmallDisk) -> Findings:
    """The table's disk is full when the job starts."""
    disk.fill()
    reason = pause_reason(node)
    disk.free()
    return {"reason": reason}


def full_disk_in_task(node: Node, disk: SmallDisk) -> Findings:
    """The table's disk becomes full before a task writes its rows."""
    node.work = Failing(first=disk.fill)
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda reports: reports[0].state.desired.reason is not None)
    disk.free()
    return {"reason": _pause(node), "attempts": attempts(node)}


def full_disk_at_commit(node: Node, disk: SmallDisk) -> Findings:
    """The table's disk becomes full between writing the rows and committing them."""

    def work(task: str, try_id: str) -> str:
        result = run_task_text(task, try_id)
        disk.fill()
        return result

    node.work = work
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda reports: reports[0].state.desired.reason is not None)
    node.work = run_task_text
    disk.free()
    failed = [row["reason"] for row in node.sql("SHOW EPOCHS FOR j") if row["reason"]]
    return {"reason": failed[0], "attempts": attempts(node)}


def full_disk_at_copy(node: Node, disk: SmallDisk) -> Findings:
    """The table's disk becomes full when only the copy of the commit is missing."""

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


def _loaded_twice(reports: tuple[RunnerReport, ...]) -> bool:
    return reports[0].state.cumulative.files_read == 2


def full_disk_at_statement(node: Node, disk: SmallDisk) -> Findings:
    """The catalog's disk is full when a user pauses the job."""
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


def full_disk_at_run(node: Node, disk: SmallDisk) -> Findings:
    """The catalog's disk is full when the job should run."""
    disk.fill()
    with supervised(node, sole_process=False) as supervisor:
        (report,) = rounds_until(supervisor, lambda reports: reports[0].last_exit is not None)
    disk.free()
    assert report.last_exit is not None
    error = report.last_exit.error
    return {"code": error.code, "message": error.message} if error else {}


TABLE_SCENARIOS = {
    "table": full_disk_at_start,
    "task": full_disk_in_task,
    "commit": full_disk_at_commit,
    "copy": full_disk_at_copy,
}
CATALOG_SCENARIOS = {"statement": full_disk_at_statement, "run": full_disk_at_run}


def main(scenario: str, folder: Path) -> Findings:
    """Load a file, run the scenario with a second file, free the disk, and load again."""
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
    """Return the reason of the job's last pause; the job may already run again."""
    events = [str(row["detail"]) for row in node.sql("SHOW EVENTS FOR j")]
    return next(detail for detail in reversed(events) if detail.startswith("PAUSE"))


def _shown(node: Node) -> dict[str, Cell]:
    shown = node.show("j")
    return {name: shown[name] for name in ("rows_loaded", "files_loaded", "position", "reason")}


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(sys.argv[1], Path(sys.argv[2]))) + "\n")
