"""The supervisor starts, watches and stops fake loops."""

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
OUTAGE = ExternalError("the disk did not respond", code=Code.STORAGE_ERR)


class FakeLoop:
    """A loop that acquires the job's lease and then calls a function of the test."""

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
        self.woken = 0
        self.until_caught_up: bool | None = None

    @property
    def progress(self) -> Progress:
        return self.reporter.now

    def wake(self) -> None:
        self.woken += 1

    def run(self, *, until_caught_up: bool) -> None:
        self.until_caught_up = until_caught_up
        catalog = self._world.catalog
        state = catalog.job_by_id(self._job_id)
        assert state is not None
        self.owned = self.assumed = next_generation(state.generation)
        catalog.acquire_lease(
            self._job_id,
            node_id=NODE,
            duration=LEASE_DURATION,
            expected=state.generation,
            generation=self.owned,
        )
        self.owning.set()
        self._world.behavior(self)

    def stop(self) -> None:
        self.stopped.set()

    def abort_attempt(self, reason: str) -> None:
        self.aborted.append(reason)


Behavior = Callable[[FakeLoop], None]


def catch_up(loop: FakeLoop) -> None:
    loop.reporter.report(caught_up=True)


def work(loop: FakeLoop) -> None:
    """Wait until stopped, then end as in the middle of an epoch."""
    assert loop.stopped.wait(WAIT_SECONDS)
    raise StoppedError("the runner was stopped")


def fail(error: Exception) -> Behavior:
    def behavior(_: FakeLoop) -> None:
        raise error

    return behavior


@dataclass
class World:
    """A catalog with one job, and the loops that a supervisor started for it."""

    catalog: Catalog
    behavior: Behavior = catch_up
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

    def run(self, behavior: Behavior, *, until_caught_up: bool = False) -> Supervisor:
        """Start the job with a supervisor, and wait until its loop has ended."""
        self.behavior = behavior
        supervisor = self.supervisor(until_caught_up=until_caught_up)
        supervisor.round()
        self.join()
        return supervisor

    def start(self, behavior: Behavior) -> Supervisor:
        """Start the job with a supervisor, and wait until its loop owns the job."""
        self.behavior = behavior
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


def ending(report: RunnerReport) -> tuple[Ending, PenstockError | None]:
    assert report.last_exit is not None
    return report.last_exit.ending, report.last_exit.error


def test_a_loop_that_catches_up_is_not_started_again(world: World) -> None:
    supervisor = world.run(catch_up, until_caught_up=True)

    (report,) = supervisor.round()

    assert report.caught_up
    assert ending(report) == (Ending.CAUGHT_UP, None)
    assert world.loops[0].until_caught_up is True
    assert len(world.loops) == 1
    assert world.catalog.leases() == {}


def test_a_stopped_loop_releases_its_lease_and_pauses_nothing(world: World) -> None:
    supervisor = world.start(work)
    assert set(world.catalog.leases()) == {JOB}

    supervisor.stop()
    world.supervisors.clear()

    (report,) = supervisor.reports()
    assert ending(report) == (Ending.STOPPED, None)
    assert world.job.desired.state is DesiredState.RUN
    assert world.catalog.leases() == {}
    assert supervisor.pop_lost_jobs() == ()


def test_the_loop_of_a_paused_job_is_stopped(world: World) -> None:
    supervisor = world.start(work)
    world.catalog.append(JOB, PAUSED, expected=None)

    supervisor.round()
    world.join()
    (report,) = supervisor.round()

    assert ending(report) == (Ending.STOPPED, None)
    assert report.user_stopped
    assert world.catalog.leases() == {}
    assert supervisor.pop_lost_jobs() == ()


def test_the_loop_of_a_job_with_a_newer_generation_is_stopped_and_reported_as_lost(
    world: World,
) -> None:
    supervisor = world.start(work)
    world.catalog.acquire_lease(
        JOB,
        node_id=NODE,
        duration=LEASE_DURATION,
        expected=world.job.generation,
        generation=next_generation(world.job.generation),
    )

    supervisor.round()
    world.join()
    (report,) = supervisor.round()

    assert ending(report)[0] is Ending.LOST
    (lost_job,) = supervisor.pop_lost_jobs()
    assert (lost_job.job, lost_job.error.code) == (DEFINITION.name, Code.LEASE_LOST_ERR)
    assert "generation" in lost_job.error.detail


def test_a_loop_that_loses_the_job_is_reported_and_pauses_nothing(world: World) -> None:
    lost = LeaseLostError("the job has another owner")
    supervisor = world.run(fail(lost))

    (report,) = supervisor.round()

    assert ending(report) == (Ending.LOST, lost)
    (lost_job,) = supervisor.pop_lost_jobs()
    assert (lost_job.job, lost_job.error) == (DEFINITION.name, lost)
    assert supervisor.pop_lost_jobs() == ()
    assert world.job.desired.state is DesiredState.RUN
    assert world.catalog.leases() == {}


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OUTAGE, Code.STORAGE_ERR, "the disk did not respond"),
        (ZeroDivisionError("by zero"), Code.INTERNAL_ERR, "unexpected ZeroDivisionError"),
    ],
)
def test_a_failing_loop_pauses_the_job_with_its_generation(
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
    assert supervisor.pop_lost_jobs() == ()


def test_a_failing_loop_does_not_pause_a_job_with_another_owner(
    world: World,
) -> None:
    def taken_over(loop: FakeLoop) -> None:
        assert loop.owned is not None
        loop.assumed = Generation(number=loop.owned.number - 1, id="older")
        raise OUTAGE

    supervisor = world.run(taken_over)

    (report,) = supervisor.round()
    assert ending(report)[0] is Ending.LOST
    assert isinstance(ending(report)[1], LeaseLostError)
    assert world.job.desired.state is DesiredState.RUN


def test_a_loop_that_fails_before_its_first_step_pauses_nothing(world: World) -> None:
    def not_started(loop: FakeLoop) -> None:
        loop.assumed = None
        raise OUTAGE

    supervisor = world.run(not_started)

    (report,) = supervisor.round()
    assert ending(report) == (Ending.LOST, OUTAGE)
    assert world.job.desired.state is DesiredState.RUN


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (CommitOutcomeUnknownError("there was no response"), DesiredState.PAUSE),
        (StoppedError("the runner was stopped"), DesiredState.RUN),
        (LeaseLostError("the job has another owner"), DesiredState.RUN),
    ],
    ids=["failed", "stopped", "lost"],
)
def test_a_loop_with_an_unknown_commit_outcome_keeps_its_lease(
    world: World, error: PenstockError, state: DesiredState
) -> None:
    def unknown(loop: FakeLoop) -> None:
        loop.outcome_unknown = True
        raise error

    world.run(unknown)

    assert world.job.desired.state is state
    (lease,) = world.catalog.leases().values()
    assert (lease.node_id, lease.live) == (NODE, True)


def test_a_job_paused_by_a_failure_is_resumed_with_a_new_generation(world: World) -> None:
    supervisor = world.run(fail(OUTAGE))
    paused = world.job.generation
    world.behavior = work

    supervisor.round()

    assert world.job.desired.state is DesiredState.RUN
    assert world.job.desired.auto_resumes == 1
    assert world.job.generation.number == paused.number + 1


def test_an_overdue_attempt_is_aborted_and_its_loop_continues(world: World) -> None:
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


def test_a_job_that_needs_a_missing_library_is_not_started_and_its_status_names_it(
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
def test_the_runner_kind_decides_whether_a_job_of_another_node_is_caught_up(
    world: World, *, caught_up: bool
) -> None:
    world.catalog.acquire_lease(
        JOB,
        node_id="node-2",
        duration=LEASE_DURATION,
        expected=world.job.generation,
        generation=next_generation(world.job.generation),
    )
    world.caught_up_elsewhere = caught_up

    (report,) = world.supervisor(until_caught_up=True).round()

    assert report.caught_up is caught_up
    assert world.loops == []


def test_a_job_of_another_node_is_not_caught_up_while_a_job_writes_its_input(
    world: World,
) -> None:
    add_reader(world)
    world.caught_up_elsewhere = True
    ended = threading.Event()
    world.behavior = lambda loop: catch_up(loop) if ended.wait(WAIT_SECONDS) else None
    supervisor = world.supervisor(until_caught_up=True)

    before = caught_up_jobs(supervisor)
    ended.set()
    world.join()
    after = [caught_up_jobs(supervisor) for _ in range(2)][-1]

    assert (before, after) == (set(), {"load_orders", "reader"})


def add_reader(world: World) -> None:
    """Create a job of another node, which reads the table that the first job writes."""
    table = replace(TABLE, name="read", id="table-2", location="file:///read")
    world.catalog.create_table(table)
    body = created("reader", "job-2")
    ref = replace(DEFINITION.table, name=table.name, id=table.id, location=table.location)
    (split,) = body.opening.progress
    progress = (replace(split, identity=TABLE.id),)
    body = replace(
        body,
        definition=replace(body.definition, table=ref),
        opening=replace(body.opening, table_id=table.id, progress=progress),
    )
    state = world.catalog.create_job("job-2", body)
    world.catalog.acquire_lease(
        "job-2",
        node_id="node-2",
        duration=LEASE_DURATION,
        expected=state.generation,
        generation=next_generation(state.generation),
    )


def caught_up_jobs(supervisor: Supervisor) -> set[str]:
    """Run a round; return the names of the jobs that are caught up."""
    return {report.state.name for report in supervisor.round() if report.caught_up}


def test_the_supervisor_imports_no_runner() -> None:
    program = (
        "import sys, penstock.supervisor.supervisor\n"
        "runners = ('penstock.engine', 'penstock.spark', 'penstock.streaming', 'pyspark')\n"
        "print([name for name in sys.modules if name.startswith(runners)])\n"
    )

    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert printed.stdout == "[]\n"
