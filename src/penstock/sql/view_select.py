"""Read a SELECT from one of the views ``jobs(…)`` and ``tasks(…)``.

Only what the SELECT reads from is understood here; the rest is kept as written.
"""

from typing import Literal

from penstock.errors import Code, UserError
from penstock.sql.lexer import Token, TokenKind
from penstock.sql.names import plain_name
from penstock.sql.properties import parse_properties
from penstock.sql.reader import TokenReader, words
from penstock.sql.statements import Properties, ViewQuery

TYPE = "type"
INSERT = "insert"

_VIEWS: dict[str, Literal["jobs", "tasks"]] = {"JOBS": "jobs", "TASKS": "tasks"}
_CLAUSES = words("GROUP HAVING LIMIT ORDER WHERE WINDOW")
_JOINS = words("CROSS FULL INNER JOIN LEFT NATURAL RIGHT")
_SET_OPERATIONS = words("EXCEPT INTERSECT MINUS UNION")
_PLACEHOLDERS = frozenset("?:@$")
_PLACE = "a SELECT from jobs(…) or tasks(…)"
_HINT = 'A view is read alone: SELECT … FROM jobs("type" = "insert") WHERE … ORDER BY ….'


def at_view(reader: TokenReader) -> bool:
    """Tell whether the SELECT that comes next reads from a view."""
    distance = _distance_of_from(reader)
    named = reader.look(distance + 1).keyword in _VIEWS
    return named and reader.at_symbol("(", distance + 2)


def _distance_of_from(reader: TokenReader) -> int:
    """Answer how far the FROM of the SELECT is; without one, the end."""
    distance = depth = 0
    while (token := reader.look(distance)).kind is not TokenKind.END:
        depth += reader.at_symbol("(", distance) - reader.at_symbol(")", distance)
        # IS DISTINCT FROM is an operator.
        operator = distance > 0 and reader.look(distance - 1).keyword == "DISTINCT"
        if depth == 0 and token.keyword == "FROM" and not operator:
            break
        distance += 1
    return distance


def parse_view_query(reader: TokenReader) -> ViewQuery:
    """Take a SELECT for which ``at_view`` is true."""
    start = reader.take().start
    for _ in range(_distance_of_from(reader)):
        _take_verbatim(reader)
    reader.expect("FROM", after="the select list")
    call = reader.take()
    options = parse_properties(reader, after=call.text)
    _check_options(reader, options, call=call)
    call_end = reader.taken_end
    _take_alias(reader)
    _check_alone(reader)
    while not reader.ended:
        _take_verbatim(reader)
    return ViewQuery(
        select=reader.script.text[start : reader.taken_end],
        view=_VIEWS[call.keyword],
        options=options,
        start=call.start - start,
        end=call_end - start,
    )


def _take_verbatim(reader: TokenReader) -> None:
    token = reader.look()
    if token.kind in (TokenKind.HINT, TokenKind.LITERAL):
        raise _refusal(reader, token.shown)
    if token.kind is TokenKind.SYMBOL and token.text in _PLACEHOLDERS:
        raise _refusal(reader, f'a placeholder ("{token.text}")')
    if token.keyword in _SET_OPERATIONS:
        raise _refusal(reader, token.keyword)
    if token.keyword == "SELECT":
        raise _refusal(reader, "a subquery")
    reader.take()


def _check_options(reader: TokenReader, options: Properties, *, call: Token) -> None:
    view = call.text
    value_by_key = {key.lower(): value for key, value in options}
    unknown = [key for key, _ in options if key.lower() != TYPE]
    if unknown:
        message = f'{view}() does not know the option "{unknown[0]}"'
    elif TYPE not in value_by_key:
        message = f'{view}() lacks "{TYPE}"'
    elif value_by_key[TYPE].lower() != INSERT:
        message = f'option "{TYPE}" must be one of {INSERT}, not "{value_by_key[TYPE]}"'
    else:
        return
    hint = f'Allowed: {TYPE}. Write {view}("{TYPE}" = "{INSERT}").'
    raise reader.error(message, token=call, code=Code.OPTION_ERR, hint=hint)


def _take_alias(reader: TokenReader) -> None:
    if reader.skip("AS"):
        plain_name(reader, "an alias", after="AS")
    elif reader.at_name() and not reader.at_any(_CLAUSES | _JOINS | _SET_OPERATIONS):
        plain_name(reader, "an alias")


def _check_alone(reader: TokenReader) -> None:
    if reader.at_symbol(","):
        raise _refusal(reader, "a second source")
    if reader.at_any(_JOINS):
        raise _refusal(reader, "JOIN")
    if not (reader.ended or reader.at_any(_CLAUSES | _SET_OPERATIONS)):
        raise reader.unexpected(
            "WHERE, GROUP BY, ORDER BY, LIMIT or the end of the statement",
            after="the view",
            choices=_CLAUSES,
        )


def _refusal(reader: TokenReader, construct: str) -> UserError:
    return reader.unsupported(construct, place=_PLACE, hint=_HINT)
