"""Arrays, parts of documents, paths and rescued fields of JSON become rows."""

import io
from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import Code, UserError
from penstock.sources.files.options import FileFormat, FilesOptions, MissingColumns
from penstock.sources.formats.blocks import RecordBlock, UnreadableFileError
from penstock.sources.formats.json_arrays import read_elements
from penstock.sources.formats.json_reader import (
    JsonLayout,
    json_layout,
    read_json_documents,
    read_json_lines,
)

TYPE_BY_COLUMN: dict[str, pa.DataType] = {"id": pa.int64(), "note": pa.string()}
COLUMNS = pa.schema(TYPE_BY_COLUMN)


def layout(**options: Any) -> JsonLayout:
    return json_layout(FilesOptions(uri="file:///in/", format=FileFormat.JSON, **options))


def read(
    content: bytes,
    *,
    columns: pa.Schema = COLUMNS,
    wanted: tuple[str, ...] | None = None,
    missing: MissingColumns = MissingColumns.NULL,
    rescue: bool = False,
    **options: Any,
) -> list[RecordBlock]:
    blocks = read_json_documents(
        io.BytesIO(content),
        columns=columns,
        wanted=tuple(columns.names) if wanted is None else wanted,
        layout=layout(**options),
        start=0,
        end=None,
        missing=missing,
        rescue=rescue,
    )
    return list(blocks)


def rows(blocks: list[RecordBlock]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for block in blocks for row in block.batch.to_pylist()]


def errors(blocks: list[RecordBlock]) -> list[tuple[int, str]]:
    return [(bad.line, bad.error) for block in blocks for bad in block.bad]


def value_of(line: bytes, arrow: pa.DataType, **options: Any) -> object:
    ((value,),) = rows(read(line, columns=pa.schema([("v", arrow)]), **options))
    return value


def test_without_options_the_layout_is_plain() -> None:
    assert layout().plain
    assert layout(json_root="$").plain


@pytest.mark.parametrize(
    "options",
    [
        {"strip_outer_array": True},
        {"json_root": "$.data"},
        {"jsonpaths": '["$.id"]'},
        {"num_as_string": True},
    ],
)
def test_with_an_option_the_layout_is_not_plain(options: dict[str, Any]) -> None:
    assert not layout(**options).plain


@pytest.mark.parametrize("text", ["$.a", "[", "{}", "[]", "[1]", '["$.a", null]', "[" * 10_000])
def test_paths_of_columns_are_an_array_of_texts(text: str) -> None:
    with pytest.raises(UserError, match='"jsonpaths" must be a JSON array of one') as caught:
        layout(jsonpaths=text)

    assert caught.value.code is Code.OPTION_ERR
    assert caught.value.hint


def test_a_bad_path_names_its_option() -> None:
    with pytest.raises(UserError, match=r'option "jsonpaths" has the path "\$.a\[\*\]"'):
        layout(jsonpaths='["$.id", "$.a[*]"]')


@pytest.mark.parametrize(
    "content",
    [
        b'[{"id":1,"note":"a"},{"id":2,"note":"b"}]',
        b'[{"id":1,"note":"a"},{"id":2,"note":"b"}]\n',
        b'\xef\xbb\xbf \n[\n  {"id": 1,\n   "note": "a"},\r\n\t{"note": "b", "id": 2}\n]\n\n',
        b'[{"id":1,"note":"a"}][{"id":2,"note":"b"}]',
        b'[{"id":1,"note":"a"}]\n[]\n[ ]\n[{"id":2,"note":"b"}]\n',
        b'[{"id":1,"note":"a","x":[{"y":"],[{"}]},{"id":2,"note":"b","x":"\\"]\\\\"}]',
    ],
)
def test_the_elements_of_arrays_are_records(content: bytes) -> None:
    (block,) = read(content, strip_outer_array=True)

    assert rows([block]) == [(1, "a"), (2, "b")]
    assert (block.first_line, block.lines, block.blank, block.bad) == (0, 2, 0, ())
    assert block.row_lines is None


@pytest.mark.parametrize("content", [b"", b" \n", b"[]", b"\xef\xbb\xbf[ \n]\n"])
def test_an_array_without_elements_gives_no_block(content: bytes) -> None:
    assert read(content, strip_outer_array=True) == []


@pytest.mark.parametrize(
    ("element", "error"),
    [
        (b"null", 'a record must begin with "{", found "null"'),
        (b"17", 'a record must begin with "{", found "17"'),
        (b'["{"]', 'a record must begin with "{", found "[\\"{\\"]"'),
        (b"", 'a record must begin with "{", found ""'),
        (b'{"id":01}', "the JSON is broken at character 8"),
        (b'{"id":1}{"id":2}', "the record ends before character 9, but the line goes on"),
        (b'{"id":1}\n{"id":2}', "the record ends before character 10, but the line goes on"),
        (b'{"note":"a\nb"}', "the JSON is broken at character 11"),
        (b'{"note":"\xff"}', "byte 10 of the line is not UTF-8"),
        (b'{"id":"x"}', 'column "id": expected BIGINT, found "x"'),
        (b'{"id":\n"x"}', 'column "id": expected BIGINT, found "x"'),
        (b'{"id":1,"id":2}', 'column "id": key "id" occurs more than once in its object'),
    ],
)
def test_a_bad_element_costs_only_itself(element: bytes, error: str) -> None:
    (block,) = read(b'[{"id":1}, ' + element + b' ,{"id":2}]', strip_outer_array=True)

    assert errors([block]) == [(1, error)]
    assert [(bad.offset, bad.raw) for bad in block.bad] == [(11 if element else 12, element)]
    assert rows([block]) == [(1, None), (2, None)]
    assert block.row_lines == (0, 2)


def test_a_comma_behind_the_last_element_is_a_bad_element() -> None:
    blocks = read(b'[{"id":1},]', strip_outer_array=True)

    assert errors(blocks) == [(1, 'a record must begin with "{", found ""')]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"id":1}\n', 'expected an array at byte 0, found "{\\"id\\":1}\\n"'),
        (b'[{"id":1}],[]', 'expected an array at byte 10, found ",[]"'),
        (b"[] garbage", 'expected an array at byte 3, found "garbage"'),
        (b"[]\n\xff", 'expected an array at byte 3, found "\ufffd"'),
        (b'[] [{"id":1}', "the array that begins at byte 3 does not end"),
        (b"[", "the array that begins at byte 0 does not end"),
        (b'[{"id":1},', "the array that begins at byte 0 does not end"),
        (b'[{"id":1', "the value that begins at byte 1 does not end"),
        (b'[{"id":1},{"note":"]', "the value that begins at byte 10 does not end"),
        (b'[{"id":1]', 'expected "}" at byte 8, found "]"'),
        (b'[{"id":1},{"x":[}]', 'expected "]" at byte 16, found "}"'),
        (b"[}]", 'expected "]" at byte 1, found "}"'),
    ],
)
def test_a_file_that_holds_no_whole_arrays_is_unreadable(content: bytes, message: str) -> None:
    with pytest.raises(UnreadableFileError) as caught:
        read(content, strip_outer_array=True)

    assert caught.value.message == message
    assert caught.value.hint


def test_an_array_of_many_megabytes_is_read_in_blocks() -> None:
    elements = [b'{"id":%d,"note":"%s"}' % (n, b'x\\\\\\"[' * 500) for n in range(4_000)]

    blocks = read(b"[" + b",\n".join(elements) + b"]", strip_outer_array=True)

    first_lines = accumulate((block.lines for block in blocks), initial=0)
    assert len(blocks) > 3
    assert [block.first_line for block in blocks] == list(first_lines)[:-1]
    assert [row[0] for row in rows(blocks)] == list(range(4_000))


def test_a_stream_that_gives_little_at_a_time_is_read_in_full() -> None:
    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(1, size or 0))

    content = b'\xef\xbb\xbf[{"a":"\\\\"}, "\\"" ,[[]]]\n[1]'

    texts = [e.text for e in read_elements(Trickle(content), objects=False)]

    assert texts == [b'{"a":"\\\\"}', b'"\\""', b"[[]]", b"1"]


def test_an_element_too_long_for_memory_is_unreadable() -> None:
    content = b'[{"id":1},{"note":"' + b"x" * 300_000 + b'"}]'

    with pytest.raises(UnreadableFileError, match="begins at byte 10 may have 100000 bytes"):
        list(read_elements(io.BytesIO(content), objects=False, element_bytes_max=100_000))


def test_a_file_of_arrays_belongs_to_the_range_that_begins_at_its_beginning() -> None:
    blocks = read_json_documents(
        io.BytesIO(b'[{"id":1}]'),
        columns=COLUMNS,
        wanted=("id",),
        layout=layout(strip_outer_array=True),
        start=5,
        end=None,
        missing=MissingColumns.NULL,
        rescue=False,
    )

    assert list(blocks) == []


def test_ranges_of_lines_read_every_line_once() -> None:
    content = b"".join(b'{"d":{"id":%d}}\n' % n for n in range(10))

    parts = [
        rows(
            list(
                read_json_documents(
                    io.BytesIO(content),
                    columns=COLUMNS,
                    wanted=("id",),
                    layout=layout(json_root="$.d"),
                    start=start,
                    end=end,
                    missing=MissingColumns.NULL,
                    rescue=False,
                )
            )
        )
        for start, end in ((0, 40), (40, 41), (41, None))
    ]

    assert [row for part in parts for row in part] == [(n,) for n in range(10)]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"x":1}', "json_root $.d leads nowhere"),
        (b"[]", "json_root $.d leads nowhere"),
        (b'{"d":[1]}', "json_root $.d must lead to an object, not an array"),
        (b'{"d":null}', "json_root $.d must lead to an object, not null"),
        (b'{"d":1.10}', "json_root $.d must lead to an object, not 1.10"),
        (b'{"d":{},"d":{}}', 'key "d" occurs more than once in its object'),
        (b'{"d":{"id":"x"}}', 'column "id": expected BIGINT, found "x"'),
        # The return before the newline is space inside of the record.
        (b'{"d":{}', "the JSON is broken at character 9"),
    ],
)
def test_a_root_that_gives_no_record_makes_its_line_bad(line: bytes, error: str) -> None:
    (block,) = read(b'{"d":{"id":1}}\n\n' + line + b'\r\n{"d":{"id":2}}\n', json_root="$.d")

    assert errors([block]) == [(2, error)]
    assert [(bad.offset, bad.raw) for bad in block.bad] == [(16, line)]
    assert (rows([block]), block.blank) == ([(1, None), (2, None)], 1)


def test_a_root_may_be_inside_of_an_array() -> None:
    (block,) = read(b'[{"id":1},{"id":2}]\n', json_root="$[1]")

    assert rows([block]) == [(2, None)]


def test_the_array_that_the_root_leads_to_holds_the_records() -> None:
    content = (
        b'{"data":[{"id":1},{"id":2,"id":3},7]}\n[{"data":{"id":4}},{"data":[{"id":5}]},{}]'
    )

    (block,) = read(content, json_root="$.data", strip_outer_array=True)

    assert rows([block]) == [(1, None), (4, None), (5, None)]
    assert errors([block]) == [
        (1, 'column "id": key "id" occurs more than once in its object'),
        (2, "json_root $.data must lead to an object, not 7"),
        (5, "json_root $.data leads nowhere"),
    ]
    assert [bad.raw for bad in block.bad] == [b'{"id": 3}', b"7", b"{}"]
    assert [bad.offset for bad in block.bad] == [0, 0, content.index(b"{}]")]


def test_values_are_found_by_paths_in_the_order_of_the_columns() -> None:
    line = b'{"key":{"id":1},"tags":["a","b"]}'

    blocks = read(line, jsonpaths='["$.key.id", "$.tags[1]"]', wanted=("note", "id"))

    assert rows(blocks) == [("b", 1)]


def test_a_path_that_leads_nowhere_gives_null_or_a_bad_record() -> None:
    paths = '["$.id", "$.a.b"]'
    content = b'{"id":1}\n{"id":2,"a":{"b":null}}\n'

    lenient = read(content, jsonpaths=paths)
    strict = read(content, missing=MissingColumns.FAIL, jsonpaths=paths)

    assert rows(lenient) == [(1, None), (2, None)]
    assert rows(strict) == [(2, None)]
    assert errors(strict) == [(0, 'column "note": the path $.a.b leads nowhere')]


def test_a_path_to_a_repeated_key_makes_the_record_bad() -> None:
    blocks = read(b'{"a":{"b":1,"b":2}}', jsonpaths='["$.a.b", "$.n"]')

    assert errors(blocks) == [(0, 'column "id": key "b" occurs more than once in its object')]


def test_there_are_as_many_paths_as_columns() -> None:
    with pytest.raises(UserError, match=r"as there are columns, 2, not 1") as caught:
        read(b"{}", jsonpaths='["$.id"]')

    assert caught.value.code is Code.TYPE_ERR


def test_a_missing_field_can_make_its_record_bad() -> None:
    blocks = read(b'{"id":1}\n{"id":2,"note":null}\n', missing=MissingColumns.FAIL)

    assert rows(blocks) == [(2, None)]
    assert errors(blocks) == [(0, 'column "note": the record has no field "note"')]


def test_a_field_that_nobody_wants_may_be_missing() -> None:
    assert rows(read(b'{"id":1}', wanted=("id",), missing=MissingColumns.FAIL)) == [(1,)]


@pytest.mark.parametrize(
    ("line", "arrow", "value"),
    [
        (b'{"v":1.10}', pa.string(), "1.10"),
        (b'{"v":1E+2}', pa.string(), "1E+2"),
        (b'{"v":1.10}', pa.decimal128(5, 1), Decimal("1.1")),
        (b'{"v":7}', pa.int8(), 7),
        (b'{"v":7}', pa.float64(), 7.0),
        (b'{"v":1}', pa.bool_(), True),
        (b'{"v":0}', pa.bool_(), False),
        (b'{"v":true}', pa.bool_(), True),
        (b'{"v":12}', pa.binary(), b"12"),
        (b'{"v":[1,"x"]}', pa.list_(pa.binary()), [b"1", b"x"]),
        (b'{"v":{"a":1}}', pa.struct([("a", pa.bool_())]), {"a": True}),
        (b'{"v":{"a":1}}', pa.map_(pa.string(), pa.binary()), [("a", b"1")]),
        (b"{}", pa.int64(), None),
    ],
)
def test_numbers_can_be_read_as_the_texts_they_are_written_with(
    line: bytes, arrow: pa.DataType, value: object
) -> None:
    assert value_of(line, arrow, num_as_string=True) == value


@pytest.mark.parametrize(
    ("line", "arrow", "error"),
    [
        (b'{"v":2}', pa.bool_(), 'column "v": expected BOOLEAN, found 2'),
        (b'{"v":1.0}', pa.int64(), 'column "v": expected BIGINT, found 1.0'),
        (b'{"v":17}', pa.date32(), 'column "v": expected DATE, found "17"'),
        (b'{"v":NaN}', pa.string(), 'column "v": expected STRING, found NaN'),
        (
            b'{"v":{"a":1,"a":0}}',
            pa.struct([("a", pa.bool_())]),
            'column "v.a": key "a" occurs more than once in its object',
        ),
    ],
)
def test_a_text_of_a_number_must_fit_its_column(
    line: bytes, arrow: pa.DataType, error: str
) -> None:
    blocks = read(line, columns=pa.schema([("v", arrow)]), num_as_string=True)

    assert errors(blocks) == [(0, error)]


@pytest.mark.parametrize(
    ("line", "rescued"),
    [
        (b'{"id":1,"note":"a"}', None),
        (b"{}", None),
        (b'{"id":1,"x":1.10}', '{"x": 1.10}'),
        (b'{"x":null,"ID":1}', '{"x": null, "ID": 1}'),
        (b'{"_rescued":7}', '{"_rescued": 7}'),
        (b'{"_rescued":7,"_rescued":8}', '{"_rescued": 8}'),
        (b'{"x":[true,{"y":"\\u00f8\\n"},NaN]}', '{"x": [true, {"y": "ø\\n"}, "NaN"]}'),
        (b'{"x":"\\ud800"}', '{"x": "\\ud800"}'),
    ],
)
def test_fields_that_no_column_names_are_rescued(line: bytes, rescued: str | None) -> None:
    (block,) = read(line, wanted=("note",), rescue=True)

    assert block.batch.schema.names == ["note", "_rescued"]
    assert block.batch.column("_rescued").to_pylist() == [rescued]


def test_fields_that_paths_begin_with_are_not_rescued() -> None:
    blocks = read(
        b'{"key":{"id":1},"note":"n","t":2}',
        jsonpaths='["$.key.id", "$.t"]',
        wanted=("id",),
        rescue=True,
    )

    assert rows(blocks) == [(1, '{"note": "n"}')]


def test_a_repeated_key_of_a_column_stays_bad_when_fields_are_rescued() -> None:
    blocks = read(b'{"id":1,"id":1,"x":2}', rescue=True)

    assert errors(blocks) == [(0, 'column "id": key "id" occurs more than once in its object')]


def test_a_record_nested_too_deeply_to_be_rescued_is_bad() -> None:
    deep = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

    blocks = read(deep + b'\n{"id":2}\n', rescue=True)

    assert errors(blocks) == [(0, "the record is nested too deeply")]
    assert rows(blocks) == [(2, None, None)]


@pytest.mark.parametrize("depth", [100, 400, 700, 900, 3_000, 100_000])
def test_nesting_of_any_depth_in_an_array_does_no_harm(depth: int) -> None:
    deep = b'{"data":[' + b"[" * depth + b"]" * depth + b',{"id":1}]}'

    blocks = read(deep, json_root="$.data", strip_outer_array=True)

    assert sum(block.lines for block in blocks) in (1, 2)
    assert len(errors(blocks)) == 1


def test_a_deep_field_nobody_needs_does_no_harm_to_an_element() -> None:
    deep = b'{"id":1,"other":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

    assert rows(read(b"[" + deep + b"]", strip_outer_array=True)) == [(1, None)]


def test_blank_lines_are_skipped_and_counted() -> None:
    (block,) = read(b'\n{"id":1}\n \t\r\n', rescue=True)

    assert (block.lines, block.blank, block.rows, block.row_lines) == (3, 2, 1, (1,))


def test_rows_are_counted_even_if_no_column_is_wanted() -> None:
    (block,) = read(b'[{"id":1},{}]', wanted=(), strip_outer_array=True)

    assert (block.rows, block.lines) == (2, 2)


@pytest.mark.parametrize("content", [b"", b'\xef\xbb\xbf{"id":1}\r\n{}', b'x\n\n{"id":1}'])
def test_plain_lines_are_read_as_the_reader_of_lines_reads_them(content: bytes) -> None:
    plain = list(read_json_lines(io.BytesIO(content), schema=COLUMNS, start=0, end=None))

    blocks = read(content)

    assert rows(blocks) == rows(plain)
    assert [block.bad for block in blocks] == [block.bad for block in plain]
