"""The watermark of streaming tables, compared with the one of Spark.

Bare queries read the same rows in the same batches, and let Spark compute the watermark. The
comparison guards every upgrade of Spark.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.spark.executor import SparkExecutor
from penstock.spark.job_session import open_session
from penstock.streaming.checkpoint import parse_plan
from penstock.streaming.query import QuerySettings
from tests.node import Node
from tests.streaming_model import (
    COMPLETED_BOUND,
    FUNCTIONS,
    INPUT,
    MILLISECOND,
    SECOND,
    SHAPES,
    Result,
    plain,
    shout,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("streaming watermark"),
]

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
DDL = "id BIGINT, k STRING, v BIGINT, ts TIMESTAMP"
MARK = "WATERMARK ts DELAY OF INTERVAL 10 SECONDS"
COUNTS = (
    "SELECT window.start AS w, count(*) AS n FROM "
    "(SELECT ts FROM {a} UNION ALL SELECT ts FROM {b}) GROUP BY window(ts, '10 seconds')"
)
SECONDS_MAX = 250
NO_OPTIONS: Mapping[str, str] = {}
STATIC = pa.table({"k": ["x", "y", None], "name": ["first", "second", "nobody"]})

# A row: id, k, v, and seconds after midnight.
Event = tuple[int, str | None, int, float | None]


def events(rows: Sequence[Event]) -> pa.Table:
    found = [
        {"id": number, "k": key, "v": value, "ts": moment(second)}
        for number, key, value, second in rows
    ]
    return pa.Table.from_pylist(found, schema=INPUT)


def moment(second: float | None) -> datetime | None:
    return None if second is None else MIDNIGHT + timedelta(seconds=second)


def at(second: float) -> int:
    """Return the seconds after midnight as a time of the model."""
    return int(plain(moment(second)))


def put(node: Node, table: str, rows: Sequence[Event]) -> None:
    record = node.catalog.table(table)
    assert record is not None
    write_deltalake(record.location, events(rows), mode="append")


def put_at(node: Node, table: str, *seconds: float) -> None:
    put(node, table, [(0, "x", 1, second) for second in seconds])


def create_inputs(node: Node) -> None:
    for table in ("a", "b"):
        node.sql(f"CREATE TABLE {table} ({DDL})")


def create_counts(node: Node, name: str, options: Mapping[str, str] = NO_OPTIONS) -> None:
    query = COUNTS.format(a=f"STREAM a {MARK}", b=f"STREAM b {MARK}")
    given = {"parallelism": "1", **options}
    pairs = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    node.sql(f"CREATE STREAMING TABLE {name} WITH ({pairs}) AS {query}")


def rows_of(node: Node, table: str) -> list[Result]:
    return sorted(tuple(map(plain, row.values())) for row in node.rows(table))


def shown(node: Node, name: str) -> Mapping[str, Any]:
    return next(row for row in node.sql("SHOW STREAMING TABLES") if row["name"] == name)


@dataclass
class BareInput:
    """Two folders of Parquet files, which bare queries read one file per batch and folder."""

    root: Path
    files: int = 0

    def put(self, table: str, rows: Sequence[Event]) -> None:
        """Add a file; Spark reads files in the order of their times."""
        folder = self.root / table
        folder.mkdir(parents=True, exist_ok=True)
        self.files += 1
        hidden = folder / f".{self.files}.parquet"
        pq.write_table(events(rows), hidden)
        seconds = MIDNIGHT.timestamp() + self.files
        os.utime(hidden, (seconds, seconds))
        hidden.rename(folder / f"{self.files}.parquet")

    def put_at(self, table: str, *seconds: float) -> None:
        self.put(table, [(0, "x", 1, second) for second in seconds])


@dataclass
class BareQuery:
    """A query of Structured Streaming with the watermark of Spark."""

    session: Any
    text: str
    source: BareInput
    checkpoint: Path
    mode: str = "append"
    rows_by_batch: dict[int, Counter[Result]] = field(default_factory=dict)
    watermarks: dict[int, int] = field(default_factory=dict)
    running: Any = None

    def start(self, **trigger: Any) -> None:
        """Start the query, or restart it from its checkpoint."""
        for table in ("a", "b"):
            stream = self.session.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
            frame = stream.parquet(str(self.source.root / table))
            frame.withWatermark("ts", "10 seconds").createOrReplaceTempView(f"{table}_stream")
        writer = (
            self.session.sql(self.text)
            .writeStream.outputMode(self.mode)
            .option("checkpointLocation", str(self.checkpoint))
            .foreachBatch(self._collect)
        )
        self.running = (writer.trigger(**trigger) if trigger else writer).start()

    def catch_up(self) -> None:
        """Read all files; the query must run without a trigger."""
        self.running.processAllAvailable()

    def stop(self) -> None:
        self.running.stop()

    def wait(self) -> None:
        """Wait for the end of a query that ends itself."""
        assert self.running.awaitTermination(SECONDS_MAX)
        for progress in self.running.recentProgress:
            watermark = datetime.fromisoformat(progress["eventTime"]["watermark"])
            self.watermarks[progress["batchId"]] = plain(watermark)

    def _collect(self, frame: Any, batch: int) -> None:
        rows = Counter(tuple(map(plain, row)) for row in frame.collect())
        if rows:
            self.rows_by_batch[batch] = rows

    def changes(self) -> dict[int, Counter[Result]]:
        """Return the rows of each batch without those that update a row to the same values."""
        if self.mode == "append":
            return self.rows_by_batch
        changed: dict[int, Counter[Result]] = {}
        seen: Counter[Result] = Counter()
        for batch, rows in sorted(self.rows_by_batch.items()):
            if new := rows - seen:
                changed[batch] = new
            seen |= rows
        return changed

    @property
    def rows(self) -> list[Result]:
        return sorted(row for rows in self.rows_by_batch.values() for row in rows.elements())


def bare_session(spark: SparkExecutor) -> Any:
    """Return a session with the settings of streaming tables, but with batches without data."""
    conf = {**QuerySettings(parallelism=1).conf}
    conf["spark.sql.streaming.noDataMicroBatches.enabled"] = "true"
    session = open_session(spark.running().sessions(), conf)
    session.udf.register("shout", shout)
    return session


def test_t54_a_late_row_is_dropped_before_and_after_a_restart(spark_node: Node) -> None:
    create_inputs(spark_node)
    create_counts(spark_node, "counts")
    put_at(spark_node, "a", 100)
    put_at(spark_node, "b", 20)
    spark_node.run()
    node = spark_node.restart()
    put_at(node, "b", 101)
    node.run()

    put_at(node, "b", 25)
    node.run()
    late_before = shown(node, "counts")["rows_late"]
    node = node.restart()
    put_at(node, "b", 26)
    node.run()

    assert (late_before, shown(node, "counts")["rows_late"]) == (1, 2)
    assert rows_of(node, "counts") == [(at(20), 1)]


@pytest.mark.parametrize(("restarted", "counted"), [(False, 1), (True, 2)])
def test_spark_alone_counts_a_late_row_after_a_restart(
    spark: SparkExecutor, tmp_path: Path, *, restarted: bool, counted: int
) -> None:
    source = BareInput(tmp_path / "in")
    text = COUNTS.format(a="a_stream", b="b_stream")
    query = BareQuery(bare_session(spark), text, source, tmp_path / "checkpoint")
    source.put_at("a", 100)
    source.put_at("b", 20)
    query.start()
    query.catch_up()
    if restarted:
        query.stop()
        query.start()

    # The watermark is 90 s, if Spark still knows the highest event time of table a.
    source.put_at("b", 101)
    query.catch_up()
    source.put_at("b", 25)
    query.catch_up()
    source.put_at("a", 300)
    source.put_at("b", 300)
    query.catch_up()
    query.stop()

    assert query.rows[0] == (at(20), counted)


def test_an_idle_table_holds_the_watermark_unless_it_has_a_timeout(spark_node: Node) -> None:
    create_inputs(spark_node)
    files = {"max_files_per_epoch": "1"}
    create_counts(spark_node, "held", files)
    create_counts(spark_node, "continued", {**files, "watermark.idle-timeout": "1ms"})

    put_at(spark_node, "a", 5)
    put_at(spark_node, "a", 20)
    put_at(spark_node, "a", 35)
    spark_node.run()

    held, continued = shown(spark_node, "held"), shown(spark_node, "continued")
    assert (held["watermark_held_by"], held["watermark"]) == ("b", "")
    assert continued["watermark_held_by"] == "a"
    assert continued["watermark"].startswith("2026-01-01 00:00:24.999")
    assert rows_of(spark_node, "held") == []
    assert rows_of(spark_node, "continued") == [(at(0), 1)]


# The same rows in the same batches

# The files of each batch: the rows of table a, and the rows of table b. Every file starts with
# an old row. Files are read in the order of their lowest event time, so each batch reads one
# file of each table. No window ends exactly at a watermark, because ours is 1 ms earlier.
CUTS: tuple[tuple[list[Event], list[Event]], ...] = (
    (
        [(1, "old", 1, 1), (2, "x", 1, 31), (3, "y", 2, 38.5), (4, None, 3, 36)],
        [(5, "old", 1, 2), (6, "x", 1, 33), (7, "x", 2, 41.5)],
    ),
    (
        [(11, "old", 1, 3), (12, "x", 4, 44), (13, "y", 6, 57.2), (14, "x", 1, None)],
        [(15, "old", 1, 4), (16, "y", 1, 44), (17, "x", 2, 50.3), (18, None, 3, 45)],
    ),
    (
        [(21, "old", 1, 5), (22, "x", 5, 29), (23, "x", 2, 52), (24, "x", 8, 71.4)],
        [(25, "old", 1, 6), (26, "x", 1, 39), (27, "y", 2, 58), (28, "x", 1, 69.7)],
    ),
    (
        [(31, "old", 1, 7), (32, "y", 5, 46), (33, "x", 3, 61), (34, "x", 4, 90.6)],
        [(35, "old", 1, 8), (36, "y", 1, 55), (37, "y", 2, 60), (38, "x", 1, 93.8)],
    ),
)
PUSHED = "odd_counts"
# Spark moves the conditions of these queries below the watermark.
FILTERED = ("kept", PUSHED)


@dataclass(frozen=True, kw_only=True)
class Epochs:
    """The results of a query: the new rows of each batch, and the watermark it closes with."""

    rows: Mapping[int, Counter[Result]]
    watermarks: Mapping[int, int]


@pytest.fixture(scope="module")
def ours(
    spark: SparkExecutor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Epochs]]:
    """The epochs of all streaming tables."""
    node = Node(home=tmp_path_factory.mktemp("home"), spark=spark)
    create_inputs(node)
    node.sql("CREATE TABLE d (k STRING, name STRING)")
    record = node.catalog.table("d")
    assert record is not None
    write_deltalake(record.location, STATIC, mode="append")
    for shape in SHAPES:
        streams = shape.text.count("{a}") + shape.text.count("{b}")
        options = {"parallelism": "1", "max_files_per_epoch": str(streams)}
        if "shout" in shape.text:
            options["session.python_udfs"] = FUNCTIONS
        node.sql(shape.create(options))
    for rows_of_a, rows_of_b in CUTS:
        put(node, "a", rows_of_a)
        put(node, "b", rows_of_b)
    with pytest.MonkeyPatch.context() as patch:
        # All queries run at once.
        patch.setattr("tests.node.TIMEOUT_SECONDS", SECONDS_MAX)
        node.run()
    yield {shape.name: epochs_of(node, shape.name) for shape in SHAPES}
    node.catalog.close()


def epochs_of(node: Node, name: str) -> Epochs:
    state = node.job(name)
    assert state.definition.streaming is not None
    checkpoint = node.checkpoints / state.id / state.definition.streaming.checkpoint_id
    plans = [parse_plan(path.read_text()) for path in (checkpoint / "plans").iterdir()]
    rows: dict[int, Counter[Result]] = {}
    before: Counter[Result] = Counter()
    for epoch in node.sql(f"SHOW CHECKPOINTS FOR {name}"):
        version = int(str(epoch["table_version"]))
        table = DeltaTable(state.definition.table.location, version=version)
        found = table.to_pyarrow_table().to_pylist()
        after = Counter(tuple(map(plain, row.values())) for row in found)
        if new := after - before:
            rows[int(str(epoch["batch"]))] = new
        before = after
    return Epochs(rows=rows, watermarks={p.batch: p.closes_ms * 1_000 for p in plans})


@pytest.fixture(scope="module")
def bare(
    spark: SparkExecutor, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Epochs]:
    """The epochs of the same queries with the watermark of Spark."""
    root = tmp_path_factory.mktemp("bare")
    source = BareInput(root / "in")
    for rows_of_a, rows_of_b in CUTS:
        source.put("a", rows_of_a)
        source.put("b", rows_of_b)
    session = bare_session(spark)
    session.createDataFrame(STATIC).createOrReplaceTempView("d")
    queries = {
        shape.name: BareQuery(
            session,
            shape.select(a="a_stream", b="b_stream", bound=COMPLETED_BOUND),
            source,
            root / shape.name,
            mode="update" if shape.keyed else "append",
        )
        for shape in SHAPES
    }
    for query in queries.values():
        query.start(availableNow=True)
    for query in queries.values():
        query.wait()
    return {
        name: Epochs(rows=query.changes(), watermarks=query.watermarks)
        for name, query in queries.items()
    }


SAME = [shape.name for shape in SHAPES if shape.name != PUSHED]


@pytest.mark.parametrize("name", SAME)
def test_every_epoch_has_the_rows_that_spark_finds_with_its_own_watermark(
    name: str, ours: Mapping[str, Epochs], bare: Mapping[str, Epochs]
) -> None:
    assert ours[name].rows == bare[name].rows
    assert ours[name].rows


@pytest.mark.parametrize("name", [name for name in SAME if name not in FILTERED])
def test_every_epoch_has_the_watermark_of_spark(
    name: str, ours: Mapping[str, Epochs], bare: Mapping[str, Epochs]
) -> None:
    own, others = ours[name].watermarks, bare[name].watermarks

    earlier = {batch: others[batch] - watermark for batch, watermark in own.items()}

    # Statistics of files have milliseconds, and can be rounded up.
    assert all(0 <= difference <= MILLISECOND for difference in earlier.values())
    assert len(earlier) >= len(CUTS)


def test_s16_a_where_on_another_column_does_not_move_the_watermark_as_it_does_in_spark(
    ours: Mapping[str, Epochs], bare: Mapping[str, Epochs]
) -> None:
    highest = at(90.6)

    own, others = ours[PUSHED].watermarks, bare[PUSHED].watermarks

    # The row with the highest event time has an even number, so the query does not select it.
    assert highest - 10 * SECOND - max(own.values()) <= 2 * MILLISECOND
    assert max(others.values()) < max(own.values())
    # So the last batch closes the window that starts at second 60, unlike Spark.
    last = Counter({(at(60), "x", 1, 3): 1})
    assert ours[PUSHED].rows[len(CUTS)] == last
    assert bare[PUSHED].rows[len(CUTS)] != last
