"""A session of the prompt: inputs, results and errors."""

from collections.abc import Callable, Iterable

import pytest

from penstock.cli.prompt.session import Session
from penstock.clock import SystemClock
from penstock.control.result import Result, result_columns
from penstock.errors import Code, ExternalError
from penstock.sql.statements import Statement

TWO_ROWS = Result(columns=result_columns("id"), rows=((1,), (2,)))
Run = Callable[[Statement], Result]


class FakeEditor:
    """An editor that returns texts in order, raises errors among them, then EOFError."""

    def __init__(self, texts: Iterable[str | BaseException]) -> None:
        self._texts = iter(texts)
        self.written: list[str] = []

    def read(self, written: str) -> str:
        self.written.append(written)
        text = next(self._texts, EOFError())
        if isinstance(text, BaseException):
            raise text
        return text


def typed(*texts: str | BaseException, run: Run = lambda _: TWO_ROWS) -> FakeEditor:
    """Run a session with these inputs; return the editor."""
    editor = FakeEditor(texts)
    Session(editor.read, run=run, clock=SystemClock(), output="table").run_until_quit()
    return editor


def refuse(error: BaseException) -> Run:
    def run(_: Statement) -> Result:
        raise error

    return run


def test_statements_run_in_order_until_the_user_quits() -> None:
    ran: list[Statement] = []

    def run(statement: Statement) -> Result:
        ran.append(statement)
        return TWO_ROWS

    typed("SHOW JOBS; SHOW TABLES;", "SHOW JOBS\\G", "\\q", "SHOW JOBS;", run=run)

    assert [type(statement).__name__ for statement in ran] == [
        "ShowJobs",
        "ShowTables",
        "ShowJobs",
    ]


def test_rows_are_counted_and_timed(capsys: pytest.CaptureFixture[str]) -> None:
    typed("SHOW JOBS;")

    assert capsys.readouterr().out.splitlines()[:-1] == ["id", "--", " 1", " 2"]


def test_timing_can_be_turned_off(capsys: pytest.CaptureFixture[str]) -> None:
    typed("SHOW JOBS;", "\\timing off", "SHOW JOBS;", "\\timing")

    ends = [line for line in capsys.readouterr().out.splitlines() if line[0] in "2t"]
    assert ends[0].startswith("2 rows, 0.")
    assert ends[1:] == ["timing is off", "2 rows", "timing is on"]


def test_a_result_can_be_printed_vertically(capsys: pytest.CaptureFixture[str]) -> None:
    typed("SHOW JOBS\\G")

    assert "************ 2. row ************\nid: 2\n" in capsys.readouterr().out


def test_each_statement_of_a_line_is_printed_in_its_own_format(
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed("\\timing off", "SHOW JOBS\\G SHOW JOBS;")

    printed = capsys.readouterr().out.splitlines()
    assert printed.count("************ 1. row ************") == 1
    assert printed[-5:] == ["id", "--", " 1", " 2", "2 rows"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ExternalError("catalog is locked", code=Code.CATALOG_ERR), "error CATALOG_ERR: "),
        (OSError("disk full"), "error STORAGE_ERR: disk full\n"),
        (ZeroDivisionError("by zero"), "error INTERNAL_ERR: ZeroDivisionError: by zero\n"),
    ],
)
def test_an_error_does_not_end_the_prompt(
    capsys: pytest.CaptureFixture[str], error: Exception, message: str
) -> None:
    typed("SHOW JOBS;", "\\timing", run=refuse(error))

    printed = capsys.readouterr()
    assert printed.err.startswith(message)
    assert printed.out == "timing is off\n"


def test_a_syntax_error_runs_no_statement_and_is_marked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed("SHOW JOBS;\n SHOW JOBZ;", run=refuse(AssertionError("nothing is run")))

    assert "\n     SHOW JOBZ;\n          ^\n" in capsys.readouterr().err


def test_ctrl_c_at_the_prompt_discards_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    typed(KeyboardInterrupt(), "SHOW JOBS;")

    assert "2 rows" in capsys.readouterr().out


def test_ctrl_c_during_a_statement_ends_only_the_wait(
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed("SHOW JOBS;", "\\timing", run=refuse(KeyboardInterrupt()))

    assert capsys.readouterr().out == (
        "\nstopped waiting; the statement continues until it ends or you quit\ntiming is off\n"
    )


def test_watch_without_a_last_statement_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    typed("\\watch")

    assert "there is no last statement to watch" in capsys.readouterr().err


def test_the_editor_gets_the_last_statement_up_to_its_first_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VISUAL", "sed -i s/KREATE/CREATE/")

    editor = typed("KREATE SECRET lake (s3.secret_key = 'hunter2');", "\\e")

    assert editor.written == ["", "", "CREATE SECRET"]


def test_help_lists_statements(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", "cat")

    typed("\\?")

    assert "SHOW JOBS;" in capfd.readouterr().out


def test_empty_input_is_not_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    typed("", ";", "-- a comment", run=refuse(AssertionError("nothing is run")))

    assert capsys.readouterr() == ("", "")
