"""Penstock in this process: the parts of ``penstock run``, with timers around them.

The catalog, the tables, the supervisor and the executor are unchanged. Wrappers around the
source, the executor and the table handle record the times.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, cast

from penstock.app import App, open_warehouse
from penstock.cli.run import ROUND_PERIOD
from penstock.clock import Clock
from penstock.control.execute import execute
from penstock.control.result import Analyzer
from penstock.engine.loop import LoadParts, open_load_loop
from penstock.engine.run import Executor, Work
from penstock.epochs.runner import LoopParts
from penstock.epochs.task import run_task_text
from penstock.model.epoch import Attachment, CommitKind, DataFile, EpochLimits, EpochPlan
from penstock.model.job import DesiredState, JobState
from penstock.model.query import QueryRun
from penstock.model.split import Progress
from penstock.settings.settings import load_settings
from penstock.sources.registry import Sources
from penstock.sources.source import Poll, ReportPoll
from penstock.sources.source import Source as JobSource
from penstock.spark.job_session import Halves
from penstock.sql.parser import parse_script
from penstock.supervisor.loop import RunnerKind
from penstock.supervisor.runner import SupervisorParts
from penstock.supervisor.supervisor import RunnerReport, Supervisor
from penstock.tables.table import TableHandle, Tables


@dataclass(slots=True, kw_only=True)
class Epoch:
    """Start and end times of the steps of one epoch."""

    planning_at: float
    planned_at: float
    running_at: float = 0.0
    ran_at: float = 0.0
    visible_at: float = 0.0

    @property
    def to_visible(self) -> float:
        """Seconds from the plan to the visible rows."""
        return self.visible_at - self.planning_at

    @property
    def seconds_by_step(self) -> dict[str, float]:
        """Seconds of every step on the way to the visible rows."""
        return {
            "plan": self.planned_at - self.planning_at,
            "journal": self.running_at - self.planned_at,
            "run": self.ran_at - self.running_at,
            "commit": self.visible_at - self.ran_at,
        }


@dataclass(slots=True, kw_only=True)
class LoadTimes:
    """Times of one load: the first poll of the source, its epochs, and the end."""

    listing_at: float = 0.0
    epochs: list[Epoch] = field(default_factory=list)
    caught_up_at: float = 0.0

    @property
    def to_visible(self) -> float:
        """Seconds from the first poll of the source to the last visible row."""
        return self.epochs[-1].visible_at - self.listing_at

    @property
    def between_epochs(self) -> list[float]:
        """Seconds from visible rows to the next plan: commit the catalog, store the copy."""
        pairs = zip(self.epochs, self.epochs[1:], strict=False)
        return [after.planning_at - before.visible_at for before, after in pairs]


class Product:
    """An open home of Penstock."""

    def __init__(self, home: Path, *, executor: Executor) -> None:
        self._app = App(load_settings(home=home))
        self._tables = open_warehouse(
            self._app.settings.warehouse_location,
            secret=self._app.settings.warehouse_secret,
            vault=self._app.vault,
        )
        self._executor = executor

    def sql(self, text: str) -> None:
        """Run statements."""
        for parsed in parse_script(text):
            services = replace(self._app.services(), open_analyzer=self._analyzer)
            execute(parsed.statement, services=services)

    def _analyzer(self) -> Analyzer:
        return cast("Analyzer", self._executor)

    def location(self, table: str) -> str:
        """Return the location of a table."""
        record = self._app.catalog.table(table)
        if record is None:
            raise LookupError(table)
        return record.location

    def state(self, job: str) -> JobState:
        """Return the stored state of a job."""
        found = self._app.catalog.job(job)
        if found is None:
            raise LookupError(job)
        return found

    def source(self, job: str, *, clock: Clock | None = None) -> JobSource:
        """Open the source of a job as its runner does."""
        return self._source(self.state(job), clock=clock)

    def _source(self, state: JobState, *, clock: Clock | None = None) -> JobSource:
        app = self._app
        sources = Sources(catalog=app.catalog, vault=app.vault, clock=clock or app.clock)
        return sources.open(state, threading.Event())

    def load(self, job: str) -> LoadTimes:
        """Run one job as ``run --until-caught-up --job`` does; return the measured times."""
        times = LoadTimes()
        clock = self._app.clock
        supervisor = Supervisor(
            parts=self._parts(times),
            only=frozenset({job}),
            until_caught_up=True,
        )
        supervisor.start(sole_process=True)
        never = threading.Event()
        try:
            while not all(map(_caught_up, supervisor.round())):
                clock.wait(never, ROUND_PERIOD)
        finally:
            supervisor.stop()
        times.caught_up_at = perf_counter()
        return times

    def close(self) -> None:
        """Close the catalog."""
        self._app.close()

    def _parts(self, times: LoadTimes) -> SupervisorParts:
        parts = self._load_parts(times)
        runner = RunnerKind(
            open_loop=lambda job_id, reporter: open_load_loop(
                job_id, parts=parts, reporter=reporter
            ),
            caught_up=self._app.sources.is_caught_up,
        )
        return SupervisorParts(
            catalog=parts.loop.catalog,
            clock=parts.loop.clock,
            node_id=parts.loop.node_id,
            start_thread=_start_thread,
            runners={"load": runner},
            capabilities=frozenset({"boto3"}),
        )

    def _load_parts(self, times: LoadTimes) -> LoadParts:

        def open_timed(state: JobState, _stop: threading.Event) -> JobSource:
            return cast("JobSource", _TimedSource(self._source(state), times))

        return LoadParts(
            loop=LoopParts(
                catalog=self._app.catalog,
                tables=cast("Tables", _TimedTables(self._tables, times)),
                clock=self._app.clock,
                open_source=open_timed,
                node_id="benchmark",
            ),
            executor=cast("Executor", _TimedExecutor(self._executor, times)),
            work=run_task_text,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source and the SELECT of a job."""

    suffix: str = "json"
    options: str = "'format' = 'json'"
    # Location of the files if they are not in a folder.
    uri: str = ""
    select: str = "SELECT * FROM SOURCE"


def create_job(
    name: str,
    *,
    inbox: Path = Path(),
    columns: str,
    properties: str = "",
    source: Source = Source(),  # noqa: B008 - A frozen value.
) -> str:
    """Return statements that create a table and a job of the same name that loads a folder."""
    clause = f"PROPERTIES ({properties}) " if properties else ""
    uri = source.uri or f"file://{inbox}/*.{source.suffix}"
    call = f"FILES ('uri' = '{uri}', {source.options}, 'schema' = '{columns}')"
    return (
        f"CREATE TABLE {name} ({columns});"
        f"CREATE JOB {name} {clause}ON STREAMING DO INSERT INTO {name} "
        f"{source.select.replace('SOURCE', call)}"
    )


def _caught_up(report: RunnerReport) -> bool:
    # A pause spoils the measurement, even if the job resumes automatically.
    if report.state.desired.state is DesiredState.PAUSE:
        raise RuntimeError(f"job {report.state.name} is paused: {report.state.desired.reason}")
    return report.caught_up


def _start_thread(run: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


class _TimedSource:
    """A source whose polls and plans are timed; other calls are passed on."""

    def __init__(self, source: JobSource, times: LoadTimes) -> None:
        self._source = source
        self._times = times

    def poll(self, progress: Progress, *, report: ReportPoll) -> Poll:
        self._times.listing_at = self._times.listing_at or perf_counter()
        return self._source.poll(progress, report=report)

    def plan(self, progress: Progress, *, limits: EpochLimits) -> EpochPlan | None:
        started = perf_counter()
        plan = self._source.plan(progress, limits=limits)
        if plan is not None:
            self._times.epochs.append(Epoch(planning_at=started, planned_at=perf_counter()))
        return plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


class _TimedExecutor:
    """An executor whose runs are timed; other calls are passed on."""

    def __init__(self, executor: Executor, times: LoadTimes) -> None:
        self._executor = executor
        self._times = times

    def run(self, tasks: Sequence[str], *, work: Work, group: str) -> list[str]:
        with self._timed():
            return self._executor.run(tasks, work=work, group=group)

    def run_query(
        self, tasks: Sequence[str], *, run: QueryRun, halves: Halves, group: str
    ) -> list[str]:
        with self._timed():
            return self._executor.run_query(tasks, run=run, halves=halves, group=group)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        epoch = self._times.epochs[-1]
        epoch.running_at = perf_counter()
        yield
        epoch.ran_at = perf_counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


class _TimedTables:
    """Tables whose handles record when an epoch became visible."""

    def __init__(self, tables: Tables, times: LoadTimes) -> None:
        self._tables = tables
        self._times = times

    def open(self, location: str) -> "_TimedHandle":
        return _TimedHandle(self._tables.open(location), self._times)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)


class _TimedHandle:
    """A handle that records when an epoch became visible; other calls are passed on."""

    def __init__(self, handle: TableHandle, times: LoadTimes) -> None:
        self._handle = handle
        self._times = times

    def commit(self, attachment: Attachment, files: Sequence[DataFile]) -> int:
        version = self._handle.commit(attachment, files)
        if attachment.kind is CommitKind.EPOCH:
            self._times.epochs[-1].visible_at = perf_counter()
        return version

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)
