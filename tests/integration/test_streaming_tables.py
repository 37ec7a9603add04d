"""Streaming tables through SQL: create, run, show, alter, drop, chains and flows."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from penstock.errors import Code, UserError
from penstock.spark.executor import SparkExecutor
from tests.integration.driving import MovedClock, rounds_until, supervised
from tests.integration.table_readers import READERS, Reader, in_order
from tests.mirrored_node import OpenNode
from tests.node import Node

pytestmark = pytest.mark.integration

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
CREATE_EVENTS = "CREATE TABLE events (id BIGINT, k STRING, ts TIMESTAMP)"
COUNTS = """
CREATE STREAMING TABLE counts WITH ('checkpoint.interval' = '1s') AS
SELECT window(ts, '1 minute').start AS minute, count(*) AS n
FROM STREAM events WATERMARK ts DELAY OF INTERVAL 10 SECONDS GROUP BY window(ts, '1 minute')
"""
TOTALS = (
    "CREATE STREAMING TABLE totals AS SELECT k, count(*) AS n FROM STREAM events GROUP BY k"
)

# Its epochs start at least one hour apart.
HOURLY = """
CREATE STREAMING TABLE totals WITH ('checkpoint.interval' = '1h')
AS SELECT k, count(*) AS n FROM STREAM events GROUP BY k
"""
REFRESHES = {
    "REFRESH": "REFRESH STREAMING TABLE totals",
    "CREATE OR REFRESH": HOURLY.replace("CREATE", "CREATE OR REFRESH"),
    "CREATE OR REFRESH in other words": "create or refresh streaming table TOTALS "
    "tblproperties ('checkpoint.interval' = '60 min') as "
    "select K, COUNT( * ) as n -- The rows per key.\n from stream events group by k",
}

# The id and the key of the rows of two epochs.
COPIED = [(1, "a"), (2, "b"), (3, "a"), (4, "a")]

Event = tuple[int, str, int]


@pytest.fixture
def node(spark_node: Node) -> Node:
    """A node with an empty table of events."""
    spark_node.sql(CREATE_EVENTS)
    return spark_node


@pytest.fixture(scope="module")
def written(spark: SparkExecutor, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A node whose queries wrote two epochs: of appended rows, and of rows by key."""
    node = Node(tmp_path_factory.mktemp("written") / "home", spark=spark)
    node.sql(f"{CREATE_EVENTS}; {TOTALS}")
    node.sql("CREATE STREAMING TABLE copied AS SELECT id, k FROM STREAM events")
    for rows in (COPIED[:2], COPIED[2:]):
        put(node, [(number, key, 0) for number, key in rows])
        node.run()
    return node


def location(node: Node, table: str) -> str:
    """Return the location of a table."""
    record = node.catalog.table(table)
    assert record is not None
    return record.location


def put(node: Node, events: Sequence[Event], *, table: str = "events") -> None:
    """Append events: id, key, and seconds after midnight."""
    times = [MIDNIGHT + timedelta(seconds=second) for _, _, second in events]
    rows = {
        "id": pa.array([number for number, _, _ in events], pa.int64()),
        "k": [key for _, key, _ in events],
        "ts": pa.array(times, pa.timestamp("us", "UTC")),
    }
    write_deltalake(location(node, table), pa.table(rows), mode="append")


def pairs(node: Node, table: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table as tuples."""
    return sorted(tuple(row.values()) for row in node.rows(table))


def minute(number: int) -> datetime:
    return MIDNIGHT + timedelta(minutes=number)


def test_a_window_is_written_when_the_watermark_passes_its_end(node: Node) -> None:
    put(node, [(1, "a", 1), (2, "b", 2), (3, "a", 65)])
    node.sql(COUNTS)

    node.run()
    before = pairs(node, "counts")
    put(node, [(4, "a", 130)])
    node.run()

    assert before == []
    assert pairs(node, "counts") == [(minute(0), 2)]


def test_a_keyed_aggregate_has_one_current_row_per_key(node: Node) -> None:
    put(node, [(1, "a", 1), (2, "b", 2)])
    node.sql(TOTALS)

    node.run()
    put(node, [(3, "a", 65), (4, "c", 1)])
    node.restart().run()

    assert pairs(node, "totals") == [("a", 2), ("b", 1), ("c", 1)]


def test_t57b_advancing_the_watermark_to_final_flushes_all_windows(node: Node) -> None:
    put(node, [(1, "a", 1), (2, "b", 65)])
    node.sql(COUNTS)
    node.run()

    node.sql("ALTER STREAMING TABLE counts ADVANCE WATERMARK TO FINAL")
    node.run()

    assert pairs(node, "counts") == [(minute(0), 1), (minute(1), 1)]
    (row,) = node.sql("SHOW STREAMING TABLES")
    assert (row["watermark"], row["state_rows"]) == ("FINAL", 0)


def test_a_streaming_table_over_a_streaming_table_is_caught_up_after_it(node: Node) -> None:
    put(node, [(1, "a", 1), (2, "b", 65), (3, "c", 130)])
    node.sql(COUNTS)
    node.sql("CREATE STREAMING TABLE doubled AS SELECT minute, n * 2 AS n FROM STREAM counts")

    node.run()

    assert pairs(node, "doubled") == [(minute(0), 2)]


def test_a_flow_adds_the_rows_of_a_second_table(node: Node) -> None:
    node.sql("CREATE TABLE more (id BIGINT, k STRING, ts TIMESTAMP)")
    put(node, [(1, "a", 1)])
    put(node, [(2, "b", 1)], table="more")
    node.sql("CREATE STREAMING TABLE ids AS SELECT id, k FROM STREAM events")
    node.sql("CREATE FLOW f AS INSERT INTO ids BY NAME SELECT k, id FROM STREAM more")

    node.run()

    assert pairs(node, "ids") == [(1, "a"), (2, "b")]


def test_show_checkpoints_lists_the_committed_epochs(node: Node) -> None:
    put(node, [(1, "a", 1), (2, "b", 65)])
    node.sql(COUNTS)
    node.run()
    put(node, [(3, "a", 130), (4, "a", 2)])
    node.run()

    shown = node.sql("SHOW CHECKPOINTS FOR counts")

    columns = ("epoch", "watermark", "rows_in", "rows_out", "rows_late", "outcome")
    assert [tuple(row[name] for name in columns) for row in shown] == [
        (1, "2026-01-01 00:00:54.999", 2, 0, 0, "COMMITTED"),
        (2, "2026-01-01 00:01:59.999", 2, 0, 1, "COMMITTED"),
        (3, "2026-01-01 00:01:59.999", 0, 1, 0, "COMMITTED"),
    ]


def test_the_statement_of_show_create_creates_the_same_table(node: Node) -> None:
    node.sql(COUNTS)
    (row,) = node.sql("SHOW CREATE STREAMING TABLE counts")
    node.sql("DROP STREAMING TABLE counts")

    node.sql(str(row["create_statement"]))

    assert node.sql("SHOW CREATE STREAMING TABLE counts") == [row]


@pytest.mark.parametrize("refresh", REFRESHES.values(), ids=REFRESHES)
def test_a_refresh_runs_an_epoch_now_and_doubles_no_row(
    open_node: OpenNode, spark: SparkExecutor, refresh: str
) -> None:
    # The clock does not advance, so the second epoch is not due without the refresh.
    node = open_node(spark=spark, clock=MovedClock())
    node.sql(CREATE_EVENTS)
    node.sql(HOURLY)
    put(node, [(1, "a", 1)])

    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda _: node.job("totals").epoch_committed == 1)
        put(node, [(2, "a", 2), (3, "b", 3)])
        node.sql(refresh)
        rounds_until(supervisor, lambda _: node.job("totals").epoch_committed == 2)

    assert pairs(node, "totals") == [("a", 2), ("b", 1)]


def test_create_if_not_exists_changes_nothing_if_the_streaming_table_exists(
    node: Node,
) -> None:
    node.sql(TOTALS)
    before = node.catalog.jobs()

    node.sql(COUNTS.replace("TABLE counts", "TABLE IF NOT EXISTS totals"))

    assert node.last_message == "streaming table totals already exists"
    assert node.catalog.jobs() == before


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_sees_the_rows_of_appended_and_of_keyed_epochs(
    written: Node, reader: Reader
) -> None:
    copied = reader(location(written, "copied"), "true")
    totals = reader(location(written, "totals"), "true")

    assert in_order(copied) == in_order({"id": n, "k": k} for n, k in COPIED)
    assert in_order(totals) == in_order({"k": k, "n": n} for k, n in (("a", 3), ("b", 1)))


def test_a_table_that_is_streamed_from_cannot_be_dropped(node: Node) -> None:
    node.sql(COUNTS)

    with pytest.raises(UserError, match="counts") as refused:
        node.sql("DROP TABLE events")

    assert refused.value.code is Code.STATE_ERR


def test_dropping_a_streaming_table_deletes_its_checkpoint(node: Node) -> None:
    put(node, [(1, "a", 1)])
    node.sql(COUNTS)
    node.run()

    node.sql("DROP STREAMING TABLE counts")

    assert list(node.checkpoints.iterdir()) == []
    assert node.catalog.table("counts") is None


def test_keep_table_retains_the_rows(node: Node) -> None:
    put(node, [(1, "a", 1)])
    node.sql(TOTALS)
    node.run()

    node.sql("DROP STREAMING TABLE totals KEEP TABLE")

    assert pairs(node, "totals") == [("a", 1)]


def test_the_watermark_cannot_be_advanced_backwards(node: Node) -> None:
    put(node, [(1, "a", 65)])
    node.sql(COUNTS)
    node.run()

    with pytest.raises(UserError, match=r"2026-01-01 00:00:54\.999") as refused:
        node.sql(
            "ALTER STREAMING TABLE counts ADVANCE WATERMARK TO TIMESTAMP '2026-01-01 00:00:01'"
        )

    assert refused.value.code is Code.OPTION_ERR


@pytest.mark.parametrize(("limit", "moves"), [("10 min", False), ("3 h", True)])
def test_an_event_time_after_the_maximum_in_the_future_does_not_move_the_watermark(
    node: Node, limit: str, *, moves: bool
) -> None:
    now = (datetime.now(UTC) - MIDNIGHT).total_seconds()
    node.sql(COUNTS.replace("'1s'", f"'1s', 'watermark.max-future' = '{limit}'"))
    put(node, [(1, "a", int(now)), (2, "a", int(now) + 7_200)])

    node.run()

    (row,) = node.sql("SHOW STREAMING TABLES")
    watermark = datetime.fromisoformat(f"{row['watermark']}Z")
    assert (watermark > datetime.now(UTC) + timedelta(hours=1)) is moves


def test_a_column_that_is_added_to_a_static_table_does_not_change_the_outputs(
    node: Node,
) -> None:
    node.sql("CREATE TABLE names (key STRING, name STRING)")
    node.sql(
        "CREATE STREAMING TABLE named AS SELECT n.*, e.id FROM STREAM events e "
        "JOIN names n ON e.k = n.key"
    )
    names = DeltaTable(location(node, "names"))
    write_deltalake(names, pa.table({"key": ["a"], "name": ["Ann"]}), mode="append")
    put(node, [(1, "a", 1)])
    node.run()

    names.alter.add_columns([Field("age", PrimitiveType("integer"))])
    node = node.restart()
    put(node, [(2, "a", 2)])
    node.run()

    assert pairs(node, "named") == [("a", "Ann", 1), ("a", "Ann", 2)]


def test_s7_a_table_with_the_name_of_a_view_is_a_static_table(node: Node) -> None:
    node.sql("CREATE TABLE events__1 (id BIGINT)")
    write_deltalake(
        location(node, "events__1"), pa.table({"id": pa.array([2], pa.int64())}), mode="append"
    )
    node.sql(
        "CREATE STREAMING TABLE named AS SELECT e.id FROM STREAM events e "
        "JOIN events__1 n ON e.id = n.id"
    )
    put(node, [(1, "a", 1), (2, "a", 2)])

    node.run()

    assert pairs(node, "named") == [(2,)]


@pytest.mark.parametrize("key", ["parallelism", "output", "state.ttl", "starting"])
def test_an_option_that_the_state_depends_on_cannot_be_altered(node: Node, key: str) -> None:
    node.sql(COUNTS)
    node.sql("PAUSE STREAMING TABLE counts")

    with pytest.raises(UserError, match=f'option "{key}"') as refused:
        node.sql(f"ALTER STREAMING TABLE counts SET ('{key}' = '3')")

    assert refused.value.code is Code.OPTION_ERR


def test_an_altered_interval_is_shown(node: Node) -> None:
    node.sql(COUNTS)
    node.sql("PAUSE STREAMING TABLE counts")

    node.sql("ALTER STREAMING TABLE counts SET ('checkpoint.interval' = '3s')")

    (row,) = node.sql("SHOW STREAMING TABLES LIKE 'cou%'")
    assert (row["interval"], row["state"]) == ("3s", "PAUSED")
