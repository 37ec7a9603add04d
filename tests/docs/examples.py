"""The examples of a page in order: files to write, statements to run, expected output.

A comment before a block sets its kind:

* ``<!-- file: /data/in/a.json -->``: a file to write, before the next statements.
* ``<!-- refused -->``: SQL that fails with the error in the next ``text`` block.
* ``<!-- rows of t -->``: the rows of a table, as a Markdown table.
* ``<!-- result -->``: rows that the last statement returned, as a Markdown table.
* ``<!-- run -->``: Python to run, with the variables of earlier blocks.
* ``<!-- not run: reason -->``: SQL that is only shown.

SQL without a comment is run. Unless it only shows something, the jobs of the node then run
until they are caught up. They also run at a shell block with
``penstock run --until-caught-up``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import UserError
from penstock.sql.parser import parse_script
from penstock.sql.statements import ParsedStatement
from tests.node import Node

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
COMMENT = re.compile(r"<!-- (file|refused|rows of|result|not run|run)(?:: | )?(.*?) ?-->")
DATA = "/data/"
KINESIS = "http://127.0.0.1:4567"
CATCH_UP = "penstock run --until-caught-up"
MODULE = '"text_functions"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A block of a page: its kind, the name in its comment, its language and text."""

    line: int
    kind: str
    name: str
    language: str
    text: str


def examples(page: Path) -> Iterator[Example]:
    """Yield the fenced blocks and tables of a page, with the comments before them."""
    kind = name = ""
    lines = page.read_text("utf-8").splitlines()
    at = 0
    while at < len(lines):
        comment = COMMENT.fullmatch(lines[at])
        size = _block_lines(lines[at:])
        if comment:
            kind, name = comment.groups()
        elif size:
            yield _example(lines[at : at + size], line=at + 1, kind=kind, name=name)
            kind = name = ""
        at += max(size, 1)


def _block_lines(lines: list[str]) -> int:
    """Return the number of lines of the block at the first line; 0 if there is none."""
    if lines[0].startswith("```"):
        return next(at for at, line in enumerate(lines) if at and line.startswith("```")) + 1
    return len(list(takewhile(lambda line: line.startswith("|"), lines)))


def _example(block: list[str], *, line: int, kind: str, name: str) -> Example:
    if block[0].startswith("```"):
        language, text = block[0].strip("`"), "".join(f"{one}\n" for one in block[1:-1])
    else:
        language, text = "table", "\n".join(block)
    return Example(line=line, kind=kind, name=name, language=language, text=text)


@dataclass
class PageRunner:
    """A runner of the examples of a page, in order."""

    node: Node
    root: Path
    result: list[dict[str, Any]]
    # The endpoint that replaces the pages' Kinesis endpoint.
    kinesis: str = KINESIS
    refusal: str = ""
    names: dict[str, Any] = field(default_factory=dict)

    def run(self, example: Example) -> None:
        """Run an example, or compare the expected output of the page."""
        match example.kind, example.language:
            case "file", _:
                path = Path(self._localized(example.name))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(example.text, "utf-8")
            case "refused", "sql":
                self.refusal = self._refused(example.text)
            case "run", "python":
                exec(self._localized(example.text), self.names)  # noqa: S102 - Our own page.
            case "", "sql":
                text = self._localized(example.text)
                self.result = self.node.sql(text)
                if not all(map(_shows, parse_script(text))):
                    self.node.run()
            case "", "sh" if CATCH_UP in example.text:
                self.node.run()
            case _:
                self._compare(example)

    def _compare(self, example: Example) -> None:
        match example.kind, example.language:
            case "", "text" if self.refusal:
                assert self.refusal == self._localized(example.text)
                self.refusal = ""
            case "rows of", "table":
                assert self._rows(example) == sorted(_cells(self._localized(example.text)))
            case "result", "table":
                shown = _cells(self._localized(example.text))
                returned = [_row(row, _names(example.text)) for row in self.result]
                assert [row for row in shown if row not in returned] == []
            case ("", _) | ("not run", "sql"):
                assert not self.refusal, "the text of an error must follow its statement"
            case kind, language:
                raise AssertionError(f'"{kind}" is not allowed before a block of "{language}"')

    def _localized(self, text: str) -> str:
        """Replace the page's folder, endpoint and module by those of the test."""
        here = text.replace(DATA, f"{self.root}{DATA}").replace(KINESIS, self.kinesis)
        return here.replace(MODULE, '"tests.docs.text_functions"')

    def _refused(self, text: str) -> str:
        with pytest.raises(UserError) as caught:
            self.node.sql(self._localized(text))
        error = caught.value
        detail = f"  detail: {error.detail}\n" if error.detail else ""
        hint = f"  hint: {error.hint}\n" if error.hint else ""
        return f"error {error.code}: {error.message}\n{detail}{hint}"

    def _rows(self, example: Example) -> list[list[str]]:
        names = _names(example.text)
        return sorted(_row(row, names) for row in self.node.rows(example.name))


def _shows(parsed: ParsedStatement) -> bool:
    return type(parsed.statement).__name__.startswith(("Describe", "Explain", "Show"))


def _names(table: str) -> list[str]:
    return _split(table.splitlines()[0])


def _cells(table: str) -> list[list[str]]:
    return [_split(line) for line in table.splitlines()[2:]]


def _split(line: str) -> list[str]:
    return [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]


def _row(row: dict[str, Any], names: list[str]) -> list[str]:
    return ["NULL" if row[name] is None else str(row[name]).strip() for name in names]
