"""Parsing of SELECTs from the views jobs(…) and tasks(…)."""

import pytest

from penstock.errors import Code
from penstock.sql.parser import parse_script
from penstock.sql.statements import ViewQuery
from tests.error_values import assert_error, assert_names
from tests.unit.sql.refusal import refusal


def parsed(text: str) -> ViewQuery:
    """Return the SELECT from a view that a script consists of."""
    (found,) = parse_script(text)
    assert isinstance(found.statement, ViewQuery)
    return found.statement


def test_a_select_from_a_view_stays_verbatim() -> None:
    text = """SELECT Name /* who */ FROM Jobs("type" = 'insert') AS j WHERE j.Name = "a" """

    query = parsed(f"\n{text};")

    assert query.select == text.strip()
    assert (query.view, query.options) == ("jobs", (("type", "insert"),))
    assert query.select[query.start : query.end] == """Jobs("type" = 'insert')"""


@pytest.mark.parametrize(
    "text",
    [
        """SELECT * FROM tasks("type"="insert")""",
        """select * from TASKS('TYPE'='INSERT') t""",
        """SELECT count(*) FROM tasks("type" = insert) LIMIT 1""",
        """SELECT Name IS DISTINCT FROM "a" FROM tasks("type"="insert") ORDER BY 1""",
        """SELECT DISTINCT (JobName) FROM tasks("type"="insert") `t` GROUP BY JobName""",
    ],
)
def test_a_view_is_found_in_any_select(text: str) -> None:
    assert parsed(text).view == "tasks"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("SELECT * FROM jobs()", ("jobs()", '"type"')),
        ("SELECT * FROM tasks('type' = 'mv')", ('"type"', '"mv"')),
        ("SELECT * FROM jobs('kind' = 'x')", ("jobs()", '"kind"')),
    ],
)
def test_the_type_of_a_view_must_be_insert(text: str, named: tuple[str, ...]) -> None:
    error = refusal(text)

    assert_error(error, Code.OPTION_ERR, *named)
    assert error.detail == "Line 1, column 15."
    assert_names(error.hint, "type")


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("SELECT * FROM jobs('type' = 'insert'), t", "second source"),
        ("SELECT * FROM jobs('type' = 'insert') j LEFT JOIN t", "JOIN"),
        ("SELECT * FROM jobs('type' = 'insert') UNION SELECT 1", "UNION"),
        ("SELECT 1 FROM jobs('type' = 'insert') WHERE 1 EXCEPT SELECT 1", "EXCEPT"),
        ("SELECT (SELECT 1) FROM jobs('type' = 'insert')", "subquery"),
        ("SELECT * FROM jobs('type' = 'insert') WHERE Id IN (SELECT 1)", "subquery"),
        ("SELECT X'41' FROM jobs('type' = 'insert')", "literal"),
        ("SELECT /*+ FAST */ * FROM jobs('type' = 'insert')", "hint"),
        ("SELECT * FROM jobs('type' = 'insert') WHERE Id = ?", '"?"'),
    ],
)
def test_an_unsupported_construct_with_a_view_is_named(text: str, construct: str) -> None:
    error = refusal(text)

    assert_error(error, Code.NOT_SUPPORTED_ERR, construct, "jobs(…)", "tasks(…)")


def test_a_word_that_cannot_follow_a_view_is_refused_with_its_position() -> None:
    error = refusal("SELECT * FROM jobs('type' = 'insert') j WERE Id = 1")

    names = ("WHERE", "GROUP BY", "ORDER BY", "LIMIT", '"WERE"')
    assert_error(error, Code.SYNTAX_ERR, *names, hint=["WHERE"])
    assert error.detail == "Line 1, column 41."
