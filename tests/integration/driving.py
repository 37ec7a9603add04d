"""Drive a node step by step: gates in its work, crashes of its runners, time that is moved."""

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
from penstock.supervisor.supervisor import RunnerReport, Supervisor
from tests.node import ROUND_PERIOD, Node

PATIENCE_SECONDS = 120
BLINK = timedelta(milliseconds=5)
YAWN = timedelta(milliseconds=100)
NOBODY = 65534

Done = Callable[[tuple[RunnerReport, ...]], bool]


class MovedClock:
    """A clock whose days pass when the test says so; waiting takes a blink."""

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
        # Whoever renews leases needs no more than to be in time; every renewal is a write.
        blink = YAWN if timeout == RENEWAL_PERIOD else BLINK
        return event.wait(min(timeout, blink).total_seconds())

    def move(self, **parts: float) -> None:
        """Let this much time pass."""
        self._moved += timedelta(**parts)

    @property
    def runner_waits(self) -> set[timedelta]:
        """How long the runners wanted to wait."""
        return {
            wait
            for name, waits in self.waits_by_thread.items()
            if name.startswith("runner-")
            for wait in waits
        }


@dataclass
class Gate:
    """A task's work that stands still, once, until the test opens the gate."""

    entered: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)
    work: Work = run_task_text

    def __call__(self, task: str, try_id: str) -> str:
        answer = self.work(task, try_id)
        self.entered.set()
        assert self.opened.wait(PATIENCE_SECONDS)
        return answer


@dataclass
class Failing:
    """A task's work that does something else first, the first times it is asked."""

    first: Callable[[], None]
    times: int = 1
    work: Work = run_task_text
    # How many tasks were tried.
    calls: int = 0

    def __call__(self, task: str, try_id: str) -> str:
        self.calls += 1
        if self.times:
            self.times -= 1
            self.first()
        return self.work(task, try_id)


@contextmanager
def supervised(
    node: Node, *, until_caught_up: bool = False, sole_process: bool = True
) -> Iterator[Supervisor]:
    """Give a started supervisor of a node that believes to be alone, unless said otherwise."""
    supervisor = node.supervisor(until_caught_up=until_caught_up)
    supervisor.start(sole_process=sole_process)
    try:
        yield supervisor
    finally:
        supervisor.stop()


def rounds_until(supervisor: Supervisor, done: Done) -> tuple[RunnerReport, ...]:
    """Let the supervisor act until what is to be seen is as wanted."""
    return _until(supervisor.round, done)


def looks_until(supervisor: Supervisor, done: Done) -> tuple[RunnerReport, ...]:
    """Wait, with a supervisor that does not act, until what is to be seen is as wanted."""
    return _until(supervisor.reports, done)


def _until(
    look: Callable[[], tuple[RunnerReport, ...]], done: Done
) -> tuple[RunnerReport, ...]:
    clock, never = SystemClock(), threading.Event()
    deadline = clock.monotonic() + PATIENCE_SECONDS
    looks: tuple[RunnerReport, ...] = ()
    while clock.monotonic() < deadline:
        looks = look()
        if done(looks):
            return looks
        clock.wait(never, ROUND_PERIOD)
    raise AssertionError(f"did not happen within {PATIENCE_SECONDS}s: {looks}")


def paused(looks: tuple[RunnerReport, ...]) -> bool:
    """Tell whether no job is to run, and none does any more."""
    return all(look.state.desired.state == "PAUSE" and look.progress is None for look in looks)


def idle(looks: tuple[RunnerReport, ...]) -> bool:
    """Tell whether every job has loaded what was there."""
    return all(look.progress is not None and look.progress.caught_up for look in looks)


def stopped(looks: tuple[RunnerReport, ...]) -> bool:
    """Tell whether every runner has come to its end."""
    return all(look.progress is None or look.progress.step is Step.STOPPED for look in looks)


class Crashed(BaseException):
    """The thread ended here, as if its process had been killed."""


def crash_at(node: Node, point: CrashPoint) -> None:
    """Run the jobs of a node until a runner's thread dies at a crash point."""
    dead = threading.Event()

    def die(passed: CrashPoint) -> None:
        if passed is point:
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
    """Answer epoch, attempt and outcome of the job's attempts, as SHOW EPOCHS tells them."""
    return [
        (row["epoch"], row["attempt"], row["outcome"])
        for row in node.sql(f"SHOW EPOCHS FOR {name}")
        if row["kind"] == "epoch"
    ]


def stored(node: Node) -> tuple[object, ...]:
    """Return what a refused statement must leave alone: the catalog and table t."""
    catalog = node.catalog
    version = node.sql("DESCRIBE DETAIL t")[0]["version"]
    return catalog.jobs(), catalog.tables(), catalog.secrets(), version


def pause_reason(node: Node, name: str = "j") -> str:
    """Run the job until it has used up its immediate resume, and answer why it is paused."""
    assert isinstance(node.clock, MovedClock)
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda looks: looks[0].state.desired.auto_resumes == 1)
        node.clock.move(seconds=2)
        rounds_until(supervisor, paused)
    assert node.show(name)["state"] == "PAUSED"
    return str(node.show(name)["reason"])


@contextmanager
def without_privileges(folder: Path) -> Iterator[None]:
    """Become a user whom permissions bind, if this one is not, and who owns a folder.

    Whatever is imported late must have been imported before, because the new user may not
    even read the product.
    """
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
