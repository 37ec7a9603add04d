"""Read an expression of Spark SQL as it is written; what it means is Spark's to say."""

from penstock.sql.lexer import Token, TokenKind
from penstock.sql.reader import TokenReader

SOURCES = ("KINESIS", "KAFKA")

_CLOSING = {"(": ")", "[": "]", "{": "}"}
# What begins another clause of a routine load, and no part of an expression.
_CLAUSES = (
    ("WHERE",),
    ("PRECEDING", "FILTER"),
    ("COLUMNS", "TERMINATED"),
    ("DELETE", "ON"),
    ("ORDER", "BY"),
)
_CALLED_CLAUSES = ("COLUMNS", "PROPERTIES")


def parse_expression(reader: TokenReader, *, after: str) -> str:
    """Take the verbatim text up to a comma, a closing parenthesis or another clause."""
    begin = reader.look().start
    before: Token | None = None
    opened: list[Token] = []
    while not reader.ended and (opened or not _at_stop(reader, before)):
        token = reader.look()
        if token.kind is TokenKind.SYMBOL and token.text in _CLOSING.values():
            _close(reader, opened)
        before = reader.take()
        if token.kind is TokenKind.SYMBOL and token.text in _CLOSING:
            opened.append(token)
    if opened:
        raise reader.error(f'"{opened[-1].text}" is not closed', token=opened[-1])
    if before is None:
        raise reader.unexpected("an expression", after=after)
    return reader.script.text[begin : before.end]


def _close(reader: TokenReader, opened: list[Token]) -> None:
    closing = _CLOSING[opened[-1].text]
    if reader.look().text != closing:
        raise reader.unexpected(f'"{closing}"')
    opened.pop()


def _at_stop(reader: TokenReader, before: Token | None) -> bool:
    """Tell whether the expression ends here, outside of all parentheses."""
    token = reader.look()
    if token.kind is TokenKind.SYMBOL:
        return token.text == "," or token.text in _CLOSING.values()
    # A field may be called like a clause.
    if before is not None and before.text == "." and before.kind is TokenKind.SYMBOL:
        return False
    return _at_from(reader, before) or _at_clause(reader)


def _at_from(reader: TokenReader, before: Token | None) -> bool:
    # IS DISTINCT FROM compares two values.
    compares = before is not None and before.keyword == "DISTINCT"
    source = reader.look(1).keyword in SOURCES and reader.at_symbol("(", 2)
    return reader.at("FROM") and (source or not compares)


def _at_clause(reader: TokenReader) -> bool:
    called = reader.at_any(_CALLED_CLAUSES) and reader.at_symbol("(", 1)
    # A column may be called comment.
    comment = reader.at("COMMENT") and reader.look(1).kind is TokenKind.TEXT
    return called or comment or any(reader.at(*clause) for clause in _CLAUSES)
