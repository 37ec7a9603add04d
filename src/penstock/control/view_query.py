"""SELECT from a view, run by an in-memory SQLite that can read only the view.

Double quotes enclose a string, as in Doris and Spark; in SQLite they would enclose a name.
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
STEPS_BETWEEN_CHECKS = 10_000
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
# SQLite's error for a function written in Python; json_extract is the only such function.
_FUNCTION_FAILED = "user-defined function raised exception"
_ORDER = "The order is SELECT … FROM … WHERE … GROUP BY … HAVING … ORDER BY … LIMIT …."


def query_view(query: ViewQuery, *, services: Services) -> Result:
    """Return the rows of a SELECT from jobs(…) or tasks(…)."""
    catalog, clock = services.catalog, services.clock
    view = jobs_view(catalog, clock=clock) if query.view == "jobs" else tasks_view(catalog)
    return select_from_view(query, view, clock=clock)


def select_from_view(query: ViewQuery, view: View, *, clock: Clock) -> Result:
    """Return the rows of a SELECT from a view."""
    memory = ":memory:"
    with (
        closing(sqlite3.connect(memory)) as connection,
        closing(sqlite3.connect(memory)) as scratch,
    ):
        extract = partial(_json_extract, scratch)
        connection.create_function("json_extract", -1, extract, deterministic=True)
        _fill(connection, view)
        _restrict(connection, view, clock=clock)
        try:
            cursor = connection.execute(sqlite_text(query))
            rows = cursor.fetchall()
        except sqlite3.Error as error:
            raise _user_error(error, view) from error
    return Result(
        columns=tuple(ResultColumn(name=column[0]) for column in cursor.description),
        rows=tuple(tuple(_cell(value) for value in row) for row in rows),
    )


def sqlite_text(query: ViewQuery) -> str:
    """Convert the SELECT to SQLite: no call, no comments, strings in single quotes."""
    text = f"{query.select[: query.start]}`{query.view}`{query.select[query.end :]}"
    pieces: list[str] = []
    end = 0
    texts = False
    for token in tokenize(read_script(text)):
        quoted = token.kind is TokenKind.TEXT
        # Two adjacent strings would become one string that contains a quote.
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


def _restrict(connection: sqlite3.Connection, view: View, *, clock: Clock) -> None:
    """Allow only the view's columns and harmless functions, and limit the run time."""
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
    connection.set_progress_handler(lambda: clock.monotonic() > deadline, STEPS_BETWEEN_CHECKS)
    connection.set_authorizer(permission)


def _json_extract(scratch: sqlite3.Connection, text: Cell, *paths: Cell) -> Cell:
    """Run SQLite's json_extract, but return None for a text that is not JSON.

    A column of JSON texts contains an empty text in rows without a value.
    """
    marks = ", ?" * len(paths)
    extract = f"SELECT CASE WHEN json_valid(?) THEN json_extract(?{marks}) END"
    found: Cell = scratch.execute(extract, (text, text, *paths)).fetchone()[0]
    return found


def _user_error(error: sqlite3.Error, view: View) -> UserError:
    """Convert an error of SQLite to a UserError."""
    message = str(error)
    place = f"the SELECT from {view.name}(…)"
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
        return UserError(
            f"{place} did not finish within {DURATION_MAX.total_seconds():g}s",
            code=Code.TIMEOUT_ERR,
            hint="Select fewer rows or columns.",
        )
    if found := _NO_COLUMN.fullmatch(message):
        return UserError(
            f'{view.name}(…) has no column "{_first(found.groups())}"',
            code=Code.TYPE_ERR,
            hint=f"Known columns: {', '.join(column.name for column in view.columns)}.",
        )
    if found := _NO_FUNCTION.fullmatch(message):
        return UserError(
            f"the function {found[1]}() is not supported yet in {place}",
            code=Code.NOT_SUPPORTED_ERR,
            hint=f"Known functions: {', '.join(sorted(FUNCTIONS - {'->', '->>'}))}.",
        )
    if found := _UNEXPECTED.fullmatch(message):
        near = f'syntax error at "{_first(found.groups())}" in {place}'
        return UserError(near, code=Code.SYNTAX_ERR, hint=_ORDER)
    if message == _UNFINISHED:
        return UserError(f"{place} is incomplete", code=Code.SYNTAX_ERR, hint=_ORDER)
    if message == _FUNCTION_FAILED:
        return UserError(
            f"{place} calls json_extract with a malformed path",
            code=Code.TYPE_ERR,
            hint="Write for example json_extract(LoadStatistic, '$.scannedRows').",
        )
    return UserError(
        f"{place} failed: {message.rstrip('.')}",
        code=Code.TYPE_ERR,
        hint=f"Known columns: {', '.join(column.name for column in view.columns)}.",
    )


def _first(groups: Sequence[str | None]) -> str:
    return next((group for group in groups if group is not None), "")


def _cell(value: Cell | bytes) -> Cell:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
