"""A job's SELECT on real Spark: what is allowed, what is refused, what it returns."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Code, UserError
from tests.error_values import raises
from tests.node import Node

ORDERS = [
    {"id": 1, "customer": "ann", "price": "2.50", "tags": ["a", "b"], "at": "2026-01-31"},
    {"id": 2, "customer": "bob", "price": "x", "tags": [], "at": "2026-02-01"},
    {"id": 3, "customer": "cy", "price": "7", "tags": ["c"], "at": None},
]
SCHEMA = "id BIGINT, customer STRING, price STRING, tags ARRAY<STRING>, at STRING"


def create(
    folder: Path, select: str, *, columns: str = "a BIGINT, b STRING", properties: str = ""
) -> str:
    given = f"PROPERTIES({properties}) " if properties else ""
    source = (
        f"FILES('uri' = 'file://{folder}/*.json', 'format' = 'json', 'schema' = '{SCHEMA}')"
    )
    return (
        f"CREATE TABLE t ({columns}); "
        f"CREATE JOB j {given}ON STREAMING DO INSERT INTO t {select.replace('SRC', source)}"
    )


@pytest.fixture
def orders(folder: Path) -> Path:
    for number, row in enumerate(ORDERS):
        (folder / f"{number}.json").write_text(json.dumps(row) + "\n")
    return folder


@pytest.fixture
def lookups(spark_node: Node, tmp_path: Path) -> Node:
    """A node with a table of cities for joins."""
    spark_node.sql("CREATE TABLE city (customer STRING, name STRING)")
    load_cities(spark_node, tmp_path / "cities", [("ann", "Aachen"), ("cy", "Celle")])
    return spark_node


def load_cities(node: Node, folder: Path, cities: list[tuple[str, str]]) -> None:
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    rows = [json.dumps({"customer": customer, "name": name}) for customer, name in cities]
    (folder / f"{number}.json").write_text("\n".join(rows))
    if node.catalog.job("cities") is None:
        node.sql(
            "CREATE JOB cities ON STREAMING DO INSERT INTO city SELECT * FROM "  # noqa: S608
            f"FILES('uri' = 'file://{folder}/*.json', 'format' = 'json')"
        )
    node.run()


ALLOWED: list[tuple[str, list[tuple[int | None, str | None]]]] = [
    ("SELECT id + 1, upper(customer) FROM SRC WHERE id > 1", [(3, "BOB"), (4, "CY")]),
    (
        "SELECT id, CASE WHEN id = 1 THEN 'one' ELSE at END FROM SRC",
        [(1, "one"), (2, "2026-02-01"), (3, None)],
    ),
    (
        "SELECT id, tag FROM SRC LATERAL VIEW explode(tags) x AS tag",
        [(1, "a"), (1, "b"), (3, "c")],
    ),
    (
        "SELECT inline(array(struct(id, customer))) FROM SRC",
        [(1, "ann"), (2, "bob"), (3, "cy")],
    ),
    (
        "WITH x AS (SELECT id, customer FROM SRC) SELECT id, customer FROM x WHERE id < 3",
        [(1, "ann"), (2, "bob")],
    ),
    (
        "SELECT id, c FROM (SELECT id, customer AS c FROM SRC) WHERE id <> 2",
        [(1, "ann"), (3, "cy")],
    ),
    (
        "SELECT id, date_format(to_date(at), 'MMMM') FROM SRC",
        [(1, "January"), (2, "February"), (3, None)],
    ),
    (
        "SELECT get_json_object(to_json(struct(id)), '$.id'), 'x' FROM SRC",
        [(1, "x"), (2, "x"), (3, "x")],
    ),
    (
        "SELECT try_cast(price AS INT), customer FROM SRC",
        [(None, "ann"), (None, "bob"), (7, "cy")],
    ),
    (
        "SELECT f.id, c.name FROM SRC f LEFT JOIN city c ON f.customer = c.customer",
        [(1, "Aachen"), (2, None), (3, "Celle")],
    ),
    (
        "SELECT id, name FROM SRC f JOIN default.city c ON f.customer = c.customer",
        [(1, "Aachen"), (3, "Celle")],
    ),
    (
        "SELECT id, customer FROM SRC f LEFT SEMI JOIN city c ON f.customer = c.customer",
        [(1, "ann"), (3, "cy")],
    ),
    (
        "SELECT id, customer FROM SRC f LEFT ANTI JOIN city c ON f.customer = c.customer",
        [(2, "bob")],
    ),
    (
        "SELECT id, customer FROM SRC WHERE customer IN (SELECT customer FROM city)",
        [(1, "ann"), (3, "cy")],
    ),
    (
        "SELECT id, customer FROM SRC f WHERE NOT EXISTS "
        "(SELECT 1 FROM city c WHERE c.customer = f.customer)",
        [(2, "bob")],
    ),
    ("SELECT id, (SELECT max(name) FROM city) FROM SRC WHERE id = 1", [(1, "Celle")]),
    ("SELECT id, customer FROM SRC WHERE id > 3", []),
]


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize(("select", "rows"), ALLOWED)
def test_a_row_wise_select_runs_on_spark(
    lookups: Node, orders: Path, *, select: str, rows: list[tuple[Any, ...]], tasks: int
) -> None:
    limit = "'s3.max_batch_files' = '1'" if tasks == 1 else ""
    lookups.sql(create(orders, select, properties=limit))

    lookups.run()

    found = [(row["a"], row["b"]) for row in lookups.rows("t")]
    assert sorted(found, key=str) == sorted(rows, key=str)
    assert lookups.job("j").cumulative.rows_read == 3
    assert lookups.show("j")["state"] in ("PENDING", "RUNNING"), lookups.show("j")["reason"]


REFUSED = [
    ("SELECT id, count(*) FROM SRC GROUP BY id", "GROUP BY or an aggregate function"),
    ("SELECT max(id), 'x' FROM SRC", "GROUP BY or an aggregate function"),
    ("SELECT DISTINCT id, customer FROM SRC", "DISTINCT"),
    ("SELECT id, customer FROM SRC ORDER BY id", "ORDER BY"),
    ("SELECT id, customer FROM SRC SORT BY id", "SORT BY"),
    ("SELECT id, customer FROM SRC LIMIT 1", "LIMIT"),
    ("SELECT id, customer FROM SRC OFFSET 1", "OFFSET"),
    ("SELECT row_number() OVER (ORDER BY id), customer FROM SRC", "a window function"),
    ("SELECT id, customer FROM SRC UNION ALL SELECT 1, 'x'", "UNION"),
    ("SELECT id, customer FROM SRC UNION SELECT 1, name FROM city", "UNION"),
    (
        "SELECT id, customer FROM SRC EXCEPT SELECT 1, 'x'",
        "EXCEPT",
    ),
    (
        "WITH x AS (SELECT * FROM SRC) SELECT a.id, b.at FROM x a JOIN x b ON a.id = b.id",
        "a self-join",
    ),
    (
        "WITH x AS (SELECT * FROM SRC) "
        "SELECT id, customer FROM x WHERE id = (SELECT max(id) FROM x)",
        "a self-join, or a second use of the source",
    ),
    (
        "SELECT id, name FROM SRC f RIGHT JOIN city c ON f.customer = c.customer",
        "a join that keeps rows of the other table",
    ),
    ("SELECT id, name FROM SRC f FULL JOIN city c ON f.customer = c.customer", "FULL JOIN"),
    ("SELECT id, customer FROM SRC DISTRIBUTE BY id", "DISTRIBUTE BY or CLUSTER BY"),
    ("SELECT id, customer FROM SRC TABLESAMPLE (50 PERCENT)", "TABLESAMPLE"),
    ("SELECT /*+ REPARTITION(3) */ id, customer FROM SRC", "a REPARTITION or COALESCE hint"),
]


@pytest.mark.parametrize(("select", "construct"), REFUSED)
def test_a_select_that_combines_rows_is_refused_with_the_construct(
    lookups: Node, orders: Path, select: str, construct: str
) -> None:
    with raises(UserError, Code.NOT_SUPPORTED_ERR, "SELECT") as caught:
        lookups.sql(create(orders, select))

    assert caught.value.message.startswith(construct)
    assert caught.value.code is Code.NOT_SUPPORTED_ERR
    assert caught.value.hint
    assert lookups.catalog.job("j") is None


def test_a_select_that_never_returns_a_row_is_refused(spark_node: Node, orders: Path) -> None:
    with raises(UserError, Code.NOT_SUPPORTED_ERR, "SELECT", "row") as caught:
        spark_node.sql(create(orders, "SELECT id, customer FROM SRC WHERE 1 = 0"))

    assert caught.value.code is Code.NOT_SUPPORTED_ERR


def test_show_create_creates_the_same_job_again(lookups: Node, orders: Path) -> None:
    select = (
        "SELECT f.id,\n  c.name -- the city\nFROM SRC f LEFT JOIN default.city c\n"
        "  ON f.customer = c.customer WHERE f.id > 1"
    )
    strict = "'session.enable_insert_strict' = 'false', 'session.time_zone' = 'Asia/Tokyo'"
    lookups.sql(create(orders, select, properties=strict))
    first = lookups.job("j").definition

    text = str(lookups.sql("SHOW CREATE JOB j")[0]["create_statement"])
    lookups.sql("DROP JOB j")
    lookups.sql(text)

    again = lookups.job("j").definition
    assert first.query is not None
    assert again.query is not None
    assert again.query.text.split() == first.query.text.split()
    assert replace(again.query, text="") == replace(first.query, text="")
    assert again.targets == first.targets
    assert again.properties == first.properties
    assert str(lookups.sql("SHOW CREATE JOB j")[0]["create_statement"]) == text


def test_select_star_with_a_where_fills_columns_by_name(spark_node: Node, orders: Path) -> None:
    columns = "customer STRING, at DATE, tags ARRAY<STRING>, id BIGINT, price STRING"
    spark_node.sql(create(orders, "SELECT * FROM SRC WHERE id = 1", columns=columns))

    spark_node.run()

    (row,) = spark_node.rows("t")
    assert (row["id"], row["customer"], str(row["at"])) == (1, "ann", "2026-01-31")


def test_a_value_that_spark_cannot_convert_fails_the_epoch_without_a_retry(
    spark_node: Node, orders: Path
) -> None:
    spark_node.sql(create(orders, "SELECT CAST(price AS INT), customer FROM SRC"))

    spark_node.run()

    epochs = [row for row in spark_node.sql("SHOW EPOCHS FOR j") if row["kind"] == "epoch"]
    assert [row["outcome"] for row in epochs] == ["FAILED"]
    assert spark_node.rows("t") == []
    # The order of the tasks is unknown, so either value can be reported.
    assert re.match(
        "TOO_MANY_FAILURE_ROWS_ERR: The value '(2.50|x)' of the type \"STRING\" cannot be cast",
        str(spark_node.show("j")["reason"]),
    )
