"""The page of options is what the declarations say."""

import importlib.util
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/reference/options.md"
SCRIPT = Path(__file__).parents[2] / "docs/generate.py"


def test_the_tables_of_options_are_those_that_the_declarations_give() -> None:
    spec = importlib.util.spec_from_file_location("generate", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)

    text = PAGE.read_text("utf-8")

    assert text == generator.page(text), "run `make docs`"
    assert sorted(generator.tables()) == sorted(
        name for _, name, _ in generator.BLOCK.findall(text)
    )
