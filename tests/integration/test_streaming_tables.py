"""Streaming tables through SQL: create, run, show, alter, drop, chains and flows."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.errors import Code, UserError
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

Event = tuple[int, str, int]


@pytest.fixture
def node(spark_node: Node) -> Node:
    """A node with an empty table of events."""
    spark_node.sql(CREATE_EVENTS)
    return spark_node


def put(node: Node, events: Sequence[Event], *, table: str = "events") -> None:
    """Append events: id, key, and seconds after midnight."""
    record = node.catalog.table(table)
    assert record is not None
    times = [MIDNIGHT + timedelta(seconds=second) for _, _, second in events]
    rows = {
        "id": pa.array([number for number, _, _ in events], pa.int64()),
        "k": [key for _, key, _ in events],
        "ts": pa.array(times, pa.timestamp("us", "UTC")),
    }
    write_deltalake(record.location, pa.table(rows), mode="append")


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
