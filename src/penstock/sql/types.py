"""Parse column lists, the types of columns, watermarks and intervals, in Spark's syntax.

``VARCHAR(n)``, ``CHAR(n)`` and ``TEXT`` become STRING; the length is not enforced. Types nest
at most ``DEPTH_MAX`` levels, because recursive functions parse and format them.

An interval is the delay of a watermark. Its length is fixed: it has no months and years.
"""

import re

from penstock.errors import Code, UserError
from penstock.model.schema import Array, Column, DataType, Decimal, Map, Primitive, Struct
from penstock.sql.lexer import Token, TokenKind, read_script, tokenize
from penstock.sql.names import comment_clause, declared_name, joined_text, plain_name
from penstock.sql.reader import TokenReader, words
from penstock.sql.statements import StreamColumn, Watermark

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
    "AS AUTO_INCREMENT CHECK COLLATE CONSTRAINT DEFAULT GENERATED KEY MASK PRIMARY REFERENCES "
    "UNIQUE"
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
    """Parse the columns of a table or the fields of a struct, without parentheses.

    The list ends before ``, WATERMARK FOR``.
    """
    columns: list[Column] = []
    seen: set[str] = set()
    while not columns or (not _at_watermark_for(reader) and reader.skip_symbol(",")):
        token = reader.peek()
        column = _column(reader, after=after if not columns else '","', depth=depth)
        if column.name.lower() in seen:
            message = f'column "{column.name}" is specified more than once'
            raise reader.error(message, token=token)
        seen.add(column.name.lower())
        columns.append(column)
    return tuple(columns)


def _at_watermark_for(reader: TokenReader) -> bool:
    words_after = [reader.peek(distance).keyword for distance in (1, 2)]
    return reader.at_symbol(",") and words_after == ["WATERMARK", "FOR"]


def _column(reader: TokenReader, *, after: str, depth: int) -> Column:
    first = reader.peek()
    name = declared_name(reader, "a column name", after=after)
    field = depth > 0 and reader.at_symbol(":")
    if first.keyword in _CONSTRAINTS and reader.peek().keyword not in _KNOWN and not field:
        construct = f"{first.keyword} KEY" if reader.at("KEY") else first.keyword
        raise reader.unsupported(construct, place="CREATE TABLE", token=first)
    if depth:
        reader.skip_symbol(":")
    kind = column_type(reader, after=f'the name "{name}"', depth=depth)
    nullable = not reader.skip("NOT", "NULL")
    comment = comment_clause(reader) or ""
    if reader.at("NOT", "NULL"):
        raise reader.error("NOT NULL must be specified once, before COMMENT")
    if reader.at_any(_COLUMN_CLAUSES):
        raise reader.unsupported(reader.peek().keyword, place="a column")
    return Column(name=name, type=kind, nullable=nullable, comment=comment)


def column_type(reader: TokenReader, *, after: str, depth: int = 0) -> DataType:
    """Parse a type."""
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
        kind = Array(element=column_type(reader, after=after, depth=depth))
    elif word == "MAP":
        key = column_type(reader, after=after, depth=depth)
        reader.expect_symbol(",", after="the type of the key")
        kind = Map(key=key, value=column_type(reader, after='","', depth=depth))
    else:
        kind = Struct(fields=column_list(reader, after=after, depth=depth))
    reader.expect_symbol(">", after=f"the last type in {word}<…")
    return kind


_STREAM_PLACE = "CREATE STREAMING TABLE"
_REMOVE_HINT = "Remove the constraint. Filter rows in the query with WHERE."
_STREAM_CONSTRAINTS = words("CHECK EXPECT FOREIGN PRIMARY UNIQUE")


def stream_column_list(reader: TokenReader) -> tuple[StreamColumn, ...]:
    """Parse the columns of a streaming table and ``)``; types are optional."""
    column_by_key: dict[str, StreamColumn] = {}
    while not column_by_key or reader.skip_symbol(","):
        # Spark accepts an empty list.
        if not column_by_key and reader.skip_symbol(")"):
            return ()
        token = reader.peek()
        _check_constraint(reader)
        column = _stream_column(reader, after='","' if column_by_key else '"("')
        if column.name.lower() in column_by_key:
            message = f'column "{column.name}" is specified more than once'
            raise reader.error(message, token=token)
        column_by_key[column.name.lower()] = column
    if not reader.skip_symbol(")"):
        raise reader.unexpected('"," or ")"', after="the column")
    return tuple(column_by_key.values())


def _check_constraint(reader: TokenReader) -> None:
    if reader.at("WATERMARK", "FOR"):
        hint = "Write STREAM t WATERMARK ts DELAY OF INTERVAL … in the query."
        raise reader.unsupported("WATERMARK FOR", place=_STREAM_PLACE, hint=hint)
    distance = 2 if reader.at("CONSTRAINT") else 0
    word = reader.peek(distance).keyword
    following = reader.peek(distance + 1)
    starts = following.is_symbol("(") or following.keyword == "KEY"
    if word in _STREAM_CONSTRAINTS and starts:
        construct = f"{word} KEY" if following.keyword == "KEY" else word
        raise reader.unsupported(construct, place=_STREAM_PLACE, hint=_REMOVE_HINT)


def _stream_column(reader: TokenReader, *, after: str) -> StreamColumn:
    name = declared_name(reader, "a column name", after=after)
    typed = reader.at_name() and not reader.at_any(("COMMENT", "NOT"))
    kind = column_type(reader, after=f'the name "{name}"') if typed else None
    comment: str | None = None
    nullable = True
    # Spark accepts NOT NULL and COMMENT in any order, each once.
    while (comment is None and reader.at("COMMENT")) or (nullable and reader.at("NOT", "NULL")):
        if reader.skip("COMMENT"):
            comment = joined_text(reader, "a comment", after="COMMENT")
        else:
            nullable = not reader.skip("NOT", "NULL")
    if reader.at("COMMENT") or reader.at("NOT", "NULL"):
        clause = "COMMENT" if reader.at("COMMENT") else "NOT NULL"
        raise reader.error(f'{clause} of column "{name}" is specified more than once')
    if reader.at_any(_COLUMN_CLAUSES):
        hint = "Remove the clause. Compute and check values in the query."
        raise reader.unsupported(reader.peek().keyword, place="a column", hint=hint)
    return StreamColumn(name=name, type=kind, comment=comment or "", nullable=nullable)


DELAY_DAYS_MAX = 36_500

_MICROSECONDS_BY_UNIT = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60 * 1_000_000,
    "HOUR": 3_600 * 1_000_000,
    "DAY": 86_400 * 1_000_000,
    "WEEK": 7 * 86_400 * 1_000_000,
}
_MICROSECONDS_PER_MS = 1_000
_CALENDAR_UNITS = ("MONTH", "QUARTER", "YEAR")
_AMOUNT = re.compile(r"[+-]?([0-9]{1,15}(\.[0-9]{0,9})?|\.[0-9]{1,9})")
_AMOUNT_WITH_UNIT = re.compile(rf"\s*({_AMOUNT.pattern})\s*([A-Za-z]+)\s*")
_INTERVAL_HINT = "Write for example INTERVAL 5 MINUTES, or INTERVAL 1 HOUR 30 MINUTES."
_WATERMARK_HINT = "Write WATERMARK FOR ts AS ts - INTERVAL 5 MINUTES."


def watermark_for(reader: TokenReader) -> Watermark:
    """Parse ``FOR ts [AS ts - INTERVAL …]``."""
    if not reader.skip("FOR"):
        raise reader.unexpected("FOR", after="WATERMARK", hint=_WATERMARK_HINT)
    token = reader.peek()
    column = plain_name(reader, "a column name", after="FOR")
    if reader.at_symbol("."):
        message = f'WATERMARK must be for a column, not for a field of "{column}"'
        raise reader.error(message, token=token, hint=_WATERMARK_HINT)
    delay_ms = _subtracted_ms(reader, column) if reader.skip("AS") else 0
    return Watermark(column=column, delay_ms=delay_ms)


def _subtracted_ms(reader: TokenReader, column: str) -> int:
    """Parse ``ts [- INTERVAL …]``, in which ts is the column of the watermark."""
    token = reader.peek()
    if not reader.at_name():
        raise reader.unexpected(f'the column "{column}"', after="AS", hint=_WATERMARK_HINT)
    reader.take()
    expression = reader.at_symbol("(") or reader.at_symbol(".")
    if token.text.lower() != column.lower() or expression:
        found = "an expression" if expression else f'"{token.text}"'
        raise reader.error(
            f'WATERMARK FOR "{column}" must subtract an interval from "{column}", '
            f"not from {found}",
            token=token,
            hint=_WATERMARK_HINT,
        )
    return interval_ms(reader, after='"-"') if reader.skip_symbol("-") else 0


def interval_ms(reader: TokenReader, *, after: str) -> int:
    """Parse an interval of fixed length; return milliseconds, rounded down as in Spark."""
    first = reader.peek()
    if not reader.skip("INTERVAL"):
        raise reader.unexpected("INTERVAL", after=after, hint=_INTERVAL_HINT)
    quoted = reader.peek().kind is TokenKind.TEXT and not _is_unit(reader.peek(1).keyword)
    amounts = _quoted_amounts(reader) if quoted else _amounts(reader)
    microseconds = sum(amounts)
    if microseconds < 0:
        raise reader.error("the delay must not be negative", token=first, hint=_INTERVAL_HINT)
    if microseconds > DELAY_DAYS_MAX * _MICROSECONDS_BY_UNIT["DAY"]:
        message = f"the delay must be at most {DELAY_DAYS_MAX} days"
        raise reader.error(message, token=first, hint=_INTERVAL_HINT)
    return microseconds // _MICROSECONDS_PER_MS


def _is_unit(word: str) -> bool:
    unit = word.removesuffix("S")
    return unit in _MICROSECONDS_BY_UNIT or unit in _CALENDAR_UNITS


def _amounts(reader: TokenReader) -> list[int]:
    """Parse ``1 HOUR 30 MINUTES`` or ``'5' MINUTE``; return microseconds."""
    amounts: list[int] = []
    while not amounts or _at_amount(reader):
        token = reader.peek()
        amount = _signed_amount(reader)
        unit = reader.peek().keyword
        if not unit:
            raise reader.unexpected("a unit", after="the number", hint=_INTERVAL_HINT)
        unit_token = reader.take()
        if reader.at("TO"):
            units = f"INTERVAL … {unit} TO {reader.peek(1).keyword}".rstrip()
            raise reader.unsupported(units, token=unit_token, hint=_INTERVAL_HINT)
        if not _AMOUNT.fullmatch(amount):
            message = f"INTERVAL must have a number before {unit}"
            raise reader.error(message, token=token, hint=_INTERVAL_HINT)
        amounts.append(_microseconds(reader, amount, unit, token=unit_token))
    return amounts


def _at_amount(reader: TokenReader) -> bool:
    signed = any(map(reader.at_symbol, "+-."))
    return reader.peek(int(signed)).kind in (TokenKind.NUMBER, TokenKind.TEXT)


def _signed_amount(reader: TokenReader) -> str:
    amount = reader.take().text if any(map(reader.at_symbol, "+-")) else ""
    amount += "." if reader.skip_symbol(".") else ""
    if reader.peek().kind not in (TokenKind.NUMBER, TokenKind.TEXT):
        raise reader.unexpected("a number", after="INTERVAL", hint=_INTERVAL_HINT)
    return amount + reader.take().text.strip()


def _quoted_amounts(reader: TokenReader) -> list[int]:
    """Parse ``'1 hour 30 minutes'``; return microseconds."""
    token = reader.take()
    amounts: list[int] = []
    end = 0
    while end < len(token.text) or not amounts:
        found = _AMOUNT_WITH_UNIT.match(token.text, end)
        if not found:
            message = "INTERVAL must contain numbers, each with a unit"
            raise reader.error(message, token=token, hint=_INTERVAL_HINT)
        amount, unit = found[1], found[found.re.groups]
        amounts.append(_microseconds(reader, amount, unit.upper(), token=token))
        end = found.end()
    return amounts


def _microseconds(reader: TokenReader, amount: str, unit: str, *, token: Token) -> int:
    if not _is_unit(unit):
        units = ", ".join(f"{known}S" for known in _MICROSECONDS_BY_UNIT)
        message = f'"{unit}" is not a unit of an interval'
        raise reader.error(message, token=token, hint=f"The units are {units}.")
    factor = _MICROSECONDS_BY_UNIT.get(unit.removesuffix("S"))
    if factor is None:
        raise reader.error(
            f"the delay must have a fixed length, and {unit} has none",
            token=token,
            hint="Write days, such as INTERVAL 30 DAYS.",
        )
    if "." in amount and unit.removesuffix("S") != "SECOND":
        raise reader.error(f"only seconds can have a fraction, not {unit}", token=token)
    whole, _, fraction = amount.partition(".")
    sign = -1 if whole.startswith("-") else 1
    digits = int(whole.lstrip("+-") or "0") * factor
    return sign * (digits + int(fraction[:6].ljust(6, "0")))
