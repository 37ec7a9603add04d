"""The commands of the README print the shown output; its lines and pictures follow rules."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from tests.docs.examples import PAGES, ROOT, Example, examples

README = ROOT / "README.md"
WIDTH_MAX = 130
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


def printed_examples() -> list[tuple[Example, Example]]:
    """Return the shell commands of the README that are followed by their output."""
    pairs = pairwise(examples(README))
    return [(a, b) for a, b in pairs if (a.language, b.language) == ("sh", "text")]


@pytest.mark.integration
@pytest.mark.xdist_group("pages")
def test_the_commands_of_the_readme_print_what_the_readme_shows(tmp_path: Path) -> None:
    commands = Path(sys.executable).parent
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    environment["PATH"] = f"{commands}:{environment['PATH']}"
    shown = printed_examples()

    printed = [run(typed.text, folder=tmp_path, environment=environment) for typed, _ in shown]

    assert len(shown) == 4
    for text, (_, expected) in zip(printed, shown, strict=True):
        assert re.fullmatch(pattern(expected.text), text), text


def run(text: str, *, folder: Path, environment: dict[str, str]) -> str:
    ended = subprocess.run(
        ["/bin/bash", "-e", "-c", text],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def pattern(shown: str) -> str:
    """Return a pattern: … matches any text of a line, or any lines if alone on a line."""
    lines = re.escape(shown).replace("…\\\n", "(?:.*\\n)*")
    return lines.replace("…", ".*")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_of_prose_are_short(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)

    lines = [line for line in prose.splitlines() if not line.startswith(("|", "![", "<!--"))]

    assert not [line for line in lines if len(line) > WIDTH_MAX]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_well_formed_and_fetches_nothing(picture: Path) -> None:
    text = picture.read_text("utf-8")

    assert Xml.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - Ours.
    assert "url(http" not in text
    assert "href=" not in text
