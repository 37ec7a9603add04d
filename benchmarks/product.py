"""Penstock in this process: the parts that ``penstock run`` is made of, with a stopwatch.

The catalog, the tables, the supervisor and the executor are the product's own. Only what they
are wired with looks at the clock on its way through, so nothing inside them is changed.
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
from penstock.control.result import Analyst
from penstock.engine.loop import LoadLoop, LoadParts
from penstock.engine.run import Executor, Work
from penstock.epochs.task import run_task_text
from penstock.model.epoch import Attachment, CommitKind, DataFile, EpochLimits, EpochPlan
from penstock.model.job import DesiredState, JobState
from penstock.model.query import QueryRun
from penstock.model.split import Progress
from penstock.settings.settings import load_settings
from penstock.sources.registry import Sources
from penstock.sources.source import Poll, Seen
from penstock.sources.source import Source as JobSource
from penstock.spark.job_session import Halves
from penstock.sql.parser import parse_script
from penstock.supervisor.loop import RunnerKind
from penstock.supervisor.runner import SupervisorParts
from penstock.supervisor.supervisor import RunnerReport, Supervisor
from penstock.tables.table import TableHandle, Tables


@dataclass(slots=True, kw_only=True)
class Epoch:
    """When the steps of one epoch began and ended."""

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
class Watch:
    """The epochs of one load, and when it looked at the source first."""

    listing_at: float = 0.0
    epochs: list[Epoch] = field(default_factory=list)
    caught_up_at: float = 0.0

    @property
    def to_visible(self) -> float:
        """Seconds from the first look at the source to the last visible row."""
        return self.epochs[-1].visible_at - self.listing_at

    @property
    def between_epochs(self) -> list[float]:
        """Seconds from visible rows to the next plan: the catalog follows, the copy is kept."""
        pairs = zip(self.epochs, self.epochs[1:], strict=False)
        return [after.planning_at - before.visible_at for before, after in pairs]


class Product:
    """One home of Penstock, opened."""

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
            services = replace(self._app.services(), open_analyst=self._analyst)
            execute(parsed.statement, services=services)

    def _analyst(self) -> Analyst:
        return cast("Analyst", self._executor)

    def location(self, table: str) -> str:
        """Answer where a table's files are."""
        record = self._app.catalog.table(table)
        if record is None:
            raise LookupError(table)
        return record.location

    def state(self, job: str) -> JobState:
        """Answer what is remembered of a job."""
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

    def load(self, job: str) -> Watch:
        """Run one job as ``run --until-caught-up --job`` does; answer what the watch saw."""
        watch = Watch()
        clock = self._app.clock
        supervisor = Supervisor(
            parts=self._parts(watch),
            only=frozenset({job}),
            until_caught_up=True,
        )
        supervisor.start(sole_process=True)
        never = threading.Event()
        try:
            while not all(_caught_up(look) for look in supervisor.round()):
                clock.wait(never, ROUND_PERIOD)
        finally:
            supervisor.stop()
        watch.caught_up_at = perf_counter()
        return watch

    def close(self) -> None:
        """Close the catalog."""
        self._app.close()

    def _parts(self, watch: Watch) -> SupervisorParts:
        parts = self._load_parts(watch)
        runner = RunnerKind(
            open_loop=lambda job_id, reporter: LoadLoop(job_id, parts=parts, reporter=reporter),
            caught_up=self._app.sources.is_caught_up,
        )
        return SupervisorParts(
            catalog=parts.catalog,
            clock=parts.clock,
            node_id=parts.node_id,
            start_thread=_start_thread,
            runners={"load": runner},
            capabilities=frozenset({"boto3"}),
        )

    def _load_parts(self, watch: Watch) -> LoadParts:

        def open_watched(state: JobState, _stop: threading.Event) -> JobSource:
            return cast("JobSource", _WatchedSource(self._source(state), watch))

        return LoadParts(
            catalog=self._app.catalog,
            tables=cast("Tables", _WatchedTables(self._tables, watch)),
            executor=cast("Executor", _WatchedExecutor(self._executor, watch)),
            clock=self._app.clock,
            open_source=open_watched,
            work=run_task_text,
            node_id="benchmark",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """How a job reads a folder, and what it selects."""

    suffix: str = "json"
    options: str = "'format' = 'json'"
    # Where the files are if not in a folder.
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
    """Answer the statements that create a table and the job of its name that loads a folder."""
    clause = f"PROPERTIES ({properties}) " if properties else ""
    uri = source.uri or f"file://{inbox}/*.{source.suffix}"
    call = f"FILES ('uri' = '{uri}', {source.options}, 'schema' = '{columns}')"
    return (
        f"CREATE TABLE {name} ({columns});"
        f"CREATE JOB {name} {clause}ON STREAMING DO INSERT INTO {name} "
        f"{source.select.replace('SOURCE', call)}"
    )


def _caught_up(look: RunnerReport) -> bool:
    # Also a pause that heals is none of what is measured here.
    if look.state.desired.state is DesiredState.PAUSE:
        raise RuntimeError(f"job {look.state.name} is paused: {look.state.desired.reason}")
    return look.caught_up


def _start_thread(run: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


class _WatchedSource:
    """A source whose polls and plans are timed; all else is its own."""

    def __init__(self, source: JobSource, watch: Watch) -> None:
        self._source = source
        self._watch = watch

    def poll(self, progress: Progress, *, seen: Seen) -> Poll:
        self._watch.listing_at = self._watch.listing_at or perf_counter()
        return self._source.poll(progress, seen=seen)

    def plan(self, progress: Progress, *, limits: EpochLimits) -> EpochPlan | None:
        begun = perf_counter()
        plan = self._source.plan(progress, limits=limits)
        if plan is not None:
            self._watch.epochs.append(Epoch(planning_at=begun, planned_at=perf_counter()))
        return plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


class _WatchedExecutor:
    """An executor whose runs are timed; all else is its own."""

    def __init__(self, executor: Executor, watch: Watch) -> None:
        self._executor = executor
        self._watch = watch

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
        epoch = self._watch.epochs[-1]
        epoch.running_at = perf_counter()
        yield
        epoch.ran_at = perf_counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


class _WatchedTables:
    """Tables whose handles tell when an epoch became visible."""

    def __init__(self, tables: Tables, watch: Watch) -> None:
        self._tables = tables
        self._watch = watch

    def open(self, location: str) -> "_WatchedHandle":
        return _WatchedHandle(self._tables.open(location), self._watch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)


class _WatchedHandle:
    """A handle that tells when an epoch became visible; all else is the handle's own."""

    def __init__(self, handle: TableHandle, watch: Watch) -> None:
        self._handle = handle
        self._watch = watch

    def commit(self, attachment: Attachment, files: Sequence[DataFile]) -> int:
        version = self._handle.commit(attachment, files)
        if attachment.kind is CommitKind.EPOCH:
            self._watch.epochs[-1].visible_at = perf_counter()
        return version

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)
