"""Parse the statements about tables and secrets.

Each function parses the tokens after the first words of its statement, such as CREATE TABLE.

Invariant: no message quotes the value of a secret. A string without ``=`` may be a misplaced
secret value, so a message quotes a key only if ``=`` follows.
"""

from collections.abc import Sequence
from dataclasses import replace

from penstock.errors import Code
from penstock.model.schema import Column, Primitive, partition_column_error
from penstock.model.secrets import SecretReference, is_mask, reference_of
from penstock.sql.lexer import Token, TokenKind
from penstock.sql.names import (
    VALUE_HINT,
    at_secret_reference,
    partition_names,
    plain_name,
    secret_name,
    table_name,
)
from penstock.sql.reader import TokenReader, words
from penstock.sql.statements import (
    AlterSecret,
    AlterTableWatermark,
    CreateSecret,
    CreateTable,
    DescribeDetail,
    DescribeTable,
    Properties,
    Watermark,
)
from penstock.sql.types import column_list, watermark_for

_PLACE = "CREATE TABLE"
_NAMES_SHOWN_MAX = 20
_CLAUSES = ("USING", "PARTITIONED", "COMMENT", "LOCATION")
_REFUSED_CLAUSES = {
    "AGGREGATE": "AGGREGATE KEY",
    "AS": "AS SELECT",
    "CLUSTER": "CLUSTER BY",
    "CLUSTERED": "CLUSTERED BY",
    "DEFAULT": "DEFAULT COLLATION",
    "DISTRIBUTED": "DISTRIBUTED BY",
    "DUPLICATE": "DUPLICATE KEY",
    "ENGINE": "ENGINE",
    "LIKE": "LIKE",
    "OPTIONS": "OPTIONS",
    "PARTITION": "PARTITION BY",
    "PROPERTIES": "PROPERTIES",
    "ROW": "ROW FORMAT",
    "SELECT": "AS SELECT",
    "STORED": "STORED AS",
    "TBLPROPERTIES": "TBLPROPERTIES",
    "UNIQUE": "UNIQUE KEY",
    "WITH": "WITH",
}
_REFUSED_CHANGES = words(
    "ADD ALTER CHANGE CLUSTER DROP PARTITION RECOVER RENAME REPLACE SET UNSET"
)
_REFUSED_DESCRIPTIONS = words("DATABASE EXTENDED FORMATTED FUNCTION HISTORY JOB QUERY SCHEMA")


def parse_create_table(reader: TokenReader) -> CreateTable:
    """Parse CREATE TABLE."""
    if_not_exists = reader.skip("IF", "NOT", "EXISTS")
    token = reader.peek()
    name = table_name(reader, after=reader.head)
    _check_clause(reader)
    if reader.at_any(_CLAUSES):
        rule = f"{reader.peek().keyword} must come after the columns"
        raise reader.error(rule, hint="Write CREATE TABLE t (id BIGINT, …) COMMENT '…'.")
    reader.expect_symbol("(", after="the table name")
    if reader.at_symbol(")"):
        raise reader.error(f'table "{name}" must have at least one column', token=token)
    _check_first_element(reader)
    columns = column_list(reader, after='"("')
    watermark = _watermark(reader, columns)
    text_by_clause, partition_by = _clauses(reader, columns)
    return CreateTable(
        name=name,
        columns=columns,
        partition_by=partition_by,
        location=text_by_clause.get("LOCATION"),
        comment=text_by_clause.get("COMMENT", ""),
        if_not_exists=if_not_exists,
        watermark=watermark,
    )


def parse_alter_table(reader: TokenReader) -> AlterTableWatermark:
    """Parse ALTER TABLE, which sets or removes the watermark of a table."""
    name = table_name(reader, after="ALTER TABLE")
    if reader.skip("SET", "WATERMARK"):
        return AlterTableWatermark(name=name, watermark=watermark_for(reader))
    if reader.skip("DROP", "WATERMARK"):
        return AlterTableWatermark(name=name, watermark=None)
    if reader.peek().keyword in _REFUSED_CHANGES:
        raise reader.unsupported(
            f"ALTER TABLE … {reader.peek().keyword}",
            hint=f"Write ALTER TABLE {name} SET WATERMARK FOR column AS column - INTERVAL …, "
            "or DROP WATERMARK.",
        )
    raise reader.unexpected("SET WATERMARK or DROP WATERMARK", after="the table name")


def parse_describe(reader: TokenReader) -> DescribeTable | DescribeDetail:
    """Parse DESCRIBE; DETAIL and TABLE are names when nothing follows them."""
    token = reader.peek()
    if reader.at_name(1) and token.keyword in _REFUSED_DESCRIPTIONS:
        raise reader.unsupported(f"DESCRIBE {token.keyword}")
    if reader.at_name(1) and reader.skip("DETAIL"):
        return DescribeDetail(name=table_name(reader, after="DETAIL"))
    if reader.at_name(1):
        reader.skip("TABLE")
    return DescribeTable(name=table_name(reader, after="DESCRIBE"))


def _check_first_element(reader: TokenReader) -> None:
    if reader.at("WATERMARK", "FOR"):
        raise reader.error(
            "WATERMARK must come after the columns",
            hint="Write CREATE TABLE t (ts TIMESTAMP, …, WATERMARK FOR ts).",
        )


def _watermark(reader: TokenReader, columns: tuple[Column, ...]) -> Watermark | None:
    """Parse the end of the column list, with or without WATERMARK FOR."""
    if not reader.skip_symbol(","):
        reader.expect_symbol(")", after=f'the column "{columns[-1].name}"')
        return None
    reader.take()
    token = reader.peek(1)
    watermark = watermark_for(reader)
    column = _column_of(reader, columns, token=token, what="watermark column")
    # Spark has no watermark for a time without a zone.
    if column.type is not Primitive.TIMESTAMP:
        raise reader.error(
            f'watermark column "{column.name}" must have the type TIMESTAMP, '
            f"not {column.type.sql}",
            token=token,
            code=Code.TYPE_ERR,
        )
    reader.expect_symbol(")", after="WATERMARK", hint="WATERMARK FOR must come last.")
    return replace(watermark, column=column.name)


def _clauses(
    reader: TokenReader, columns: tuple[Column, ...]
) -> tuple[dict[str, str], tuple[str, ...]]:
    text_by_clause: dict[str, str] = {}
    partition_by: tuple[str, ...] = ()
    while not reader.ended:
        _check_clause(reader)
        token = reader.peek()
        if token.keyword not in _CLAUSES:
            raise reader.unexpected(
                "PARTITIONED BY, COMMENT, LOCATION or the end of the statement",
                choices=_CLAUSES,
            )
        if token.keyword in text_by_clause:
            raise reader.error(f"{token.keyword} is specified more than once")
        reader.take()
        if token.keyword == "PARTITIONED":
            partition_by = _partition_by(reader, columns)
            text_by_clause[token.keyword] = ""
        else:
            text_by_clause[token.keyword] = _clause_text(reader, token.keyword)
    return text_by_clause, partition_by


def _check_clause(reader: TokenReader) -> None:
    word = reader.peek().keyword
    construct = _REFUSED_CLAUSES.get(word)
    if construct:
        hint = "Write PARTITIONED BY (column, …)." if word == "PARTITION" else ""
        raise reader.unsupported(construct, place=_PLACE, hint=hint)


def _partition_by(reader: TokenReader, columns: tuple[Column, ...]) -> tuple[str, ...]:
    first = reader.peek(1)
    names: list[str] = []
    for token in partition_names(reader, place=_PLACE):
        column = _partition_column(reader, columns, token=token)
        if column.name in names:
            raise reader.error(
                f'partition column "{column.name}" is specified more than once', token=token
            )
        names.append(column.name)
    if len(names) == len(columns):
        raise reader.error(
            "PARTITIONED BY must not list all columns of the table",
            token=first,
            hint="At least one column must be stored in the data files.",
        )
    return tuple(names)


def _partition_column(
    reader: TokenReader, columns: Sequence[Column], *, token: Token
) -> Column:
    column = _column_of(reader, columns, token=token, what="partition column")
    refusal = partition_column_error(column)
    if refusal is not None:
        raise reader.error(refusal.message, token=token, code=refusal.code, hint=refusal.hint)
    return column


def _column_of(
    reader: TokenReader, columns: Sequence[Column], *, token: Token, what: str
) -> Column:
    """Return the column that a token names; ``what`` starts the message of the error."""
    column = next((c for c in columns if c.name.lower() == token.text.lower()), None)
    if column is None:
        known = ", ".join(f'"{c.name}"' for c in columns[:_NAMES_SHOWN_MAX])
        more = " …" if len(columns) > _NAMES_SHOWN_MAX else ""
        raise reader.error(
            f'{what} "{token.text}" is not a column of the table',
            token=token,
            hint=f"The columns are {known}{more}.",
        )
    return column


def _clause_text(reader: TokenReader, clause: str) -> str:
    token = reader.peek()
    if clause == "USING":
        if reader.at_name() and token.text.upper() != "DELTA":
            raise reader.unsupported(
                f"USING {token.text}", place=_PLACE, hint="Write USING DELTA."
            )
        reader.expect("DELTA", after="USING")
        return ""
    text = reader.expect_text(f"a {clause.lower()}", after=clause)
    if clause == "LOCATION" and not text.strip():
        raise reader.error("LOCATION must not be empty", token=token)
    return text


_NESTED_HINT = "Write the value itself, 'env:VARIABLE' or 'file:/path'."


def parse_create_secret(reader: TokenReader) -> CreateSecret:
    """Parse CREATE SECRET."""
    if_not_exists = reader.skip("IF", "NOT", "EXISTS")
    name = secret_name(reader, after=reader.head)
    return CreateSecret(name=name, values=_values(reader), if_not_exists=if_not_exists)


def parse_alter_secret(reader: TokenReader) -> AlterSecret:
    """Parse ALTER SECRET."""
    return AlterSecret(name=secret_name(reader, after=reader.head), values=_values(reader))


def _values(reader: TokenReader) -> Properties:
    """Parse keys and values in parentheses; keys ignore case."""
    first = reader.peek()
    hint = "Write CREATE SECRET name (s3.access_key = '…', s3.secret_key = '…')."
    reader.expect_symbol("(", after="the secret name", hint=hint)
    if reader.at_symbol(")"):
        raise reader.error("a secret must have at least one value", token=first, hint=hint)
    value_by_key: dict[str, str] = {}
    while not value_by_key or reader.skip_symbol(","):
        token = reader.peek()
        key = _key(reader, after='","' if value_by_key else '"("')
        reader.expect_symbol("=", after="the key", hint=VALUE_HINT)
        if not key.strip():
            raise reader.error("a key must not be empty", token=token)
        if key in value_by_key:
            raise reader.error(f'key "{key}" is specified more than once', token=token)
        value_by_key[key] = _value(reader, key)
    if not reader.skip_symbol(")"):
        raise reader.unexpected('"," or ")"', after="the value", hint=VALUE_HINT)
    return tuple(value_by_key.items())


def _key(reader: TokenReader, *, after: str) -> str:
    """Parse a key: a string in quotes, or a name with dots."""
    if reader.peek().kind is TokenKind.TEXT:
        return reader.take().text.lower()
    parts = [plain_name(reader, "a key", after=after)]
    while reader.skip_symbol("."):
        parts.append(plain_name(reader, "a name", after='"."'))
    return ".".join(parts).lower()


def _value(reader: TokenReader, key: str) -> str:
    token = reader.peek()
    if at_secret_reference(reader):
        raise reader.error("a secret must not refer to another secret", hint=_NESTED_HINT)
    if token.kind not in (TokenKind.TEXT, TokenKind.NUMBER, TokenKind.WORD):
        raise reader.unexpected("a value", after=f'"{key}" =', hint=VALUE_HINT)
    value = reader.take().text
    if not value:
        raise reader.error(f'value of "{key}" must not be empty', token=token)
    if is_mask(value):
        raise reader.error(
            f'value of "{key}" must not be {value}, the mask of a hidden value',
            token=token,
            hint="Type the value again, or write 'env:VARIABLE' or 'file:/path'.",
        )
    if isinstance(reference_of(value), SecretReference):
        raise reader.error(
            "a secret must not refer to another secret", token=token, hint=_NESTED_HINT
        )
    return value
