"""Parse a SELECT over tables, or from the views ``jobs(…)`` and ``tasks(…)``.

Only the views, ``rejects(…)`` and ``VERSION AS OF`` are parsed; the rest stays verbatim.
"""

from typing import Literal

from penstock.errors import Code, UserError
from penstock.sql.lexer import Token, TokenKind
from penstock.sql.names import parse_properties, plain_name, table_name
from penstock.sql.reader import TokenReader, words
from penstock.sql.select import SOURCE_FUNCTIONS
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
JOB = "job"

_QUERY_WORDS = words("FROM SELECT VALUES WITH")
_VIEWS: dict[str, Literal["jobs", "tasks"]] = {"JOBS": "jobs", "TASKS": "tasks"}
_VIEW_CLAUSES = words("GROUP HAVING LIMIT ORDER WHERE WINDOW")
_JOINS = words("CROSS FULL INNER JOIN LEFT NATURAL RIGHT")
_SET_OPERATIONS = words("EXCEPT INTERSECT MINUS UNION")
_PLACEHOLDERS = frozenset("?:@$")
_VIEW_PLACE = "a SELECT from jobs(…) or tasks(…)"
_VIEW_HINT = 'Query a view alone: SELECT … FROM jobs("type" = "insert") WHERE … ORDER BY ….'
_PLACE = "a SELECT over tables"
_HINT_BY_CALL = dict.fromkeys(
    SOURCE_FUNCTIONS,
    "Load files with a job: CREATE JOB name ON STREAMING DO INSERT INTO t SELECT ….",
) | dict.fromkeys(_VIEWS, _VIEW_HINT)
_VERSION = words("VERSION SYSTEM_VERSION")
_TIMESTAMP = words("TIMESTAMP SYSTEM_TIME")
_VERSION_HINT = (
    "Write for example t VERSION AS OF 3. SHOW EPOCHS and DESCRIBE DETAIL show versions."
)
# Words that can follow a table without an alias. TABLESAMPLE is missing, because
# it comes before the alias: no alias can be inserted before TABLESAMPLE.
CLAUSE_WORDS = words(
    "ANTI ASOF CLUSTER CROSS DISTRIBUTE EXCEPT FULL GROUP HAVING INNER INTERSECT JOIN LATERAL "
    "LEFT LIMIT MINUS NATURAL OFFSET ON ORDER PIVOT QUALIFY RIGHT SELECT SEMI SORT UNION "
    "UNPIVOT USING WHERE WINDOW"
)


def at_query(reader: TokenReader) -> bool:
    """Return whether a query comes next."""
    return reader.at_any(_QUERY_WORDS) or reader.at_symbol("(")


def parse_query(reader: TokenReader) -> Statement:
    """Parse a query: from jobs(…) or tasks(…), which need no Spark, or over tables."""
    distance = _distance_of_from(reader)
    view = reader.peek(distance + 1).keyword in _VIEWS and reader.at_symbol("(", distance + 2)
    if reader.at("SELECT") and view:
        return _parse_view_query(reader)
    return _parse_table_query(reader)


def _distance_of_from(reader: TokenReader) -> int:
    """Return the number of tokens before the FROM of the SELECT, or before the end."""
    distance = depth = 0
    while (token := reader.peek(distance)).kind is not TokenKind.END:
        depth += reader.at_symbol("(", distance) - reader.at_symbol(")", distance)
        # IS DISTINCT FROM is an operator.
        operator = distance > 0 and reader.peek(distance - 1).keyword == "DISTINCT"
        if depth == 0 and token.keyword == "FROM" and not operator:
            break
        distance += 1
    return distance


def _parse_view_query(reader: TokenReader) -> ViewQuery:
    start = reader.take().start
    for _ in range(_distance_of_from(reader)):
        _take_verbatim(reader)
    reader.expect("FROM", after="the select list")
    call = reader.take()
    options = parse_properties(reader, after=call.text)
    kind = _only_option(reader, options, call=call, key=TYPE, example=INSERT)
    if kind.lower() != INSERT:
        message = f'option "{TYPE}" must be "{INSERT}", not "{kind}"'
        raise _option_error(reader, message, call=call, key=TYPE, example=INSERT)
    call_end = reader.taken_end
    if reader.skip("AS"):
        plain_name(reader, "an alias", after="AS")
    elif reader.at_name() and not reader.at_any(_VIEW_CLAUSES | _JOINS | _SET_OPERATIONS):
        plain_name(reader, "an alias")
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
    token = reader.peek()
    if token.kind in (TokenKind.HINT, TokenKind.LITERAL):
        raise _refusal(reader, token.shown)
    if token.kind is TokenKind.SYMBOL and token.text in _PLACEHOLDERS:
        raise _refusal(reader, f'a placeholder ("{token.text}")')
    if token.keyword in _SET_OPERATIONS:
        raise _refusal(reader, token.keyword)
    if token.keyword == "SELECT":
        raise _refusal(reader, "a subquery")
    reader.take()


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
    return reader.unsupported(construct, place=_VIEW_PLACE, hint=_VIEW_HINT)


def _only_option(
    reader: TokenReader, options: Properties, *, call: Token, key: str, example: str
) -> str:
    """Return the value of a function's only option."""
    value_by_key = {written.lower(): value for written, value in options}
    unknown = [written for written, _ in options if written.lower() != key]
    if not unknown and key in value_by_key:
        return value_by_key[key]
    problem = f'has no option "{unknown[0]}"' if unknown else f'requires the option "{key}"'
    message = f"{call.text}() {problem}"
    raise _option_error(reader, message, call=call, key=key, example=example)


def _option_error(
    reader: TokenReader, message: str, *, call: Token, key: str, example: str
) -> UserError:
    hint = f'Write {call.text}("{key}" = "{example}").'
    return reader.error(message, token=call, code=Code.OPTION_ERR, hint=hint)


def _parse_table_query(reader: TokenReader) -> TableQuery:
    start = reader.peek().start
    reads: list[RejectsRead | VersionRead] = []
    taken: list[Token] = []
    while not reader.ended:
        # A qualified name is a different function.
        called = reader.at_symbol("(", 1) and not (taken and taken[-1].is_symbol("."))
        call = reader.peek().keyword if called else ""
        if call in _HINT_BY_CALL:
            raise reader.unsupported(f"{call}()", place=_PLACE, hint=_HINT_BY_CALL[call])
        if call == "REJECTS":
            reads.append(_parse_rejects(reader, start))
        elif name := _name_before_version(reader, taken):
            reads.append(_parse_version(reader, name, start))
        else:
            taken.append(reader.take())
    return TableQuery(
        select=reader.script.text[start : reader.taken_end],
        reads=tuple(reads),
        select_at=reader.script.position(start),
    )


def _parse_rejects(reader: TokenReader, start: int) -> RejectsRead:
    call = reader.take()
    options = parse_properties(reader, after=call.text)
    end = reader.taken_end
    return RejectsRead(
        job=_only_option(reader, options, call=call, key=JOB, example="name"),
        start=call.start - start,
        end=end - start,
        aliased=_aliased(reader),
    )


def _name_before_version(reader: TokenReader, taken: list[Token]) -> list[Token]:
    """Return the tokens of the table's name if VERSION AS OF comes next; else no tokens."""
    distance = 1 if reader.at("FOR") else 0
    word = reader.peek(distance).keyword
    following = [reader.peek(distance + further).keyword for further in (1, 2)]
    if word not in _VERSION | _TIMESTAMP or following != ["AS", "OF"]:
        return []
    # A column with the name ``version`` can have the alias ``of``.
    after = reader.peek(distance + 3)
    if after.kind is TokenKind.END or after.keyword == "FROM" or after.text in (",", ")"):
        return []
    if word in _TIMESTAMP:
        raise reader.unsupported(f"{word} AS OF", place=_PLACE, hint=_VERSION_HINT)
    qualified = len(taken) > 1 and taken[-2].is_symbol(".")
    return taken[-3:] if qualified else taken[-1:]


def _parse_version(reader: TokenReader, name: list[Token], start: int) -> VersionRead:
    table = table_name(TokenReader(reader.script, name), after="FROM")
    reader.skip("FOR")
    for _ in ("VERSION", "AS", "OF"):
        reader.take()
    token = reader.peek()
    if token.kind not in (TokenKind.NUMBER, TokenKind.TEXT) or not token.text.isdecimal():
        raise reader.unexpected("a number", after="VERSION AS OF", hint=_VERSION_HINT)
    reader.take()
    end = reader.taken_end
    return VersionRead(
        table=table,
        version=int(token.text),
        start=name[0].start - start,
        end=end - start,
        aliased=_aliased(reader),
    )


def _aliased(reader: TokenReader) -> bool:
    """Return whether no alias can be inserted: an alias or TABLESAMPLE comes next."""
    return reader.at_name() and reader.peek().keyword not in CLAUSE_WORDS
