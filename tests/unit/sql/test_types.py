import pytest

from penstock.errors import Code, UserError
from penstock.model.schema import Array, Column, DataType, Decimal, Map, Primitive, Struct
from penstock.sql.parser import parse_script
from penstock.sql.statements import CreateTable
from penstock.sql.types import parse_columns
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
def test_a_type_is_read_with_its_synonyms(written: str, meant: DataType) -> None:
    assert parse_columns(f"c {written}") == (Column(name="c", type=meant),)


def test_a_table_is_read_with_its_clauses_in_any_order() -> None:
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
    ("columns", "code", "message"),
    [
        ("a ¦STRNG", Code.TYPE_ERR, 'expected a type after the name "a", found "STRNG"'),
        ("a DECIMAL(¦39)", Code.TYPE_ERR, "the precision of DECIMAL must be between 1 and 38"),
        ("a DECIMAL(¦0)", Code.TYPE_ERR, "the precision of DECIMAL must be between 1 and 38"),
        (
            "a DEC(¦5, 6)",
            Code.TYPE_ERR,
            "the scale of DEC must be between 0 and the precision 5",
        ),
        ("a DECIMAL(¦-1)", Code.SYNTAX_ERR, "expected a precision of at most nine digits"),
        ("a DECIMAL(¦1.5)", Code.SYNTAX_ERR, "expected a precision of at most nine digits"),
        (
            f"a DECIMAL(¦{'9' * 5000})",
            Code.SYNTAX_ERR,
            "expected a precision of at most nine digits",
        ),
        ("a VARCHAR(¦0)", Code.SYNTAX_ERR, "VARCHAR must have a length of at least 1, not 0"),
        ("a ARRAY¦", Code.SYNTAX_ERR, 'expected "<" after ARRAY, found the end'),
        ("a ARRAY<INT¦", Code.SYNTAX_ERR, 'expected ">" after the last type in ARRAY<…'),
        ("a MAP<INT¦>", Code.SYNTAX_ERR, 'expected "," after the type of the key, found ">"'),
        ("a STRUCT<¦>", Code.SYNTAX_ERR, 'expected a column name after STRUCT<, found ">"'),
        ("a STRUCT<b INT, ¦B INT>", Code.SYNTAX_ERR, 'column "B" is given twice'),
        ("a INT, ¦A INT", Code.SYNTAX_ERR, 'column "A" is given twice'),
        ("a INT COMMENT 'x' ¦NOT NULL", Code.SYNTAX_ERR, "NOT NULL must come once, and"),
        ("a INT,¦", Code.SYNTAX_ERR, 'expected a column name after ",", found the end'),
        ("a INT¦; b INT", Code.SYNTAX_ERR, 'expected "," or the end after the column "a"'),
        ("a¦-b INT", Code.SYNTAX_ERR, 'expected the end of the name, found "-"'),
        ("a¦", Code.SYNTAX_ERR, 'expected a type after the name "a", found the end'),
        ("a¦: INT", Code.SYNTAX_ERR, 'expected a type after the name "a", found ":"'),
        ("¦", Code.SYNTAX_ERR, "expected a column name, found the end"),
        ("¦`` INT", Code.SYNTAX_ERR, "column name must not be empty"),
    ],
)
def test_a_wrong_column_list_is_refused_with_the_rule_and_the_position(
    columns: str, code: Code, message: str
) -> None:
    error = refusal(columns, parse=parse_columns)

    assert error.code is code
    assert error.message.startswith(message)


def test_an_unknown_type_brings_the_nearest_and_the_list() -> None:
    with pytest.raises(UserError) as caught:
        parse_columns("a STRNG")

    assert caught.value.hint.startswith("Did you mean STRING? The types are BOOLEAN, TINYINT,")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE t ()", 'table "t" must have at least one column'),
        ("CREATE TABLE t", 'expected "(" after the table name, found the end of the statement'),
        ("CREATE TABLE t COMMENT 'x' (a INT)", "COMMENT must come after the columns"),
        ("CREATE TABLE t (a INT) COMMENT 'x' COMMENT 'y'", "COMMENT must not come twice"),
        ("CREATE TABLE t (a INT) LOCATION ' '", "LOCATION must not be empty"),
        ("CREATE TABLE t (a INT) LOCATION x", "expected a location in quotes after LOCATION"),
        (
            "CREATE TABLE t (a INT) x",
            "expected PARTITIONED BY, COMMENT, LOCATION or the end of the statement",
        ),
        ("CREATE TABLE t (a INT", 'expected ")" after the column "a", found the end'),
    ],
)
def test_a_wrong_table_is_refused(text: str, message: str) -> None:
    error = refusal(text)

    assert error.code is Code.SYNTAX_ERR
    assert error.message.startswith(message)


def test_sixty_four_levels_of_nesting_are_read() -> None:
    (column,) = parse_columns("a " + "ARRAY<" * 63 + "INT" + ">" * 63)

    assert column.type.sql == "ARRAY<" * 63 + "INT" + ">" * 63


@pytest.mark.parametrize("opening", ["ARRAY<", "MAP<INT,", "STRUCT<a:"])
@pytest.mark.parametrize("levels", [65, 5_000])
def test_deeper_nesting_is_refused(opening: str, levels: int) -> None:
    with pytest.raises(UserError, match="must not nest deeper than 64 levels"):
        parse_columns("a " + opening * levels)


def test_a_million_levels_of_nesting_are_refused() -> None:
    with pytest.raises(UserError, match="at most 1000000 characters"):
        parse_columns("a " + "ARRAY<" * 1_000_000)


@pytest.mark.parametrize("text", ["s STRUCT<KEY: INT>", "s STRUCT<a: INT, primary: STRING>"])
def test_a_field_may_be_called_like_a_constraint(text: str) -> None:
    (column,) = parse_columns(text)

    assert isinstance(column.type, Struct)
    assert column.type.fields[-1].name in ("KEY", "primary")
