"""Read a SELECT over tables: it is Spark's, but for what Spark does not know.

That is ``rejects(…)``, and ``VERSION AS OF`` behind a table; all else is kept as written.
"""

from penstock.errors import Code
from penstock.sql.lexer import Token, TokenKind
from penstock.sql.names import table_name
from penstock.sql.properties import parse_properties
from penstock.sql.reader import TokenReader, words
from penstock.sql.statements import Properties, RejectsRead, TableQuery, VersionRead

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
