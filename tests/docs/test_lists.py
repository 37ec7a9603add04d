"""The lists of events, traps and benchmarks in the documentation are complete."""

import ast
import re
from pathlib import Path

from benchmarks.suite import PARTS
from penstock.control import show
from penstock.model.epoch import CommitKind

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_the_page_of_statements_lists_every_event() -> None:
    page = (DOCS / "reference/sql.md").read_text("utf-8")
    _, table = page.split("SHOW EVENTS shows these events of a job:")
    listed = re.findall(r"`([A-Z]\w+)`", cells(table, column=1))

    assert sorted(listed) == sorted(event_names())


def event_names() -> set[str]:
    """Return the names that SHOW EVENTS can print; functions named ``…name`` or ``…text``."""
    tree = ast.parse(Path(show.__file__).read_text("utf-8"))
    constants = {
        node.value
        for function in tree.body
        if isinstance(function, ast.FunctionDef)
        if function.name in ("_event_text", "_request_name")
        for node in ast.walk(function)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    names = {text for text in constants if re.fullmatch(r"([A-Z][a-z]+){2,}", text)}
    return names | {f"{str(kind).title()}Committed" for kind in CommitKind}


def test_the_page_of_benchmarks_lists_every_part() -> None:
    page = (DOCS / "benchmarks.md").read_text("utf-8")
    flag = re.search(r"`--only ([^`]*)`", page)
    assert flag is not None
    measured = cells(page.split("## Measurements and goals")[1], column=1).split("\n")

    assert sorted(flag[1].split(r"\|")) == sorted(PARTS)
    assert {part.replace("-", " ") for part in PARTS} <= set(measured)


def test_the_list_of_traps_has_the_number_of_every_test() -> None:
    page = (DOCS / "design/traps.md").read_text("utf-8")
    listed = re.findall(r"^\| ([TS]\d+[ab]?) \|", page, re.MULTILINE)
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    tested = re.findall(r"def test_(t\d+[ab]?|s\d+)_(?!is_an_alias)", tests)

    assert sorted(listed) == sorted({name[0].upper() + name[1:] for name in tested})


def cells(text: str, *, column: int) -> str:
    """Return the cells of a column of the first table in the text, one per line."""
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    return "\n".join(row.split("|")[column].strip() for row in table[0].splitlines())
