"""Columns are inferred from the first records of CSV files."""

import io

import pytest

from penstock.errors import Code, UserError
from penstock.model.schema import Primitive
from penstock.sources.formats.blocks import UnreadableFileError
from penstock.sources.formats.csv_text import CsvLayout
from penstock.sources.formats.inference import infer_csv_columns
from tests.error_values import assert_names, raises

PLAIN = CsvLayout(separator=b",")
NAMED = CsvLayout(separator=b",", header_lines=1)
QUOTED = CsvLayout(separator=b",", enclose=b'"')


def names(*contents: bytes, layout: CsvLayout, lines_max: int = 1000) -> list[str]:
    streams = [io.BytesIO(content) for content in contents]
    columns = infer_csv_columns(streams, layout, lines_max=lines_max)
    assert {column.type for column in columns} == {Primitive.STRING}
    return [column.name for column in columns]


@pytest.mark.parametrize(
    ("content", "layout", "expected"),
    [
        (b"1,2\n3,4\n", PLAIN, ["c1", "c2"]),
        (b"1\n1,2,3\n1,2\n", PLAIN, ["c1", "c2", "c3"]),
        (b"1,2", PLAIN, ["c1", "c2"]),
        (b"\n\n1\r\n", PLAIN, ["c1"]),
        (b'"a,\nb",2\n', QUOTED, ["c1", "c2"]),
        (b'1\n"a"b,2,3\n', QUOTED, ["c1"]),
        (b'1,2\n"a,b,c', QUOTED, ["c1", "c2"]),
        (b"id,note\n1,2,3\n", NAMED, ["id", "note"]),
        (b"\xef\xbb\xbfid,note\r\n", NAMED, ["id", "note"]),
        (b"id,,note", NAMED, ["id", "c2", "note"]),
        (b"x\n1,2\n", CsvLayout(separator=b",", skip_lines=1), ["c1", "c2"]),
        (b"x,y,z\na,b\n", CsvLayout(separator=b",", skip_lines=1, header_lines=1), ["a", "b"]),
        (b"a,b\nINT,INT\n", CsvLayout(separator=b",", header_lines=2), ["a", "b"]),
        (
            b'"a,b","c"\n',
            CsvLayout(separator=b",", header_lines=1, enclose=b'"'),
            ["a,b", "c"],
        ),
        (
            b'"a","c"\n',
            CsvLayout(separator=b",", header_lines=1, trim_double_quotes=True),
            ["a", "c"],
        ),
    ],
)
def test_columns_are_those_of_the_header_or_of_the_widest_record(
    content: bytes, layout: CsvLayout, expected: list[str]
) -> None:
    assert names(content, layout=layout) == expected


def test_columns_are_the_union_of_all_headers() -> None:
    assert names(b"a,b\n", b"", b"C,A\n", layout=NAMED) == ["a", "b", "C"]


def test_the_widest_record_of_all_files_determines_the_columns() -> None:
    assert names(b"1\n", b"", b"1,2\n", layout=PLAIN) == ["c1", "c2"]


def test_only_the_first_records_are_read() -> None:
    assert names(b"1\n1\n1,2\n", layout=PLAIN, lines_max=2) == ["c1"]


def test_a_line_truncated_by_the_byte_limit_is_ignored() -> None:
    columns = infer_csv_columns([io.BytesIO(b"1,2\n1,2,3,4\n")], PLAIN, bytes_max=9)

    assert len(columns) == 2


@pytest.mark.parametrize("layout", [PLAIN, NAMED])
def test_a_hundred_thousand_columns_are_inferred(layout: CsvLayout) -> None:
    content = b",".join(b"f%d" % at for at in range(100_000)) + b"\n"

    assert len(names(content, content, layout=layout)) == 100_000


@pytest.mark.parametrize("header", [b"id,note,id\n", b"id,note,ID\n", b"c2,\n"])
def test_a_name_that_occurs_twice_in_a_header_is_refused(header: bytes) -> None:
    with raises(UserError, Code.TYPE_ERR, "1") as raised:
        names(header, layout=NAMED)

    assert raised.value.code == Code.TYPE_ERR


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("layout", [PLAIN, NAMED])
def test_empty_files_are_refused_with_a_hint_to_the_schema(
    content: bytes, layout: CsvLayout
) -> None:
    with raises(UserError, Code.TYPE_ERR, "1000") as raised:
        names(content, layout=layout)

    assert raised.value.code == Code.TYPE_ERR
    assert_names(raised.value.hint, '"schema"')


def test_a_header_that_is_not_utf8_is_refused() -> None:
    with raises(UnreadableFileError, Code.FILE_ERR, "line 1"):
        names(b"id,\xff\n", layout=NAMED)
