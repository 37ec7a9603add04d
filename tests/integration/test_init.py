"""``penstock init`` creates a home that can be used at once."""

from pathlib import Path

import pytest

from penstock.settings.home import SHOWN_SETTINGS
from tests.integration.command import Shell
from tests.node import CREATE_TABLE


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_init_creates_a_home_with_every_setting_in_its_file(shell: Shell) -> None:
    result = shell.run("init")

    text = (shell.folder / "penstock-home" / "penstock.toml").read_text()
    assert (result.code, result.error) == (0, "")
    assert [s.key for s in SHOWN_SETTINGS if s.variable not in text] == []
    assert shell.sql(CREATE_TABLE).out == "table t created\n"


def test_init_prints_the_next_commands_in_three_lines(shell: Shell) -> None:
    result = shell.run("init", "elsewhere")

    typed = [line.split("  #")[0].strip() for line in result.out.splitlines()[-3:]]
    penstock = f"penstock --home {shell.folder}/elsewhere"
    assert typed == [f"{penstock} doctor", f"{penstock} sql", f"{penstock} run"]


@pytest.mark.parametrize(
    "arguments", [["init", "made"], ["--home", "made", "init"], ["--home", "x", "init", "made"]]
)
def test_the_folder_argument_overrides_the_flag(shell: Shell, arguments: list[str]) -> None:
    shell.run(*arguments)

    assert [path.name for path in shell.folder.iterdir()] == ["made"]


def test_existing_settings_are_kept(shell: Shell) -> None:
    home = shell.folder / "penstock-home"
    home.mkdir()
    (home / "penstock.toml").write_text("# mine\n")

    result = shell.run("init")

    assert (result.code, result.out) == (1, "")
    assert result.error == (
        f'error ALREADY_EXISTS_ERR: settings file "{home}/penstock.toml" exists and was '
        "not changed\n  hint: Edit the file, or delete it and run penstock init again.\n"
    )
    assert (home / "penstock.toml").read_text() == "# mine\n"


@pytest.mark.parametrize("folder", ["taken", "taken/below"])
def test_a_home_that_cannot_be_created_is_reported(shell: Shell, folder: str) -> None:
    (shell.folder / "taken").touch()

    result = shell.run("init", folder)

    assert result.code == 1
    assert f'home "{shell.folder}/{folder}" cannot be created: ' in result.error
