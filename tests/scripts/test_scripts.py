"""Scripts of SQL say what is expected of them, word for word, in a file beside them.

What differs from run to run stands in braces: ``{folder}``, ``{id}``, ``{time}``. After a
change of a sentence, ``UPDATE_SCRIPTS=1 pytest tests/scripts`` writes the files again.
"""

import os
import re
from pathlib import Path

import pytest

from tests.integration.command import Said, Shell
from tests.node import numbered, write_rows

HERE = Path(__file__).parent
SCRIPTS = sorted(HERE.glob("*.sql"))
REFUSED = sorted(HERE.glob("refused/*.sql"))
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SUFFIX = re.compile(r"(?<=-)[0-9a-f]{8}\b")
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


def run(script: Path, folder: Path) -> Said:
    """Run a script in a folder with two files to load."""
    write_rows(folder / "in" / "a.json", numbered(1, 2))
    write_rows(folder / "in" / "b.json", numbered(3))
    text = script.read_text("utf-8").replace("{folder}", str(folder))
    (folder / "script.sql").write_text(text, "utf-8")
    return Shell(folder).run("sql", "-f", "script.sql", "--format", "csv")


def told(text: str, folder: Path) -> str:
    """Write down what was said without what differs from run to run."""
    text = text.replace(str(folder), "{folder}")
    return TIME.sub("{time}", SUFFIX.sub("{id}", UUID.sub("{id}", text)))


def expected(script: Path, answer: str) -> str:
    """Return what a script must answer; write it first if that was asked for."""
    path = script.with_suffix(".out")
    if os.environ.get("UPDATE_SCRIPTS"):
        path.write_text(answer, "utf-8")
    return path.read_text("utf-8")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_answers_what_is_written_beside_it(script: Path, tmp_path: Path) -> None:
    said = run(script, tmp_path)

    assert (said.code, said.error) == (0, "")
    assert told(said.out, tmp_path) == expected(script, told(said.out, tmp_path))


@pytest.mark.parametrize("script", REFUSED, ids=lambda path: path.stem)
def test_a_script_is_refused_with_the_words_beside_it(script: Path, tmp_path: Path) -> None:
    said = run(script, tmp_path)

    assert said.code == 1
    answer = told(said.out + said.error, tmp_path)
    assert answer == expected(script, answer)
