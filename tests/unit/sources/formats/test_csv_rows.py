"""CSV records become rows; a bad record does not affect other records."""

import io
import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.sources.files.kind import MissingColumns
from penstock.sources.formats.blocks import RecordBlock, Wanted
from penstock.sources.formats.csv_reader import read_csv
from penstock.sources.formats.csv_text import CsvLayout
from penstock.sources.formats.lines import LineLayout
from tests.error_values import assert_names

TYPE_BY_COLUMN: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "note": pa.string(),
    "qty": pa.int8(),
    "ratio": pa.float32(),
    "paid": pa.bool_(),
    "total": pa.decimal128(10, 2),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "octets": pa.binary(),
}
COLUMNS = pa.schema(TYPE_BY_COLUMN)
PAIR = pa.schema([COLUMNS.field("id"), COLUMNS.field("note")])
PLAIN = CsvLayout(separator=b",")
QUOTED = CsvLayout(separator=b",", enclose=b'"')
ESCAPED = CsvLayout(separator=b",", enclose=b'"', escape=b"\\")
NAMED = CsvLayout(separator=b",", header_lines=1)


def read(  # noqa: PLR0913 - Every parameter varies in a test.
    content: bytes,
    *,
    layout: CsvLayout = PLAIN,
    columns: pa.Schema = PAIR,
    wanted: tuple[str, ...] | None = None,
    missing: MissingColumns = MissingColumns.NULL,
    rescue: bool = False,
    line_bytes_max: int = 1 << 28,
) -> list[RecordBlock]:
    return list(
        read_csv(
            io.BytesIO(content),
            wanted=Wanted(
                columns=columns,
                names=tuple(columns.names) if wanted is None else wanted,
                missing=missing,
                rescue=rescue,
            ),
            layout=layout,
            start=0,
            end=None,
            lines=LineLayout(line_bytes_max=line_bytes_max),
        )
    )


def rows(blocks: list[RecordBlock]) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for block in blocks for row in block.batch.to_pylist()]


def errors(blocks: list[RecordBlock]) -> list[str]:
    return [bad.error for block in blocks for bad in block.bad]


def value_of(column: str, text: bytes, *, layout: CsvLayout = QUOTED) -> object:
    columns = pa.schema([pa.field("first", pa.string()), COLUMNS.field(column)])
    ((_, value),) = rows(read(b"x," + text + b"\n", layout=layout, columns=columns))
    return value


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("id", b"1", 1),
        ("id", b" +1 ", 1),
        ("id", b"", None),
        ("id", b'""', None),
        ("id", b"\\N", None),
        ("id", b'"12"', 12),
        ("note", b"", ""),
        ("note", b'""', ""),
        ("note", b"\\N", None),
        ("note", b'"\\N"', "\\N"),
        ("note", b" \\N", " \\N"),
        ("note", b'a"b"', 'a"b"'),
        ("note", b'"a""b"', 'a"b'),
        ("note", b'"a,b"', "a,b"),
        ("note", b'"a\nb"', "a\nb"),
        ("note", b'"a\r\nb"\r', "a\r\nb"),
        ("note", b'""""', '"'),
        ("note", b"a\0b", "a\0b"),
        ("note", "ø☃".encode(), "ø☃"),
        ("ratio", b"1.5", 1.5),
        ("paid", b"true", True),
        ("paid", b"0", False),
        ("total", b"1.005", Decimal("1.01")),
        ("day", b"2026-11-15", date(2026, 11, 15)),
        ("at", b"2026-11-15 10:00:00", datetime(2026, 11, 15, 10, tzinfo=UTC)),
        ("at", b"2026-11-15T10:00:00+02:00", datetime(2026, 11, 15, 8, tzinfo=UTC)),
        ("octets", b"abc", b"abc"),
        ("octets", b"", None),
    ],
)
def test_a_field_is_converted_to_the_type_of_its_column(
    column: str, text: bytes, value: object
) -> None:
    assert value_of(column, text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'"a\\"b"', 'a"b'),
        (b'"a\\\\"', "a\\"),
        (b'"a\\,b"', "a,b"),
        (b'"a\\\nb"', "a\nb"),
        (b'"\\N"', "N"),
        (b"a\\b", "a\\b"),
        (b"\\N", None),
    ],
)
def test_an_escape_works_in_enclosed_fields_only(text: bytes, value: object) -> None:
    assert value_of("note", text, layout=ESCAPED) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'"a"', "a"),
        (b'""a""', '"a"'),
        (b'"', '"'),
        (b'""', ""),
        (b'a"', 'a"'),
        (b'"\\N"', "\\N"),
    ],
)
def test_one_pair_of_double_quotes_is_removed_if_set(text: bytes, value: str) -> None:
    layout = replace(PLAIN, trim_double_quotes=True)

    assert value_of("note", text, layout=layout) == value


@pytest.mark.parametrize("text", [b"", b'""'])
def test_an_empty_field_is_null_if_set(text: bytes) -> None:
    assert value_of("note", text, layout=replace(QUOTED, empty_field_as_null=True)) is None


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b"x,a", ('"id"', "BIGINT", '"x"')),
        (b"1.5,a", ('"id"', "BIGINT", '"1.5"')),
        (
            b"9223372036854775808,a",
            ('"id"', "BIGINT", '"9223372036854775808"'),
        ),
        (b"1,a,b", ("2", "3")),
        (b"1,a\xff", ('"note"', "2", "UTF-8")),
        (b"\xff,a", ('"id"', "1", "UTF-8")),
        (b'1,"a"b', ("2",)),
        (b'"1" ,a', ("1",)),
        (b"\0,a", ('"id"', "BIGINT", '"\\u0000"')),
    ],
)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_a_bad_record_is_reported_and_its_neighbours_load(
    line: bytes, named: tuple[str, ...], ending: bytes
) -> None:
    content = b"1,a" + ending + line + ending + b"2,b" + ending

    (block,) = read(content, layout=QUOTED)

    (error,) = errors([block])
    assert_names(error, *named)
    assert [(bad.record, bad.raw) for bad in block.bad] == [(1, line)]
    assert rows([block]) == [(1, "a"), (2, "b")]
    assert list(block.record_of_row) == [0, 2]


@pytest.mark.parametrize(
    ("column", "text", "sql"),
    [
        ("qty", b"128", "TINYINT"),
        ("ratio", b"1e39", "FLOAT"),
        ("paid", b"yes", "BOOLEAN"),
        ("total", b"123456789", "DECIMAL(10,2)"),
        ("day", b"2026-02-30", "DATE"),
        ("at", b"soon", "TIMESTAMP"),
        ("local", b"2026-11-15T10:00:00Z", "TIMESTAMP_NTZ"),
    ],
)
def test_a_text_that_does_not_fit_its_column_is_a_bad_record(
    column: str, text: bytes, sql: str
) -> None:
    blocks = read(text, columns=pa.schema([COLUMNS.field(column)]))

    (error,) = errors(blocks)
    assert_names(error, f'"{column}"', sql, f'"{text.decode()}"')


def test_a_file_of_only_bad_records_is_read() -> None:
    (block,) = read(b"x,a\n" * 3000)

    assert len(block.bad) == block.lines == 3000
    assert block.batch.num_rows == 0


@pytest.mark.parametrize("line", [b",a", b"\\N,a"])
def test_null_in_a_not_null_column_is_a_bad_record(line: bytes) -> None:
    columns = pa.schema([COLUMNS.field("id").with_nullable(False), COLUMNS.field("note")])  # noqa: FBT003 - Arrow's signature.

    blocks = read(b"1,a\n" + line, columns=columns)

    (error,) = errors(blocks)
    assert_names(error, '"id"', "BIGINT", "null")


def test_invalid_utf8_in_an_unused_field_is_ignored() -> None:
    assert rows(read(b"1,\xff\n2,a\n", wanted=("id",))) == [(1,), (2,)]


def test_missing_fields_are_null() -> None:
    assert rows(read(b"1\n2,b\n3\n")) == [(1, None), (2, "b"), (3, None)]


def test_missing_fields_are_an_error_if_set() -> None:
    blocks = read(b"1\n2,b\n", missing=MissingColumns.FAIL)

    (error,) = errors(blocks)
    assert_names(error, "2", "1")
    assert rows(blocks) == [(2, "b")]


def test_extra_fields_are_rescued_if_requested() -> None:
    blocks = read(b'1,a,x,\\N,"y,z"\n2,b\n', layout=QUOTED, wanted=("id",), rescue=True)

    assert [json.loads(str(text)) if text else None for _, text in rows(blocks)] == [
        {"c3": "x", "c4": None, "c5": "y,z"},
        None,
    ]
    assert blocks[0].batch.schema.names == ["id", "_rescued"]


def test_a_rescued_field_that_is_not_utf8_is_a_bad_record() -> None:
    blocks = read(b"1,a,\xff\n", rescue=True)

    (error,) = errors(blocks)
    assert_names(error, "byte 1", "UTF-8")


def test_columns_are_in_the_requested_order() -> None:
    assert rows(read(b"1,a\n", wanted=("note", "id"))) == [("a", 1)]


@pytest.mark.parametrize("content", [b"1,a\n2,b\n", b"1,a\n\n2,b\n"])
def test_rows_are_counted_even_if_no_column_is_needed(content: bytes) -> None:
    (block,) = read(content, wanted=())

    assert (block.batch.num_rows, block.bad) == (2, ())


@pytest.mark.parametrize(
    "content",
    [
        b"1,a\n2,b\n",
        b"1,a\n2,b",
        b"1,a\r\n2,b\r\n",
        b"1,a\r\n2,b\r",
        b"1,a\n2,b\r\n",
        b"\xef\xbb\xbf1,a\n2,b\n",
    ],
)
@pytest.mark.parametrize("layout", [PLAIN, QUOTED])
def test_records_load_in_every_line_format(content: bytes, layout: CsvLayout) -> None:
    blocks = read(content, layout=layout)

    assert rows(blocks) == [(1, "a"), (2, "b")]
    assert sum(block.lines for block in blocks) == 2


@pytest.mark.parametrize(
    ("separator", "ending"),
    [(b"||", b"\n"), (b"\x01", b"\x02"), (b"ab", b"\r\n"), (b"\0", b"#")],
)
def test_separators_and_line_delimiters_can_be_any_bytes(
    separator: bytes, ending: bytes
) -> None:
    layout = CsvLayout(separator=separator, ending=ending)
    content = ending.join([separator.join([b"1", b"x"]), separator.join([b"2", b"y"])])

    assert rows(read(content, layout=layout)) == [(1, "x"), (2, "y")]


def test_blank_lines_are_skipped_and_counted() -> None:
    (block,) = read(b"\n1,a\n\r\n2,b\n\n")

    assert (block.lines, block.blank, block.batch.num_rows, block.bad) == (5, 3, 2, ())
    assert list(block.record_of_row) == [1, 3]


def test_an_empty_file_has_no_block() -> None:
    assert read(b"") == []
    assert read(b"", layout=NAMED, missing=MissingColumns.FAIL) == []


def test_line_numbers_include_line_ends_inside_records() -> None:
    (block,) = read(b'1,"a\nb"\n2,b\n3,"\n\n"\n4,c,d\n', layout=QUOTED)

    assert rows([block]) == [(1, "a\nb"), (2, "b"), (3, "\n\n")]
    assert list(block.record_of_row) == [0, 2, 3]
    assert [bad.record for bad in block.bad] == [6]
    assert block.lines == 4


def test_an_unclosed_quote_extends_to_the_end_of_the_file() -> None:
    content = b'1,a\n2,"b\n' + b"3,c\n" * 50_000

    blocks = read(content, layout=QUOTED)

    (bad,) = [bad for block in blocks for bad in block.bad]
    assert_names(bad.error, "enclosed", "closed")
    assert (bad.record, bad.raw) == (1, content[4 : 4 + (1 << 16)])
    assert rows(blocks) == [(1, "a")]


def test_an_enclosed_record_above_the_limit_is_bad_and_the_next_loads() -> None:
    long = b'2,"' + b"x\n" * 50 + b'"'

    blocks = read(b"1,a\n" + long + b"\n3,c\n", layout=QUOTED, line_bytes_max=60)

    (error,) = errors(blocks)
    assert_names(error, "60", f"{len(long)}")
    assert rows(blocks) == [(1, "a"), (3, "c")]


@pytest.mark.parametrize("layout", [PLAIN, QUOTED])
def test_a_line_above_the_limit_is_bad_and_the_next_loads(layout: CsvLayout) -> None:
    long = b"2," + b"x" * 100_000

    blocks = read(b"1,a\n" + long + b"\n3,c\n", layout=layout, line_bytes_max=70_000)

    (bad,) = [bad for block in blocks for bad in block.bad]
    assert (bad.record, bad.raw) == (1, long[: 1 << 16])
    assert_names(bad.error, "70000", "100003")
    assert rows(blocks) == [(1, "a"), (3, "c")]


@pytest.mark.parametrize("last", [b"1", b"x"])
def test_a_hundred_thousand_columns_load(last: bytes) -> None:
    type_by_column: dict[str, pa.DataType] = {f"f{at}": pa.string() for at in range(99_999)}
    columns = pa.schema({**type_by_column, "n": pa.int64()})
    content = b",".join(b"%d" % at for at in range(99_999)) + b"," + last + b"\n"

    (block,) = read(content, columns=columns)

    assert (block.batch.num_rows, len(block.bad)) == ((1, 0) if last == b"1" else (0, 1))
