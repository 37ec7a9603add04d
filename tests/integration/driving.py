"""Control a node step by step: block its tasks, crash its runners, move its clock."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from penstock.clock import SystemClock
from penstock.control.result import Cell
from penstock.crashpoints import CrashPoint, handle_in_this_thread
from penstock.engine.run import Work
from penstock.epochs.progress import Step
from penstock.epochs.task import run_task_text
from penstock.supervisor.leases import RENEWAL_PERIOD
from penstock.supervisor.runner import StartThread
from penstock.supervisor.supervisor import RunnerReport, Supervisor
from tests.node import ROUND_PERIOD, Node, start_thread

TIMEOUT_SECONDS = 120
SHORT_WAIT = timedelta(milliseconds=5)
LEASE_WAIT = timedelta(milliseconds=100)
UNPRIVILEGED = 65534

Done = Callable[[tuple[RunnerReport, ...]], bool]


class MovedClock:
    """A clock whose time the test moves; every wait lasts at most milliseconds."""

    def __init__(self) -> None:
        self._real = SystemClock()
        self._moved = timedelta()
        self.waits_by_thread: dict[str, list[timedelta]] = {}

    def now(self) -> datetime:
        return self._real.now() + self._moved

    def monotonic(self) -> float:
        return self._real.monotonic()

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:
        waits = self.waits_by_thread.setdefault(threading.current_thread().name, [])
        waits.append(timeout)
        # Lease renewal only has to be in time, and every renewal is a write.
        longest = LEASE_WAIT if timeout == RENEWAL_PERIOD else SHORT_WAIT
        return event.wait(min(timeout, longest).total_seconds())

    def move(self, **parts: float) -> None:
        """Move the clock forward."""
        self._moved += timedelta(**parts)

    @property
    def runner_waits(self) -> set[timedelta]:
        """Durations that the runners asked to wait."""
        return {
            wait
            for name, waits in self.waits_by_thread.items()
            if name.startswith("runner-")
            for wait in waits
        }


@dataclass
class Gate:
    """A task function that blocks once until the test opens the gate."""

    entered: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)
    work: Work = run_task_text

    def __call__(self, task: str, try_id: str) -> str:
        result = self.work(task, try_id)
        self.entered.set()
        assert self.opened.wait(TIMEOUT_SECONDS)
        return result


@dataclass
class Failing:
    """A task function that first calls another function, a given number of times."""

    first: Callable[[], None]
    times: int = 1
    work: Work = run_task_text
    # How many tasks were attempted.
    calls: int = 0

    def __call__(self, task: str, try_id: str) -> str:
        self.calls += 1
        if self.times:
            self.times -= 1
            self.first()
        return self.work(task, try_id)


def handling(handler: Callable[[CrashPoint], None]) -> StartThread:
    """Return a function that starts runners; they call the handler at every crash point."""

    def start(run: Callable[[], None], name: str) -> threading.Thread:
        def work() -> None:
            handle_in_this_thread(handler)
            run()

        return start_thread(work, name)

    return start


@contextmanager
def supervised(
    node: Node,
    *,
    until_caught_up: bool = False,
    sole_process: bool = True,
    start_runner: StartThread | None = None,
) -> Iterator[Supervisor]:
    """Yield a started supervisor, by default as the node's only process."""
    supervisor = node.supervisor(until_caught_up=until_caught_up, start_runner=start_runner)
    supervisor.start(sole_process=sole_process)
    try:
        yield supervisor
    finally:
        supervisor.stop()


def rounds_until(supervisor: Supervisor, done: Done) -> tuple[RunnerReport, ...]:
    """Run rounds of the supervisor until the reports satisfy a condition."""
    return _until(supervisor.round, done)


def reports_until(supervisor: Supervisor, done: Done) -> tuple[RunnerReport, ...]:
    """Wait until the reports satisfy a condition, without running the supervisor's rounds."""
    return _until(supervisor.reports, done)


def _until(
    read_reports: Callable[[], tuple[RunnerReport, ...]], done: Done
) -> tuple[RunnerReport, ...]:
    clock, never = SystemClock(), threading.Event()
    deadline = clock.monotonic() + TIMEOUT_SECONDS
    reports: tuple[RunnerReport, ...] = ()
    while clock.monotonic() < deadline:
        reports = read_reports()
        if done(reports):
            return reports
        clock.wait(never, ROUND_PERIOD)
    raise AssertionError(f"did not happen within {TIMEOUT_SECONDS}s: {reports}")


def paused(reports: tuple[RunnerReport, ...]) -> bool:
    """Return whether every job is paused and no runner is active."""
    return all(
        report.state.desired.state == "PAUSE" and report.progress is None for report in reports
    )


def pass_minute(node: Node, supervisor: Supervisor) -> None:
    """Move the clock by seventy seconds, in steps so small that the leases are renewed."""
    clock = node.clock
    assert isinstance(clock, MovedClock)
    for _ in range(7):
        clock.move(seconds=10)
        rounds_until(
            supervisor,
            lambda _: all(
                lease.expires_at > clock.now() + timedelta(seconds=10)
                for lease in node.catalog.leases().values()
            ),
        )


def idle(reports: tuple[RunnerReport, ...]) -> bool:
    """Return whether every job has loaded all available data."""
    return all(report.progress is not None and report.progress.caught_up for report in reports)


def stopped(reports: tuple[RunnerReport, ...]) -> bool:
    """Return whether every runner has ended."""
    return all(
        report.progress is None or report.progress.step is Step.STOPPED for report in reports
    )


class Crashed(BaseException):
    """The thread ended here, as if its process had been killed."""


def crash_at(node: Node, point: CrashPoint, *, count: int = 1) -> None:
    """Run the jobs of a node until a runner's thread dies at the count-th crash point."""
    dead = threading.Event()
    left = count

    def die(passed: CrashPoint) -> None:
        nonlocal left
        left -= passed is point
        if not left:
            dead.set()
            raise Crashed

    def start(run: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=partial(_until_crash, run, die), name=name)
        thread.start()
        return thread

    supervisor = node.supervisor(start_runner=start)
    supervisor.start(sole_process=True)
    try:
        rounds_until(supervisor, lambda _: dead.is_set())
    finally:
        supervisor.stop()


def crash_inside(node: Node, sql: str, point: CrashPoint) -> None:
    """Run a statement that dies at a crash point."""

    def die(passed: CrashPoint) -> None:
        if passed is point:
            raise Crashed

    handle_in_this_thread(die)
    try:
        node.sql(sql)
    except Crashed:
        return
    finally:
        handle_in_this_thread(None)
    raise AssertionError(f"{sql} did not pass {point}")


def _until_crash(run: Callable[[], None], die: Callable[[CrashPoint], None]) -> None:
    handle_in_this_thread(die)
    try:
        run()
    except Crashed:
        return


def attempts(node: Node, name: str = "j") -> list[tuple[Cell, Cell, Cell]]:
    """Return epoch, attempt and outcome of the job's attempts, as in SHOW EPOCHS."""
    return [
        (row["epoch"], row["attempt"], row["outcome"])
        for row in node.sql(f"SHOW EPOCHS FOR {name}")
        if row["kind"] == "epoch"
    ]


def stored(node: Node) -> tuple[object, ...]:
    """Return the state that a refused statement must not change: the catalog and table t."""
    catalog = node.catalog
    version = node.sql("DESCRIBE DETAIL t")[0]["version"]
    return catalog.jobs(), catalog.tables(), catalog.secrets(), version


def pause_reason(node: Node, name: str = "j") -> str:
    """Run the job until its immediate resume has failed too; return the reason of the pause."""
    assert isinstance(node.clock, MovedClock)
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda reports: reports[0].state.desired.auto_resumes == 1)
        node.clock.move(seconds=2)
        rounds_until(supervisor, paused)
    assert node.show(name)["state"] == "PAUSED"
    return str(node.show(name)["reason"])


@contextmanager
def without_privileges(folder: Path) -> Iterator[None]:
    """Run as an unprivileged user who owns the folder, if this user is root.

    Import lazy modules first: the unprivileged user might not be able to read the product.
    """
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, UNPRIVILEGED, UNPRIVILEGED)
    os.seteuid(UNPRIVILEGED)
    try:
        yield
    finally:
        os.seteuid(0)
