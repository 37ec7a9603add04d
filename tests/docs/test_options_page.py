"""The pages of options and settings match the declarations."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """The script that writes the pages."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_tables_of_options_match_the_declarations(
    generator: ModuleType,
) -> None:
    text = (DOCS / "reference/options.md").read_text("utf-8")

    assert text == generator.page(text), "run `make docs`"
    assert sorted(generator.tables()) == sorted(
        name for _, name, _ in generator.BLOCK.findall(text)
    )


def test_the_table_of_settings_matches_the_settings_file(
    generator: ModuleType,
) -> None:
    text = (DOCS / "reference/settings.md").read_text("utf-8")

    assert f"-->\n\n{generator.settings_table()}\n<!--" in text, "run `make docs`"
