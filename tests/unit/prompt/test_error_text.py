"""Printed errors, with a caret below the place in the script."""

import pickle

import pytest

from penstock.cli.prompt.display import caret_lines, error_text
from penstock.errors import InvariantError, UserError
from penstock.sql.parser import parse_script
from penstock.sql.types import parse_columns


def error_lines(script: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        parse_script(script)
    return error_text(caught.value, script=script).splitlines()


def test_the_line_with_a_caret_is_printed_between_detail_and_hint() -> None:
    assert error_lines("SHOW TABLES;\n  SHOW CREATE JOBZ") == [
        "error SYNTAX_ERR: expected TABLE, JOB, ROUTINE LOAD, STREAMING TABLE or FLOW after "
        'SHOW CREATE, found "JOBZ"',
        "  detail: Line 2, column 15.",
        "      SHOW CREATE JOBZ",
        "                  ^",
        "  hint: Did you mean JOB?",
    ]


def test_an_error_at_the_end_points_after_the_last_word() -> None:
    assert error_lines("SHOW EPOCHS")[-2:] == ["    SHOW EPOCHS", "               ^"]


@pytest.mark.parametrize(
    ("line", "caret"),
    [
        ("\tSHOW\tJOBZ", "     ^"),
        ("/* 東京 */ SHOW JOBZ", "           ^"),
        ("/* \x1b[31m */ SHOW JOBZ", "              ^"),
    ],
)
def test_the_caret_is_below_its_column_after_tabs_and_wide_characters(
    line: str, caret: str
) -> None:
    written, below = error_lines(f"-- first\r\n{line}")[2:4]

    wide = sum(character in "東京" for character in written)
    assert "\x1b" not in written
    assert "\t" not in written
    assert written[below.index("^") - wide :] == "JOBZ"
    assert below.endswith(caret)


def test_a_long_line_is_shortened_around_the_error() -> None:
    script = f"{'SHOW TABLES; ' * 50}SHOW JOBZ; {'SHOW JOBS; ' * 50}"

    written, below = error_lines(script)[2:4]

    assert len(written) < 80
    assert written[below.index("^") :].startswith("JOBZ; SHOW")
    assert written.startswith("    …")
    assert written.endswith("…")


@pytest.mark.parametrize(
    "script",
    [
        "CREATE JOB j FROM FILES('s3.secret_key' = 'hunter2') nonsense",
        "CREATE SECRET s (s3.secret_key = 'hunter2' nonsense)",
        "CREATE SECRET s (s3.secret_key = 'hunter2",
        "CREATE SECRET s (\n  s3.secret_key\n= 'hunter2' nonsense\n)",
    ],
)
def test_a_line_with_a_secret_is_not_printed(script: str) -> None:
    lines = error_lines(script)

    assert "hunter2" not in "".join(lines)
    assert lines[1].startswith("  detail: Line ")
    assert not [line for line in lines if line.strip() == "^"]


def test_a_line_before_a_line_with_a_secret_is_printed() -> None:
    script = "ALTER JOB j\nPROPERTIES('offset' 'x',\n's3.secret_key' = 'hunter2')"

    assert error_lines(script)[2:4] == ["    PROPERTIES('offset' 'x',", f"{' ' * 24}^"]


def test_a_position_outside_of_the_script_has_no_caret() -> None:
    assert caret_lines("SHOW JOBS", line=2, column=1) == []


def test_a_position_inside_an_option_is_not_a_position_in_the_statement() -> None:
    with pytest.raises(UserError) as caught:
        parse_columns("id BIGNIT")

    assert caught.value.detail == "Line 1, column 4."
    assert (caught.value.line, caught.value.column) == (None, None)


def test_an_error_without_a_position_has_no_caret() -> None:
    assert error_text(UserError("no", hint="Try."), script="SHOW JOBS") == (
        "error OPTION_ERR: no\n  hint: Try.\n"
    )


def test_an_internal_error_asks_for_a_bug_report() -> None:
    assert "Please report it" in error_text(InvariantError("never"))


def test_the_position_of_an_error_survives_pickling() -> None:
    error = UserError("no", detail="Here.").at(line=3, column=7)
    error.expected = "FOR"

    revived = pickle.loads(pickle.dumps(error))  # noqa: S301 - Our own bytes.

    assert (revived.line, revived.column, revived.expected) == (3, 7, "FOR")
    assert revived.detail == "Here. Line 3, column 7."
