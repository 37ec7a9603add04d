import pytest

from penstock.errors import Code
from penstock.sql.parser import parse_script
from penstock.sql.statements import CreateJob, Insert, SelectItem
from tests.error_values import assert_names
from tests.unit.sql.refusal import refusal


def insert_of(text: str) -> Insert:
    """Parse the INSERT of a job."""
    (parsed,) = parse_script(f"CREATE JOB j ON STREAMING DO {text}")
    assert isinstance(parsed.statement, CreateJob)
    assert isinstance(parsed.statement.body, Insert)
    return parsed.statement.body


@pytest.mark.parametrize(
    ("items", "paths"),
    [
        ("id", [("id",)]),
        ("Id, `a b`, a.b.`c.d`", [("Id",), ("a b",), ("a", "b", "c.d")]),
        ("f.id, F.customer.city, `f`.x", [("id",), ("customer", "city"), ("x",)]),
        ("f, g.f", [("f",), ("g", "f")]),
        ("`case`, `distinct`, not_, x AS a", [("case",), ("distinct",), ("not_",), ("x",)]),
        ("2024_orders, größe", [("2024_orders",), ("größe",)]),
        ("`*`", [("*",)]),
        ("f.`*`, a.`*`", [("*",), ("a", "*")]),
    ],
)
def test_columns_are_parsed_as_paths_without_the_alias_of_the_source(
    items: str, paths: list[tuple[str, ...]]
) -> None:
    insert = insert_of(" ".join(["INSERT INTO t SELECT", items, "FROM FILES() f"]))

    assert insert.items is not None
    assert [item.path for item in insert.items] == paths


def test_the_keyword_as_is_optional_before_an_alias() -> None:
    insert = insert_of("INSERT INTO t SELECT a AS x, b y, c.d `z z` FROM S3()")

    assert insert.items == (
        SelectItem(path=("a",), alias="x"),
        SelectItem(path=("b",), alias="y"),
        SelectItem(path=("c", "d"), alias="z z"),
    )


@pytest.mark.parametrize(
    "select", ["* FROM FILES()", "f.* FROM S3() AS f", "`F`.* FROM FILES() f"]
)
def test_a_star_selects_all_columns(select: str) -> None:
    assert insert_of(f"INSERT INTO t SELECT {select}").items is None


@pytest.mark.parametrize(
    "select",
    [
        "SELECT a FROM FILES() WHERE a > 1",
        "SELECT a FROM FILES() AS f WHERE a > 1",
        "SELECT a FROM FILES() GROUP BY a",
        "SELECT a FROM FILES() HAVING a",
        "SELECT a FROM FILES() ORDER BY a",
        "SELECT a FROM FILES() f SORT BY a",
        "SELECT a FROM FILES() LIMIT 1",
        "SELECT a FROM FILES() LEFT JOIN t ON true",
        "SELECT a FROM FILES() f CROSS JOIN t",
        "SELECT a FROM FILES() LATERAL VIEW explode(a) x AS y",
        "SELECT a FROM FILES() TABLESAMPLE (1 ROWS)",
        "SELECT a FROM FILES() |> WHERE a",
        "SELECT a FROM FILES() f, t",
        "SELECT a FROM FILES() AS f(a, b)",
        "SELECT DISTINCT a FROM FILES()",
        "SELECT ALL a FROM FILES()",
        "SELECT /*+ REPARTITION(2) */ a FROM FILES()",
        "SELECT *, a FROM FILES()",
        "SELECT a, f.* FROM FILES() f",
        "SELECT customer.* FROM FILES()",
        "SELECT * EXCEPT (a) FROM FILES()",
        "SELECT a + 1 FROM FILES()",
        "SELECT a[0] FROM FILES()",
        "SELECT a::INT FROM FILES()",
        "SELECT a || b FROM FILES()",
        "SELECT a IS NULL FROM FILES()",
        "SELECT a IN (1) FROM FILES()",
        "SELECT -a FROM FILES()",
        "SELECT (a) FROM FILES()",
        "SELECT (SELECT 1) FROM FILES()",
        "SELECT EXISTS (SELECT 1) FROM FILES()",
        "SELECT NOT a FROM FILES()",
        "SELECT upper(a) FROM FILES()",
        "SELECT `my f`(a) FROM FILES()",
        "SELECT sum(f(a)) OVER (ORDER BY b) FROM FILES()",
        "SELECT a, CAST(b AS INT) FROM FILES()",
        "SELECT TRY_CAST(b AS INT) FROM FILES()",
        "SELECT CASE WHEN a THEN 1 END FROM FILES()",
        "SELECT INTERVAL 1 DAY FROM FILES()",
        "SELECT 1 FROM FILES()",
        "SELECT 1L FROM FILES()",
        "SELECT 'x' AS a FROM FILES()",
        "SELECT X'1F' FROM FILES()",
        "SELECT DATE '2024-01-01' FROM FILES()",
        "SELECT NULL FROM FILES()",
        "(SELECT a FROM FILES())",
        "SELECT files.id FROM FILES()",
        "SELECT a AS FROM FILES()",
        "SELECT a, FROM FILES()",
        "SELECT a FORM FILES()",
        "SELECT a FROM FILES() COMMENT 'x'",
        "SELECT current_date FROM FILES()",
        "FROM FILES() |> SELECT a",
    ],
)
def test_a_select_that_is_no_plain_list_stays_verbatim_for_spark(select: str) -> None:
    insert = insert_of(f"INSERT INTO t {select}")

    assert not insert.plain
    assert insert.items is None
    assert insert.select == select


@pytest.mark.parametrize(
    ("select", "starred"),
    [
        ("SELECT * FROM FILES() WHERE a", True),
        ("WITH x AS (SELECT a FROM FILES()) SELECT * FROM x", True),
        ("WITH x AS (SELECT * FROM FILES()) SELECT a FROM x", False),
        ("SELECT *, 1 FROM FILES()", False),
        ("SELECT * EXCEPT (a) FROM FILES()", False),
    ],
)
def test_a_select_with_only_a_star_is_recognized(select: str, *, starred: bool) -> None:
    assert insert_of(f"INSERT INTO t {select}").starred == starred


def test_the_offsets_of_the_source_point_at_its_call() -> None:
    insert = insert_of("INSERT INTO t SELECT a -- FILES(\n FROM /* 😀 */ s3 ('uri'='x)') x;")

    assert insert.select[insert.source.start : insert.source.end] == "s3 ('uri'='x)')"
    assert insert.source.function == "S3"


@pytest.mark.parametrize("table", ["TABLE t", "t", "default.T"])
def test_the_target_table_can_be_written_in_several_ways(table: str) -> None:
    assert insert_of(" ".join(["INSERT INTO", table, "SELECT a FROM S3()"])).table == "t"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("INSERT INTO t (a, ¦A) SELECT a FROM S3()", ('"A"',)),
        ("INSERT INTO t (¦) SELECT a FROM S3()", ('"("', '","')),
        ("INSERT INTO t ¦UPDATE", ("SELECT", '"UPDATE"')),
    ],
)
def test_a_syntax_error_in_an_insert_reports_its_position(
    text: str, named: tuple[str, ...]
) -> None:
    error = refusal(f"CREATE JOB j ON STREAMING DO {text}")

    assert error.code is Code.SYNTAX_ERR
    assert_names(error.message, *named)
