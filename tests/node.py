"""A complete node in the test process: real catalog, real Delta tables, real files.

Only Spark is replaced, by the in-process executor that passes its contract suite.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from penstock.app import open_warehouse
from penstock.catalog.catalog import Catalog, open_catalog
from penstock.clock import Clock, SystemClock
from penstock.control.execute import Services, execute
from penstock.control.result import Analyzer, Cell
from penstock.engine.loop import LoadParts, open_load_loop
from penstock.engine.run import Work
from penstock.epochs.runner import LoopParts
from penstock.epochs.task import run_task_text
from penstock.model.job import JobState
from penstock.secrets.vault import Vault
from penstock.settings.settings import KEY_FILE
from penstock.sources.kinesis.reading import READ_INTERVAL
from penstock.sources.kinesis.source import ReadBudgets
from penstock.sources.registry import Sources
from penstock.sources.source import TableOpener
from penstock.spark.executor import SparkExecutor
from penstock.sql.parser import parse_script
from penstock.streaming.analysis import StreamAnalyzer
from penstock.streaming.checkpoint import delete_unused
from penstock.streaming.runner import QueryParts, open_query_loop
from penstock.supervisor.loop import RunnerKind
from penstock.supervisor.runner import StartThread, SupervisorParts
from penstock.supervisor.supervisor import RunnerReport, Supervisor
from penstock.tables.table import Tables
from penstock.testing.executor import InProcessExecutor

Row = Mapping[str, Any]
# Frequent rounds would slow down the runners.
ROUND_PERIOD = timedelta(milliseconds=30)
TIMEOUT_SECONDS = 120


@dataclass
class Node:
    """One open home; ``restart`` drops all state in memory and opens the home again."""

    home: Path
    clock: Clock = field(default_factory=SystemClock)
    work: Work = run_task_text
    node_id: str = "node-1"
    tables: Tables | None = None
    spark: SparkExecutor | None = None
    warehouse: str = ""
    warehouse_secret: str = ""
    # The minimum interval between two requests for records of a shard.
    read_interval: timedelta = READ_INTERVAL

    def __post_init__(self) -> None:
        # The message of the last statement.
        self.last_message = ""
        self.home.mkdir(parents=True, exist_ok=True)
        self.catalog: Catalog = open_catalog(
            f"sqlite:///{self.home / 'catalog.db'}", clock=self.clock
        )
        self.vault = Vault(self.catalog, key_file=self.home / KEY_FILE)
        self.tables = self.tables or open_warehouse(
            self.warehouse or str(self.home / "warehouse"),
            secret=self.warehouse_secret,
            vault=self.vault,
        )

    def restart(self) -> "Node":
        """Return the same home with no state in memory."""
        self.catalog.close()
        return replace(self, node_id=self.node_id + "+", tables=None)

    def sql(self, text: str) -> list[dict[str, Cell]]:
        """Run statements and return the rows of the last one."""
        assert self.tables is not None
        tables = self.tables
        services = Services(
            catalog=self.catalog,
            open_tables=lambda: tables,
            open_analyzer=self._analyzer,
            clock=self.clock,
            vault=self.vault,
            sources=self.sources(),
            tasks_max=2,
            open_stream_analyzer=self._stream_analyzer,
            delete_checkpoints=lambda job_id: delete_unused(self.checkpoints / job_id),
        )
        results = [execute(p.statement, services=services) for p in parse_script(text)]
        last = results[-1]
        self.last_message = last.message
        return [dict(zip(last.names, row, strict=True)) for row in last.rows]

    def _analyzer(self) -> Analyzer:
        assert self.spark is not None, "the SELECT needs Spark, and this node has none"
        return self.spark

    def _stream_analyzer(self) -> StreamAnalyzer:
        assert self.spark is not None, "a streaming table needs Spark, and this node has none"
        return StreamAnalyzer(self.spark, scratch=self.home / "trials")

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints of streaming tables."""
        return self.home / "checkpoints"

    def supervisor(
        self, *, until_caught_up: bool = True, start_runner: StartThread | None = None
    ) -> Supervisor:
        """Return a supervisor whose runners are threads of this process."""
        assert self.tables is not None
        sources = self.sources()

        def upstream_works(state: JobState) -> bool:
            return supervisor.upstream_works(state)

        parts = LoadParts(
            loop=LoopParts(
                catalog=self.catalog,
                tables=self.tables,
                clock=self.clock,
                open_source=sources.open,
                node_id=self.node_id,
                upstream_works=upstream_works,
            ),
            executor=self.spark or InProcessExecutor(),
            work=self.work,
        )
        supervised = supervisor_parts(parts, sources, start_thread=start_runner or start_thread)
        if self.spark is not None:
            runner = self._query_runner(parts.loop, self.spark, sources)
            supervised = replace(supervised, runners={**supervised.runners, "query": runner})
        supervisor = Supervisor(parts=supervised, until_caught_up=until_caught_up)
        return supervisor

    def _query_runner(
        self, loop: LoopParts, spark: SparkExecutor, sources: Sources
    ) -> RunnerKind:
        parts = QueryParts(
            loop=loop, executor=spark, checkpoints=self.checkpoints, state_memory_mb=64
        )
        return RunnerKind(
            open_loop=lambda job_id, reporter: open_query_loop(
                job_id, parts=parts, reporter=reporter
            ),
            caught_up=sources.is_query_caught_up,
        )

    def sources(self) -> Sources:
        """Return the object that opens the sources of this node."""
        budgets = ReadBudgets(self.clock, interval=self.read_interval)
        return Sources(
            catalog=self.catalog,
            vault=self.vault,
            clock=self.clock,
            shared={"KINESIS": budgets},
            open_tables=lambda: cast("TableOpener", self.tables),
        )

    def run(self) -> tuple[RunnerReport, ...]:
        """Run every job until it is caught up or permanently paused."""
        supervisor = self.supervisor()
        supervisor.start(sole_process=True)
        never, real = threading.Event(), SystemClock()
        deadline = real.monotonic() + TIMEOUT_SECONDS
        reports: tuple[RunnerReport, ...] = ()
        try:
            while real.monotonic() < deadline:
                reports = supervisor.round()
                if all(k.caught_up or k.user_stopped or k.needs_resume for k in reports):
                    return reports
                self.clock.wait(never, ROUND_PERIOD)
        finally:
            supervisor.stop()
        raise AssertionError(f"not caught up: {reports}")

    def job(self, name: str) -> JobState:
        """Return the stored state of a job."""
        state = self.catalog.job(name)
        assert state is not None
        return state

    def show(self, name: str) -> dict[str, Cell]:
        """Return the job's row of SHOW JOBS."""
        return next(row for row in self.sql("SHOW JOBS") if row["name"] == name)

    def name_of(self, path: Path) -> str:
        """Return the name of a source file as Penstock shows it."""
        return str(path)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table, read by deltalake, sorted by their text."""
        record = self.catalog.table(table)
        assert record is not None
        rows = self.read(record.location)
        return sorted(rows, key=lambda row: json.dumps(row, default=str))

    def exists(self, location: str) -> bool:
        """Return whether a table's location contains anything."""
        return Path(location).exists()

    def read(self, location: str) -> list[dict[str, Any]]:
        """Return the rows of the table at a location."""
        return read_table(location)


def supervisor_parts(
    parts: LoadParts, sources: Sources, *, start_thread: StartThread
) -> SupervisorParts:
    """Return the parts of a supervisor of load jobs."""
    runner = RunnerKind(
        open_loop=lambda job_id, reporter: open_load_loop(
            job_id, parts=parts, reporter=reporter
        ),
        caught_up=sources.is_caught_up,
    )
    return SupervisorParts(
        catalog=parts.loop.catalog,
        clock=parts.loop.clock,
        node_id=parts.loop.node_id,
        start_thread=start_thread,
        runners={"load": runner},
        capabilities=frozenset({"boto3"}),
    )


def read_table(location: str) -> list[dict[str, Any]]:
    """Return the rows of a Delta table, read by deltalake.

    Arrow opens the files itself. The threads of deltalake's file system would call Python,
    sometimes while the interpreter shuts down, which aborts the process.
    """
    files = SubTreeFileSystem(location, LocalFileSystem())
    return DeltaTable(location).to_pyarrow_table(filesystem=files).to_pylist()


def start_thread(run: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def write_rows(path: Path, rows: Iterable[Row]) -> Path:
    """Write a file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def numbered(*numbers: int) -> list[dict[str, Any]]:
    """Return simple rows, one per number."""
    return [{"id": number, "note": f"row {number}"} for number in numbers]


CREATE_TABLE = "CREATE TABLE t (id BIGINT NOT NULL, note STRING)"


def create_job(
    folder: Path, *, name: str = "j", properties: Sequence[tuple[str, str]] = (), **options: str
) -> str:
    """Return a CREATE JOB for a folder of numbered rows."""
    given = ", ".join(f"'{key}' = '{value}'" for key, value in properties)
    clause = f"PROPERTIES({given}) " if given else ""
    source = {"uri": f"file://{folder}/*.json", "format": "json", **options}
    arguments = ", ".join(f"'{key}' = '{value}'" for key, value in source.items())
    return (
        f"CREATE JOB {name} {clause}ON STREAMING DO "  # noqa: S608 - Our own SQL.
        f"INSERT INTO t SELECT id, note FROM FILES({arguments})"
    )
