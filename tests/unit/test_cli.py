"""Help texts of the command line."""

import re
from collections.abc import Iterator

from penstock.cli.main import SQL_HELP
from penstock.sql.parser import statement_heads

LINES_MAX = 22


def test_help_lists_every_statement_and_no_other() -> None:
    text = SQL_HELP.split("Statements:\n")[1].split("\n\n")[0]
    listed = [head for entry in re.split(r",\s+|\n(?! )", text) for head in heads(entry)]

    assert sorted(listed) == sorted(" ".join(head) for head in statement_heads())


def heads(entry: str) -> Iterator[str]:
    """Yield the statements of an entry such as ``CREATE [OR REFRESH] | DROP TABLE``."""
    *verbs, last = (
        " ".join(entry.removesuffix("[FOR]").split()).removesuffix(" FOR").split(" | ")
    )
    verb, _, noun = last.partition(" ")
    for part in [*verbs, verb]:
        whole = f"{part} {noun}".strip()
        yield " ".join(re.sub(r"\[.*?\]", "", whole).split())
        if "[" in whole:
            yield re.sub(r"[\[\]]", "", whole)


def test_help_of_statements_is_short() -> None:
    assert len(SQL_HELP.splitlines()) <= LINES_MAX
