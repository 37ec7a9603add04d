"""SQL scripts with their exact expected output in a file next to each script.

Placeholders replace the parts that differ between runs: ``{folder}``, ``{id}``, ``{time}``.
After a change of a message, ``UPDATE_SCRIPTS=1 pytest tests/scripts`` rewrites the files.
"""

import os
import re
from pathlib import Path

import pytest

from tests.integration.command import CommandResult, Shell
from tests.node import numbered, write_rows

HERE = Path(__file__).parent
SCRIPTS = sorted(HERE.glob("*.sql"))
REFUSED = sorted(HERE.glob("refused/*.sql"))
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SUFFIX = re.compile(r"(?<=-)[0-9a-f]{8}\b")
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


def run(script: Path, folder: Path) -> CommandResult:
    """Run a script in a folder with two files to load."""
    write_rows(folder / "in" / "a.json", numbered(1, 2))
    write_rows(folder / "in" / "b.json", numbered(3))
    text = script.read_text("utf-8").replace("{folder}", str(folder))
    (folder / "script.sql").write_text(text, "utf-8")
    return Shell(folder).run("sql", "-f", "script.sql", "--format", "csv")


def normalized(text: str, folder: Path) -> str:
    """Replace the parts of an output that differ between runs by placeholders."""
    text = text.replace(str(folder), "{folder}")
    return TIME.sub("{time}", SUFFIX.sub("{id}", UUID.sub("{id}", text)))


def expected(script: Path, output: str) -> str:
    """Return the expected output of a script; write it first if UPDATE_SCRIPTS is set."""
    path = script.with_suffix(".out")
    if os.environ.get("UPDATE_SCRIPTS"):
        path.write_text(output, "utf-8")
    return path.read_text("utf-8")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_prints_the_expected_output(script: Path, tmp_path: Path) -> None:
    finished = run(script, tmp_path)

    assert (finished.code, finished.error) == (0, "")
    output = normalized(finished.out, tmp_path)
    assert output == expected(script, output)


@pytest.mark.parametrize("script", REFUSED, ids=lambda path: path.stem)
def test_a_script_fails_with_the_expected_error(script: Path, tmp_path: Path) -> None:
    finished = run(script, tmp_path)

    assert finished.code == 1
    output = normalized(finished.out + finished.error, tmp_path)
    assert output == expected(script, output)
