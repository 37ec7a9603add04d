"""Read the SELECT of a job: columns by name, or ``*``, from one FILES or S3 call.

Everything else that Spark allows is refused by its name, so that nobody believes it is applied.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import UserError
from penstock.sql.lexer import Token, TokenKind
from penstock.sql.names import plain_name
from penstock.sql.properties import parse_properties
from penstock.sql.reader import TokenReader, words
from penstock.sql.statements import SelectItem, SourceCall

_PLACE = "a job's SELECT"
_HINT = "A job selects columns by name, or *: SELECT id, customer.city AS city FROM FILES(…)."

_FUNCTIONS = ("FILES", "S3")
_CONSTANTS = frozenset({"NULL", "TRUE", "FALSE"})
_TYPED_LITERALS = words("DATE TIME TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ")
_LEADING = words("ALL CASE DISTINCT EXISTS INTERVAL NOT")
_OPERATOR_WORDS = words("AND BETWEEN COLLATE DIV ILIKE IN IS LIKE NOT OR REGEXP RLIKE")
_SIGNS = frozenset("+-~!")
_OPERATORS = frozenset("+-*/%|&^=<>!:?[(")
_JOINS = words("ANTI CROSS FULL INNER JOIN LEFT NATURAL RIGHT SEMI")
_CLAUSES = dict.fromkeys(_JOINS, "JOIN") | {
    "CLUSTER": "CLUSTER BY",
    "DISTRIBUTE": "DISTRIBUTE BY",
    "EXCEPT": "EXCEPT",
    "GROUP": "GROUP BY",
    "HAVING": "HAVING",
    "INTERSECT": "INTERSECT",
    "LATERAL": "LATERAL VIEW",
    "LIMIT": "LIMIT",
    "MINUS": "MINUS",
    "OFFSET": "OFFSET",
    "ORDER": "ORDER BY",
    "PIVOT": "PIVOT",
    "QUALIFY": "QUALIFY",
    "SORT": "SORT BY",
    "TABLESAMPLE": "TABLESAMPLE",
    "UNION": "UNION",
    "UNPIVOT": "UNPIVOT",
    "WHERE": "WHERE",
    "WINDOW": "WINDOW",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """The verbatim text of a SELECT and what it says; ``items`` is None for ``*``."""

    text: str
    items: tuple[SelectItem, ...] | None
    source: SourceCall


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    path: tuple[str, ...]
    starred: bool
    alias: str | None
    token: Token


def parse_select(reader: TokenReader) -> Select:
    """Take a SELECT that ends with the statement."""
    start = reader.look().start
    _check_beginning(reader)
    items = [_item(reader, after="SELECT")]
    while reader.skip_symbol(","):
        items.append(_item(reader, after='","'))
    reader.expect("FROM", after="the select list")
    source = _source(reader, start)
    alias = _source_alias(reader)
    _check_end(reader)
    return Select(
        text=reader.script.text[start : reader.taken_end],
        items=_resolve(reader, items, alias),
        source=source,
    )


def _check_beginning(reader: TokenReader) -> None:
    if reader.at("WITH"):
        raise _refusal(reader, "WITH")
    if reader.at_symbol("("):
        raise _refusal(reader, "a SELECT in parentheses")
    reader.expect("SELECT", after="the table and its columns")
    if reader.look().kind is TokenKind.HINT:
        raise _refusal(reader, "a hint")


def _item(reader: TokenReader, *, after: str) -> _Item:
    token = reader.look()
    path: list[str] = []
    starred = reader.skip_symbol("*")
    if not starred:
        _check_no_expression(reader)
        path.append(_column(reader, after=after))
    while not starred and reader.skip_symbol("."):
        starred = reader.skip_symbol("*")
        if not starred:
            path.append(plain_name(reader, "a field", after='"."'))
    if starred and reader.at("EXCEPT"):
        raise _refusal(reader, "* EXCEPT")
    _check_no_operator(reader)
    alias = None if starred else _item_alias(reader)
    return _Item(path=tuple(path), starred=starred, alias=alias, token=token)


def _column(reader: TokenReader, *, after: str) -> str:
    if reader.at("FROM"):
        raise reader.unexpected("a column", after=after)
    return plain_name(reader, "a column", after=after)


def _check_no_expression(reader: TokenReader) -> None:
    token = reader.look()
    following = reader.look(1)
    if token.kind in (TokenKind.TEXT, TokenKind.NUMBER, TokenKind.LITERAL):
        raise _refusal(reader, "a literal")
    typed = token.keyword in _TYPED_LITERALS and following.kind is TokenKind.TEXT
    if token.keyword in _CONSTANTS or typed:
        raise _refusal(reader, "a literal")
    if reader.at_symbol("("):
        nested = following.keyword in ("SELECT", "WITH")
        raise _refusal(reader, "a subquery" if nested else "an expression in parentheses")
    if token.kind is TokenKind.SYMBOL and token.text in _SIGNS:
        raise _refusal(reader, f'an expression ("{token.text}")')
    if reader.at_name() and reader.at_symbol("(", 1):
        raise _refusal(reader, _call(reader, token))
    if token.keyword in _LEADING and not _item_goes_on(following):
        raise _refusal(reader, token.keyword)


def _call(reader: TokenReader, token: Token) -> str:
    if token.keyword in ("CAST", "TRY_CAST", "EXISTS"):
        return token.keyword
    distance, depth = 1, 0
    while reader.look(distance).kind is not TokenKind.END:
        depth += reader.at_symbol("(", distance) - reader.at_symbol(")", distance)
        distance += 1
        if depth == 0:
            break
    windowed = reader.look(distance).keyword == "OVER"
    return f"the {'window ' if windowed else ''}function {token.text}()"


def _item_goes_on(token: Token) -> bool:
    # What may follow a word that is a column here although it begins an expression elsewhere.
    ends = token.kind is TokenKind.END or token.keyword in ("FROM", "AS")
    return ends or (token.kind is TokenKind.SYMBOL and token.text in (",", "."))


def _check_no_operator(reader: TokenReader) -> None:
    token = reader.look()
    if token.kind is TokenKind.SYMBOL and token.text in _OPERATORS:
        raise _refusal(reader, f'an expression ("{token.text}")')
    if token.keyword in _OPERATOR_WORDS:
        raise _refusal(reader, f'an expression ("{token.keyword}")')


def _item_alias(reader: TokenReader) -> str | None:
    if reader.skip("AS"):
        return plain_name(reader, "an alias", after="AS")
    following = reader.look(1)
    # Without AS only what is followed properly is an alias; else it is a mistyped FROM.
    proper = following.keyword == "FROM" or reader.at_symbol(",", 1)
    if reader.at_name() and not reader.at("FROM") and proper:
        return plain_name(reader, "an alias")
    return None


def _source(reader: TokenReader, select_start: int) -> SourceCall:
    token = reader.look()
    if reader.at_symbol("("):
        raise _refusal(reader, "a subquery")
    if reader.at("VALUES") or reader.at("LATERAL"):
        raise _refusal(reader, token.keyword)
    if not reader.at_name():
        raise reader.unexpected("FILES(…) or S3(…)", after="FROM")
    if token.keyword not in _FUNCTIONS:
        called = reader.at_symbol("(", 1)
        thing = f"the table function {token.text}()" if called else "reading from a table"
        hint = "A job reads from FILES(…) or S3(…)."
        raise reader.unsupported(thing, place=_PLACE, hint=hint)
    reader.take()
    return SourceCall(
        function=token.keyword,
        options=parse_properties(reader, after=token.keyword),
        start=token.start - select_start,
        end=reader.taken_end - select_start,
    )


def _source_alias(reader: TokenReader) -> str | None:
    if reader.skip("AS"):
        alias = plain_name(reader, "an alias", after="AS")
    elif _at_source_alias(reader):
        alias = plain_name(reader, "an alias")
    else:
        return None
    if reader.at_symbol("("):
        raise _refusal(reader, "a list of column aliases")
    return alias


def _at_source_alias(reader: TokenReader) -> bool:
    following = reader.look(1)
    symbol = following.kind is TokenKind.SYMBOL and following.text in ",(|"
    proper = symbol or following.kind is TokenKind.END or following.keyword in _CLAUSES
    return reader.at_name() and not reader.at_any(_CLAUSES) and proper


def _check_end(reader: TokenReader) -> None:
    token = reader.look()
    if token.keyword in _CLAUSES:
        raise _refusal(reader, _CLAUSES[token.keyword])
    if reader.at_symbol(","):
        second = reader.look(1).keyword
        raise _refusal(
            reader, f"a second {f'{second}()' if second in _FUNCTIONS else 'source'}"
        )
    if reader.at_symbol("|") and reader.at_symbol(">", 1):
        raise _refusal(reader, "|>")
    if not reader.ended:
        raise reader.unexpected("the end of the statement", after="the source")


def _resolve(
    reader: TokenReader, items: Sequence[_Item], source_alias: str | None
) -> tuple[SelectItem, ...] | None:
    resolved = []
    for item in items:
        path = _unqualified(item, source_alias)
        if not item.starred:
            resolved.append(SelectItem(path=path, alias=item.alias))
        elif path:
            raise _refusal(reader, f"{'.'.join(path)}.*", token=item.token)
        elif len(items) > 1:
            raise _refusal(reader, "* beside other columns", token=item.token)
    return tuple(resolved) or None


def _unqualified(item: _Item, source_alias: str | None) -> tuple[str, ...]:
    # A path of one name is a column, even one that is called like the source.
    qualifiers = item.path if item.starred else item.path[:-1]
    if source_alias is None or not qualifiers:
        return item.path
    return item.path[1:] if qualifiers[0].lower() == source_alias.lower() else item.path


def _refusal(reader: TokenReader, construct: str, *, token: Token | None = None) -> UserError:
    return reader.unsupported(construct, place=_PLACE, token=token, hint=_HINT)
