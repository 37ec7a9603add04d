"""Parsing of the input of the prompt."""

from datetime import timedelta

import pytest

from penstock.cli.prompt.commands import Command, Run, Timing, Watch, finished, read_entry
from penstock.errors import UserError
from tests.error_values import assert_names

SHOW = Run(text="SHOW JOBS")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        ";",
        "SHOW JOBS;",
        "SHOW JOBS; ",
        "SHOW JOBS; -- all of them",
        "SELECT ';'\n;",
        "/* one; */ SHOW JOBS;",
        "-- nothing but a comment",
        "SHOW JOBS\\G",
        "SHOW JOBS \\watch 2s",
        "\\?",
        "\\no such command",
        "help",
        "EXIT;",
        "quit",
        "SELECT §;",
    ],
)
def test_a_complete_text_is_finished(text: str) -> None:
    assert finished(text)


@pytest.mark.parametrize(
    "text",
    [
        "SHOW JOBS",
        "SHOW JOBS; SHOW",
        "SELECT 'a;",
        'SELECT "a;',
        "SELECT `a;",
        "SELECT 'it''s;",
        "SHOW JOBS -- ;",
        "SHOW JOBS /* ;",
        "SHOW JOBS /* /* ; */ ;",
        "SELECT 'a\\G",
        "SHOW JOBS -- \\G",
        "SELECT '\\watch 2s",
        "help me",
    ],
)
def test_an_incomplete_text_is_not_finished(text: str) -> None:
    assert not finished(text)


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("SHOW JOBS", SHOW),
        ("  SHOW 'a\\G';", Run(text="  SHOW 'a\\G';")),
        ("SHOW JOBS\\G", Run(text="SHOW JOBS", vertical=True)),
        ("SHOW JOBS\\G ;\n", Run(text="SHOW JOBS", vertical=True)),
        ("\\q", Command.QUIT),
        ("exit", Command.QUIT),
        ("Quit;", Command.QUIT),
        ("\\?", Command.HELP),
        ("help;", Command.HELP),
        ("\\e", Command.EDIT),
        ("\\timing", Timing(shown=None)),
        ("\\timing ON", Timing(shown=True)),
        ("\\timing off;", Timing(shown=False)),
    ],
)
def test_commands_and_statements_are_distinguished(text: str, entry: object) -> None:
    assert read_entry(text) == entry


@pytest.mark.parametrize(
    ("text", "run", "seconds"),
    [
        ("SHOW JOBS\\watch", SHOW, 2),
        ("SHOW JOBS\\watch 500ms", SHOW, 0.5),
        ("SHOW JOBS\\watch 1.5m;", SHOW, 90),
        ("SHOW JOBS\\G\\watch 3", Run(text="SHOW JOBS", vertical=True), 3),
        ("\\watch", None, 2),
        ("\\WATCH 10s", None, 10),
    ],
)
def test_watch_accepts_an_interval_and_a_statement_or_repeats_the_last(
    text: str, run: Run | None, seconds: float
) -> None:
    assert read_entry(text) == Watch(run=run, interval=timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("\\fly", ('"\\fly"',)),
        ("\\timing maybe", ('"maybe"',)),
        ("\\watch soon", ('"soon"',)),
        ("SHOW JOBS \\watch 1ms", ("100ms", '"1ms"')),
    ],
)
def test_an_unknown_command_or_argument_is_rejected(text: str, named: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as caught:
        read_entry(text)

    assert_names(str(caught.value), *named)
