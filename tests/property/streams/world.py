"""Simulation of a load, its stream, and everything that can happen to both.

All decisions are those of product code: statements, runner, epoch loop, source and tasks. Only
HTTP is omitted, rows stay in memory, and threads run one after another. A history therefore
always has the same result.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest
from structlog.testing import capture_logs

from penstock.aws.clients import SharedClients
from penstock.catalog.catalog import TableRecord, open_catalog
from penstock.control.execute import Services, execute
from penstock.crashpoints import CrashPoint, handle_in_this_thread
from penstock.engine.loop import LoadParts, open_load_loop
from penstock.epochs import task
from penstock.epochs.progress import Step as RunnerStep
from penstock.epochs.runner import LoopParts
from penstock.epochs.task import run_task_text
from penstock.errors import ExternalError
from penstock.model.epoch import Attachment, CommitKind
from penstock.model.job import DesiredState, JobState
from penstock.model.schema import Column, Primitive
from penstock.secrets.vault import Vault
from penstock.sources.kinesis import client as client_module
from penstock.sources.kinesis import reader as reader_module
from penstock.sources.kinesis import source as source_module
from penstock.sources.kinesis.client import Retries, StreamAccess
from penstock.sources.kinesis.source import ReadBudgets
from penstock.sources.registry import Sources
from penstock.sql.parser import parse_script
from penstock.supervisor.loop import RunnerKind
from penstock.supervisor.runner import Ending, Runner, SupervisorParts
from penstock.testing.executor import InProcessExecutor
from penstock.testing.memory_tables import Fault, MemoryTables
from tests.property.streams.checks import ReadMonitor, check_end
from tests.property.streams.in_process_client import InProcessClient
from tests.property.streams.output import MemoryOutput
from tests.property.streams.steps import (
    Action,
    Crash,
    History,
    Pause,
    Run,
    Setup,
    Start,
    Step,
    Wait,
)
from tests.property.streams.stream import SimulatedStream

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
COLUMNS = (
    Column(name="k", type=Primitive.STRING),
    Column(name="n", type=Primitive.BIGINT),
)
_REQUEST_DURATION = timedelta(milliseconds=7)
_REQUESTS_MAX = 400


class Crashed(BaseException):
    """Raised where the process is killed; no product code catches it."""


class SimulatedClock:
    """Clock that advances with every wait, and then calls ``on_wait``."""

    def __init__(self) -> None:
        self.instant = START
        self.on_wait: Callable[[], None] = _do_nothing

    def now(self) -> datetime:
        return self.instant

    def monotonic(self) -> float:
        return (self.instant - START).total_seconds()

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:
        self.instant += timeout
        self.on_wait()
        return event.is_set()


def _do_nothing() -> None:
    return None


class World:
    """Simulation of one stream and one load."""

    def __init__(self, setup: Setup, patch: pytest.MonkeyPatch) -> None:
        self.setup = setup
        self.clock = SimulatedClock()
        self.stream = SimulatedStream(setup, self.clock)
        self.tables = MemoryTables(self._fault)
        self.catalog = open_catalog("sqlite://", clock=self.clock)
        self.vault = Vault(self.catalog, key_file=Path("/nowhere/secret.key"))
        self.monitor = ReadMonitor()
        self._run = Run()
        self._runner: Runner | None = None
        self._requests = self._attempts = self._commits = 0
        self._passed: dict[CrashPoint, int] = {}
        self._idles: Iterator[Action] = iter(())
        self._create_table()
        _patch_threads_and_http(patch, self)

    def _create_table(self) -> None:
        table = self.tables.create("t", COLUMNS, location="memory://t", comment="")
        self.catalog.create_table(
            TableRecord(
                name="t",
                id=table.id,
                location=table.location,
                managed=True,
                comment="",
                created_at=START,
            )
        )

    def sql(self, text: str) -> None:
        """Execute SQL statements."""
        services = Services(
            catalog=self.catalog,
            open_tables=lambda: cast("Any", self.tables),
            open_analyzer=_no_spark,
            clock=self.clock,
            vault=self.vault,
            sources=self._sources(),
        )
        for parsed in parse_script(text):
            execute(parsed.statement, services=services)

    def _sources(self) -> Sources:
        budgets = ReadBudgets(self.clock, interval=timedelta(0))
        return Sources(
            catalog=self.catalog,
            vault=self.vault,
            clock=self.clock,
            shared={"KINESIS": budgets},
        )

    def create(self) -> None:
        """Create the load."""
        setup = self.setup
        # Only records of an earlier second are certainly before LATEST.
        self.clock.instant += timedelta(seconds=2)
        if setup.start is Start.LATEST:
            self.stream.expect_no_records()
        self.sql(
            "CREATE ROUTINE LOAD r ON t PROPERTIES("
            f"'format' = 'json', 'max_batch_rows' = '{setup.rows_max}', "
            f"'desired_concurrent_number' = '{setup.tasks_max}', "
            "'max_error_number' = '1000') FROM KINESIS("
            "'aws.region' = 'us-east-1', 'kinesis_stream' = 's', "
            f"'property.kinesis_default_pos' = '{setup.start}', "
            f"'property.aws.kinesis.max_records' = '{setup.page_records_max}', "
            f"'property.aws.kinesis.max_results' = '{setup.page_shards_max}', "
            f"'kpl_foreign_records' = '{setup.foreign}')"
        )

    def state(self) -> JobState:
        state = self.catalog.job("r")
        assert state is not None
        return state

    def newest(self) -> Attachment | None:
        """Return the newest table commit, even if the catalog does not have it yet."""
        table = self.tables._disk.table_by_location["memory://t"]
        return table.entries[-1].attachment

    def rows(self) -> Sequence[Any]:
        return self.tables.rows("memory://t")

    def apply(self, step: Step) -> None:
        """Execute a step."""
        match step:
            case Run():
                self.run(step)
            case Crash():
                if self._runner is not None:
                    raise Crashed
            case Pause():
                if self.state().desired.state is DesiredState.RUN:
                    self.sql("PAUSE ROUTINE LOAD FOR r")
            case Wait(seconds=seconds):
                self.clock.instant += timedelta(seconds=seconds)
            case _:
                self.stream.apply(step, state=self.catalog.job("r"), catalog=self.catalog)

    def run(self, run: Run) -> Ending | None:
        """Run the load; return how the run ended, or None if the process was killed."""
        if self.state().desired.state is DesiredState.PAUSE:
            self.sql("RESUME ROUTINE LOAD FOR r")
        self._run = run
        self._requests = self._attempts = self._commits = 0
        self._passed = {}
        self._idles = iter(run.idle)
        handle_in_this_thread(self._reach)
        self.clock.on_wait = self._wait
        try:
            return self._run_runner(run)
        except Crashed:
            return None
        finally:
            self._runner = None
            self.clock.on_wait = _do_nothing
            handle_in_this_thread(None)
            self.stream.expectation.check_so_far(self.rows())

    def _run_runner(self, run: Run) -> Ending:
        sources = self._sources()
        parts = LoadParts(
            loop=LoopParts(
                catalog=self.catalog,
                tables=cast("Any", self.tables),
                clock=self.clock,
                open_source=sources.open,
                node_id="n",
            ),
            executor=InProcessExecutor(parallelism=16),
            work=run_task_text,
        )
        runner = Runner(
            self.state().id,
            parts=SupervisorParts(
                catalog=self.catalog,
                clock=self.clock,
                node_id="n",
                start_thread=self._start,
            ),
            kind=RunnerKind(
                open_loop=lambda job, reporter: open_load_loop(
                    job, parts=parts, reporter=reporter
                ),
                caught_up=sources.is_caught_up,
            ),
            until_caught_up=not run.idle,
        )
        last_exit = runner.last_exit
        assert last_exit is not None
        if last_exit.ending is Ending.PAUSED:
            assert isinstance(last_exit.error, ExternalError), last_exit.error
        return last_exit.ending

    def _start(self, run: Callable[[], None], name: str) -> threading.Thread:
        del name
        self._runner = cast("Any", run).__self__
        run()
        return threading.Thread()

    def on_request(self, operation: str, arguments: dict[str, Any]) -> None:
        """Execute the actions before a request, and check the request."""
        self.clock.instant += _REQUEST_DURATION
        if self._runner is None:
            return
        self._requests += 1
        assert self._requests < _REQUESTS_MAX, "the load does not stop sending requests"
        for at in self._run.meanwhile:
            if at.request == self._requests:
                self.apply(at.action)
        newest = self.newest()
        if newest is not None:
            self.monitor.check_request(
                operation, arguments, progress=newest.progress, stream=self.stream.server_stream
            )

    def _wait(self) -> None:
        runner = self._runner
        if runner is None or runner.progress.step is not RunnerStep.IDLE:
            return
        action = next(self._idles, None)
        if action is None:
            runner.stop()
        else:
            self.apply(action)

    def _reach(self, point: CrashPoint) -> None:
        self._passed[point] = self._passed.get(point, 0) + 1
        crash = self._run.crash
        if crash and (crash.point, crash.occurrence) == (point, self._passed[point]):
            raise Crashed

    def close_task(self) -> None:
        """Count an attempt of a task that has read all records; raise if it must fail."""
        self._attempts += 1
        if self._attempts in self._run.failing_attempts:
            raise RuntimeError("the disk of the worker is full")

    def _fault(self, job_id: str, attachment: Attachment) -> Fault:
        del job_id
        if attachment.kind is not CommitKind.EPOCH or self._runner is None:
            return Fault.NONE
        number, self._commits = self._commits, self._commits + 1
        return self._run.commits[number] if number < len(self._run.commits) else Fault.NONE


class SequentialExecutor:
    """Replacement of ThreadPoolExecutor that runs calls one after another."""

    def __init__(self, threads: int) -> None:
        del threads

    def __enter__(self) -> "SequentialExecutor":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        return [work(item) for item in items]


def interleave(
    streams: Sequence[Callable[[], Iterator[Any]]], *, threads: int, stop: threading.Event
) -> Iterator[Any]:
    """Yield one item of each stream in turn, until all streams are empty."""
    del threads, stop
    running = [stream() for stream in streams]
    while running:
        for stream in list(running):
            try:
                yield next(stream)
            except StopIteration:
                running.remove(stream)


def _patch_threads_and_http(patch: pytest.MonkeyPatch, world: World) -> None:
    client = InProcessClient(
        world.stream.service, now=world.clock.now, on_request=world.on_request
    )
    clients = SharedClients[StreamAccess, InProcessClient](lambda _: client, clock=world.clock)
    patch.setattr(client_module, "CLIENTS", clients)
    patch.setattr(source_module, "ThreadPoolExecutor", SequentialExecutor)
    patch.setattr(reader_module, "interleave", interleave)
    patch.setattr(reader_module, "SystemClock", lambda: world.clock)
    patch.setattr(Retries, "delay", lambda *_: timedelta(milliseconds=100))
    patch.setenv("PENSTOCK_SECRET_KEY", "nothing here is secret")
    output = partial(MemoryOutput, tables=world.tables, closing=world.close_task)
    patch.setattr(task, "TaskOutput", output)


def _no_spark() -> NoReturn:
    raise AssertionError("nothing here needs Spark")


@contextmanager
def open_world(setup: Setup) -> Iterator[World]:
    """Create a world, and close it at the end of the block."""
    # Captured logs are ignored, because writing logs is slow.
    with capture_logs(), pytest.MonkeyPatch.context() as patch:
        world = World(setup, patch)
        try:
            yield world
        finally:
            world.catalog.close()


def run_history(history: History) -> None:
    """Run a history, remove all faults, and check that every record was loaded once."""
    with open_world(history.setup) as world:
        for step in history.before:
            world.apply(step)
        world.create()
        for step in history.steps:
            world.apply(step)
        world.stream.heal()
        world.tables.apply_late_writes()

        ending = world.run(Run())

        assert ending is Ending.CAUGHT_UP
        assert not world.monitor.violations, world.monitor.violations
        check_end(world.state(), world.rows(), stream=world.stream, catalog=world.catalog)
