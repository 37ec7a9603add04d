"""Parse column lists and the types of columns, in Spark's syntax.

``VARCHAR(n)``, ``CHAR(n)`` and ``TEXT`` become STRING; the length is not enforced. Types nest
at most ``DEPTH_MAX`` levels, because recursive functions parse and format them.
"""

import re

from penstock.errors import Code, UserError
from penstock.model.schema import Array, Column, DataType, Decimal, Map, Primitive, Struct
from penstock.sql.lexer import TokenKind, read_script, tokenize
from penstock.sql.names import comment_clause, declared_name
from penstock.sql.reader import TokenReader, words

DEPTH_MAX = 64
PRECISION_MAX = 38

_SHORT_NUMBER = re.compile("[0-9]{1,9}")
_PRIMITIVE_BY_WORD = {primitive.value: primitive for primitive in Primitive} | {
    "BOOL": Primitive.BOOLEAN,
    "BYTE": Primitive.TINYINT,
    "SHORT": Primitive.SMALLINT,
    "INTEGER": Primitive.INT,
    "LONG": Primitive.BIGINT,
    "REAL": Primitive.FLOAT,
    "TEXT": Primitive.STRING,
    "DATETIME": Primitive.TIMESTAMP,
    "TIMESTAMP_LTZ": Primitive.TIMESTAMP,
}
_SIZED_TEXTS = frozenset({"VARCHAR", "CHAR", "CHARACTER"})
_DECIMALS = frozenset({"DECIMAL", "DEC", "NUMERIC"})
_NESTED = frozenset({"ARRAY", "MAP", "STRUCT"})
_KNOWN = sorted({*_PRIMITIVE_BY_WORD, *_SIZED_TEXTS, *_DECIMALS, *_NESTED})
_FOREIGN = words(
    "AGG_STATE BITMAP BLOB DATETIMEV2 DATEV2 DECIMALV3 ENUM GEOGRAPHY GEOMETRY HLL "
    "INTERVAL IPV4 IPV6 JSON JSONB LARGEINT NULL OBJECT QUANTILE_STATE SERIAL TIME "
    "TIMESTAMPTZ TIMETZ UUID VARBINARY VARIANT VOID XML"
)
_ADVICE_BY_WORD = {
    "BLOB": "Use BINARY.",
    "DATETIMEV2": "Use TIMESTAMP, or TIMESTAMP_NTZ for a time without a zone.",
    "DATEV2": "Use DATE.",
    "DECIMALV3": "Use DECIMAL.",
    "GEOGRAPHY": "Use BINARY for well-known binary, or STRING for well-known text.",
    "GEOMETRY": "Use BINARY for well-known binary, or STRING for well-known text.",
    "INTERVAL": "Use BIGINT with the unit in the column's name, or STRING.",
    "JSON": "Use STRING for the text, or STRUCT for known fields.",
    "JSONB": "Use STRING for the text, or STRUCT for known fields.",
    "LARGEINT": "Use DECIMAL(38, 0).",
    "TIME": "Use STRING, or BIGINT with the unit in the column's name.",
    "TIMESTAMPTZ": "Use TIMESTAMP.",
    "UUID": "Use STRING.",
    "VARBINARY": "Use BINARY.",
    "VARIANT": "Use STRING for the text, or STRUCT for known fields.",
}
_CONSTRAINTS = words("AGGREGATE CHECK CONSTRAINT DUPLICATE FOREIGN INDEX KEY PRIMARY UNIQUE")
_COLUMN_CLAUSES = words(
    "AS AUTO_INCREMENT CHECK COLLATE DEFAULT GENERATED KEY MASK PRIMARY REFERENCES UNIQUE"
)
_TYPES_HINT = (
    f"The types are {', '.join(Primitive)}, DECIMAL(p, s), ARRAY<type>, MAP<type, type> and "
    "STRUCT<name: type>."
)


def parse_columns(text: str) -> tuple[Column, ...]:
    """Parse a column list without parentheses: ``id BIGINT NOT NULL, note STRING``."""
    try:
        script = read_script(text)
        reader = TokenReader(script, tokenize(script))
        columns = column_list(reader, after="")
        if not reader.ended:
            raise reader.unexpected('"," or the end', after=f'the column "{columns[-1].name}"')
    except UserError as error:
        # The text is an option of a statement, so lines and columns in it would mislead users.
        error.line = error.column = None
        raise
    return columns


def column_list(reader: TokenReader, *, after: str, depth: int = 0) -> tuple[Column, ...]:
    """Parse the columns of a table or the fields of a struct, without parentheses."""
    columns: list[Column] = []
    seen: set[str] = set()
    while not columns or reader.skip_symbol(","):
        token = reader.peek()
        column = _column(reader, after=after if not columns else '","', depth=depth)
        if column.name.lower() in seen:
            message = f'column "{column.name}" is specified more than once'
            raise reader.error(message, token=token)
        seen.add(column.name.lower())
        columns.append(column)
    return tuple(columns)


def _column(reader: TokenReader, *, after: str, depth: int) -> Column:
    first = reader.peek()
    name = declared_name(reader, "a column name", after=after)
    field = depth > 0 and reader.at_symbol(":")
    if first.keyword in _CONSTRAINTS and reader.peek().keyword not in _KNOWN and not field:
        construct = f"{first.keyword} KEY" if reader.at("KEY") else first.keyword
        raise reader.unsupported(construct, place="CREATE TABLE", token=first)
    if depth:
        reader.skip_symbol(":")
    kind = _type(reader, after=f'the name "{name}"', depth=depth)
    nullable = not reader.skip("NOT", "NULL")
    comment = comment_clause(reader) or ""
    if reader.at("NOT", "NULL"):
        raise reader.error("NOT NULL must be specified once, before COMMENT")
    if reader.at_any(_COLUMN_CLAUSES):
        raise reader.unsupported(reader.peek().keyword, place="a column")
    return Column(name=name, type=kind, nullable=nullable, comment=comment)


def _type(reader: TokenReader, *, after: str, depth: int) -> DataType:
    word = reader.peek().keyword
    if word not in _KNOWN:
        raise _unknown_type(reader, after=after)
    if depth >= DEPTH_MAX:
        raise reader.error(f"a type must not nest deeper than {DEPTH_MAX} levels")
    reader.take()
    if word in _PRIMITIVE_BY_WORD:
        return _PRIMITIVE_BY_WORD[word]
    if word in _SIZED_TEXTS:
        return _sized_text(reader, word)
    if word in _DECIMALS:
        return _decimal(reader, word)
    return _nested(reader, word, depth=depth + 1)


def _unknown_type(reader: TokenReader, *, after: str) -> UserError:
    token = reader.peek()
    if token.kind is not TokenKind.WORD:
        return reader.unexpected("a type", after=after, hint=_TYPES_HINT)
    if token.keyword in _FOREIGN:
        advice = _ADVICE_BY_WORD.get(token.keyword, _TYPES_HINT)
        return reader.unsupported(f"the type {token.keyword}", hint=advice)
    error = reader.unexpected("a type", after=after, hint=_TYPES_HINT, choices=_KNOWN)
    error.code = Code.TYPE_ERR
    return error


def _sized_text(reader: TokenReader, word: str) -> DataType:
    if reader.skip_symbol("("):
        token = reader.peek()
        if _whole_number(reader, "a length", after=f"{word}(") < 1:
            raise reader.error(f"{word} must have a length of at least 1, not 0", token=token)
        reader.expect_symbol(")", after="the length")
    return Primitive.STRING


def _decimal(reader: TokenReader, word: str) -> DataType:
    token = reader.peek(1)
    precision, scale = 10, 0
    if reader.skip_symbol("("):
        precision = _whole_number(reader, "a precision", after=f"{word}(")
        if reader.skip_symbol(","):
            scale = _whole_number(reader, "a scale", after='","')
        reader.expect_symbol(")", after="the precision and scale")
    if not 1 <= precision <= PRECISION_MAX:
        rule = f"the precision of {word} must be between 1 and {PRECISION_MAX}, not {precision}"
        raise reader.error(rule, token=token, code=Code.TYPE_ERR)
    if scale > precision:
        rule = (
            f"the scale of {word} must be between 0 and the precision {precision}, not {scale}"
        )
        raise reader.error(rule, token=token, code=Code.TYPE_ERR)
    return Decimal(precision=precision, scale=scale)


def _whole_number(reader: TokenReader, what: str, *, after: str) -> int:
    token = reader.peek()
    if not _SHORT_NUMBER.fullmatch(token.text) or token.kind is not TokenKind.NUMBER:
        raise reader.unexpected(f"{what} of at most nine digits", after=after)
    return int(reader.take().text)


def _nested(reader: TokenReader, word: str, *, depth: int) -> DataType:
    reader.expect_symbol("<", after=word)
    after = f"{word}<"
    kind: DataType
    if word == "ARRAY":
        kind = Array(element=_type(reader, after=after, depth=depth))
    elif word == "MAP":
        key = _type(reader, after=after, depth=depth)
        reader.expect_symbol(",", after="the type of the key")
        kind = Map(key=key, value=_type(reader, after='","', depth=depth))
    else:
        kind = Struct(fields=column_list(reader, after=after, depth=depth))
    reader.expect_symbol(">", after=f"the last type in {word}<…")
    return kind
