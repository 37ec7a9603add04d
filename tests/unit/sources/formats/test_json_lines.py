"""JSON lines become rows; a bad line does not affect other lines."""

import io
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.sources.formats.blocks import RecordBlock, Wanted
from penstock.sources.formats.json_reader import json_reading, read_json
from penstock.sources.formats.lines import LineLayout, count_lines_before
from tests.error_values import assert_names

TYPE_BY_COLUMN: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "qty": pa.int8(),
    "price": pa.float64(),
    "ratio": pa.float32(),
    "paid": pa.bool_(),
    "note": pa.string(),
    "total": pa.decimal128(10, 2),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "tags": pa.list_(pa.string()),
    "customer": pa.struct([("city", pa.string()), ("zip", pa.int32())]),
}
SCHEMA = pa.schema(TYPE_BY_COLUMN)
GOOD = b'{"id":1}'


def read(
    content: bytes, *, schema: pa.Schema = SCHEMA, line_bytes_max: int = 1 << 28
) -> list[RecordBlock]:
    stream = io.BytesIO(content)
    lines = LineLayout(line_bytes_max=line_bytes_max)
    reading = json_reading(Wanted(columns=schema, names=tuple(schema.names)))
    blocks = read_json(stream, reading=reading, start=0, end=None, lines=lines)
    return list(blocks)


def ids(blocks: list[RecordBlock]) -> list[int]:
    return [row["id"] for block in blocks for row in block.batch.to_pylist()]


def value_of(column: str, line: bytes) -> object:
    (block,) = read(line)
    assert block.bad == ()
    return block.batch.column(column)[0].as_py()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b"null", ('"{"', '"null"')),
        (b"[1]", ('"{"', '"[1]"')),
        (b"17", ('"{"', '"17"')),
        (b'"text"', ('"{"', '"\\"', '""')),
        (b"\xef\xbb\xbf{}", ('"{"', '"\ufeff{}"')),
        (b"\x0b{}", ('"{"', '"\\u000b{}"')),
        (b'{"id":1}{"id":2}', ("9",)),
        (b'{"id":1} garbage', ("10",)),
        (b'{"id":1}null{}', ("9",)),
        (b'{"id":1', ("JSON", "8")),
        (b"{'id':1}", ("JSON", "2")),
        (b'{"id":01}', ("JSON", "8")),
        (b'{"note":"\xff"}', ("10", "UTF-8")),
        (b'{"other":"\xff"}', ("11", "UTF-8")),
        (b'{"note":"a\0b"}', ("JSON", "11")),
        (b'{"id":1}\0}', ("9",)),
        (b'{"note":"a\tb"}', ("JSON", "11")),
        (b'{"note":"\\ud800"}', ('"note"',)),
        (b'{"id":1,"id":1}', ('"id"',)),
        (b'{"id":1,"id":null}', ('"id"',)),
        (
            b'{"customer":{"zip":1,"zip":2}}',
            ('"customer.zip"', '"zip"'),
        ),
        (b'{"id":"abc"}', ('"id"', "BIGINT", '"abc"')),
        (b'{"id":"1"}', ('"id"', "BIGINT", '"1"')),
        (b'{"id":1.5}', ('"id"', "BIGINT", "1.5")),
        (b'{"id":true}', ('"id"', "BIGINT")),
        (
            b'{"id":9223372036854775808}',
            ('"id"', "BIGINT", "9223372036854775808"),
        ),
        (b'{"qty":128}', ('"qty"', "TINYINT", "128")),
        (b'{"qty":-129}', ('"qty"', "TINYINT", "129")),
        (b'{"price":"1"}', ('"price"', "DOUBLE", '"1"')),
        (b'{"price":NaN}', ('"price"', "DOUBLE", "NaN")),
        (b'{"price":-Infinity}', ('"price"', "DOUBLE", "Infinity")),
        (b'{"price":1e999}', ('"price"', "DOUBLE", "1e999")),
        (b'{"ratio":1e39}', ('"ratio"', "FLOAT", "1e39")),
        (b'{"paid":1}', ('"paid"', "BOOLEAN", "1")),
        (b'{"note":{}}', ('"note"', "STRING", "object")),
        (b'{"note":[]}', ('"note"', "STRING", "array")),
        (b'{"note":NaN}', ('"note"', "STRING", "NaN")),
        (b'{"total":"abc"}', ('"total"', "DECIMAL", "10", "2", '"abc"')),
        (b'{"total":123456789}', ('"total"', "DECIMAL", "10", "2", "123456789")),
        (b'{"total":NaN}', ('"total"', "DECIMAL", "10", "2", "NaN")),
        (b'{"day":"2026-02-30"}', ('"day"', "DATE", '"2026-02-30"')),
        (b'{"day":20000}', ('"day"', "DATE", "20000")),
        (b'{"at":"soon"}', ('"at"', "TIMESTAMP", '"soon"')),
        (
            b'{"local":"2026-11-15T10:00:00Z"}',
            ('"local"', "TIMESTAMP_NTZ", '"2026-11-15T10:00:00Z"'),
        ),
        (b'{"tags":"a"}', ('"tags"', "ARRAY", "STRING", '"a"')),
        (b'{"tags":[[]]}', ('"tags"', "STRING")),
        (b'{"customer":{"zip":"x"}}', ('"customer.zip"', "INT", '"x"')),
        (
            b'{"customer":[]}',
            ('"customer"', "STRUCT", "STRING", "INT"),
        ),
    ],
)
def test_a_bad_line_is_reported_and_its_neighbours_load(
    line: bytes, named: tuple[str, ...]
) -> None:
    content = b'{"id":1}\n' + line + b'\n{"id":2}\n'

    (block,) = read(content)

    (error,) = [bad.error for bad in block.bad]
    assert_names(error, *named)
    assert [(bad.record, bad.raw) for bad in block.bad] == [(1, line)]
    assert ids([block]) == [1, 2]
    assert list(block.record_of_row) == [0, 2]


@pytest.mark.parametrize("line", [b"null", b"[]", b"{", b'{"id":1}{"id":2}', b"}"])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
def test_a_bad_line_alone_in_its_file_is_reported(line: bytes, ending: bytes) -> None:
    (block,) = read(line + ending)

    assert [bad.raw for bad in block.bad] == [line]
    assert block.batch.num_rows == 0


def test_each_line_of_a_multi_line_object_is_bad() -> None:
    (block,) = read(b'{"id":1,\n"note":{}\n}\n{"id":2}\n')

    assert [bad.record for bad in block.bad] == [0, 1, 2]
    assert ids([block]) == [2]


@pytest.mark.parametrize(
    "lines", [b'{"customer":\n{"zip":1}}', b'{"customer":{"zip":1}\n,"id":3}']
)
def test_lines_without_one_record_each_are_bad_even_if_the_count_matches(lines: bytes) -> None:
    # Two records on the first line and one record on the next two: three lines, three rows.
    (block,) = read(b'{"id":1}{"id":2}\n' + lines + b"\n")

    assert [bad.record for bad in block.bad] == [0, 1, 2]


def test_blank_lines_are_skipped_and_counted() -> None:
    (block,) = read(b'\n{"id":1}\n \t\r\n{"id":2}\n\n')

    assert (block.lines, block.blank, block.batch.num_rows, block.bad) == (5, 3, 2, ())
    assert list(block.record_of_row) == [1, 3]


def test_a_block_of_plain_lines_has_consecutive_line_numbers() -> None:
    (block,) = read(b'{"id":1}\n{"id":2}\n')

    assert (block.lines, block.blank, block.batch.num_rows) == (2, 0, 2)
    assert block.record_of_row == range(2)


@pytest.mark.parametrize(
    "content",
    [
        b'{"id":1}\n{"id":2}\n',
        b'{"id":1}\n{"id":2}',
        b'{"id":1}\r\n{"id":2}\r\n',
        b'{"id":1}\r\n{"id":2}\r',
        b'\xef\xbb\xbf{"id":1}\n{"id":2}\n',
        b'  {"id":1}\n\t{"id":2}  \n',
        b'{"id":1,"other":[{"x":null}]}\n{"id":2}\n',
        b'{"id":1,"other":1,"other":2}\n{"id":2}\n',
        b'{"id":1,"other":NaN}\n{"id":2}\n',
        '{"id":1,"other":"ø"}\n{"id":2,"note":"☃"}\n'.encode(),
        b'{"\\u0069d":1}\n{"id":2}\n',
    ],
)
def test_records_load_in_every_line_format(content: bytes) -> None:
    blocks = read(content)

    assert ids(blocks) == [1, 2]
    assert blocks[0].bad == ()


@pytest.mark.parametrize(
    ("column", "line", "value"),
    [
        ("note", b'{"note":1.10}', "1.10"),
        ("note", b'{"note":-0}', "-0"),
        ("note", b'{"note":123456789012345678901234567890}', "123456789012345678901234567890"),
        ("note", b'{"note":true}', "true"),
        ("note", b'{"note":false}', "false"),
        ("note", b'{"note":null}', None),
        ("note", b'{"note":"a\\u0000b"}', "a\0b"),
        ("note", b'{"note":"\\ud83d\\ude00"}', "😀"),
        ("tags", b'{"tags":["a",1,null,2.50]}', ["a", "1", None, "2.50"]),
        ("customer", b'{"customer":{"city":7}}', {"city": "7", "zip": None}),
        ("customer", b'{"customer":null}', None),
        ("price", b'{"price":1}', 1.0),
        ("total", b'{"total":1.10}', Decimal("1.10")),
        ("total", b'{"total":"1.10"}', Decimal("1.10")),
        ("total", b'{"total":1.005}', Decimal("1.01")),
        ("total", b'{"total":" 2 "}', Decimal("2.00")),
        ("total", b'{"total":5e-104}', Decimal("0.00")),
        ("total", b'{"total":"5e-104"}', Decimal("0.00")),
    ],
)
def test_a_value_is_converted_to_the_type_of_its_column(
    column: str, line: bytes, value: object
) -> None:
    assert value_of(column, line) == value


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        (b"2026-11-15", "2026-11-15T00:00:00+00:00"),
        (b"2026-11-15 10:00:00", "2026-11-15T10:00:00+00:00"),
        (b"2026-11-15T10:00:00.5", "2026-11-15T10:00:00.500000+00:00"),
        (b"2026-11-15T10:00:00Z", "2026-11-15T10:00:00+00:00"),
        (b"2026-11-15 10:00:00.123456+02:00", "2026-11-15T08:00:00.123456+00:00"),
    ],
)
def test_a_timestamp_without_a_zone_is_in_utc(text: bytes, iso: str) -> None:
    value = value_of("at", b'{"at":"' + text + b'"}')

    assert str(value).replace(" ", "T") == iso


def test_a_map_column_is_read_from_an_object() -> None:
    schema = pa.schema([("m", pa.map_(pa.string(), pa.int64()))])

    (block,) = read(b'{"m":{"a":1,"b":null}}\n{"m":{}}\n{}\n{"m":[]}\n', schema=schema)

    assert block.batch.column("m").to_pylist() == [[("a", 1), ("b", None)], [], None]
    (error,) = [bad.error for bad in block.bad]
    assert_names(error, '"m"', "MAP<STRING, BIGINT>", "array")


def test_a_missing_value_for_a_not_null_column_is_a_bad_line() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])

    (block,) = read(b'{"id":1}\n{}\n{"id":null}\n', schema=schema)

    assert len(block.bad) == 2
    assert_names(block.bad[0].error, '"id"', "BIGINT", "null")
    assert block.bad[1].error == block.bad[0].error
    assert block.batch.schema == schema
    assert ids([block]) == [1]


def test_rows_are_counted_even_if_no_column_is_needed() -> None:
    (block,) = read(b'{"id":1}\n{"id":2}\n', schema=pa.schema([]))

    assert (block.batch.num_rows, block.bad) == (2, ())


def test_a_long_value_is_truncated_in_the_error_but_not_in_the_raw_line() -> None:
    line = b'{"id":"' + b"x" * 500 + b'"}'

    (block,) = read(line)

    assert_names(block.bad[0].error, '"id"', "BIGINT", f"{'x' * 80}…")
    assert block.bad[0].raw == line


@pytest.mark.parametrize("closing", [b"}", b"} "])
def test_nesting_of_any_depth_in_an_unused_field_is_ignored(closing: bytes) -> None:
    deep = b'{"id":1,"other":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

    (block,) = read(deep + b'\n{"id":2' + closing + b"\n")

    assert ids([block]) == [1, 2]


@pytest.mark.parametrize("closing", [b"}", b"} "])
def test_a_line_of_ten_megabytes_loads(closing: bytes) -> None:
    content = (
        b'{"id":1}\n{"id":2,"note":"' + b"x" * 10_000_000 + b'"' + closing + b'\n{"id":3}\n'
    )

    blocks = read(content)

    assert ids(blocks) == [1, 2, 3]


@pytest.mark.parametrize("ending", [b"", b"\n", b'\n{"id":4}\n'])
def test_a_line_above_the_limit_is_bad_and_the_next_line_loads(ending: bytes) -> None:
    long = b'{"id":2,"note":"' + b"x" * 100_000 + b'"}'

    blocks = read(b'{"id":1}\n' + long + ending, line_bytes_max=70_000)

    (bad,) = [bad for block in blocks for bad in block.bad]
    assert (bad.record, bad.raw) == (1, long[: 1 << 16])
    assert_names(bad.error, "70000")
    assert ids(blocks) == ([1, 4] if b"4" in ending else [1])


def test_a_line_with_exactly_the_maximum_length_loads() -> None:
    content = GOOD + b"\n" + b'{"id":12}' + b"\n" + GOOD

    blocks = read(content, line_bytes_max=len(GOOD))

    assert ids(blocks) == [1, 1]
    assert [bad.record for block in blocks for bad in block.bad] == [1]


@pytest.mark.parametrize("line", [b"{}\n", b"{} \n"])
def test_a_block_with_many_short_lines_loads(line: bytes) -> None:
    blocks = read(line * 350_000, schema=pa.schema({"id": pa.int64()}))

    assert sum(block.batch.num_rows for block in blocks) == 350_000


def test_an_empty_file_has_no_block() -> None:
    assert read(b"") == []


def test_lines_before_an_offset_are_counted() -> None:
    stream = io.BytesIO(b"a\nb\n\nc")

    counts = [count_lines_before(stream, offset) for offset in range(7)]

    assert counts == [0, 0, 1, 1, 2, 3, 3]
