"""Failures and counts that a streaming table reports."""

import pytest

from penstock.errors import Code
from penstock.model.events import QueryStarted
from tests.crash.queries import INPUTS, append, append_rounds
from tests.error_values import assert_reason
from tests.node import Node

pytestmark = pytest.mark.integration


@pytest.fixture
def node(spark_node: Node) -> Node:
    """A node with two empty tables."""
    spark_node.sql(INPUTS)
    return spark_node


def test_an_expression_that_fails_before_the_tasks_pauses_without_retries(node: Node) -> None:
    append(node, "clicks", [("a", 0, 1)])
    append(node, "orders", [("a", 0, 0)])
    node.sql(
        "CREATE STREAMING TABLE shares AS SELECT c.v, o.share FROM STREAM clicks AS c "
        "JOIN (SELECT k, 1 / v AS share FROM orders) AS o ON c.k = o.k"
    )

    node.run()

    (row,) = node.sql("SHOW STREAMING TABLES")
    assert row["state"] == "PAUSED"
    assert_reason(row["reason"], Code.TOO_MANY_FAILURE_ROWS_ERR, "Division by zero")
    events = node.catalog.events(node.job("shares").id)
    assert sum(isinstance(event.body, QueryStarted) for event in events) == 1


def test_the_files_of_the_input_tables_are_counted(node: Node) -> None:
    append_rounds(node, 0, 1)
    node.sql(
        "CREATE STREAMING TABLE both AS SELECT v FROM STREAM clicks "
        "UNION ALL SELECT v FROM STREAM orders"
    )

    node.run()

    counted = node.job("both").cumulative
    assert (counted.files_read, counted.records_read) == (4, 10)
