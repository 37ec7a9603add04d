import pytest

from penstock.errors import Code, UserError
from penstock.model.schema import Array, Column, DataType, Decimal, Map, Primitive, Struct
from penstock.sql.parser import parse_script
from penstock.sql.statements import CreateTable
from penstock.sql.types import parse_columns
from tests.error_values import assert_names, raises
from tests.unit.sql.refusal import refusal


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *[(primitive.value.lower(), primitive) for primitive in Primitive],
        ("BOOL", Primitive.BOOLEAN),
        ("BYTE", Primitive.TINYINT),
        ("SHORT", Primitive.SMALLINT),
        ("INTEGER", Primitive.INT),
        ("LONG", Primitive.BIGINT),
        ("REAL", Primitive.FLOAT),
        ("TEXT", Primitive.STRING),
        ("VARCHAR(20)", Primitive.STRING),
        ("VARCHAR", Primitive.STRING),
        ("CHAR(1)", Primitive.STRING),
        ("DATETIME", Primitive.TIMESTAMP),
        ("TIMESTAMP_LTZ", Primitive.TIMESTAMP),
        ("DECIMAL", Decimal(precision=10, scale=0)),
        ("DEC(5)", Decimal(precision=5, scale=0)),
        ("NUMERIC(38, 38)", Decimal(precision=38, scale=38)),
        ("ARRAY<ARRAY<INT>>", Array(element=Array(element=Primitive.INT))),
        (
            "MAP<STRING, ARRAY<DATE>>",
            Map(key=Primitive.STRING, value=Array(element=Primitive.DATE)),
        ),
        (
            "STRUCT<a: INT NOT NULL COMMENT 'x', `b c` STRUCT<d:DATE>>",
            Struct(
                fields=(
                    Column(name="a", type=Primitive.INT, nullable=False, comment="x"),
                    Column(
                        name="b c",
                        type=Struct(fields=(Column(name="d", type=Primitive.DATE),)),
                    ),
                )
            ),
        ),
    ],
)
def test_a_type_is_parsed_with_its_synonyms(written: str, meant: DataType) -> None:
    assert parse_columns(f"c {written}") == (Column(name="c", type=meant),)


def test_create_table_is_parsed_with_its_clauses_in_any_order() -> None:
    (parsed,) = parse_script(
        "CREATE TABLE IF NOT EXISTS Orders"
        " (Id BIGINT NOT NULL COMMENT 'the key', primary STRING)"
        " LOCATION '/data/orders' USING delta COMMENT 'all orders'"
    )

    assert parsed.statement == CreateTable(
        name="orders",
        columns=(
            Column(name="Id", type=Primitive.BIGINT, nullable=False, comment="the key"),
            Column(name="primary", type=Primitive.STRING),
        ),
        location="/data/orders",
        comment="all orders",
        if_not_exists=True,
    )


@pytest.mark.parametrize(
    ("columns", "code", "named"),
    [
        ("a ¦STRNG", Code.TYPE_ERR, ('"a"', '"STRNG"')),
        ("a DECIMAL(¦39)", Code.TYPE_ERR, ("DECIMAL", "1", "38")),
        ("a DECIMAL(¦0)", Code.TYPE_ERR, ("DECIMAL", "1", "38")),
        (
            "a DEC(¦5, 6)",
            Code.TYPE_ERR,
            ("DEC", "0", "5"),
        ),
        ("a DECIMAL(¦-1)", Code.SYNTAX_ERR, ("precision",)),
        ("a DECIMAL(¦1.5)", Code.SYNTAX_ERR, ("precision",)),
        (
            f"a DECIMAL(¦{'9' * 5000})",
            Code.SYNTAX_ERR,
            ("precision",),
        ),
        ("a VARCHAR(¦0)", Code.SYNTAX_ERR, ("VARCHAR", "1", "0")),
        ("a ARRAY¦", Code.SYNTAX_ERR, ('"<"', "ARRAY")),
        ("a ARRAY<INT¦", Code.SYNTAX_ERR, ('">"', "ARRAY")),
        ("a MAP<INT¦>", Code.SYNTAX_ERR, ('","', '">"')),
        ("a STRUCT<¦>", Code.SYNTAX_ERR, ("STRUCT", '">"')),
        ("a STRUCT<b INT, ¦B INT>", Code.SYNTAX_ERR, ('"B"',)),
        ("a INT, ¦A INT", Code.SYNTAX_ERR, ('"A"',)),
        ("a INT COMMENT 'x' ¦NOT NULL", Code.SYNTAX_ERR, ("NOT NULL",)),
        ("a INT,¦", Code.SYNTAX_ERR, ('","',)),
        ("a INT¦; b INT", Code.SYNTAX_ERR, ('","', '"a"')),
        ("a¦-b INT", Code.SYNTAX_ERR, ('"-"',)),
        ("a¦", Code.SYNTAX_ERR, ('"a"',)),
        ("a¦: INT", Code.SYNTAX_ERR, ('"a"', '":"')),
        ("¦", Code.SYNTAX_ERR, ("column name", "end")),
        ("¦`` INT", Code.SYNTAX_ERR, ("column name", "empty")),
    ],
)
def test_a_wrong_column_list_is_refused_with_the_rule_and_the_position(
    columns: str, code: Code, named: tuple[str, ...]
) -> None:
    error = refusal(columns, parse=parse_columns)

    assert error.code is code
    assert_names(error.message, *named)


def test_an_unknown_type_suggests_the_nearest_type_and_lists_all_types() -> None:
    with pytest.raises(UserError) as caught:
        parse_columns("a STRNG")

    assert_names(caught.value.hint, "STRING", "BOOLEAN, TINYINT,")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("CREATE TABLE t ()", ('"t"',)),
        ("CREATE TABLE t", ('"("',)),
        ("CREATE TABLE t COMMENT 'x' (a INT)", ("COMMENT",)),
        ("CREATE TABLE t (a INT) COMMENT 'x' COMMENT 'y'", ("COMMENT", "more than once")),
        ("CREATE TABLE t (a INT) LOCATION ' '", ("LOCATION", "empty")),
        ("CREATE TABLE t (a INT) LOCATION x", ("LOCATION",)),
        (
            "CREATE TABLE t (a INT) x",
            ("PARTITIONED BY", "COMMENT", "LOCATION"),
        ),
        ("CREATE TABLE t (a INT", ('")"', '"a"')),
    ],
)
def test_a_wrong_create_table_is_refused(text: str, named: tuple[str, ...]) -> None:
    error = refusal(text)

    assert error.code is Code.SYNTAX_ERR
    assert_names(error.message, *named)


def test_sixty_four_levels_of_nesting_are_parsed() -> None:
    (column,) = parse_columns("a " + "ARRAY<" * 63 + "INT" + ">" * 63)

    assert column.type.sql == "ARRAY<" * 63 + "INT" + ">" * 63


@pytest.mark.parametrize("opening", ["ARRAY<", "MAP<INT,", "STRUCT<a:"])
@pytest.mark.parametrize("levels", [65, 5_000])
def test_deeper_nesting_is_refused(opening: str, levels: int) -> None:
    with raises(UserError, Code.SYNTAX_ERR, "64", "levels"):
        parse_columns("a " + opening * levels)


def test_a_million_levels_of_nesting_are_refused() -> None:
    with raises(UserError, Code.SYNTAX_ERR, "1000000"):
        parse_columns("a " + "ARRAY<" * 1_000_000)


@pytest.mark.parametrize("text", ["s STRUCT<KEY: INT>", "s STRUCT<a: INT, primary: STRING>"])
def test_a_field_can_have_the_name_of_a_constraint(text: str) -> None:
    (column,) = parse_columns(text)

    assert isinstance(column.type, Struct)
    assert column.type.fields[-1].name in ("KEY", "primary")
