"""Run a SELECT over a view in an in-memory SQLite that may only read the view.

A text in double quotes is a text, as in Doris and Spark; SQLite would take it for a name.
"""

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial

from penstock.clock import Clock
from penstock.control.execute import Services
from penstock.control.result import Cell, Result, ResultColumn
from penstock.control.views import View, jobs_view, tasks_view
from penstock.errors import Code, UserError
from penstock.sql.lexer import TokenKind, read_script, tokenize
from penstock.sql.reader import words
from penstock.sql.statements import ViewQuery

DURATION_MAX = timedelta(seconds=10)
CELL_BYTES_MAX = 64 * 2**20
STEPS_BETWEEN_LOOKS = 10_000
FUNCTIONS = words(
    "abs avg coalesce count current_date current_time current_timestamp date datetime glob "
    "group_concat ifnull iif instr json_array_length json_extract json_type json_valid "
    "julianday length like lower ltrim max min nullif replace round rtrim strftime substr "
    "substring sum time total trim typeof unixepoch upper -> ->>"
)

_NO_COLUMN = re.compile(r"no such column: (.*)|access to \w+\.(.*) is prohibited", re.DOTALL)
_NO_FUNCTION = re.compile(
    r"(?:no such function|not authorized to use function): (.*)", re.DOTALL
)
_UNEXPECTED = re.compile(r'near "(.*)": syntax error|unrecognized token: "(.*)"', re.DOTALL)
_UNFINISHED = "incomplete input"
# What SQLite says of a function that is ours, and only json_extract is.
_FUNCTION_FAILED = "user-defined function raised exception"
_ORDER = "The order is SELECT … FROM … WHERE … GROUP BY … HAVING … ORDER BY … LIMIT …."


def query_view(query: ViewQuery, *, services: Services) -> Result:
    """Return what a SELECT finds in one of the views."""
    catalog, clock = services.catalog, services.clock
    view = jobs_view(catalog, clock=clock) if query.view == "jobs" else tasks_view(catalog)
    return select_from_view(query, view, clock=clock)


def select_from_view(query: ViewQuery, view: View, *, clock: Clock) -> Result:
    """Return what a SELECT finds in a view."""
    memory = ":memory:"
    with (
        closing(sqlite3.connect(memory)) as connection,
        closing(sqlite3.connect(memory)) as scratch,
    ):
        extract = partial(_json_extract, scratch)
        connection.create_function("json_extract", -1, extract, deterministic=True)
        _fill(connection, view)
        _confine(connection, view, clock=clock)
        try:
            cursor = connection.execute(sqlite_text(query))
            rows = cursor.fetchall()
        except sqlite3.Error as error:
            raise _explained(error, view) from error
    return Result(
        columns=tuple(ResultColumn(name=column[0]) for column in cursor.description),
        rows=tuple(tuple(_cell(value) for value in row) for row in rows),
    )


def sqlite_text(query: ViewQuery) -> str:
    """Write the SELECT as SQLite reads it: no call, no comments, texts in single quotes."""
    text = f"{query.select[: query.start]}`{query.view}`{query.select[query.end :]}"
    pieces: list[str] = []
    end = 0
    texts = False
    for token in tokenize(read_script(text)):
        quoted = token.kind is TokenKind.TEXT
        # Two texts side by side would become one with a quote in it.
        if token.start > end or (quoted and texts):
            pieces.append(" ")
        literal = "'" + token.text.replace("'", "''") + "'"
        pieces.append(literal if quoted else text[token.start : token.end])
        end, texts = token.end, quoted
    return "".join(pieces)


def _fill(connection: sqlite3.Connection, view: View) -> None:
    columns = ", ".join(
        f"`{c.name}` {'INTEGER' if c.type == 'BIGINT' else 'TEXT'}" for c in view.columns
    )
    marks = ", ".join("?" for _ in view.columns)
    connection.execute(f"CREATE TABLE `{view.name}` ({columns})")
    insert = f"INSERT INTO `{view.name}` VALUES ({marks})"  # noqa: S608 - Our own names.
    connection.executemany(insert, view.rows)


def _confine(connection: sqlite3.Connection, view: View, *, clock: Clock) -> None:
    """Allow reading the view's columns and harmless functions, for a while, and no more."""
    readable = {"", *(column.name for column in view.columns)}
    deadline = clock.monotonic() + DURATION_MAX.total_seconds()

    def permission(action: int, first: str | None, second: str | None, *_: object) -> int:
        match action:
            case sqlite3.SQLITE_SELECT:
                allowed = True
            case sqlite3.SQLITE_READ:
                allowed = first == view.name and second in readable
            case sqlite3.SQLITE_FUNCTION:
                allowed = (second or "").lower() in FUNCTIONS
            case _:
                allowed = False
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, CELL_BYTES_MAX)
    connection.execute("PRAGMA case_sensitive_like = ON")
    connection.set_progress_handler(lambda: clock.monotonic() > deadline, STEPS_BETWEEN_LOOKS)
    connection.set_authorizer(permission)


def _json_extract(scratch: sqlite3.Connection, text: Cell, *paths: Cell) -> Cell:
    """Do what SQLite's function does, but find nothing in a text that is no JSON.

    A column that holds JSON is empty where there is nothing to say.
    """
    marks = ", ?" * len(paths)
    extract = f"SELECT CASE WHEN json_valid(?) THEN json_extract(?{marks}) END"
    found: Cell = scratch.execute(extract, (text, text, *paths)).fetchone()[0]
    return found


def _explained(error: sqlite3.Error, view: View) -> UserError:
    """Say in our words why SQLite did not answer."""
    said = str(error)
    place = f"the SELECT from {view.name}(…)"
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
        return UserError(
            f"{place} did not end within {DURATION_MAX.total_seconds():g}s",
            code=Code.TIMEOUT_ERR,
            hint="Select less.",
        )
    if found := _NO_COLUMN.fullmatch(said):
        return UserError(
            f'{view.name}(…) has no column "{_first(found.groups())}"',
            code=Code.TYPE_ERR,
            hint=f"Known columns: {', '.join(column.name for column in view.columns)}.",
        )
    if found := _NO_FUNCTION.fullmatch(said):
        return UserError(
            f"the function {found[1]}() is not supported yet in {place}",
            code=Code.NOT_SUPPORTED_ERR,
            hint=f"Known functions: {', '.join(sorted(FUNCTIONS - {'->', '->>'}))}.",
        )
    if found := _UNEXPECTED.fullmatch(said):
        message = f'"{_first(found.groups())}" is not expected where it stands in {place}'
        return UserError(message, code=Code.SYNTAX_ERR, hint=_ORDER)
    if said == _UNFINISHED:
        return UserError(f"{place} ends too early", code=Code.SYNTAX_ERR, hint=_ORDER)
    if said == _FUNCTION_FAILED:
        return UserError(
            f"{place} gives json_extract a path that is none",
            code=Code.TYPE_ERR,
            hint="Write for example json_extract(LoadStatistic, '$.scannedRows').",
        )
    return UserError(
        f"{place} cannot be answered: {said.rstrip('.')}",
        code=Code.TYPE_ERR,
        hint=f"Known columns: {', '.join(column.name for column in view.columns)}.",
    )


def _first(groups: Sequence[str | None]) -> str:
    return next((group for group in groups if group is not None), "")


def _cell(value: Cell | bytes) -> Cell:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
