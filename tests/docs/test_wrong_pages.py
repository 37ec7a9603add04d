"""Wrong examples on a page fail."""

from pathlib import Path

import pytest

from tests.docs.examples import PageRunner, examples
from tests.node import Node

FILE = '<!-- file: /data/a.json -->\n```json\n{"id": 1}\n```\n'
LOAD = """```sql
CREATE TABLE t (id INT);
CREATE JOB j ON STREAMING DO INSERT INTO t
SELECT id FROM FILES('uri' = 'file:///data/*.json', 'format' = 'json');
```
"""
ROWS = "<!-- rows of t -->\n| id |\n| --- |\n| {} |\n"
REFUSED = "<!-- refused -->\n```sql\nDROP TABLE {};\n```\n```text\nerror {}\n```\n"
MISSING = 'META_NOT_FOUND_ERR: table "u" does not exist\n  hint: Known tables: t.'
WRONG = [
    ROWS.format(2),
    ROWS.format("1 |\n| 1"),
    REFUSED.format("u", "STATE_ERR: table u is gone"),
    REFUSED.format("IF EXISTS u", MISSING),
    "<!-- rows of t -->\n```sql\nSHOW JOBS;\n```\n",
    "```sql\nSHOW JOBS;\n```\n<!-- result -->\n| name |\n| --- |\n| k |\n",
]


def read(text: str, *, node: Node, folder: Path) -> None:
    page = folder / "page.md"
    page.write_text(text, "utf-8")
    runner = PageRunner(node=node, root=folder, result=[])
    for example in examples(page):
        runner.run(example)


def test_a_correct_page_passes(node: Node, tmp_path: Path) -> None:
    page = FILE + LOAD + ROWS.format(1) + REFUSED.format("u", MISSING)

    read(page, node=node, folder=tmp_path)

    assert node.rows("t") == [{"id": 1}]


@pytest.mark.parametrize("claim", WRONG)
def test_a_wrong_page_fails(claim: str, node: Node, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        read(FILE + LOAD + claim, node=node, folder=tmp_path)
