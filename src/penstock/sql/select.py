"""Parse the SELECT of a job; expressions stay verbatim for Spark.

A SELECT that only lists columns, or ``*``, of the source is plain and needs no Spark. Spark
checks any other SELECT when the job is created.
"""

from penstock.sql.lexer import Token, TokenKind
from penstock.sql.names import parse_properties, plain_name
from penstock.sql.reader import TokenReader, either, words
from penstock.sql.statements import Insert, SelectItem, SourceCall

# Functions that the SELECT of a job can read from.
SOURCE_FUNCTIONS = ("FILES", "S3")

_CLOSING = {"(": ")", "[": "]", "{": "}"}
# Words that start another clause of a routine load and occur in no expression.
_CLAUSES = (
    ("WHERE",),
    ("PRECEDING", "FILTER"),
    ("COLUMNS", "TERMINATED"),
    ("DELETE", "ON"),
    ("ORDER", "BY"),
)
_CALLED_CLAUSES = ("COLUMNS", "PROPERTIES")


def parse_expression(reader: TokenReader, *, after: str) -> str:
    """Return the verbatim text up to a comma, a closing parenthesis or another clause."""
    start = reader.peek().start
    before: Token | None = None
    opened: list[Token] = []
    while not reader.ended and (opened or not _at_stop(reader, before)):
        token = reader.peek()
        if token.kind is TokenKind.SYMBOL and token.text in _CLOSING.values():
            closing = _CLOSING[opened.pop().text]
            if token.text != closing:
                raise reader.unexpected(f'"{closing}"')
        before = reader.take()
        if token.kind is TokenKind.SYMBOL and token.text in _CLOSING:
            opened.append(token)
    if opened:
        raise reader.error(f'"{opened[-1].text}" is not closed', token=opened[-1])
    if before is None:
        raise reader.unexpected("an expression", after=after)
    return reader.script.text[start : before.end]


def _at_stop(reader: TokenReader, before: Token | None) -> bool:
    """Return whether the expression ends here, outside of all parentheses."""
    if reader.peek().kind is TokenKind.SYMBOL:
        return reader.peek().text in {",", *_CLOSING.values()}
    # A field can have the name of a clause.
    if before is not None and before.is_symbol("."):
        return False
    # IS DISTINCT FROM compares two values.
    compares = before is not None and before.keyword == "DISTINCT"
    return (reader.at("FROM") and not compares) or _at_clause(reader)


def _at_clause(reader: TokenReader) -> bool:
    called = reader.at_any(_CALLED_CLAUSES) and reader.at_symbol("(", 1)
    # A column can have the name ``comment``.
    comment = reader.at("COMMENT") and reader.peek(1).kind is TokenKind.TEXT
    return called or comment or any(reader.at(*clause) for clause in _CLAUSES)


_PLACE = "a job's SELECT"
_CALLS = either(*(f"{function}(…)" for function in SOURCE_FUNCTIONS))
_RULE = f"a job's SELECT must read from {_CALLS}"  # noqa: S608 - A message.
_HINT = (
    f"A job reads from one {_CALLS}, such as SELECT id, price FROM {SOURCE_FUNCTIONS[0]}(…)."  # noqa: S608 - A message.
)
# Words that start an expression, or are an expression, unless they are quoted.
_EXPRESSION_WORDS = words(
    "ALL CASE CAST CURRENT_CATALOG CURRENT_DATABASE CURRENT_DATE CURRENT_SCHEMA CURRENT_TIME "
    "CURRENT_TIMESTAMP CURRENT_USER DATE DISTINCT EXISTS FALSE FROM INTERVAL LOCALTIMESTAMP "
    "NOT NULL SESSION_USER TIME TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ TRUE USER"
)


def parse_select(reader: TokenReader, *, table: str, columns: tuple[str, ...] | None) -> Insert:
    """Parse the SELECT of an INSERT up to the end of the statement."""
    start = reader.peek().start
    if not (reader.at_any(("SELECT", "WITH", "FROM")) or reader.at_symbol("(")):
        raise reader.unexpected("SELECT", after="the table and its columns")
    paths = _plain_list(reader.fork())
    starred, source_starred = _starred(reader.fork())
    names, stars = _mentioned(reader.fork())
    source = _take_all(reader, start)
    return Insert(
        table=table,
        columns=columns,
        select=reader.script.text[start : reader.taken_end],
        items=paths or None,
        source=source,
        plain=paths is not None,
        starred=starred,
        source_starred=source_starred,
        names=names,
        stars=stars,
        select_at=reader.script.position(start),
    )


def _take_all(reader: TokenReader, start: int) -> SourceCall:
    """Take all tokens up to the end and return the only source among them."""
    call: SourceCall | None = None
    after_dot = False
    while not reader.ended:
        token = reader.take()
        function = token.keyword
        if function in SOURCE_FUNCTIONS and reader.at_symbol("(") and not after_dot:
            if call is not None:
                second = f"a second {function}()"
                raise reader.unsupported(second, place=_PLACE, token=token, hint=_HINT)
            options = parse_properties(reader, after=function)
            call_start, call_end = token.start - start, reader.taken_end - start
            call = SourceCall(
                function=function, options=options, start=call_start, end=call_end
            )
        after_dot = token.is_symbol(".")
    if call is None:
        raise reader.error(_RULE, hint=_HINT)
    return call


def _mentioned(reader: TokenReader) -> tuple[frozenset[str], bool]:
    """Return all names in lower case, and whether a star selects columns."""
    names: set[str] = set()
    stars = False
    before: list[str] = ["", ""]
    while not reader.ended:
        token = reader.take()
        if token.kind in (TokenKind.WORD, TokenKind.NAME):
            names.add(token.text.lower())
        star = token.is_symbol("*")
        counted = before == ["COUNT", "("]
        stars = stars or (star and before[1] in ("SELECT", ",", ".", "(") and not counted)
        before = [before[1], token.keyword or token.text]
    return frozenset(names), stars


def _starred(reader: TokenReader) -> tuple[bool, bool]:
    """Return whether the outermost SELECT is ``*``, and whether it reads the source itself."""
    depth = 0
    starred = source_starred = False
    while not reader.ended:
        depth += reader.at_symbol("(") - reader.at_symbol(")")
        if depth == 0 and reader.at("SELECT"):
            starred = reader.at_symbol("*", 1) and reader.peek(2).keyword == "FROM"
            source_starred = starred and reader.peek(3).keyword in SOURCE_FUNCTIONS
        reader.take()
    return starred, source_starred


def _plain_list(reader: TokenReader) -> tuple[SelectItem, ...] | None:
    """Parse ``SELECT a, b.c AS d FROM FILES(…) [alias]``.

    Return no items for ``*``, and None if the SELECT is not a plain list.
    """
    if not reader.skip("SELECT"):
        return None
    paths = _paths(reader)
    if paths is None or not reader.skip("FROM") or not reader.at_any(SOURCE_FUNCTIONS):
        return None
    function = reader.take().keyword
    if not reader.at_symbol("("):
        return None
    parse_properties(reader, after=function)
    named = reader.skip("AS") or reader.at_name()
    alias = plain_name(reader, "an alias", after="AS") if named else None
    return _unqualified(paths, alias, function) if reader.ended else None


# The names of a path, whether a star follows them, and the alias.
_Path = tuple[tuple[str, ...], bool, str | None]


def _paths(reader: TokenReader) -> list[_Path] | None:
    """Parse names with their aliases up to FROM; return None for anything else."""
    paths: list[_Path] = []
    while not paths or reader.skip_symbol(","):
        path = _path(reader)
        if path is None:
            return None
        paths.append((*path, _alias(reader)))
    return paths


def _path(reader: TokenReader) -> tuple[tuple[str, ...], bool] | None:
    path: list[str] = []
    while not path or reader.skip_symbol("."):
        if reader.skip_symbol("*"):
            return tuple(path), True
        if not reader.at_name() or reader.at_any(_EXPRESSION_WORDS):
            return None
        path.append(plain_name(reader, "a column"))
    return tuple(path), False


def _alias(reader: TokenReader) -> str | None:
    if reader.skip("AS") or (reader.at_name() and not reader.at("FROM")):
        return plain_name(reader, "an alias", after="AS") if reader.at_name() else None
    return None


def _unqualified(
    paths: list[_Path], alias: str | None, function: str
) -> tuple[SelectItem, ...] | None:
    """Remove the alias of the source from columns; return None if Spark must resolve them."""
    own = (alias or function).lower()
    first, starred, _ = paths[0]
    if len(paths) == 1 and starred and [part.lower() for part in first] in ([], [own]):
        return ()
    items: list[SelectItem] = []
    for path, starred, name in paths:
        qualified = len(path) > 1 and path[0].lower() == own
        if starred or (qualified and alias is None):
            return None
        items.append(SelectItem(path=path[1:] if qualified else path, alias=name))
    return tuple(items)
