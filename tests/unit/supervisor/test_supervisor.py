"""The supervisor with fake loops: it starts, watches and stops them, whatever they do."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.catalog.catalog import Catalog, open_catalog
from penstock.clock import SystemClock
from penstock.epochs.progress import Progress, ProgressReporter, Step
from penstock.epochs.takeover import LEASE_DURATION
from penstock.errors import (
    Code,
    CommitOutcomeUnknownError,
    ExternalError,
    LeaseLostError,
    PenstockError,
    StoppedError,
)
from penstock.model.epoch import Generation
from penstock.model.job import DesiredState, JobState, Status, StatusCode
from penstock.model.job_kinds import RoutineProperties
from penstock.supervisor.loop import Loop, RunnerKind
from penstock.supervisor.runner import Ending, SupervisorParts
from penstock.supervisor.supervisor import RunnerReport, Supervisor
from penstock.tables.chain import next_generation
from tests.contract.catalog.building import DEFINITION, JOB, PAUSED, TABLE, created

NODE = "node-1"
WAIT_SECONDS = 30
OUTAGE = ExternalError("the disk did not answer", code=Code.STORAGE_ERR)


class FakeLoop:
    """Takes the job's lease, and then does what the test wants."""

    outcome_unknown = False
    assumed: Generation | None = None
    owned: Generation | None = None

    def __init__(self, world: "World", job_id: str, reporter: ProgressReporter) -> None:
        self._world = world
        self._job_id = job_id
        self.reporter = reporter
        self.owning = threading.Event()
        self.stopped = threading.Event()
        self.aborted: list[str] = []
        self.until_caught_up: bool | None = None

    @property
    def progress(self) -> Progress:
        return self.reporter.now

    def run(self, *, until_caught_up: bool) -> None:
        self.until_caught_up = until_caught_up
        catalog = self._world.catalog
        state = catalog.job_by_id(self._job_id)
        assert state is not None
        self.owned = self.assumed = next_generation(state.generation)
        catalog.take_lease(
            self._job_id,
            node_id=NODE,
            duration=LEASE_DURATION,
            expected=state.generation,
            generation=self.owned,
        )
        self.owning.set()
        self._world.behave(self)

    def stop(self) -> None:
        self.stopped.set()

    def abort_attempt(self, reason: str) -> None:
        self.aborted.append(reason)


Behave = Callable[[FakeLoop], None]


def catch_up(loop: FakeLoop) -> None:
    loop.reporter.report(caught_up=True)


def work(loop: FakeLoop) -> None:
    """Work until stopped, and end in the middle of an epoch."""
    assert loop.stopped.wait(WAIT_SECONDS)
    raise StoppedError("the runner was asked to stop")


def fail(error: Exception) -> Behave:
    def behave(_: FakeLoop) -> None:
        raise error

    return behave


@dataclass
class World:
    """A catalog with one job, and the loops that a supervisor opened for it."""

    catalog: Catalog
    behave: Behave = catch_up
    caught_up_elsewhere: bool = False
    loops: list[FakeLoop] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)
    supervisors: list[Supervisor] = field(default_factory=list)

    def supervisor(self, *, until_caught_up: bool = False) -> Supervisor:
        """Start a supervisor; the fixture stops it."""
        kind = RunnerKind(open_loop=self._open, caught_up=lambda _: self.caught_up_elsewhere)
        parts = SupervisorParts(
            catalog=self.catalog,
            clock=SystemClock(),
            node_id=NODE,
            start_thread=self._start_thread,
            runners={"load": kind},
        )
        opened = Supervisor(parts=parts, until_caught_up=until_caught_up)
        opened.start(sole_process=False)
        self.supervisors.append(opened)
        return opened

    def run(self, behave: Behave, *, until_caught_up: bool = False) -> Supervisor:
        """Let a supervisor start the job, and wait until its loop has ended."""
        self.behave = behave
        supervisor = self.supervisor(until_caught_up=until_caught_up)
        supervisor.round()
        self.join()
        return supervisor

    def start(self, behave: Behave) -> Supervisor:
        """Let a supervisor start the job, and wait until its loop owns it."""
        self.behave = behave
        supervisor = self.supervisor()
        supervisor.round()
        assert self.loops[-1].owning.wait(WAIT_SECONDS)
        return supervisor

    def join(self) -> None:
        self.threads[-1].join(WAIT_SECONDS)

    @property
    def job(self) -> JobState:
        state = self.catalog.job_by_id(JOB)
        assert state is not None
        return state

    def _open(self, job_id: str, reporter: ProgressReporter) -> Loop:
        self.loops.append(FakeLoop(self, job_id, reporter))
        return self.loops[-1]

    def _start_thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        self.threads.append(threading.Thread(target=run, name=name, daemon=True))
        self.threads[-1].start()
        return self.threads[-1]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    catalog = open_catalog(f"sqlite:///{tmp_path / 'catalog.db'}", clock=SystemClock())
    catalog.create_table(TABLE)
    catalog.create_job(JOB, created())
    opened = World(catalog)
    yield opened
    for supervisor in opened.supervisors:
        supervisor.stop()
    catalog.close()


def ending(look: RunnerReport) -> tuple[Ending, PenstockError | None]:
    assert look.last_words is not None
    return look.last_words.ending, look.last_words.error


def test_a_loop_that_catches_up_ends_the_job_for_this_run(world: World) -> None:
    supervisor = world.run(catch_up, until_caught_up=True)

    (look,) = supervisor.round()

    assert look.caught_up
    assert ending(look) == (Ending.CAUGHT_UP, None)
    assert world.loops[0].until_caught_up is True
    assert len(world.loops) == 1
    assert world.catalog.leases() == {}


def test_a_loop_that_is_stopped_ends_without_a_trace(world: World) -> None:
    supervisor = world.start(work)
    assert set(world.catalog.leases()) == {JOB}

    supervisor.stop()
    world.supervisors.clear()

    (look,) = supervisor.reports()
    assert ending(look) == (Ending.STOPPED, None)
    assert world.job.desired.state is DesiredState.RUN
    assert world.catalog.leases() == {}
    assert supervisor.take_losses() == ()


def test_a_loop_whose_job_a_statement_pauses_is_stopped(world: World) -> None:
    supervisor = world.start(work)
    world.catalog.append(JOB, PAUSED, expected=None)

    supervisor.round()
    world.join()
    (look,) = supervisor.round()

    assert ending(look) == (Ending.STOPPED, None)
    assert look.left_out
    assert world.catalog.leases() == {}
    assert supervisor.take_losses() == ()


def test_a_loop_whose_job_has_a_new_generation_is_stopped_and_reported_as_lost(
    world: World,
) -> None:
    supervisor = world.start(work)
    world.catalog.take_lease(
        JOB,
        node_id=NODE,
        duration=LEASE_DURATION,
        expected=world.job.generation,
        generation=next_generation(world.job.generation),
    )

    supervisor.round()
    world.join()
    (look,) = supervisor.round()

    assert ending(look)[0] is Ending.LOST
    (loss,) = supervisor.take_losses()
    assert (loss.job, loss.error.code) == (DEFINITION.name, Code.LEASE_LOST_ERR)
    assert "generation" in loss.error.detail


def test_a_loop_that_loses_the_job_is_reported_and_pauses_nothing(world: World) -> None:
    lost = LeaseLostError("the job has another owner")
    supervisor = world.run(fail(lost))

    (look,) = supervisor.round()

    assert ending(look) == (Ending.LOST, lost)
    (loss,) = supervisor.take_losses()
    assert (loss.job, loss.error) == (DEFINITION.name, lost)
    assert supervisor.take_losses() == ()
    assert world.job.desired.state is DesiredState.RUN
    assert world.catalog.leases() == {}


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OUTAGE, Code.STORAGE_ERR, "the disk did not answer"),
        (ZeroDivisionError("by zero"), Code.INTERNAL_ERR, "unexpected ZeroDivisionError"),
    ],
)
def test_a_loop_that_fails_pauses_the_job_under_its_generation(
    world: World, error: Exception, code: Code, message: str
) -> None:
    supervisor = world.run(fail(error))

    desired = world.job.desired
    assert desired.state is DesiredState.PAUSE
    assert desired.reason is not None
    assert desired.reason.code is code
    assert desired.reason.message.startswith(message)
    assert world.job.generation == world.loops[0].assumed
    assert world.catalog.leases() == {}
    assert supervisor.take_losses() == ()


def test_the_failure_of_a_loop_that_another_owner_followed_pauses_nothing(
    world: World,
) -> None:
    def overtaken(loop: FakeLoop) -> None:
        assert loop.owned is not None
        loop.assumed = Generation(number=loop.owned.number - 1, id="older")
        raise OUTAGE

    supervisor = world.run(overtaken)

    (look,) = supervisor.round()
    assert ending(look)[0] is Ending.LOST
    assert isinstance(ending(look)[1], LeaseLostError)
    assert world.job.desired.state is DesiredState.RUN


def test_the_failure_of_a_loop_that_assumed_nothing_pauses_nothing(world: World) -> None:
    def unbegun(loop: FakeLoop) -> None:
        loop.assumed = None
        raise OUTAGE

    supervisor = world.run(unbegun)

    (look,) = supervisor.round()
    assert ending(look) == (Ending.LOST, OUTAGE)
    assert world.job.desired.state is DesiredState.RUN


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (CommitOutcomeUnknownError("no answer came"), DesiredState.PAUSE),
        (StoppedError("the runner was asked to stop"), DesiredState.RUN),
        (LeaseLostError("the job has another owner"), DesiredState.RUN),
    ],
    ids=["failed", "stopped", "lost"],
)
def test_a_loop_whose_commit_may_still_land_keeps_its_lease(
    world: World, error: PenstockError, state: DesiredState
) -> None:
    def unknown(loop: FakeLoop) -> None:
        loop.outcome_unknown = True
        raise error

    world.run(unknown)

    assert world.job.desired.state is state
    (lease,) = world.catalog.leases().values()
    assert (lease.node_id, lease.live) == (NODE, True)


def test_a_job_that_paused_itself_is_resumed_under_a_new_generation(world: World) -> None:
    supervisor = world.run(fail(OUTAGE))
    paused = world.job.generation
    world.behave = work

    supervisor.round()

    assert world.job.desired.state is DesiredState.RUN
    assert world.job.desired.auto_resumes == 1
    assert world.job.generation.number == paused.number + 1


def test_an_attempt_that_takes_too_long_is_aborted_and_the_loop_goes_on(world: World) -> None:
    properties = RoutineProperties()
    definition = replace(DEFINITION, job_kind="ROUTINE_LOAD", properties=properties)
    world.catalog.delete_job(JOB)
    world.catalog.create_job(JOB, replace(created(), definition=definition))
    supervisor = world.start(work)
    loop = world.loops[0]
    loop.reporter.report(step=Step.LOADING)
    supervisor.round()
    assert loop.aborted == []

    since = SystemClock().now() - properties.task_timeout - timedelta(seconds=1)
    loop.reporter.report(since=since)
    supervisor.round()

    assert loop.aborted == [f"tasks have run since {since:%H:%M:%S}"]
    assert not loop.stopped.is_set()


def test_a_job_that_needs_what_this_node_lacks_is_not_started_and_its_status_says_so(
    world: World,
) -> None:
    world.catalog.delete_job(JOB)
    definition = replace(DEFINITION, needs=("boto3", "confluent_kafka"))
    world.catalog.create_job(JOB, replace(created(), definition=definition))

    world.supervisor().round()

    assert world.loops == []
    fields = (("node", NODE), ("capability", "boto3"))
    assert world.catalog.report(JOB).status == Status(
        code=StatusCode.LACKS_CAPABILITY, fields=fields
    )


@pytest.mark.parametrize("caught_up", [True, False])
def test_a_job_of_another_node_is_caught_up_when_its_runner_kind_says_so(
    world: World, *, caught_up: bool
) -> None:
    world.catalog.take_lease(
        JOB,
        node_id="node-2",
        duration=LEASE_DURATION,
        expected=world.job.generation,
        generation=next_generation(world.job.generation),
    )
    world.caught_up_elsewhere = caught_up

    (look,) = world.supervisor(until_caught_up=True).round()

    assert look.caught_up is caught_up
    assert world.loops == []


def test_the_supervisor_imports_no_runner() -> None:
    program = (
        "import sys, penstock.supervisor.supervisor\n"
        "runners = ('penstock.engine', 'penstock.spark', 'penstock.streaming', 'pyspark')\n"
        "print([name for name in sys.modules if name.startswith(runners)])\n"
    )

    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert answer.stdout == "[]\n"
