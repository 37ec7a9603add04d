import pytest

from penstock.errors import Code, UserError
from penstock.sql.parser import parse_script
from penstock.sql.statements import CreateJob, Insert, SelectItem


def insert_of(text: str) -> Insert:
    """Parse the INSERT of a job."""
    (parsed,) = parse_script(f"CREATE JOB j ON STREAMING DO {text}")
    assert isinstance(parsed.statement, CreateJob)
    return parsed.statement.insert


@pytest.mark.parametrize(
    ("items", "paths"),
    [
        ("id", [("id",)]),
        ("Id, `a b`, a.b.`c.d`", [("Id",), ("a b",), ("a", "b", "c.d")]),
        ("f.id, F.customer.city, `f`.x", [("id",), ("customer", "city"), ("x",)]),
        ("f, g.f", [("f",), ("g", "f")]),
        ("case, distinct, not, all AS a", [("case",), ("distinct",), ("not",), ("all",)]),
        ("2024_orders, größe", [("2024_orders",), ("größe",)]),
    ],
)
def test_columns_are_read_as_paths_without_the_alias_of_the_source(
    items: str, paths: list[tuple[str, ...]]
) -> None:
    insert = insert_of(" ".join(["INSERT INTO t SELECT", items, "FROM FILES() f"]))

    assert insert.items is not None
    assert [item.path for item in insert.items] == paths


def test_an_alias_may_stand_with_or_without_as() -> None:
    insert = insert_of("INSERT INTO t SELECT a AS x, b y, c.d `z z` FROM S3()")

    assert insert.items == (
        SelectItem(path=("a",), alias="x"),
        SelectItem(path=("b",), alias="y"),
        SelectItem(path=("c", "d"), alias="z z"),
    )


@pytest.mark.parametrize(
    "select", ["* FROM FILES()", "f.* FROM S3() AS f", "`F`.* FROM FILES() f"]
)
def test_a_star_stands_for_all_columns(select: str) -> None:
    assert insert_of(f"INSERT INTO t SELECT {select}").items is None


def test_a_column_called_like_the_source_is_no_qualifier_without_an_alias() -> None:
    insert = insert_of("INSERT INTO t SELECT files.id FROM FILES()")

    assert insert.items == (SelectItem(path=("files", "id")),)


def test_the_offsets_point_at_the_call() -> None:
    insert = insert_of("INSERT INTO t SELECT a -- FILES(\n FROM /* 😀 */ s3 ('uri'='x)') x;")

    assert insert.select[insert.source.start : insert.source.end] == "s3 ('uri'='x)')"
    assert insert.source.function == "S3"


@pytest.mark.parametrize("table", ["TABLE t", "t", "default.T"])
def test_the_target_may_be_written_in_several_ways(table: str) -> None:
    assert insert_of(" ".join(["INSERT INTO", table, "SELECT a FROM S3()"])).table == "t"


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        (
            "INSERT INTO t SELECT a FORM FILES()",
            'expected FROM after the select list, found "FORM"',
            53,
        ),
        (
            "INSERT INTO t SELECT a",
            "expected FROM after the select list, found the end of the statement",
            52,
        ),
        (
            "INSERT INTO t SELECT a 'x' FROM S3()",
            "expected FROM after the select list, found a text",
            53,
        ),
        ("INSERT INTO t SELECT FROM S3()", 'expected a column after SELECT, found "FROM"', 51),
        ("INSERT INTO t SELECT a, FROM S3()", 'expected a column after ",", found "FROM"', 54),
        (
            "INSERT INTO t SELECT a. FROM S3",
            'expected FROM after the select list, found "S3"',
            59,
        ),
        (
            "INSERT INTO t SELECT a AS FROM S3()",
            'expected FROM after the select list, found "S3',
            61,
        ),
        ("INSERT INTO t SELECT a FROM FILES", 'expected "(" after FILES, found the end', 63),
        (
            "INSERT INTO t SELECT a FROM 'x'",
            "expected FILES(…) or S3(…) after FROM, found a",
            58,
        ),
        (
            "INSERT INTO t SELECT a FROM FILES() COMMENT 'x'",
            'expected the end of the statement after the source, found "COMMENT"',
            66,
        ),
        ("INSERT INTO t (a, A) SELECT a FROM S3()", 'column "A" is given twice', 48),
        ("INSERT INTO t () SELECT a FROM S3()", 'expected a column name after "(" or ","', 45),
        (
            "INSERT INTO t UPDATE",
            'expected SELECT after the table and its columns, found "UP',
            44,
        ),
    ],
)
def test_a_mistake_in_an_insert_is_named_with_its_position(
    text: str, message: str, column: int
) -> None:
    with pytest.raises(UserError) as caught:
        insert_of(text)

    error = caught.value
    assert error.code is Code.SYNTAX_ERR
    assert error.message.startswith(message)
    assert error.detail == f"Line 1, column {column}."
