"""The rows and the errors of a SELECT from a view."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from penstock.clock import Clock, SystemClock
from penstock.control.result import Result, result_columns
from penstock.control.view_query import select_from_view, sqlite_text
from penstock.control.views import View
from penstock.errors import Code, UserError
from penstock.sql.parser import parse_script
from penstock.sql.statements import ViewQuery
from tests.error_values import assert_error, assert_names

JOBS = View(
    name="jobs",
    columns=result_columns("Name, Status, SucceedTaskCount BIGINT, ErrorMsg"),
    rows=(
        ("a", "RUNNING", 9, ""),
        ("B", "PAUSED", 10, '{"code": "FILE_ERR", "msg": "it\'s gone"}'),
        ("c_1", "PAUSED", 0, None),
    ),
)


class SteppingClock:
    """A clock that advances by an hour at every call."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 3, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        self._seconds += 3600
        return self._seconds

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:  # noqa: ARG002 - As Clock.
        return event.is_set()


def query(text: str) -> ViewQuery:
    """Return a parsed SELECT; ``VIEW`` in the text is the view."""
    (found,) = parse_script(text.replace("VIEW", "jobs('type' = 'insert')"))
    assert isinstance(found.statement, ViewQuery)
    return found.statement


def select(text: str, *, view: View = JOBS, clock: Clock | None = None) -> Result:
    """Return the result of a SELECT."""
    return select_from_view(query(text), view, clock=clock or SystemClock())


def refusal(text: str) -> UserError:
    """Return the error of a SELECT."""
    with pytest.raises(UserError) as caught:
        select(text)
    return caught.value


def test_a_star_returns_all_columns_and_rows_in_order() -> None:
    result = select("SELECT * FROM VIEW")

    assert result.names == ("Name", "Status", "SucceedTaskCount", "ErrorMsg")
    assert result.rows == JOBS.rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT Name FROM VIEW WHERE Status = 'PAUSED' ORDER BY Name DESC", ["c_1", "B"]),
        ('SELECT Name FROM VIEW WHERE Name = "a"', ["a"]),
        ("SELECT Name FROM VIEW WHERE Name = 'b'", []),
        ("SELECT Name FROM VIEW WHERE Name LIKE 'b%'", []),
        ("SELECT Name FROM VIEW WHERE Name LIKE 'B%'", ["B"]),
        ("SELECT Name FROM VIEW WHERE ErrorMsg LIKE '%it\\'s%'", ["B"]),
        ("SELECT Name FROM VIEW WHERE ErrorMsg IS NULL", ["c_1"]),
        ("SELECT `name` FROM VIEW AS j WHERE j.`STATUS` = 'RUNNING'", ["a"]),
        ("SELECT Name FROM VIEW LIMIT 1, 1 -- the second", ["B"]),
        ("SELECT count(*) FROM VIEW", [3]),
        ("SELECT max(Name) FROM VIEW", ["c_1"]),
        ("SELECT sum(SucceedTaskCount) FROM VIEW", [19]),
        ("SELECT json_extract(ErrorMsg, '$.code') FROM VIEW", [None, "FILE_ERR", None]),
        ("SELECT ErrorMsg ->> '$.msg' FROM VIEW WHERE Name = 'B'", ["it's gone"]),
        ("SELECT CASE Status WHEN 'PAUSED' THEN 1 ELSE 0 END FROM VIEW", [0, 1, 1]),
        ("SELECT CAST(Name AS BLOB) FROM VIEW LIMIT 1", ["a"]),
        ("SELECT 'a'\"b'c\" FROM VIEW LIMIT 1", ["a"]),
    ],
)
def test_a_select_returns_the_same_rows_as_in_doris(text: str, rows: list[object]) -> None:
    assert [row[0] for row in select(text).rows] == rows


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT Name FROM VIEW WHERE SucceedTaskCount > 9", ["B"]),
        ("SELECT Name FROM VIEW WHERE SucceedTaskCount >= 8.5", ["a", "B"]),
        ("SELECT Name FROM VIEW ORDER BY SucceedTaskCount", ["c_1", "a", "B"]),
        ("SELECT max(SucceedTaskCount) FROM VIEW", [10]),
        ("SELECT Name FROM VIEW WHERE SucceedTaskCount = '10'", ["B"]),
    ],
)
def test_counts_compare_as_numbers(text: str, names: list[object]) -> None:
    assert [row[0] for row in select(text).rows] == names


def test_a_column_has_the_name_of_the_view_the_alias_or_the_expression() -> None:
    result = select('SELECT NAME, status AS s, Name "the name", upper( Name ) FROM VIEW')

    assert result.names == ("Name", "s", "the name", "upper( Name )")


def test_strings_and_comments_are_converted_for_sqlite() -> None:
    text = sqlite_text(query('SELECT `a``b`, "c""d", \'e\\\'f\' /* x /* y */ */ FROM VIEW j'))

    assert text == "SELECT `a``b`, 'c\"d', 'e''f' FROM `jobs` j"


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("SELECT nix FROM VIEW", Code.TYPE_ERR, ("jobs(…)", '"nix"')),
        ("SELECT `nix` FROM VIEW", Code.TYPE_ERR, ("jobs(…)", '"nix"')),
        ("SELECT rowid FROM VIEW", Code.TYPE_ERR, ("jobs(…)", '"ROWID"')),
        ("SELECT k.Name FROM VIEW j", Code.TYPE_ERR, ("jobs(…)", '"k.Name"')),
        (
            "SELECT FROM VIEW",
            Code.SYNTAX_ERR,
            ('"FROM"', "SELECT", "jobs(…)"),
        ),
        (
            "SELECT 1L FROM VIEW",
            Code.SYNTAX_ERR,
            ('"1L"', "SELECT", "jobs(…)"),
        ),
        (
            "SELECT Name FROM VIEW WHERE",
            Code.SYNTAX_ERR,
            ("SELECT", "jobs(…)"),
        ),
        (
            "SELECT json_extract(ErrorMsg, 'code') FROM VIEW",
            Code.TYPE_ERR,
            ("SELECT", "jobs(…)", "json_extract"),
        ),
        (
            "SELECT Name FROM VIEW WHERE count(*) > 1",
            Code.TYPE_ERR,
            ("SELECT", "jobs(…)", "count()"),
        ),
    ],
)
def test_an_error_of_sqlite_is_converted_to_a_user_error(
    text: str, code: Code, named: tuple[str, ...]
) -> None:
    error = refusal(text)

    assert_error(error, code, *named)
    assert error.hint


def test_the_hint_for_an_unknown_column_lists_the_columns() -> None:
    error = refusal("SELECT Nmae FROM VIEW")

    assert_names(error.hint, "Name, Status, SucceedTaskCount, ErrorMsg")


@pytest.mark.parametrize("call", ["nix(1)", "load_extension(1)", "randomblob(1)", "hex(1)"])
def test_only_harmless_functions_can_be_called(call: str) -> None:
    error = refusal("SELECT CALL FROM VIEW".replace("CALL", call))

    assert error.code is Code.NOT_SUPPORTED_ERR
    assert_names(error.message, "function", f"{call.removesuffix('(1)')}()")
    assert "json_extract" in error.hint


def test_only_the_view_can_be_read() -> None:
    error = refusal("SELECT Name IN sqlite_master FROM VIEW")

    assert error.code is Code.TYPE_ERR


def test_a_select_that_takes_too_long_is_cancelled() -> None:
    many = View(
        name="jobs",
        columns=result_columns("Name"),
        rows=tuple((str(n),) for n in range(20_000)),
    )

    with pytest.raises(UserError) as caught:
        select("SELECT Name FROM VIEW ORDER BY Name", view=many, clock=SteppingClock())

    assert caught.value.code is Code.TIMEOUT_ERR
    assert_names(caught.value.message, "jobs(…)", "10s")
