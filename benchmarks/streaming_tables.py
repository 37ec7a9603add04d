"""Streaming tables against a bare Structured Streaming query with the same state settings.

Both read the same Parquet files in the same Spark. The bare query writes Parquet, and has no
exactly-once table, no stored positions and no sync of its checkpoint.
"""

import logging
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from deltalake import DeltaTable, write_deltalake
from rich.console import Console

from benchmarks.command_line import penstock_command, run_penstock
from benchmarks.figures import Comparison, Figure, Goal, of_samples, paired_ratio
from penstock.app import App
from penstock.control.execute import execute
from penstock.model.epoch import CommitKind
from penstock.model.events import Outcome
from penstock.settings.settings import load_settings
from penstock.spark.executor import SparkExecutor
from penstock.spark.session import SparkOptions
from penstock.sql.parser import parse_script
from penstock.streaming.analysis import StreamAnalyzer
from penstock.streaming.query import QuerySettings
from penstock.streaming.runner import QueryParts, open_query_loop
from penstock.supervisor.loop import RunnerKind
from penstock.supervisor.runner import SupervisorParts
from penstock.supervisor.supervisor import Supervisor

FILES = 8
SMALL_ROWS = 100
STATE_MEMORY_MB = 256
DELAY = "10 seconds"
MARK = "WATERMARK ts DELAY OF INTERVAL 10 SECONDS"
COUNT = (
    "SELECT window(ts, '1 minute').start AS minute, k, count(*) AS n FROM {a} "
    "GROUP BY window(ts, '1 minute'), k"
)
JOIN = (
    "SELECT x.id, x.v, y.v AS w FROM {a} AS x JOIN {b} AS y "
    "ON x.id = y.id AND y.ts BETWEEN x.ts AND x.ts + INTERVAL 5 SECONDS"
)
PROJECTION = "SELECT id, k, v FROM {a}"
START = datetime(2026, 1, 1, tzinfo=UTC)
_UNTIL = threading.Event()


def events(first: int, count: int) -> pa.Table:
    """Return rows in the order of their event time, 1,000 rows per second."""
    ids = pa.array(range(first, first + count), pa.int64())
    start_us = int(START.timestamp() * 1_000_000)
    times = pa.array([start_us + 1_000 * n for n in range(first, first + count)], pa.int64())
    return pa.table(
        {
            "id": ids,
            "k": pa.array([f"k{n % 100}" for n in range(first, first + count)]),
            "v": ids,
            "ts": times.cast(pa.timestamp("us", "UTC")),
        }
    )


class Node:
    """An open home with its own Spark, for statements and for runs of all jobs."""

    def __init__(self, root: Path) -> None:
        options = SparkOptions(
            master="local[*,4]",
            scratch=root / "tmp",
            log_file=root / "spark.log",
            computing=True,
        )
        # Lines about single epochs would hide the figures.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
        self.executor = SparkExecutor(options)
        self.app = App(load_settings(home=root / "home"))
        self._analyzer = StreamAnalyzer(self.executor, scratch=root / "trials")
        self._root = root

    def sql(self, text: str) -> None:
        """Run statements."""
        services = replace(
            self.app.services(), open_stream_analyzer=lambda: self._analyzer, tasks_max=2
        )
        for parsed in parse_script(text):
            execute(parsed.statement, services=services)

    def location(self, table: str) -> str:
        """Return the location of a table."""
        record = self.app.catalog.table(table)
        if record is None:
            raise LookupError(table)
        return record.location

    def put(self, table: str, rows: pa.Table) -> None:
        """Append rows in one commit."""
        write_deltalake(self.location(table), rows, mode="append")

    def supervisor(self, *, until_caught_up: bool) -> Supervisor:
        """Return a supervisor of all jobs."""
        loop = self.app._loop_parts(lambda state: supervisor.upstream_works(state))  # noqa: SLF001, PLW0108
        parts = QueryParts(
            loop=loop,
            executor=self.executor,
            checkpoints=self._root / "home" / "checkpoints",
            state_memory_mb=STATE_MEMORY_MB,
        )
        kind = RunnerKind(
            open_loop=lambda job_id, reporter: open_query_loop(
                job_id, parts=parts, reporter=reporter
            ),
            caught_up=self.app.sources.is_caught_up,
        )
        supervisor = Supervisor(
            parts=SupervisorParts(
                catalog=self.app.catalog,
                clock=self.app.clock,
                node_id=self.app.node_id,
                start_thread=_start_thread,
                runners={
                    "query": kind,
                    "load": self.app._load_runner(self.executor, loop),  # noqa: SLF001
                },
            ),
            until_caught_up=until_caught_up,
        )
        supervisor.start(sole_process=True)
        return supervisor

    def run(self) -> float:
        """Run all jobs until they are caught up; return the seconds."""
        supervisor = self.supervisor(until_caught_up=True)
        started = perf_counter()
        try:
            while not all(report.caught_up for report in supervisor.round()):
                _UNTIL.wait(0.01)
            return perf_counter() - started
        finally:
            supervisor.stop()

    def epoch_seconds(self, table: str) -> list[float]:
        """Return the seconds from plan to visible rows, of each epoch that read rows."""
        state = self.app.catalog.job(table)
        if state is None:
            raise LookupError(table)
        entries = self.app.catalog.ledger(state.id, newest=10_000)
        return [
            (e.plan_seconds or 0) + (e.run_seconds or 0) + (e.commit_seconds or 0)
            for e in entries
            if e.kind is CommitKind.EPOCH
            and e.outcome is Outcome.COMMITTED
            and e.statistics.rows_read
        ]

    def java_megabytes(self) -> float:
        """Return the memory of the JVM after a garbage collection."""
        spark = self.executor.running()
        spark.context._jvm.System.gc()  # noqa: SLF001 - There is no public way.
        return psutil.Process(spark.jvm.pid).memory_info().rss / 1e6

    def close(self) -> None:
        """Stop Spark and close the catalog."""
        self.executor.stop()
        self.app.close()


def _start_thread(run: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


@contextmanager
def running(node: Node) -> Iterator[None]:
    """Run the streaming tables in the background."""
    supervisor = node.supervisor(until_caught_up=False)
    ended = threading.Event()

    def rounds() -> None:
        while not ended.wait(0.05):
            supervisor.round()

    thread = threading.Thread(target=rounds, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        supervisor.stop()


def bare_query(node: Node, text: str, tables: dict[str, str], folder: Path) -> Any:
    """Return a bare query over the files of tables, which writes Parquet."""
    session = node.executor.running().sessions().newSession()
    for key, value in QuerySettings(parallelism=2).conf.items():
        session.conf.set(key, value)
    # Without this batch, the bare query would never delete the state of the last rows.
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    # By default, the query forgets all but its last 100 batches.
    session.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    for name, location in tables.items():
        path = location.removeprefix("file://")
        reader = session.readStream.schema("id BIGINT, k STRING, v BIGINT, ts TIMESTAMP")
        reader = reader.option("maxFilesPerTrigger", 1)
        frame = reader.parquet(path).withWatermark("ts", DELAY)
        frame.createOrReplaceTempView(name)
    frame = session.sql(text.format(a="a", b="b"))
    return (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "rows"))
    )


def measure_streaming_tables(
    root: Path, console: Console, *, rows: int, rounds: int, quick: bool
) -> list[Figure]:
    """Measure bulk throughput, small epochs, idle cost, many tables and recovery."""
    node = Node(root / "streaming")
    node.sql(
        "CREATE TABLE a (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP); "
        "CREATE TABLE b (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP)"
    )
    console.print(f"writing {rows:,} rows for streaming tables …", style="dim")
    share = rows // FILES
    for number in range(FILES):
        node.put("a", events(number * share, share))
        node.put("b", events(number * share, share))
    try:
        figures = _bulk(node, root, "tumbling count", COUNT, rounds=rounds, console=console)
        figures += _bulk(node, root, "interval join", JOIN, rounds=rounds, console=console)
        figures += _small_epochs(node, root, epochs=20 if quick else 60, console=console)
        figures += _idle(node, console, seconds=5 if quick else 20)
        figures += _many(node, console, tables=4 if quick else 16)
    finally:
        node.close()
    figures += _state_memory(root, console, keys=300_000 if quick else 3_000_000)
    return figures + _recovery(root, console)


def _bulk(
    node: Node, root: Path, name: str, text: str, *, rounds: int, console: Console
) -> list[Figure]:
    """Read one file of each stream in every epoch, alternately with the bare query."""
    console.print(f"{name} …", style="dim")
    tables = {name: node.location(name) for name in ("a", "b")}
    rows = DeltaTable(tables["a"]).count()
    bare: list[float] = []
    own: list[float] = []
    for number in range(rounds + 1):
        folder = root / "bare"
        shutil.rmtree(folder, ignore_errors=True)
        started = perf_counter()
        query = bare_query(node, text, tables, folder).trigger(availableNow=True).start()
        query.awaitTermination()
        bare_seconds = perf_counter() - started
        stream = text.format(a=f"STREAM a {MARK}", b=f"STREAM b {MARK}")
        files = stream.count("STREAM")
        node.sql(
            f"CREATE STREAMING TABLE t WITH ('max_files_per_epoch' = '{files}') AS {stream}"
        )
        own_seconds = node.run()
        node.sql("DROP STREAMING TABLE t")
        # The first round compiles the plans.
        if number:
            bare.append(rows / 1_000 / bare_seconds)
            own.append(rows / 1_000 / own_seconds)
    baseline = f"{name}, bare Spark to Parquet"
    compared = Comparison(
        ratio=paired_ratio(own, bare), against=baseline, goal=Goal(at_least=0.9)
    )
    return [
        of_samples(baseline, bare, "k rows/s"),
        of_samples(f"{name}, Penstock", own, "k rows/s").against(compared),
    ]


def _small_epochs(node: Node, root: Path, *, epochs: int, console: Console) -> list[Figure]:
    """Append 100 rows at a time; compare an epoch with the trigger of the bare query."""
    console.print(f"{epochs} epochs of {SMALL_ROWS} rows …", style="dim")
    node.sql("CREATE TABLE small (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP)")
    text = COUNT.replace("{a}", f"STREAM small {MARK}")
    node.sql(f"CREATE STREAMING TABLE counted WITH ('checkpoint.interval' = '1ms') AS {text}")
    with running(node):
        for number in range(epochs):
            node.put("small", events(number * SMALL_ROWS, SMALL_ROWS))
            _wait(partial(_has_epochs, node, ["counted"], number + 1))
    own = node.epoch_seconds("counted")[epochs // 4 :]
    node.sql("DROP STREAMING TABLE counted")
    folder = root / "bare-small"
    query = bare_query(node, COUNT, {"a": node.location("small")}, folder)
    query = query.trigger(processingTime="0 seconds").start()
    for number in range(epochs):
        node.put("small", events((epochs + number) * SMALL_ROWS, SMALL_ROWS))
        _wait(partial(_has_read, query, (epochs + number + 1) * SMALL_ROWS))
    triggers = [
        progress["durationMs"]["triggerExecution"] / 1_000
        for progress in query.recentProgress
        if progress["numInputRows"] == SMALL_ROWS
    ][epochs // 4 :]
    query.stop()
    bare = of_samples("100 rows, bare query's trigger", _ms(triggers), "ms")
    penstock = of_samples("100 rows, plan to visible row", _ms(own), "ms")
    ratio = penstock.value / bare.value
    compared = Comparison(ratio=ratio, against=bare.name, goal=Goal(at_most=1.3))
    return [bare, penstock.against(compared)]


def _has_epochs(node: Node, tables: Sequence[str], epochs: int) -> bool:
    return all(len(node.epoch_seconds(table)) >= epochs for table in tables)


def _has_read(query: Any, rows: int) -> bool:
    return sum(int(one["numInputRows"]) for one in query.recentProgress) >= rows


def _ms(seconds: list[float]) -> list[float]:
    return [1_000 * taken for taken in seconds]


def _idle(node: Node, console: Console, *, seconds: int) -> list[Figure]:
    """Return the CPU that an idle streaming table adds to a node, as a share of a core."""
    console.print("an idle streaming table …", style="dim")
    with running(node):
        none = _used(seconds)
    node.sql(f"CREATE STREAMING TABLE idle AS {PROJECTION.format(a='STREAM small')}")
    with running(node):
        _wait(lambda: bool(node.epoch_seconds("idle")))
        # The query is compiled in the background for a moment.
        _UNTIL.wait(seconds / 4)
        used = _used(seconds)
    node.sql("DROP STREAMING TABLE idle")
    percent = 100 * max(0.0, used - none) / seconds
    goal = Comparison(ratio=percent / 1.0, against="1 % of a core", goal=Goal(at_most=1.0))
    return [
        Figure(name="idle streaming table", value=percent, unit="% of a core").against(goal)
    ]


def _used(seconds: float) -> float:
    """Return the CPU seconds that all processes use in this time."""
    before = _cpu_seconds()
    _UNTIL.wait(seconds)
    return _cpu_seconds() - before


def _cpu_seconds() -> float:
    own = psutil.Process()
    family = [own, *own.children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in family)


def _many(node: Node, console: Console, *, tables: int) -> list[Figure]:
    """Run many streaming tables on one input; return epochs per second and the longest wait."""
    console.print(f"{tables} streaming tables in one node …", style="dim")
    node.sql("CREATE TABLE shared (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP)")
    names = [f"m{number}" for number in range(tables)]
    for name in names:
        text = COUNT.replace("{a}", f"STREAM shared {MARK}")
        node.sql(
            f"CREATE STREAMING TABLE {name} WITH ('checkpoint.interval' = '1ms') AS {text}"
        )
    rounds = 10
    waits: list[float] = []
    with running(node):
        for number in range(rounds):
            node.put("shared", events(number * SMALL_ROWS, SMALL_ROWS))
            started = perf_counter()
            _wait(partial(_has_epochs, node, names, number + 1))
            waits.append(perf_counter() - started)
    for name in names:
        node.sql(f"DROP STREAMING TABLE {name}")
    counted = waits[2:]
    return [
        Figure(
            name=f"{tables} streaming tables, epochs",
            value=tables * len(counted) / sum(counted),
            unit="epochs/s",
        ),
        Figure(name="  longest wait of a commit", value=max(counted), unit="s"),
    ]


def _state_memory(root: Path, console: Console, *, keys: int) -> list[Figure]:
    """Keep a row of state for each of many keys; return the growth of a new JVM.

    Before that, the same number of rows with few keys is read, so that the heap has its size.
    """
    console.print(f"{keys:,} keys of state …", style="dim")
    node = Node(root / "state")
    try:
        before = _after_rows(node, keys, key="k")
        growth = max(_after_rows(node, keys, key="id") - before, 0.0)
    finally:
        node.close()
    compared = Comparison(
        ratio=growth / STATE_MEMORY_MB, against="state.memory", goal=Goal(at_most=1.2)
    )
    name = f"growth of the JVM, {keys:,} keys"
    return [Figure(name=name, value=growth, unit="MB").against(compared)]


def _after_rows(node: Node, rows: int, *, key: str) -> float:
    """Count rows by a column in ten epochs; return the memory of the JVM."""
    table, window = f"by_{key}", "window(ts, '365 days')"
    node.sql(f"CREATE TABLE {table}_rows (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP)")
    node.sql(
        f"CREATE STREAMING TABLE {table} WITH ('max_files_per_epoch' = '1') AS "
        f"SELECT {window}.start AS start, {key}, count(*) AS n "
        f"FROM STREAM {table}_rows {MARK} GROUP BY {window}, {key}"
    )
    share = rows // 10
    for number in range(10):
        node.put(f"{table}_rows", events(number * share, share))
    node.run()
    return node.java_megabytes()


def _recovery(root: Path, console: Console) -> list[Figure]:
    """Kill a run; return the seconds from the next start to the first new row."""
    console.print("killing a run …", style="dim")
    home = root / "killed-home"
    columns = "id BIGINT, k STRING, v BIGINT, ts TIMESTAMP"
    text = "SELECT k, count(*) AS n FROM STREAM x GROUP BY k"
    run_penstock(
        home,
        "sql",
        "-e",
        f"CREATE TABLE x ({columns}); CREATE STREAMING TABLE y "
        f"WITH ('checkpoint.interval' = '100ms') AS {text}",
    )
    app = App(load_settings(home=home))
    tables = {t.name: t.location for t in app.catalog.tables()}
    app.close()
    seconds: list[float] = []
    for number in range(4):
        started = perf_counter()
        process = _start(home)
        write_deltalake(tables["x"], events(number * 10, 10), mode="append")
        _wait(partial(_has_total, tables["y"], 10 * (number + 1)))
        seconds.append(perf_counter() - started)
        process.send_signal(signal.SIGKILL)
        process.wait()
    figure = of_samples("kill to the first new row", seconds[1:], "s")
    goal = Comparison(ratio=figure.value / 10, against="10 s", goal=Goal(at_most=1.0))
    return [figure.against(goal)]


def _start(home: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        penstock_command("run"),
        env={**os.environ, "PENSTOCK_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _has_total(location: str, rows: int) -> bool:
    counts = DeltaTable(location).to_pyarrow_table().column("n")
    return bool(pc.sum(counts).as_py() == rows)


def _wait(condition: Callable[[], bool], *, limit: timedelta = timedelta(minutes=5)) -> None:
    deadline = perf_counter() + limit.total_seconds()
    while not condition():
        if perf_counter() > deadline:
            raise TimeoutError(f"not reached within {limit}")
        _UNTIL.wait(0.005)
