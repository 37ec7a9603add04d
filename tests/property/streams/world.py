"""A load, the stream it reads and everything that can happen to both.

Everything that decides is product code: statements, runner, epoch loop, source, tasks. The wire
is left out, rows stay in memory, and what the product does at once is done in turn, so that a
history is always the same.
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
from penstock.engine.loop import LoadLoop, LoadParts
from penstock.epochs import task
from penstock.epochs.progress import Step as Doing
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
from tests.property.streams.checks import Watchman, check_end
from tests.property.streams.output import MemoryOutput
from tests.property.streams.steps import (
    Crash,
    Happening,
    History,
    Pause,
    Run,
    Setup,
    Start,
    Step,
    Wait,
)
from tests.property.streams.stream import StreamOfWorld
from tests.property.streams.wireless import WirelessClient

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
COLUMNS = (
    Column(name="k", type=Primitive.STRING),
    Column(name="n", type=Primitive.BIGINT),
)
_REQUEST_TAKES = timedelta(milliseconds=7)
_REQUESTS_MAX = 400


class Crashed(BaseException):
    """Raised where the process dies; no product code catches it."""


class ClockOfWorld:
    """Time passes by waiting; whoever waits because nothing is to be done tells the world."""

    def __init__(self) -> None:
        self.instant = BEGIN
        self.waiting: Callable[[], None] = _nothing

    def now(self) -> datetime:
        return self.instant

    def monotonic(self) -> float:
        return (self.instant - BEGIN).total_seconds()

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:
        self.instant += timeout
        self.waiting()
        return event.is_set()


def _nothing() -> None:
    return None


class World:
    """One stream, one load."""

    def __init__(self, setup: Setup, patch: pytest.MonkeyPatch) -> None:
        self.setup = setup
        self.clock = ClockOfWorld()
        self.stream = StreamOfWorld(setup, self.clock)
        self.tables = MemoryTables(self._fault)
        self.catalog = open_catalog("sqlite://", clock=self.clock)
        self.vault = Vault(self.catalog, key_file=Path("/nowhere/secret.key"))
        self.watchman = Watchman()
        self._run = Run()
        self._runner: Runner | None = None
        self._requests = self._tries = self._commits = 0
        self._passed: dict[CrashPoint, int] = {}
        self._idles: Iterator[Happening] = iter(())
        self._create_table()
        _without_threads_and_wires(patch, self)

    def _create_table(self) -> None:
        table = self.tables.create("t", COLUMNS, location="memory://t", comment="")
        self.catalog.create_table(
            TableRecord(
                name="t",
                id=table.id,
                location=table.location,
                managed=True,
                comment="",
                created_at=BEGIN,
            )
        )

    def sql(self, text: str) -> None:
        """Run a statement."""
        services = Services(
            catalog=self.catalog,
            open_tables=lambda: cast("Any", self.tables),
            open_analyst=_no_spark,
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
        # Only records of an earlier second surely lie before LATEST.
        self.clock.instant += timedelta(seconds=2)
        if setup.start is Start.LATEST:
            self.stream.forget_promises()
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
        """Answer the newest commit that is in the table, whoever knows of it."""
        table = self.tables._disk.table_by_location["memory://t"]
        return table.entries[-1].attachment

    def rows(self) -> Sequence[Any]:
        return self.tables.rows("memory://t")

    def take(self, step: Step) -> None:
        """Let something happen, or the load run."""
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
                self.stream.take(step, state=self.catalog.job("r"), catalog=self.catalog)

    def run(self, run: Run) -> Ending | None:
        """Let the load run; answer how that ended, nothing if the process died."""
        if self.state().desired.state is DesiredState.PAUSE:
            self.sql("RESUME ROUTINE LOAD FOR r")
        self._run = run
        self._requests = self._tries = self._commits = 0
        self._passed = {}
        self._idles = iter(run.idle)
        handle_in_this_thread(self._pass)
        self.clock.waiting = self._wait
        try:
            return self._live(run)
        except Crashed:
            return None
        finally:
            self._runner = None
            self.clock.waiting = _nothing
            handle_in_this_thread(None)
            self.stream.promise.check_meanwhile(self.rows())

    def _live(self, run: Run) -> Ending:
        sources = self._sources()
        parts = LoadParts(
            catalog=self.catalog,
            tables=cast("Any", self.tables),
            executor=InProcessExecutor(parallelism=16),
            clock=self.clock,
            open_source=sources.open,
            work=run_task_text,
            node_id="n",
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
                open_loop=lambda job, reporter: LoadLoop(job, parts=parts, reporter=reporter),
                caught_up=sources.is_caught_up,
            ),
            until_caught_up=not run.idle,
        )
        words = runner.last_words
        assert words is not None
        if words.ending is Ending.PAUSED:
            assert isinstance(words.error, ExternalError), words.error
        return words.ending

    def _start(self, run: Callable[[], None], name: str) -> threading.Thread:
        del name
        self._runner = cast("Any", run).__self__
        run()
        return threading.Thread()

    def asked(self, operation: str, arguments: dict[str, Any]) -> None:
        """Hear of a request before it is answered."""
        self.clock.instant += _REQUEST_TAKES
        if self._runner is None:
            return
        self._requests += 1
        assert self._requests < _REQUESTS_MAX, "the load asks and asks"
        for at in self._run.meanwhile:
            if at.request == self._requests:
                self.take(at.happening)
        newest = self.newest()
        if newest is not None:
            self.watchman.see(
                operation, arguments, progress=newest.progress, stream=self.stream.core
            )

    def _wait(self) -> None:
        runner = self._runner
        if runner is None or runner.progress.step is not Doing.IDLE:
            return
        happening = next(self._idles, None)
        if happening is None:
            runner.stop()
        else:
            self.take(happening)

    def _pass(self, point: CrashPoint) -> None:
        self._passed[point] = self._passed.get(point, 0) + 1
        crash = self._run.crash
        if crash and (crash.point, crash.passing) == (point, self._passed[point]):
            raise Crashed

    def close_task(self) -> None:
        """Hear that a try of a task has read everything."""
        self._tries += 1
        if self._tries in self._run.failing_tries:
            raise RuntimeError("the disk of the worker is full")

    def _fault(self, job_id: str, attachment: Attachment) -> Fault:
        del job_id
        if attachment.kind is not CommitKind.EPOCH or self._runner is None:
            return Fault.NONE
        number, self._commits = self._commits, self._commits + 1
        return self._run.commits[number] if number < len(self._run.commits) else Fault.NONE


class InTurn:
    """Threads that do one thing behind the other."""

    def __init__(self, threads: int) -> None:
        del threads

    def __enter__(self) -> "InTurn":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def map(self, work: Callable[[Any], Any], given: Sequence[Any]) -> list[Any]:
        return [work(one) for one in given]


def in_turn(
    streams: Sequence[Callable[[], Iterator[Any]]], *, threads: int, stop: threading.Event
) -> Iterator[Any]:
    """Yield what the streams give, one of each in turn."""
    del threads, stop
    waiting = [stream() for stream in streams]
    while waiting:
        for stream in list(waiting):
            try:
                yield next(stream)
            except StopIteration:
                waiting.remove(stream)


def _without_threads_and_wires(patch: pytest.MonkeyPatch, world: World) -> None:
    wireless = WirelessClient(world.stream.service, now=world.clock.now, asked=world.asked)
    clients = SharedClients[StreamAccess, WirelessClient](lambda _: wireless, clock=world.clock)
    patch.setattr(client_module, "CLIENTS", clients)
    patch.setattr(source_module, "ThreadPoolExecutor", InTurn)
    patch.setattr(reader_module, "interleaved", in_turn)
    patch.setattr(reader_module, "SystemClock", lambda: world.clock)
    patch.setattr(Retries, "delay", lambda *_: timedelta(milliseconds=100))
    patch.setenv("PENSTOCK_SECRET_KEY", "nothing here is secret")
    output = partial(MemoryOutput, tables=world.tables, closing=world.close_task)
    patch.setattr(task, "TaskOutput", output)


def _no_spark() -> NoReturn:
    raise AssertionError("nothing here needs Spark")


@contextmanager
def world_of(setup: Setup) -> Iterator[World]:
    """Answer a world, which is taken apart at the end."""
    # What is logged is nobody's concern here, and writing it takes long.
    with capture_logs(), pytest.MonkeyPatch.context() as patch:
        world = World(setup, patch)
        try:
            yield world
        finally:
            world.catalog.close()


def play(history: History) -> None:
    """Tell a history, heal everything, and require what was promised."""
    with world_of(history.setup) as world:
        for step in history.before:
            world.take(step)
        world.create()
        for step in history.steps:
            world.take(step)
        world.stream.heal()
        world.tables.land_late_writes()

        ending = world.run(Run())

        assert ending is Ending.CAUGHT_UP
        assert not world.watchman.seen, world.watchman.seen
        check_end(world.state(), world.rows(), stream=world.stream, catalog=world.catalog)
