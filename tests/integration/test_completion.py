"""Shell completion, help and version of the command."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.command import COMMAND, Shell
from tests.node import CREATE_TABLE, create_job, numbered, write_rows


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A shell whose home has two jobs."""
    write_rows(tmp_path / "in" / "a.json", numbered(1))
    shell_with_jobs = Shell(tmp_path)
    shell_with_jobs.sql(
        f"{CREATE_TABLE}; {create_job(tmp_path / 'in', name='load_orders')}; "
        f"{create_job(tmp_path / 'in', name='load_users')}"
    )
    return shell_with_jobs


def completed(shell: Shell, *words: str) -> list[str]:
    """Return the completions that bash offers for the last word."""
    requested = {
        "_PENSTOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(["penstock", *words]),
        "COMP_CWORD": str(len(words)),
    }
    result = shell.run(environment=requested)
    assert result.error == ""
    return result.out.split()


def test_commands_are_completed(shell: Shell) -> None:
    assert completed(shell, "") == ["sql", "run", "doctor", "init"]
    assert completed(shell, "do") == ["doctor"]


def test_the_names_of_jobs_are_completed_from_the_catalog(shell: Shell) -> None:
    assert completed(shell, "run", "--job", "") == ["load_orders", "load_users"]
    assert completed(shell, "run", "--job", "load_u") == ["load_users"]


def test_completion_reads_the_home_that_the_flag_names(shell: Shell) -> None:
    assert completed(shell, "--home", "other", "run", "--job", "") == []
    assert completed(shell, "--home", "penstock-home", "run", "--job", "load_o") == [
        "load_orders"
    ]
    assert not (shell.folder / "other").exists()


def test_an_unreadable_catalog_completes_nothing(shell: Shell) -> None:
    (shell.folder / "penstock-home" / "catalog.db").write_text("notes")

    assert completed(shell, "run", "--job", "") == []


def test_bash_itself_completes_the_name_of_a_job(shell: Shell) -> None:
    script = """
        eval "$(penstock --show-completion)"
        COMP_WORDS=(penstock run --job load_u); COMP_CWORD=3
        _penstock_completion penstock
        echo "${COMPREPLY[@]}"
    """
    path = f"{COMMAND.parent}:{os.environ['PATH']}"

    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=shell.folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "load_users\n"


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [("zsh", """_arguments '*: :(("load_users"))'"""), ("fish", "load_users")],
)
def test_other_shells_get_completions_in_their_own_format(
    shell: Shell, dialect: str, expected: str
) -> None:
    requested = {
        "_PENSTOCK_COMPLETE": f"complete_{dialect}",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": "penstock run --job load_u",
    }

    assert shell.run(environment=requested).out.strip() == expected


def test_the_version_is_printed_without_a_home(tmp_path: Path) -> None:
    result = Shell(tmp_path).run("--version")

    assert (result.code, result.error) == (0, "")
    assert result.out.startswith("penstock 0.")
    assert list(tmp_path.iterdir()) == []


def test_help_shows_three_steps_in_80_columns(tmp_path: Path) -> None:
    result = Shell(tmp_path).run("--help", environment={"COLUMNS": "80"})

    lines = [line.strip() for line in result.out.splitlines()]
    steps = [line for line in lines if line[:3] in ("1. ", "2. ", "3. ")]
    assert [step.split()[2] for step in steps] == ["init", "sql", "run"]
    assert "CREATE TABLE orders (id BIGINT, city STRING);" in lines


@pytest.mark.parametrize("command", ["sql", "run", "doctor", "init"])
def test_the_help_of_every_command_has_an_example(tmp_path: Path, command: str) -> None:
    result = Shell(tmp_path).run(command, "--help")

    assert f"Example: penstock {command}" in result.out
