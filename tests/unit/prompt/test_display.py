"""Results that fit on the screen, and results that need a pager."""

import os
from pathlib import Path

import pytest

from penstock.cli.prompt.display import (
    fits,
    plain_text,
    show_result,
    watched_text,
)
from penstock.control.result import Result, result_columns

NARROW = Result(columns=result_columns("id, city"), rows=((1, "Bern"), (2, "Wien")))
WIDE = Result(columns=result_columns("id, text"), rows=((1, "x" * 100),))
LONG = Result(columns=result_columns("id"), rows=tuple((number,) for number in range(100)))
SCREEN = os.terminal_size((80, 24))


def fitting(result: Result, *, output: str = "table", on: os.terminal_size = SCREEN) -> bool:
    text = plain_text(result, output=output, seconds=0.1)
    return fits(text, result, output=output, on=on)


def test_a_small_table_fits() -> None:
    assert fitting(NARROW)


@pytest.mark.parametrize("result", [WIDE, LONG])
def test_a_table_that_is_wider_or_longer_than_the_screen_does_not_fit(result: Result) -> None:
    assert not fitting(result)


def test_long_lines_of_a_vertical_result_are_wrapped_and_fit() -> None:
    assert fitting(WIDE, output="vertical")
    assert not fitting(LONG, output="vertical")


def test_a_table_fits_exactly_with_its_borders_and_the_prompt() -> None:
    # Six characters, three between the columns and two around them; two empty lines, head,
    # rule, row, count and the prompt.
    result = Result(columns=result_columns("id, city"), rows=((1, "Bern"),))

    assert fitting(result, on=os.terminal_size((11, 7)))
    assert not fitting(result, on=os.terminal_size((10, 7)))
    assert not fitting(result, on=os.terminal_size((11, 6)))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a terminal, so that click uses the pager."""
    monkeypatch.setattr("click._termui_impl.isatty", lambda _: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("LESS", raising=False)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("result", [WIDE, LONG])
def test_a_result_that_does_not_fit_is_shown_in_the_pager(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, result: Result
) -> None:
    monkeypatch.setenv("PAGER", "sed s/^/paged:/")

    show_result(result, output="table", seconds=None)

    assert capfd.readouterr().out.startswith("paged:id")


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("pager", ["", "no-such-pager", "'"])
def test_without_a_pager_everything_is_printed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, pager: str
) -> None:
    monkeypatch.setenv("PAGER", pager)

    show_result(LONG, output="table", seconds=None)

    assert capfd.readouterr().out.endswith("99\n100 rows\n")


@pytest.mark.usefixtures("terminal")
def test_a_pager_that_exits_early_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "true")
    endless = Result(
        columns=result_columns("id"), rows=tuple((number,) for number in range(200_000))
    )

    show_result(endless, output="table", seconds=None)


def test_an_empty_result_with_many_columns_is_only_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    columns = result_columns(", ".join(f"a_long_name_{number}" for number in range(20)))

    show_result(Result(columns=columns), output="table", seconds=0.0)

    assert capsys.readouterr().out == "0 rows, 0.00 s\n"


def test_a_watched_table_that_is_too_wide_is_printed_vertically_if_that_fits() -> None:
    text = watched_text([NARROW, WIDE], output="table", on=SCREEN)

    assert text.startswith("id  city\n")
    assert "************ 1. row ************\n  id: 1\n" in text


def test_a_watched_table_that_is_too_wide_and_long_stays_a_table() -> None:
    many = Result(columns=WIDE.columns, rows=WIDE.rows * 20)

    assert watched_text([many], output="table", on=SCREEN).startswith("id  text\n")


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(("output", "options"), [("table", "-S -RFX"), ("vertical", "-RFX")])
def test_less_is_the_default_pager_and_chops_only_the_lines_of_a_table(
    output: str,
    options: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    less = tmp_path / "less"
    less.write_text('#!/bin/sh\necho "LESS=$LESS"\n')
    less.chmod(0o755)
    monkeypatch.delenv("PAGER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    show_result(LONG, output=output, seconds=None)

    assert capfd.readouterr().out.startswith(f"LESS={options}")
    assert "LESS" not in os.environ
