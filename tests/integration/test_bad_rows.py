"""Bad lines pause the job and are named in the reason; a fixed file then loads completely."""

from pathlib import Path

import pytest

from penstock.errors import Code
from penstock.model.job import DesiredState
from tests.error_values import assert_reason
from tests.integration.driving import attempts
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

ON_BUCKETS_TOO = True

ONE_FILE = [("s3.max_batch_files", "1")]
GOOD_LINE = b'{"id": 1, "note": "row 1"}\n'

# The line, and the values in the reason besides the file and the line number.
BAD_LINES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "a null": (b"null", ('"{"', '"null"')),
    "an array": (b"[1]", ('"{"', '"[1]"')),
    "a word": (b"id: 1", ('"{"', '"id: 1"')),
    "two objects": (b'{"id": 2} {"id": 3}', ("11",)),
    "half an object": (b'{"id": 2', ("JSON", "9")),
    "invalid UTF-8": (b'{"id": 2, "note": "\xff"}', ("UTF-8", "20")),
    "a NUL in a text": (b'{"id": 2, "note": "a\x00"}', ("JSON", "21")),
    "only NULs": (b"\x00\x00", ('"{"', '"\\u0000\\u0000"')),
    "a text for a number": (b'{"id": "two"}', ('"id"', "BIGINT", '"two"')),
    "a fraction for a whole number": (b'{"id": 2.5}', ('"id"', "BIGINT", "2.5")),
    "an object for a number": (b'{"id": {"x": 2}}', ('"id"', "BIGINT", "object")),
    "an overflow": (
        b'{"id": 9223372036854775808}',
        ('"id"', "BIGINT", "9223372036854775808"),
    ),
    "a NULL in a NOT NULL column": (b'{"id": null, "note": "x"}', ('"id"', "BIGINT", "NULL")),
    "a missing NOT NULL column": (b'{"note": "x"}', ('"id"', "BIGINT", "NULL")),
    "a key given twice": (b'{"id": 2, "id": 3}', ('"id"',)),
}

TEN_MEGABYTES = b"x" * 10_000_000

# The content of a file, its notes in the order of the ids, and the number of skipped lines.
GOOD_CONTENT: dict[str, tuple[bytes, list[str], int]] = {
    "blank lines are skipped and counted": (b"\n \t\r\n" + GOOD_LINE + b"\n", ["row 1"], 3),
    "a line of ten megabytes loads": (
        b'{"id": 1, "note": "' + TEN_MEGABYTES + b'"}\n{"id": 2, "note": "row 2"}\n',
        [TEN_MEGABYTES.decode(), "row 2"],
        0,
    ),
    "an escaped NUL is an ordinary character": (
        b'{"id": 1, "note": "a\\u0000b"}\n',
        ["a\0b"],
        0,
    ),
    "a byte order mark is not part of the first record": (
        b"\xef\xbb\xbf" + GOOD_LINE,
        ["row 1"],
        0,
    ),
    "a scalar for a text becomes its JSON": (
        b'{"id": 1, "note": 5}\n{"id": 2, "note": true}\n',
        ["5", "true"],
        0,
    ),
}


@pytest.fixture
def loading(node: Node, folder: Path) -> Node:
    """A node whose job has loaded one good file."""
    write_rows(folder / "a.json", numbered(0))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=ONE_FILE)}")
    node.run()
    return node


@pytest.mark.parametrize(("line", "named"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_pauses_the_job_and_loads_after_it_was_fixed(
    loading: Node, folder: Path, line: bytes, named: tuple[str, ...]
) -> None:
    (folder / "b.json").write_bytes(GOOD_LINE + line + b"\n" + GOOD_LINE)
    write_rows(folder / "c.json", numbered(3))

    loading.run()

    shown = loading.show("j")
    assert shown["state"] == "PAUSED"
    assert_reason(
        shown["reason"], Code.TOO_MANY_FAILURE_ROWS_ERR, f'"{folder}/b.json"', "line 2", *named
    )
    in_ledger = loading.sql("SHOW EPOCHS FOR j")[-1]["reason"]
    assert in_ledger
    assert str(shown["reason"]).startswith(str(in_ledger))
    assert attempts(loading) == [(1, 1, "COMMITTED"), (2, 1, "FAILED")]
    assert loading.job("j").desired.auto_resumes == 0
    assert loading.rows("t") == numbered(0)
    assert shown["position"] == str(folder / "a.json")

    write_rows(folder / "b.json", numbered(1, 2))
    loading.sql("RESUME JOB j")
    loading.run()

    assert loading.rows("t") == numbered(0, 1, 2, 3)
    assert loading.show("j")["rows_loaded"] == 4
    assert loading.show("j")["position"] == str(folder / "c.json")


def test_the_first_bad_line_in_the_order_of_the_files_is_named(
    node: Node, folder: Path
) -> None:
    write_rows(folder / "a.json", numbered(0))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    for name in "bcd":
        (folder / f"{name}.json").write_text('{"id": 1, "note": ""}\n\nnull\nnull\n')

    node.run()

    reason = node.show("j")["reason"]
    assert_reason(reason, Code.TOO_MANY_FAILURE_ROWS_ERR, f'"{folder}/b.json"', "line 3")


def test_a_line_number_is_right_after_the_first_range_of_a_large_file(
    loading: Node, folder: Path
) -> None:
    line = '{"id": 1, "note": "' + "x" * 1000 + '"}\n'
    with (folder / "b.json").open("w") as stream:
        stream.writelines([line] * 12_000)
        stream.write('{"id": "last"}\n')

    loading.run()

    reason = loading.show("j")["reason"]
    assert_reason(reason, Code.TOO_MANY_FAILURE_ROWS_ERR, f'"{folder}/b.json"', "line 12001")
    assert loading.job("j").desired.state is DesiredState.PAUSE


@pytest.mark.parametrize(
    ("content", "notes", "skipped"), GOOD_CONTENT.values(), ids=GOOD_CONTENT
)
def test_an_odd_line_loads(
    loading: Node, folder: Path, *, content: bytes, notes: list[str], skipped: int
) -> None:
    (folder / "b.json").write_bytes(content)

    loading.run()

    counted = loading.job("j").cumulative
    assert [row["note"] for row in loading.rows("t")] == ["row 0", *notes]
    assert counted.rows_loaded == loading.show("j")["rows_loaded"] == 1 + len(notes)
    assert counted.rows_skipped == skipped
    assert counted.rows_read == counted.rows_loaded + skipped


@pytest.mark.of_local_files("an object without bytes is no file")
def test_an_empty_file_loads_no_rows(loading: Node, folder: Path) -> None:
    (folder / "b.json").touch()

    loading.run()

    assert loading.rows("t") == numbered(0)
    assert loading.show("j")["files_loaded"] == 2
    assert loading.show("j")["position"] == str(folder / "b.json")
