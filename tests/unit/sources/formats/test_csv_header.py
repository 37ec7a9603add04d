"""The header of a CSV file maps fields to columns, in every range of the file."""

import io
import json

import pyarrow as pa
import pytest

from penstock.errors import Code
from penstock.sources.files.kind import MissingColumns
from penstock.sources.formats.blocks import RecordBlock, UnreadableFileError, Wanted
from penstock.sources.formats.csv_reader import read_csv
from penstock.sources.formats.csv_text import CsvLayout
from tests.error_values import assert_names, raises

TYPE_BY_COLUMN: dict[str, pa.DataType] = {"id": pa.int64(), "note": pa.string()}
COLUMNS = pa.schema(TYPE_BY_COLUMN)
NAMED = CsvLayout(separator=b",", header_lines=1)
QUOTED = CsvLayout(separator=b",", header_lines=1, enclose=b'"')


def read(
    content: bytes,
    *,
    layout: CsvLayout = NAMED,
    start: int = 0,
    missing: MissingColumns = MissingColumns.NULL,
    rescue: bool = False,
) -> list[RecordBlock]:
    return list(
        read_csv(
            io.BytesIO(content),
            wanted=Wanted(
                columns=COLUMNS, names=("id", "note"), missing=missing, rescue=rescue
            ),
            layout=layout,
            start=start,
            end=None,
        )
    )


def rows(blocks: list[RecordBlock]) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for block in blocks for row in block.batch.to_pylist()]


@pytest.mark.parametrize(
    "content",
    [
        b"id,note\n1,a\n",
        b"note,id\na,1\n",
        b"NOTE,Id\na,1",
        b"\xef\xbb\xbfid,note\r\n1,a\r\n",
        b"id,ID,note\n1,7,a\n",
        b"x,note,y,id,z\n0,a,0,1,0\n",
        b"x,x,id,note\n,,1,a\n",
    ],
)
def test_fields_are_found_by_their_names(content: bytes) -> None:
    assert rows(read(content)) == [(1, "a")]


def test_names_can_be_enclosed_and_contain_line_ends() -> None:
    blocks = read(b'"id","no\nte","note"\n1,x,a\n', layout=QUOTED)

    assert rows(blocks) == [(1, "a")]
    assert blocks[0].record_of_row[0] == 2


def test_the_line_of_types_is_not_a_record() -> None:
    layout = CsvLayout(separator=b",", header_lines=2)

    blocks = read(b"note,id\nSTRING,INT\na,1\n", layout=layout)

    assert rows(blocks) == [(1, "a")]


def test_skipped_lines_before_the_header_count_as_lines() -> None:
    layout = CsvLayout(separator=b",", header_lines=1, skip_lines=2)

    (block,) = read(b'a comment "\n\nid,note\n1,a\nx,b\n', layout=layout)

    assert rows([block]) == [(1, "a")]
    assert (block.record_of_row[0], block.lines, block.bad[0].record) == (3, 2, 4)


@pytest.mark.parametrize(("start", "first_line"), [(0, 2), (1, 1), (2, 1), (5, 0), (10, 0)])
def test_a_range_reads_the_header_again(start: int, first_line: int) -> None:
    content = b"#\nnote,id\na,1\nb,2\n"
    layout = CsvLayout(separator=b",", header_lines=1, skip_lines=1)

    blocks = read(content, layout=layout, start=start)

    assert rows(blocks) == [(1, "a"), (2, "b")]
    assert blocks[0].record_of_row[0] == first_line


@pytest.mark.parametrize("content", [b"id,note\n", b"id,note", b"\xef\xbb\xbfid,note\r\n"])
def test_a_file_with_only_a_header_has_no_block(content: bytes) -> None:
    assert read(content, missing=MissingColumns.FAIL) == []


def test_a_column_missing_in_the_header_is_null() -> None:
    assert rows(read(b"id\n1\n2\n")) == [(1, None), (2, None)]


def test_a_column_missing_in_the_header_is_an_error_if_set() -> None:
    with raises(UnreadableFileError, Code.FILE_ERR, '"note"') as raised:
        read(b"id\n1\n", missing=MissingColumns.FAIL)

    assert "missing_columns" in raised.value.hint


def test_fields_without_a_column_are_rescued_if_requested() -> None:
    blocks = read(b"id,city,note,c5\n1,Oslo,a,b\n2\n3,x,y,z,more\n", rescue=True)

    assert [json.loads(str(row[2])) if row[2] else None for row in rows(blocks)] == [
        {"city": "Oslo", "c5": "b"},
        None,
        {"city": "x", "c5": "z", "c5_": "more"},
    ]


def test_a_record_with_more_fields_than_names_is_bad() -> None:
    (block,) = read(b"id,note,other\n1,a,b,c\n")

    (error,) = [bad.error for bad in block.bad]
    assert_names(error, "3", "4")


def test_a_record_with_fewer_fields_than_names_is_bad_if_set() -> None:
    (block,) = read(b"id,note,other\n1,a\n", missing=MissingColumns.FAIL)

    (error,) = [bad.error for bad in block.bad]
    assert_names(error, "3", "2")


@pytest.mark.parametrize("header", [b"id,note,id", b"ID,note,Id"])
def test_a_file_with_a_duplicate_column_name_is_unreadable(
    header: bytes,
) -> None:
    with raises(UnreadableFileError, Code.FILE_ERR, '"id"', "1", "3"):
        read(header + b"\n1,a,2\n")


@pytest.mark.parametrize("header", [b"id,\xff", b'id,"note', b'"id"x,note'])
def test_a_file_with_a_broken_header_is_unreadable(header: bytes) -> None:
    with raises(UnreadableFileError, Code.FILE_ERR, "header", "line 1"):
        read(header + b"\n1,a\n", layout=QUOTED)


def test_records_under_a_blank_header_are_bad() -> None:
    (block,) = read(b"\n1,a\n")

    (error,) = [bad.error for bad in block.bad]
    assert_names(error, "0", "2")
