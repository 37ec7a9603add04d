"""Help texts of the command line."""

import re

import pytest

from penstock.cli.main import SQL_HELP
from penstock.sql.parser import statement_heads

LINES_MAX = 20


@pytest.mark.parametrize("head", statement_heads())
def test_help_lists_every_statement(head: tuple[str, ...]) -> None:
    listed = set(re.findall("[A-Z]+", SQL_HELP))

    assert set(head) <= listed


def test_help_of_statements_is_short() -> None:
    assert len(SQL_HELP.splitlines()) <= LINES_MAX
