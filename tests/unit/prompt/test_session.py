"""One person at one prompt: what is typed is done, and errors end nothing."""

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
    """Types texts one after the other, raises errors among them, then presses Ctrl-D."""

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
    """Answer the editor once everything was typed."""
    editor = FakeEditor(texts)
    Session(editor.read, run=run, clock=SystemClock(), output="table").go_on()
    return editor


def refuse(error: BaseException) -> Run:
    def run(_: Statement) -> Result:
        raise error

    return run


def test_statements_are_run_in_order_until_somebody_leaves() -> None:
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


def test_each_of_several_statements_is_printed_as_it_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed("\\timing off", "SHOW JOBS\\G SHOW JOBS;")

    said = capsys.readouterr().out.splitlines()
    assert said.count("************ 1. row ************") == 1
    assert said[-5:] == ["id", "--", " 1", " 2", "2 rows"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ExternalError("catalog is locked", code=Code.CATALOG_ERR), "error CATALOG_ERR: "),
        (OSError("disk full"), "error STORAGE_ERR: disk full\n"),
        (ZeroDivisionError("by zero"), "error INTERNAL_ERR: ZeroDivisionError: by zero\n"),
    ],
)
def test_no_error_ends_the_prompt(
    capsys: pytest.CaptureFixture[str], error: Exception, told: str
) -> None:
    typed("SHOW JOBS;", "\\timing", run=refuse(error))

    said = capsys.readouterr()
    assert said.err.startswith(told)
    assert said.out == "timing is off\n"


def test_a_text_that_cannot_be_parsed_runs_nothing_and_is_pointed_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed("SHOW JOBS;\n SHOW JOBZ;", run=refuse(AssertionError("nothing is run")))

    assert "\n     SHOW JOBZ;\n          ^\n" in capsys.readouterr().err


def test_ctrl_c_at_the_prompt_takes_the_text_back(capsys: pytest.CaptureFixture[str]) -> None:
    typed(KeyboardInterrupt(), "SHOW JOBS;")

    assert "2 rows" in capsys.readouterr().out


def test_ctrl_c_while_a_statement_runs_ends_the_wait(
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed("SHOW JOBS;", "\\timing", run=refuse(KeyboardInterrupt()))

    assert capsys.readouterr().out == (
        "\nstopped waiting; the statement continues until it ends or you leave\ntiming is off\n"
    )


def test_there_must_be_something_to_watch(capsys: pytest.CaptureFixture[str]) -> None:
    typed("\\watch")

    assert "there is no statement to watch yet" in capsys.readouterr().err


def test_the_last_statement_is_edited_up_to_its_first_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VISUAL", "sed -i s/KREATE/CREATE/")

    editor = typed("KREATE SECRET lake (s3.secret_key = 'hunter2');", "\\e")

    assert editor.written == ["", "", "CREATE SECRET"]


def test_help_lists_what_can_be_typed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", "cat")

    typed("\\?")

    assert "SHOW JOBS;" in capfd.readouterr().out


def test_nothing_typed_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    typed("", ";", "-- a comment", run=refuse(AssertionError("nothing is run")))

    assert capsys.readouterr() == ("", "")
