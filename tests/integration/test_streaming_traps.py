"""Known traps of stream processors and of Spark, by number.

Most tests share one story of five streaming tables, because every run of Spark is slow.
"""

import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.control.result import Cell
from penstock.spark.executor import SparkExecutor
from penstock.streaming.checkpoint import CheckpointFolder
from penstock.streaming.logical import Planner
from penstock.streaming.query import QuerySettings, RunningQuery, StreamSession
from tests.node import Node

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("streaming traps")]

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "(id BIGINT, k STRING, ts TIMESTAMP)"
QUERIES = {
    "counts": "SELECT window(ts, '1 minute').start AS start, count(*) AS n "
    "FROM STREAM events {mark} GROUP BY window(ts, '1 minute')",
    "joined": "SELECT e.id FROM STREAM events {mark} AS e JOIN STREAM ended {mark} AS d "
    "ON e.k = d.k AND e.ts BETWEEN d.ts AND d.ts + INTERVAL 1 HOUR",
    "once": "SELECT id, min(ts) AS ts, count(*) AS n "
    "FROM STREAM events {mark} GROUP BY id, session_window(ts, '20 seconds')",
    "followed": "SELECT e.id FROM STREAM events AS e JOIN events AS d ON d.id = e.id + 1",
    "totals": "SELECT k, count(*) AS n, max(ts) AS last FROM STREAM events GROUP BY k",
}
MARK = "WATERMARK ts DELAY OF INTERVAL 10 SECONDS"
# The tables whose windows stay open without further rows.
WINDOWS = ("counts", "once")
STOP_SECONDS_MAX = 30

# A row: id, key, and seconds after midnight.
Event = tuple[int, str, int]
Rows = dict[str, list[tuple[Any, ...]]]


def put(node: Node, table: str, *events: Event) -> None:
    """Append rows to a table in one file."""
    record = node.catalog.table(table)
    assert record is not None
    rows = {
        "id": pa.array([number for number, _, _ in events], pa.int64()),
        "k": [key for _, key, _ in events],
        "ts": pa.array([second(at) for _, _, at in events], pa.timestamp("us", "UTC")),
    }
    write_deltalake(record.location, pa.table(rows), mode="append")


def second(at: int) -> datetime:
    return MIDNIGHT + timedelta(seconds=at)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The rows of all streaming tables after a run, and the rows of SHOW STREAMING TABLES."""

    rows: Rows
    shown: dict[str, dict[str, Cell]]


def moment(node: Node) -> Moment:
    """Run all streaming tables until they are caught up, and return the result."""
    node.run()
    return Moment(
        rows={name: sorted(tuple(r.values()) for r in node.rows(name)) for name in QUERIES},
        shown={str(row["name"]): row for row in node.sql("SHOW STREAMING TABLES")},
    )


@dataclass(frozen=True, kw_only=True)
class Story:
    """A bounded input, then more rows after a restart, then the end of all windows."""

    first: Moment
    restarted: Moment
    final: Moment
    # The positions of each committed epoch of the table "joined".
    positions: list[Cell]


@pytest.fixture(scope="module")
def story(spark: SparkExecutor, tmp_path_factory: pytest.TempPathFactory) -> Story:
    node = Node(tmp_path_factory.mktemp("story") / "home", spark=spark)
    node.sql(f"CREATE TABLE events {COLUMNS}; CREATE TABLE ended {COLUMNS}")
    for name, query in QUERIES.items():
        text = query.format(mark=MARK)
        node.sql(f"CREATE STREAMING TABLE {name} WITH ('parallelism' = '2') AS {text}")
    put(node, "ended", (1, "a", 0))
    put(node, "events", (1, "a", 1), (2, "b", 2), (2, "b", 5))
    put(node, "events", (3, "a", 65), (4, "a", 136))
    first = moment(node)

    # The watermark is one millisecond before second 126, so four rows are late.
    node = node.restart()
    put(node, "events", (5, "a", 20), *((number, "a", number) for number in range(140, 149)))
    put(node, "events", (1, "c", 130), (4, "a", 133), (6, "b", 30), (7, "b", 31), (8, "b", 32))
    restarted = moment(node)

    node = node.restart()
    for name in WINDOWS:
        node.sql(f"ALTER STREAMING TABLE {name} ADVANCE WATERMARK TO FINAL")
    final = moment(node)
    positions = [row["positions"] for row in node.sql("SHOW CHECKPOINTS FOR joined")]
    node.catalog.close()
    return Story(first=first, restarted=restarted, final=final, positions=positions)


def test_t48_an_input_that_ended_does_not_stop_the_epochs_of_another_input(
    story: Story,
) -> None:
    assert story.positions == ["s1 LOG 3.0, s2 LOG 2.0", "s1 LOG 5.0, s2 LOG 2.0"]
    ids = [1, 3, 4, 4, 5, *range(140, 149)]
    assert story.restarted.rows["joined"] == [(number,) for number in ids]


def test_t50_a_key_that_is_updated_again_after_a_restart_has_its_newest_value(
    story: Story,
) -> None:
    assert story.first.rows["totals"] == [("a", 3, second(136)), ("b", 2, second(5))]
    assert story.restarted.rows["totals"] == [
        ("a", 14, second(148)),
        ("b", 5, second(32)),
        ("c", 1, second(130)),
    ]


def test_t50_a_key_whose_state_was_removed_gets_a_new_state_after_a_restart(
    story: Story,
) -> None:
    rows = story.final.rows["once"]

    # The session of id 1 was closed before the restart. The session of id 4 got an earlier
    # start, which is part of its key in the state.
    assert [row for row in rows if row[0] == 1] == [(1, second(1), 1), (1, second(130), 1)]
    assert [row for row in rows if row[0] == 4] == [(4, second(133), 2)]


def test_t55_nine_rows_of_a_file_survive_if_one_row_of_it_is_late(story: Story) -> None:
    in_window = [4, 1, 4, *range(140, 149)]

    assert story.final.rows["counts"] == [
        *story.first.rows["counts"],
        (second(120), len(in_window)),
    ]


def test_t57b_the_last_watermark_of_a_bounded_input_is_applied_before_the_run_ends(
    story: Story,
) -> None:
    assert story.first.rows["counts"] == [(second(0), 3), (second(60), 1)]
    assert story.first.shown["counts"]["state_rows"] == 1
    assert story.final.shown["counts"]["state_rows"] == 0


def test_s7_a_bare_name_next_to_the_stream_of_the_same_table_is_a_static_table(
    story: Story,
) -> None:
    rows = story.final.rows["followed"]

    # A second row 4 came after row 3 was joined with the first one.
    assert rows.count((3,)) == 1
    assert story.final.shown["followed"]["state_rows"] == 0


def test_s19_a_session_window_of_an_id_removes_duplicates(story: Story) -> None:
    rows = story.first.rows["once"]

    assert rows == [(1, second(1), 1), (2, second(2), 2), (3, second(65), 1)]


def test_s23_late_rows_that_spark_merges_before_it_drops_them_are_counted_one_by_one(
    story: Story,
) -> None:
    late = {name: story.final.shown[name]["rows_late"] for name in WINDOWS}

    # Spark merges the three late rows of one file, because they have the same window.
    assert late == {"counts": 4, "once": 4}


# The query of Spark


@pytest.fixture
def session(spark: SparkExecutor, tmp_path: Path) -> StreamSession:
    settings = QuerySettings(parallelism=1)
    return StreamSession(spark.running().sessions(), settings, checkpoint=tmp_path)


def clock_of(session: StreamSession) -> Any:
    """Return the frame of a stream without a table."""
    clock = session.session.readStream.format("rate-micro-batch")
    return clock.options(rowsPerBatch=1, numPartitions=1, startTimestamp=0).load()


@pytest.fixture
def query(spark: SparkExecutor, session: StreamSession, tmp_path: Path) -> RunningQuery:
    """A query whose first batch waits at the gate; the test must stop the query."""
    started = RunningQuery(
        clock_of(session),
        mode="append",
        folder=CheckpointFolder(tmp_path),
        explain=spark.convert_error,
    )
    assert started.opened(threading.Event()) == 0
    return started


def test_s3_no_listener_of_streaming_queries_is_registered(
    session: StreamSession, query: RunningQuery
) -> None:
    listeners = session.session._jsparkSession.streams().listListeners()

    query.stop()

    assert list(listeners) == []


def test_s4_the_jobs_of_spark_run_in_their_order(spark: SparkExecutor) -> None:
    context = spark.running().context

    assert context._jsc.sc().getSchedulingMode().toString() == "FIFO"


def test_s10_a_query_stops_while_its_batch_waits_at_the_gate(query: RunningQuery) -> None:
    stopping = threading.Thread(target=query.stop, daemon=True)

    stopping.start()
    stopping.join(STOP_SECONDS_MAX)

    assert not stopping.is_alive()


def test_s21_the_plan_of_a_stream_is_optimised_although_spark_refuses_it(
    session: StreamSession,
) -> None:
    frame = clock_of(session).where("value < 1 + 1")

    with pytest.raises(Exception, match="writeStream"):
        frame._jdf.queryExecution().optimizedPlan()
    optimised = Planner(session.session).optimised(frame)

    assert "< 2)" in optimised.toString()
