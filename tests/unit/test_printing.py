"""Printed results of statements."""

import io

import pytest

from penstock.cli.printing import print_result
from penstock.control.result import Result, result_columns

TWO_LINES = Result(
    columns=result_columns("name, comment"), rows=(("t", "one\ntwo"), ("u", None))
)


def printed(result: Result, *, output: str) -> str:
    stream = io.StringIO()
    print_result(result, output=output, stream=stream)
    return stream.getvalue()


def test_a_cell_of_two_lines_is_printed_on_one_line() -> None:
    lines = printed(TWO_LINES, output="table").splitlines()

    assert lines == ["name  comment", "----  -------", "t     one two", "u", "2 rows"]


def test_a_create_statement_is_printed_without_a_table() -> None:
    result = Result(
        columns=result_columns("job, create_statement"), rows=(("j", "CREATE JOB j\nON …"),)
    )

    assert printed(result, output="table") == "CREATE JOB j\nON …;\n"


@pytest.mark.parametrize("output", ["table", "vertical"])
def test_a_result_without_columns_is_printed_as_its_message(output: str) -> None:
    assert printed(Result(message="job j paused"), output=output) == "job j paused\n"
