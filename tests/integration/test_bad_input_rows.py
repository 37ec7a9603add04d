"""Bad lines: the job pauses and names file, line and value; after mending nothing is lost."""

from pathlib import Path

import pytest

from penstock.model.job import DesiredState
from tests.integration.driving import attempts
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

ON_BUCKETS_TOO = True

ONE_FILE = [("s3.max_batch_files", "1")]

BAD_LINES = {
    "a null": (b"null", 'a record must begin with "{", found "null"'),
    "an array": (b"[1]", 'a record must begin with "{", found "[1]"'),
    "a word": (b"id: 1", 'a record must begin with "{", found "id: 1"'),
    "two objects": (
        b'{"id": 2} {"id": 3}',
        "the record ends before character 11, but the line goes on",
    ),
    "half an object": (b'{"id": 2', "the JSON is broken at character 9"),
    "invalid UTF-8": (b'{"id": 2, "note": "\xff"}', "byte 20 of the line is not UTF-8"),
    "a NUL in a text": (b'{"id": 2, "note": "a\x00"}', "the JSON is broken at character 21"),
    "only NULs": (b"\x00\x00", 'a record must begin with "{", found "\\u0000\\u0000"'),
    "a text for a number": (b'{"id": "two"}', 'column "id": expected BIGINT, found "two"'),
    "a fraction for a whole number": (
        b'{"id": 2.5}',
        'column "id": expected BIGINT, found 2.5',
    ),
    "an object for a number": (b'{"id": {"x": 2}}', 'column "id": expected BIGINT, found'),
    "an overflow": (
        b'{"id": 9223372036854775808}',
        'column "id": expected BIGINT, found 9223372036854775808',
    ),
    "a NULL where none may be": (
        b'{"id": null, "note": "x"}',
        'column "id": expected BIGINT, found NULL',
    ),
    "nothing where a value must be": (
        b'{"note": "x"}',
        'column "id": expected BIGINT, found NULL',
    ),
    "a key given twice": (b'{"id": 2, "id": 3}', '"id"'),
}


@pytest.fixture
def loading(node: Node, folder: Path) -> Node:
    """A node whose job has loaded one good file."""
    write_rows(folder / "a.json", numbered(0))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=ONE_FILE)}")
    node.run()
    return node


@pytest.mark.parametrize(("line", "reason"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_pauses_the_job_and_is_named(
    loading: Node, folder: Path, line: bytes, reason: str
) -> None:
    good = b'{"id": 1, "note": "row 1"}\n'
    (folder / "b.json").write_bytes(good + line + b"\n" + good)

    loading.run()

    shown = loading.show("j")
    assert shown["state"] == "PAUSED"
    begin = f'TOO_MANY_FAILURE_ROWS_ERR: file "{folder}/b.json", line 2: '
    assert str(shown["reason"]).startswith(begin)
    assert reason in str(shown["reason"])
    assert loading.rows("t") == numbered(0)
    assert shown["position"] == str(folder / "a.json")


@pytest.mark.parametrize(("line", "reason"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_mended_file_loads_completely_after_resume(
    loading: Node, folder: Path, line: bytes, reason: str
) -> None:
    del reason
    write_rows(folder / "c.json", numbered(3))
    (folder / "b.json").write_bytes(b'{"id": 1, "note": "row 1"}\n' + line + b"\n")
    loading.run()
    write_rows(folder / "b.json", numbered(1, 2))

    loading.sql("RESUME JOB j")
    loading.run()

    assert loading.rows("t") == numbered(0, 1, 2, 3)
    assert loading.show("j")["rows_loaded"] == 4
    assert loading.show("j")["position"] == str(folder / "c.json")


def test_a_bad_line_is_not_tried_again_by_itself(loading: Node, folder: Path) -> None:
    (folder / "b.json").write_text("null\n")

    loading.run()

    assert attempts(loading) == [(1, 1, "COMMITTED"), (2, 1, "FAILED")]
    assert loading.job("j").desired.auto_resumes == 0


def test_the_ledger_keeps_the_reason_of_a_failed_attempt(loading: Node, folder: Path) -> None:
    (folder / "b.json").write_text("null\n")

    loading.run()

    entry = loading.sql("SHOW EPOCHS FOR j")[-1]
    assert entry["outcome"] == "FAILED"
    assert str(entry["reason"]).startswith(
        f'TOO_MANY_FAILURE_ROWS_ERR: file "{folder}/b.json", line 1: '
    )


def test_the_first_bad_line_in_the_order_of_the_files_is_named(
    node: Node, folder: Path
) -> None:
    write_rows(folder / "a.json", numbered(0))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    for name in "bcd":
        (folder / f"{name}.json").write_text('{"id": 1, "note": ""}\n\nnull\nnull\n')

    node.run()

    assert f'file "{folder}/b.json", line 3: ' in str(node.show("j")["reason"])


@pytest.mark.of_local_files("an object without bytes is no file")
def test_a_file_without_bytes_is_loaded_as_no_rows(loading: Node, folder: Path) -> None:
    (folder / "b.json").touch()

    loading.run()

    assert loading.rows("t") == numbered(0)
    assert loading.show("j")["files_loaded"] == 2
    assert loading.show("j")["position"] == str(folder / "b.json")


def test_blank_lines_are_skipped_and_counted(loading: Node, folder: Path) -> None:
    (folder / "b.json").write_bytes(b'\n \t\r\n{"id": 1, "note": "row 1"}\r\n\n')

    loading.run()

    counted = loading.job("j").cumulative
    assert loading.rows("t") == numbered(0, 1)
    assert (counted.rows_read, counted.rows_loaded, counted.rows_skipped) == (5, 2, 3)


def test_a_line_of_ten_megabytes_loads(loading: Node, folder: Path) -> None:
    text = "x" * 10_000_000
    write_rows(folder / "b.json", [{"id": 1, "note": text}, *numbered(2)])

    loading.run()

    notes = {row["id"]: row["note"] for row in loading.rows("t")}
    assert notes == {0: "row 0", 1: text, 2: "row 2"}
    assert loading.show("j")["rows_loaded"] == 3


def test_an_escaped_nul_is_a_character_like_any_other(loading: Node, folder: Path) -> None:
    write_rows(folder / "b.json", [{"id": 1, "note": "a\0b"}])

    loading.run()

    assert loading.rows("t")[1] == {"id": 1, "note": "a\0b"}


def test_a_byte_order_mark_is_no_part_of_the_first_record(loading: Node, folder: Path) -> None:
    (folder / "b.json").write_bytes(b'\xef\xbb\xbf{"id": 1, "note": "row 1"}\n')

    loading.run()

    assert loading.rows("t") == numbered(0, 1)


def test_a_line_number_is_right_behind_the_first_range_of_a_large_file(
    loading: Node, folder: Path
) -> None:
    line = '{"id": 1, "note": "' + "x" * 1000 + '"}\n'
    with (folder / "b.json").open("w") as stream:
        stream.writelines([line] * 12_000)
        stream.write('{"id": "last"}\n')

    loading.run()

    reason = str(loading.show("j")["reason"])
    assert f'file "{folder}/b.json", line 12001: ' in reason
    assert loading.job("j").desired.state is DesiredState.PAUSE


def test_a_scalar_for_a_text_becomes_its_json(loading: Node, folder: Path) -> None:
    (folder / "b.json").write_text('{"id": 1, "note": 5}\n{"id": 2, "note": true}\n')

    loading.run()

    notes = [row["note"] for row in loading.rows("t")]
    assert notes == ["row 0", "5", "true"]
