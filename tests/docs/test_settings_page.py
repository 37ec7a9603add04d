"""The page of settings is what the table of their words says."""

from pathlib import Path

from penstock.settings.home import settings_table

PAGE = Path(__file__).parents[2] / "docs/reference/settings.md"


def test_the_table_of_settings_is_the_one_that_the_settings_file_is_written_from() -> None:
    text = PAGE.read_text("utf-8")

    assert f"-->\n\n{settings_table()}\n<!--" in text, "run `make docs`"
