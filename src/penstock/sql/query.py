"""Read a SELECT over tables, or from the views ``jobs(…)`` and ``tasks(…)``.

Only what the SELECT reads from is understood here; the rest is kept as written.

That is ``rejects(…)``, and ``VERSION AS OF`` behind a table; all else is kept as written.
"""

from typing import Literal

from penstock.errors import Code, UserError
from penstock.sql.lexer import Token, TokenKind
from penstock.sql.names import parse_properties, plain_name, table_name
from penstock.sql.reader import TokenReader, words
from penstock.sql.statements import (
    Properties,
    RejectsRead,
    Statement,
    TableQuery,
    VersionRead,
    ViewQuery,
)

TYPE = "type"
INSERT = "insert"

_VIEWS: dict[str, Literal["jobs", "tasks"]] = {"JOBS": "jobs", "TASKS": "tasks"}
_VIEW_CLAUSES = words("GROUP HAVING LIMIT ORDER WHERE WINDOW")
_JOINS = words("CROSS FULL INNER JOIN LEFT NATURAL RIGHT")
_SET_OPERATIONS = words("EXCEPT INTERSECT MINUS UNION")
_PLACEHOLDERS = frozenset("?:@$")
_VIEW_PLACE = "a SELECT from jobs(…) or tasks(…)"
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
    elif reader.at_name() and not reader.at_any(_VIEW_CLAUSES | _JOINS | _SET_OPERATIONS):
        plain_name(reader, "an alias")


def _check_alone(reader: TokenReader) -> None:
    if reader.at_symbol(","):
        raise _refusal(reader, "a second source")
    if reader.at_any(_JOINS):
        raise _refusal(reader, "JOIN")
    if not (reader.ended or reader.at_any(_VIEW_CLAUSES | _SET_OPERATIONS)):
        raise reader.unexpected(
            "WHERE, GROUP BY, ORDER BY, LIMIT or the end of the statement",
            after="the view",
            choices=_VIEW_CLAUSES,
        )


def _refusal(reader: TokenReader, construct: str) -> UserError:
    return reader.unsupported(construct, place=_VIEW_PLACE, hint=_HINT)


JOB = "job"

_PLACE = "a SELECT over tables"
_HINT_BY_CALL = {
    "FILES": "Load files with a job: CREATE JOB name ON STREAMING DO INSERT INTO t SELECT ….",
    "JOBS": "A view is read alone: SELECT … FROM jobs(…) WHERE ….",
}
_HINT_BY_CALL |= {"S3": _HINT_BY_CALL["FILES"], "TASKS": _HINT_BY_CALL["JOBS"]}
_VERSION = words("VERSION SYSTEM_VERSION")
_TIMESTAMP = words("TIMESTAMP SYSTEM_TIME")
# What may follow a table that has no alias. A sample stands before the alias, so that none can
# be put there.
_CLAUSES = words(
    "ANTI CLUSTER CROSS DISTRIBUTE EXCEPT FULL GROUP HAVING INNER INTERSECT JOIN LATERAL LEFT "
    "LIMIT MINUS NATURAL OFFSET ON ORDER PIVOT RIGHT SELECT SEMI SORT UNION UNPIVOT USING "
    "WHERE WINDOW"
)


def parse_table_query(reader: TokenReader) -> TableQuery:
    """Take a whole SELECT."""
    start = reader.look().start
    begin = reader.script.position(start)
    reads: list[RejectsRead | VersionRead] = []
    taken: list[Token] = []
    while not reader.ended:
        call = _call(reader, taken)
        if call in _HINT_BY_CALL:
            raise reader.unsupported(f"{call}()", place=_PLACE, hint=_HINT_BY_CALL[call])
        if call == "REJECTS":
            reads.append(_rejects(reader, start))
        elif name := _name_before_version(reader, taken):
            reads.append(_version(reader, name, start))
        else:
            taken.append(reader.take())
    return TableQuery(
        select=reader.script.text[start : reader.taken_end],
        reads=tuple(reads),
        select_at=(begin.line, begin.column),
    )


def _call(reader: TokenReader, taken: list[Token]) -> str:
    """Answer the function that is called next; a method or a qualified one is another's."""
    qualified = bool(taken) and _symbol(taken[-1], ".")
    return "" if qualified or not reader.at_symbol("(", 1) else reader.look().keyword


def _rejects(reader: TokenReader, start: int) -> RejectsRead:
    call = reader.take()
    options = parse_properties(reader, after=call.text)
    end = reader.taken_end
    return RejectsRead(
        job=_job(reader, options, call=call),
        start=call.start - start,
        end=end - start,
        aliased=_aliased(reader),
    )


def _job(reader: TokenReader, options: Properties, *, call: Token) -> str:
    value_by_key = {key.lower(): value for key, value in options}
    unknown = [key for key, _ in options if key.lower() != JOB]
    if not unknown and JOB in value_by_key:
        return value_by_key[JOB]
    message = (
        f'{call.text}() does not know the option "{unknown[0]}"'
        if unknown
        else f'{call.text}() lacks "{JOB}"'
    )
    hint = f'Allowed: {JOB}. Write {call.text}("{JOB}" = "name").'
    raise reader.error(message, token=call, code=Code.OPTION_ERR, hint=hint)


def _name_before_version(reader: TokenReader, taken: list[Token]) -> list[Token]:
    """Answer the tokens of the table's name if its version comes next, else none."""
    distance = 1 if reader.at("FOR") else 0
    word = reader.look(distance).keyword
    said = [reader.look(distance + further).keyword for further in (1, 2)]
    if word not in _VERSION | _TIMESTAMP or said != ["AS", "OF"]:
        return []
    # A column called so may get the alias "of".
    behind = reader.look(distance + 3)
    if behind.kind is TokenKind.END or behind.keyword == "FROM" or behind.text in (",", ")"):
        return []
    if word in _TIMESTAMP:
        raise reader.unsupported(f"{word} AS OF", place=_PLACE, hint=_version_hint())
    qualified = len(taken) > 1 and _symbol(taken[-2], ".")
    return taken[-3:] if qualified else taken[-1:]


def _version(reader: TokenReader, name: list[Token], start: int) -> VersionRead:
    table = table_name(TokenReader(reader.script, name), after="FROM")
    reader.skip("FOR")
    for _ in ("VERSION", "AS", "OF"):
        reader.take()
    token = reader.look()
    if token.kind not in (TokenKind.NUMBER, TokenKind.TEXT) or not token.text.isdecimal():
        raise reader.unexpected("a number", after="VERSION AS OF", hint=_version_hint())
    reader.take()
    end = reader.taken_end
    return VersionRead(
        table=table,
        version=int(token.text),
        start=name[0].start - start,
        end=end - start,
        aliased=_aliased(reader),
    )


def _version_hint() -> str:
    return "Write for example t VERSION AS OF 3; SHOW EPOCHS and DESCRIBE DETAIL tell versions."


def _aliased(reader: TokenReader) -> bool:
    """Tell whether an alias follows, or none may."""
    return reader.at_name() and reader.look().keyword not in _CLAUSES


def _symbol(token: Token, symbol: str) -> bool:
    return token.kind is TokenKind.SYMBOL and token.text == symbol


QUERY_WORDS = words("FROM SELECT VALUES WITH")


def at_query(reader: TokenReader) -> bool:
    """Tell whether a query comes next."""
    return reader.at_any(QUERY_WORDS) or reader.at_symbol("(")


def parse_query(reader: TokenReader) -> Statement:
    """Take a query: from jobs(…) or tasks(…), which need no Spark, or over tables."""
    if reader.at("SELECT") and at_view(reader):
        return parse_view_query(reader)
    return parse_table_query(reader)
