"""Edge cases of SELECTs: time functions, stars, names, and statements that are not queries."""

from pathlib import Path

import pytest

from penstock.crashpoints import CrashPoint
from penstock.errors import Code, UserError
from penstock.model.job import SparkQuery
from tests.error_values import assert_names
from tests.integration.driving import crash_at
from tests.integration.test_rejects import BAD, LENIENT, TABLE, rejected
from tests.integration.test_select import create, load_cities, orders
from tests.node import Node, create_job

__all__ = ["orders"]


def query_of(node: Node) -> SparkQuery:
    query = node.job("j").definition.query
    assert query is not None
    return query


def test_a_column_that_is_needed_only_on_another_day_is_read(
    spark_node: Node, orders: Path
) -> None:
    select = (
        "SELECT id, CASE WHEN current_date() < DATE'1970-01-01' THEN customer ELSE at END "
        "FROM SRC"
    )

    spark_node.sql(create(orders, select))

    assert {"id", "customer", "at"} <= set(query_of(spark_node).needed)


@pytest.mark.parametrize(
    ("output", "reusable"),
    [
        ("current_timestamp()", False),
        ("DATE 'today'", False),
        ("uuid()", False),
        ("concat(customer, ' now or never')", True),
        ("customer AS brand", True),
    ],
)
def test_a_plan_is_cached_only_if_it_does_not_depend_on_the_date(
    spark_node: Node, orders: Path, *, output: str, reusable: bool
) -> None:
    columns = ", ".join(f"c{at} STRING" for at in range(31))
    outputs = ", ".join(["concat(customer, '')"] * 30)

    select = " ".join(["SELECT", outputs, ",", output, "FROM SRC"])
    spark_node.sql(create(orders, select, columns=columns))

    assert query_of(spark_node).reusable == reusable


@pytest.mark.parametrize(
    ("select", "named"),
    [
        ("SELECT id, input_file_name() FROM SRC", ("input_file_name()",)),
        (
            "SELECT monotonically_increasing_id(), at FROM SRC",
            ("monotonically_increasing_id()",),
        ),
        (
            "SELECT 1, x.name FROM city x JOIN city y ON x.name > (SELECT max(at) FROM SRC)",
            ("subquery",),
        ),
        ("SELECT *, _file FROM SRC", ('"_file"',)),
        ("SELECT to_json(struct(*)), _file FROM SRC", ('"_file"',)),
    ],
)
def test_a_misleading_select_is_refused(
    spark_node: Node, orders: Path, tmp_path: Path, *, select: str, named: tuple[str, ...]
) -> None:
    spark_node.sql("CREATE TABLE city (customer STRING, name STRING)")
    load_cities(spark_node, tmp_path / "cities", [("ann", "Aachen")])

    with pytest.raises(UserError) as caught:
        spark_node.sql(create(orders, select))

    assert_names(caught.value.message, *named)
    assert caught.value.code is Code.NOT_SUPPORTED_ERR


@pytest.mark.parametrize(
    "select",
    [
        "WITH a AS (SELECT 1) INSERT OVERWRITE DIRECTORY 'OUT' USING json SELECT * FROM SRC",
        "FROM SRC f INSERT OVERWRITE DIRECTORY 'OUT' USING json SELECT *",
        "SELECT id, d.at FROM SRC f JOIN json.`IN` d ON f.id = d.id",
    ],
)
def test_a_statement_that_is_not_a_query_over_tables_is_never_run(
    spark_node: Node, orders: Path, tmp_path: Path, select: str
) -> None:
    out = tmp_path / "out"
    select = select.replace("OUT", str(out)).replace("IN`", f"{orders}`")

    with pytest.raises(UserError):
        spark_node.sql(create(orders, select))

    assert not out.exists()
    assert spark_node.catalog.job("j") is None


def test_a_name_in_a_string_literal_is_not_a_column(spark_node: Node, orders: Path) -> None:
    select = "SELECT id, '_file' FROM (SELECT * FROM SRC) WHERE id = 1"

    spark_node.sql(create(orders, select))
    spark_node.run()

    assert spark_node.rows("t") == [{"a": 1, "b": "_file"}]


@pytest.mark.parametrize(
    ("select", "columns"),
    [
        ("SELECT * FROM (SELECT id, _file FROM SRC)", "id BIGINT, _file STRING"),
        ("SELECT id, _file FROM SRC WHERE true", "id BIGINT, _file STRING"),
    ],
)
def test_a_star_over_a_subquery_returns_its_columns(
    spark_node: Node, orders: Path, select: str, columns: str
) -> None:
    spark_node.sql(create(orders, select, columns=columns))
    spark_node.run()

    assert spark_node.rows("t")[0] == {"id": 1, "_file": str(orders / "0.json")}


def test_a_star_of_the_source_excludes_metadata_columns_of_a_where(
    spark_node: Node, orders: Path
) -> None:
    columns = "i BIGINT, c STRING, p STRING, t ARRAY<STRING>, a STRING"
    statement = create(orders, "SELECT * FROM SRC WHERE _row = 1 AND id = 2", columns=columns)

    spark_node.sql(statement.replace("INTO t ", "INTO t (i, c, p, t, a) "))
    spark_node.run()

    assert [(row["i"], row["c"]) for row in spark_node.rows("t")] == [(2, "bob")]


def test_a_table_with_an_unusual_name_can_be_joined(
    spark_node: Node, orders: Path, tmp_path: Path
) -> None:
    spark_node.sql("CREATE TABLE city (customer STRING, name STRING)")
    load_cities(spark_node, tmp_path / "cities", [("ann", "Aachen")])
    source = f"FILES('uri' = 'file://{tmp_path}/cities/*.json', 'format' = 'json')"
    insert = f"INSERT INTO `odd-city` SELECT * FROM {source}"  # noqa: S608 - Our own SQL.
    spark_node.sql("CREATE TABLE `odd-city` (customer STRING, name STRING)")
    spark_node.sql(f"CREATE JOB odd ON STREAMING DO {insert}")
    spark_node.run()
    select = (
        "SELECT id, (SELECT name FROM city WHERE city.customer = f.customer) FROM SRC f "
        "JOIN `odd-city` o ON o.customer = f.customer JOIN default.`odd-city` p "
        "ON p.customer = f.customer"
    )

    spark_node.sql(create(orders, select))
    spark_node.run()

    assert spark_node.rows("t") == [{"a": 1, "b": "Aachen"}]


def test_pause_commits_the_rejects_that_a_crash_left_uncommitted(
    node: Node, folder: Path
) -> None:
    (folder / "a.json").write_text(BAD)
    node.sql(f"{TABLE}; {create_job(folder, properties=[LENIENT])}")
    crash_at(node, CrashPoint.TABLE_COMMITTED)
    node = node.restart()

    node.sql("PAUSE JOB j")

    assert [row["line"] for row in rejected(node)] == [2, 4, 5]
    assert node.show("j")["rows_rejected"] == 3
