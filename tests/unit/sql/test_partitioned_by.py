import pytest

from penstock.errors import Code, UserError
from penstock.sql.formatter import format_statement
from penstock.sql.parser import parse_script
from penstock.sql.statements import CreateTable
from tests.error_values import assert_names, raises

COLUMNS = "(Id BIGINT, Day DATE, city STRING, tags ARRAY<INT>, weight DOUBLE, raw BINARY)"


def create(clauses: str, *, columns: str = COLUMNS) -> CreateTable:
    (parsed,) = parse_script(f"CREATE TABLE t {columns} {clauses}")
    assert isinstance(parsed.statement, CreateTable)
    return parsed.statement


@pytest.mark.parametrize(
    "clauses",
    [
        "PARTITIONED BY (day, City)",
        "PARTITIONED BY (`DAY`, `city`) COMMENT 'c'",
        "COMMENT 'c' PARTITIONED BY (Day,CITY) LOCATION '/t'",
        "LOCATION '/t' USING DELTA partitioned by (day, city)",
    ],
)
def test_partition_columns_keep_the_spelling_of_the_column_list(clauses: str) -> None:
    assert create(clauses).partition_by == ("Day", "city")


def test_a_table_without_partitioned_by_has_no_partition_columns() -> None:
    assert create("").partition_by == ()


def test_partition_columns_with_special_characters_are_formatted_in_backquotes() -> None:
    table = create("PARTITIONED BY (`a b`)", columns="(`a b` INT, c INT)")

    assert "\nPARTITIONED BY (`a b`)" in format_statement(table)


@pytest.mark.parametrize(
    ("clauses", "code", "named"),
    [
        ("PARTITIONED (Id)", Code.SYNTAX_ERR, ("BY", "PARTITIONED")),
        ("PARTITIONED BY Id", Code.SYNTAX_ERR, ('"("', "PARTITIONED BY")),
        ("PARTITIONED BY ()", Code.SYNTAX_ERR, ('"("',)),
        ("PARTITIONED BY (Id", Code.SYNTAX_ERR, ('")"',)),
        ("PARTITIONED BY (Id,)", Code.SYNTAX_ERR, ('","',)),
        ("PARTITIONED BY (x)", Code.SYNTAX_ERR, ('"x"',)),
        ("PARTITIONED BY (id, ID)", Code.SYNTAX_ERR, ('"Id"',)),
        (
            "PARTITIONED BY (Id) PARTITIONED BY (Day)",
            Code.SYNTAX_ERR,
            ("PARTITIONED",),
        ),
        ("PARTITIONED BY (tags)", Code.TYPE_ERR, ('"tags"', "ARRAY", "INT")),
        ("PARTITIONED BY (raw)", Code.TYPE_ERR, ('"raw"', "BINARY")),
        ("PARTITIONED BY (weight)", Code.TYPE_ERR, ('"weight"', "DOUBLE")),
        ("PARTITIONED BY (Id BIGINT)", Code.NOT_SUPPORTED_ERR, ("PARTITIONED BY",)),
        (
            "PARTITIONED BY (bucket(4, Id))",
            Code.NOT_SUPPORTED_ERR,
            ("bucket(…)", "PARTITIONED"),
        ),
    ],
)
def test_a_wrong_partitioned_by_clause_is_refused(
    clauses: str, code: Code, named: tuple[str, ...]
) -> None:
    with pytest.raises(UserError) as caught:
        create(clauses)

    assert caught.value.code is code
    assert_names(caught.value.message, *named)
    assert_names(caught.value.detail, "Line 1")


def test_a_table_with_only_partition_columns_is_refused() -> None:
    with raises(UserError, Code.SYNTAX_ERR, "PARTITIONED BY", "column"):
        create("PARTITIONED BY (a, b)", columns="(a INT, b DATE)")


@pytest.mark.parametrize("name", ["a/b", "a=b", "a:b"])
def test_a_partition_column_name_that_no_folder_can_have_is_refused(name: str) -> None:
    with raises(UserError, Code.TABLE_ERR, f'"{name}"', f'"{name[1]}"') as caught:
        create(f"PARTITIONED BY (`{name}`)", columns=f"(`{name}` INT, c INT)")

    assert caught.value.hint


def test_a_partition_column_name_that_is_too_long_is_refused() -> None:
    name = "é" * 101

    with raises(UserError, Code.TABLE_ERR, "200", "202"):
        create(f"PARTITIONED BY (`{name}`)", columns=f"(`{name}` INT, c INT)")
