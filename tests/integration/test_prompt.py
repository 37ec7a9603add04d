"""The interactive prompt, typed into a real terminal."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.command import SETTINGS
from tests.integration.terminal import (
    CTRL_C,
    CTRL_D,
    CTRL_R,
    ENTER,
    PROMPT,
    TAB,
    UP,
    Terminal,
)
from tests.node import CREATE_TABLE

Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that opens prompts on the same home."""
    opened: list[Terminal] = []

    def open_one(*, columns: int = 100, **environment: str) -> Terminal:
        terminal = Terminal(tmp_path, columns=columns, environment=environment)
        opened.append(terminal)
        terminal.see(PROMPT)
        return terminal

    yield open_one
    for terminal in opened:
        terminal.end()


def history(folder: Path) -> str:
    return (folder / "penstock-home" / "history").read_text()


def test_the_prompt_starts_with_two_lines_of_introduction(start: Start, tmp_path: Path) -> None:
    first, second, _ = start(columns=200).text.splitlines()

    assert first.startswith("Penstock ")
    assert first.endswith(f", home {tmp_path}/penstock-home")
    assert "\\?" in second


def test_a_statement_can_span_lines(start: Start) -> None:
    terminal = start()

    terminal.type("CREATE TABLE t", ENTER)
    terminal.see("->")

    terminal.run("(id BIGINT, note STRING);", until="table t created (0.")


def test_tab_completes_statements_and_names(start: Start) -> None:
    terminal = start()
    terminal.run("CREATE TABLE a_long_name (id BIGINT);", until="created")

    terminal.type("DESCRIBE a_", TAB)
    terminal.see("long_name")

    assert "BIGINT" in terminal.run(";", until="1 row, 0.")


def test_tab_shows_explanations_of_the_options_of_files(start: Start) -> None:
    terminal = start()

    terminal.type("CREATE JOB j ON STREAMING DO INSERT INTO t SELECT * FROM FILES(", TAB)

    terminal.see("Required. Format of the files.")


def test_backslash_g_prints_vertically(start: Start) -> None:
    terminal = start()
    terminal.run(f"{CREATE_TABLE};", until="created")

    seen = terminal.run("DESCRIBE t\\G", until="2 rows, 0.")

    assert "************ 1. row ************\n   column: id\n" in seen


def test_a_watched_statement_is_run_again_until_ctrl_c(start: Start) -> None:
    terminal = start()
    terminal.run(f"{CREATE_TABLE};", until="created")

    terminal.type("DESCRIBE t \\watch 200ms", ENTER)
    terminal.see(" UTC, every 0.2s; Ctrl-C stops")
    seen = terminal.see(" UTC, every 0.2s; Ctrl-C stops")
    terminal.type(CTRL_C)
    terminal.see(PROMPT)

    assert "BIGINT" in seen
    assert terminal.leave() == 0


def test_up_recalls_statements_of_an_earlier_prompt(start: Start, tmp_path: Path) -> None:
    first = start()
    first.type("SHOW", ENTER)
    first.run("TABLES;", until="0 rows, 0.")
    first.leave()

    second = start()
    second.type(UP)
    second.see("\\q")
    second.type(UP)
    second.see("TABLES;")
    second.run("", until="0 rows, 0.")

    assert "\n+SHOW\n+TABLES;\n" in history(tmp_path)


def test_ctrl_r_finds_an_earlier_statement(start: Start) -> None:
    terminal = start()
    terminal.run("SHOW JOBS; SHOW TABLES;", until="0 rows, 0.")

    terminal.type(CTRL_R, "tab")
    terminal.see("SHOW JOBS; SHOW TABLES;")
    terminal.type(ENTER)

    terminal.run("", until="0 rows, 0.")


def test_an_error_shows_its_position_and_does_not_end_the_prompt(start: Start) -> None:
    terminal = start()

    terminal.type("SHOW CREATE", ENTER)
    seen = terminal.run("  JOBZ t;", until="Did you mean JOB?")

    assert "\n  detail: Line 2, column 3.\n      JOBZ t;\n      ^\n" in seen
    terminal.run("SHOW TABLES;", until="0 rows, 0.")


def test_a_result_that_is_too_wide_is_shown_in_the_pager(start: Start) -> None:
    terminal = start(columns=60, PAGER="sed s/^/paged:/")
    terminal.run(f"{CREATE_TABLE};", until="created")

    seen = terminal.run("SHOW TABLES;", until="paged:1 row, 0.")

    assert "paged:name  location" in seen
    assert "paged:t " in seen


def test_no_secret_is_in_the_history(start: Start, tmp_path: Path) -> None:
    terminal = start()

    seen = terminal.run(
        "CREATE JOB j ON STREAMING DO INSERT INTO t SELECT * FROM FILES("
        "'s3.secret_key' = 'hunter2') FROM nowhere WHERE;",
        until="error ",
    )

    assert "hunter2" in seen
    terminal.run("SHOW TABLES;", until="0 rows, 0.")
    assert "SHOW TABLES;" in history(tmp_path)
    assert "s3.secret_key" not in history(tmp_path)
    assert "hunter2" not in history(tmp_path)


def test_ctrl_c_discards_the_text_and_ctrl_d_quits(start: Start) -> None:
    terminal = start()

    terminal.type("DROP TABLE t", CTRL_C)
    terminal.see(PROMPT)
    terminal.run("SHOW TABLES;", until="0 rows, 0.")
    terminal.type(CTRL_D)

    assert terminal.ended() == 0
    assert "does not exist" not in terminal.text


def test_help_shows_examples(start: Start) -> None:
    terminal = start()

    seen = terminal.run("help", until="Ctrl-D")

    assert "SHOW EPOCHS FOR load_orders;" in seen


@pytest.mark.integration
def interrupt(terminal: Terminal, statement: str) -> None:
    """Run a statement and press Ctrl-C, until Ctrl-C ends a wait.

    If Ctrl-C arrives before the statement has started, the statement is discarded.
    """
    for _ in range(10):
        seen = len(terminal.text)
        terminal.type(statement, ENTER)
        terminal.see("\n")
        threading.Event().wait(1)
        terminal.type(CTRL_C)
        terminal.see(PROMPT)
        if "stopped waiting; the statement continues" in terminal.text[seen:]:
            return
    raise AssertionError("Ctrl-C did not end a wait")


def test_spark_is_started_once_and_ctrl_c_ends_only_the_wait(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "penstock-home").mkdir()
    (tmp_path / "penstock-home" / "penstock.toml").write_text(SETTINGS)
    terminal = start()

    terminal.run("SELECT 1 AS one;", until="1 row, ")
    interrupt(terminal, "SELECT count(*) FROM range(1000000000000000);")
    terminal.run("SHOW TABLES;", until="0 rows, ")

    assert terminal.leave() == 0
    assert terminal.text.count("starting Spark") == 1


def test_a_single_statement_does_not_import_the_modules_of_the_prompt(tmp_path: Path) -> None:
    program = """
import sys
sys.argv = ["penstock", "sql", "-e", "SHOW JOBS"]
from penstock.cli.main import main
try:
    main()
except SystemExit:
    print([name for name in ("prompt_toolkit", "penstock.prompt") if name in sys.modules])
"""

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "[]"
