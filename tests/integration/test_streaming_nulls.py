"""NULL keys and NULL event times in streaming tables."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.spark.executor import SparkExecutor
from tests.integration.test_streaming_oracle import MIDNIGHT, ordered
from tests.node import Node
from tests.streaming_model import INPUT

pytestmark = pytest.mark.integration

MARK = "WATERMARK ts DELAY OF INTERVAL 1 SECOND"
_BOUND = "x.k = y.k AND y.ts BETWEEN x.ts AND x.ts + INTERVAL 5 SECONDS"
# NULL keys match in the last one.
JOINS = {
    "by_left": f"LEFT JOIN {{b}} y ON {_BOUND}",
    "by_right": f"RIGHT JOIN {{b}} y ON {_BOUND}",
    "by_both": f"FULL JOIN {{b}} y ON {_BOUND}",
    "by_null": "FULL JOIN {b} y ON x.k <=> y.k AND x.ts = y.ts",
}
IDS = "SELECT x.id AS x_id, y.id AS y_id FROM {a} x"
QUERIES = {name: f"{IDS} {join}" for name, join in JOINS.items()}
QUERIES["in_with"] = " ".join(("WITH j AS (", QUERIES["by_both"], ") SELECT * FROM j"))


@pytest.fixture
def node(spark_node: Node) -> Node:
    """A node with two empty tables."""
    for table in ("a", "b"):
        spark_node.sql(f"CREATE TABLE {table} (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP)")
    return spark_node


def append(node: Node, table: str, rows: Sequence[tuple[int, str | None, int | None]]) -> None:
    """Append rows; a row is an id, a key and minutes."""
    record = node.catalog.table(table)
    assert record is not None
    data = [{"id": number, "k": key, "ts": at(minutes)} for number, key, minutes in rows]
    write_deltalake(record.location, pa.Table.from_pylist(data, schema=INPUT), mode="append")


def at(minutes: int | None) -> datetime | None:
    return None if minutes is None else MIDNIGHT + timedelta(minutes=minutes)


def append_nulls(node: Node) -> None:
    """Append rows to both tables, with and without keys and event times."""
    for table, first in (("a", 10), ("b", 20)):
        pairs = [("x", 9), ("x", None), (None, 9), (None, None)]
        append(node, table, [(first + i, *pair) for i, pair in enumerate(pairs)])


def answers(node: Node, spark: SparkExecutor) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of the same queries over the whole tables."""
    session = spark.running().sessions().newSession()
    for table in ("a", "b"):
        record = node.catalog.table(table)
        assert record is not None
        rows = DeltaTable(record.location).to_pyarrow_table()
        session.createDataFrame(rows).createOrReplaceTempView(table)
    return {
        name: ordered(map(tuple, session.sql(query.format(a="a", b="b")).collect()))
        for name, query in QUERIES.items()
    }


def test_outer_joins_with_nulls_equal_the_answers_of_batch_queries(
    node: Node, spark: SparkExecutor
) -> None:
    for name, query in QUERIES.items():
        text = query.format(a=f"STREAM a {MARK}", b=f"STREAM b {MARK}")
        node.sql(f"CREATE STREAMING TABLE {name} WITH ('parallelism' = '1') AS {text}")
    append(node, "a", [(1, "x", 1), (2, "x", 5)])
    append(node, "b", [(3, "x", 1), (4, "x", 5)])
    node.run()
    append_nulls(node)
    node.run()

    for name in QUERIES:
        node.sql(f"ALTER STREAMING TABLE {name} ADVANCE WATERMARK TO FINAL")
    node.run()

    found = {name: ordered(tuple(r.values()) for r in node.rows(name)) for name in QUERIES}
    assert found == answers(node, spark)


NOTICE = "rows without a.ts are never written"


@pytest.mark.parametrize(
    ("query", "notices"),
    [
        ("SELECT DISTINCT k, ts FROM {a}", [NOTICE]),
        ("SELECT ts, count(*) AS n FROM {a} GROUP BY ts", [NOTICE]),
        ("SELECT DISTINCT k, ts FROM {a} WHERE ts IS NOT NULL", []),
        ("SELECT window.start AS s, count(*) AS n FROM {a} GROUP BY window(ts, '1 hour')", []),
    ],
)
def test_rows_that_a_group_never_writes_are_reported(
    node: Node, query: str, notices: list[str]
) -> None:
    node.sql("CREATE STREAMING TABLE t AS " + query.format(a=f"STREAM a {MARK}"))
    message = node.last_message

    shown = node.sql("EXPLAIN STREAMING TABLE t")

    assert [row["value"] for row in shown if str(row["item"]).strip() == "notice"] == notices
    assert message == "; ".join(["streaming table t created, 1 stream", *notices])
