"""The result of a CSV record depends neither on its neighbours nor on the reading path."""

import io
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sources.files.kind import MissingColumns
from penstock.sources.formats.blocks import BadRecord, RecordBlock, Wanted
from penstock.sources.formats.csv_reader import read_at_once, read_csv, read_one_by_one
from penstock.sources.formats.csv_records import CsvRecords, RecordSplitter, csv_shape
from penstock.sources.formats.csv_text import CsvLayout
from penstock.sources.formats.lines import LineLayout, Lines, count_lines_before

TYPE_BY_COLUMN: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "note": pa.string(),
    "total": pa.decimal128(6, 2),
    "at": pa.timestamp("us", "UTC"),
}
COLUMNS = pa.schema(TYPE_BY_COLUMN)
TEXTS: dict[str, pa.DataType] = dict.fromkeys(COLUMNS.names, pa.string())
WANTED = ("note", "id", "at")
LINE_BYTES_MAX = 60

layouts = st.builds(
    CsvLayout,
    separator=st.sampled_from([b",", b"\t", b"||", b"\x01", b"\0", "é".encode(), b"ab"]),
    ending=st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"#", b"bc", b"\x02\x03"]),
    enclose=st.sampled_from([None, b'"', b"'"]),
    escape=st.sampled_from([None, b"\\", b"!"]),
    trim_double_quotes=st.booleans(),
    empty_field_as_null=st.booleans(),
)
fields = st.sampled_from(
    [
        *(b"", b"1", b" 2 ", b"x", b"\\N", b"1.5", b"1.005", b"-0", b"99999999999999999999"),
        *(b"2026-11-15", b"2026-11-15T10:00:00Z", b"2026-11-15 10:00:00+02:00", b"true"),
        *(b'"', b"'", b'"1"', b'""', b'"\\N"', b"'1'", b"''", b'"a""b"', b"'a''b'", b"a\"b'c"),
        *(b'"a"b', b'"a\\"b"', b"'a!'b'", b'"a\\', b"!", b"\\"),
        *(b"\r", b"\n", b"\0", b"\xff", b"\xc3", b"\xef\xbb\xbf", "øé".encode(), b"a", b"|"),
        *(b"\x1f", b"y" * 61),
    ]
)
plain_fields = st.sampled_from([b"1", b"2", b"", b"\\N", b"17"])
# Most records are plain, so that plain blocks occur too.
plain_records = st.tuples(plain_fields, fields, plain_fields, st.just(b"2026-11-15"))
records = st.one_of(
    plain_records.map(list), plain_records.map(list), st.lists(fields, max_size=6)
)
returns = st.sampled_from([b"", b"", b"\r"])


@st.composite
def contents(draw: st.DrawFn, layout: CsvLayout) -> bytes:
    pieces = [draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"]))]
    for fields_of_record in draw(st.lists(records, max_size=6)):
        wrap = draw(st.booleans()) and layout.enclose
        mark = layout.enclose or b""
        texts = [mark + field + mark if wrap else field for field in fields_of_record]
        pieces += [layout.separator.join(texts), draw(returns), layout.ending]
    whole = b"".join(pieces)
    return whole if draw(st.booleans()) else whole.removesuffix(layout.ending)


cases = layouts.flatmap(lambda layout: st.tuples(st.just(layout), contents(layout)))
headers = st.sampled_from([[b"id", b"note", b"other", b"AT"], [b"at", b'"x"', b"", b"id"]])


@st.composite
def plain_contents(draw: st.DrawFn, layout: CsvLayout) -> bytes:
    """Draw fields that Arrow can usually read as a block."""
    mark = layout.enclose or b""
    odd = draw(fields)
    ordinary = [b"", b"x", b" y ", b"\\N", "ø☃".encode(), odd]
    enclosed = [mark + text + mark for text in (b"", b"z", b"\\N", mark * 2, layout.separator)]
    field = st.sampled_from([*ordinary, *enclosed] if mark else [*ordinary, b'"q"', b'""'])
    lines = draw(st.lists(st.lists(field, min_size=3, max_size=3), min_size=1, max_size=5))
    ending = draw(returns) + layout.ending
    whole = b"".join(layout.separator.join(line) + ending for line in lines)
    return whole if draw(st.booleans()) else whole.removesuffix(layout.ending)


plain_cases = layouts.flatmap(lambda layout: st.tuples(st.just(layout), plain_contents(layout)))


@settings(deadline=None, max_examples=500)
@given(case=plain_cases | cases, columns=st.sampled_from([TEXTS, TYPE_BY_COLUMN]))
def test_records_read_one_by_one_equal_records_read_as_a_block(
    case: tuple[CsvLayout, bytes], columns: dict[str, pa.DataType]
) -> None:
    layout, content = case
    wanted = Wanted(columns=pa.schema(columns), names=WANTED, rescue=True)
    shape = csv_shape(wanted, layout=layout, names=None)

    batch = read_at_once(content, shape)

    if batch is not None:
        rows = read_one_by_one(split_records(content, layout), shape)
        assert rows.batch.equals(batch)
        assert (rows.blank, rows.bad) == (0, ())


@settings(deadline=None, max_examples=400)
@given(case=cases, missing=st.sampled_from(MissingColumns), rescue=st.booleans())
def test_a_bad_record_does_not_change_the_result_of_others(
    *, case: tuple[CsvLayout, bytes], missing: MissingColumns, rescue: bool
) -> None:
    layout, content = case
    good = layout.separator.join([b"1", b"x", b"1", b"2026-11-15"]) + layout.ending
    bad = layout.separator.join([b"no number"] * 4) + layout.ending

    after_good = read(good + content, layout, missing=missing, rescue=rescue)
    after_bad = read(bad + content, layout, missing=missing, rescue=rescue)

    assert rows_of(after_bad) == rows_of(after_good)[1:]
    assert [(bad.error, bad.raw) for bad in bads_of(after_bad)[1:]] == [
        (bad.error, bad.raw) for bad in bads_of(after_good)
    ]


@settings(deadline=None, max_examples=500)
@given(
    case=cases,
    header=st.none() | headers,
    skip_lines=st.integers(0, 2),
    split_points=st.sets(st.integers(1, 120), max_size=4),
    block_bytes=st.integers(1, 80),
    rescue=st.booleans(),
)
def test_ranges_together_read_every_record_once_and_in_order(
    *,
    case: tuple[CsvLayout, bytes],
    header: list[bytes] | None,
    skip_lines: int,
    split_points: set[int],
    block_bytes: int,
    rescue: bool,
) -> None:
    layout, content = case
    if header is not None:
        content = layout.separator.join(header) + layout.ending + content
    content = layout.ending * skip_lines + content
    layout = replace(layout, skip_lines=skip_lines, header_lines=0 if header is None else 1)
    edges = [0, *sorted(split_points)]

    parts = [
        read(content, layout, start=start, end=end, block_bytes=block_bytes, rescue=rescue)
        for start, end in zip(edges, [*edges[1:], None], strict=True)
    ]

    whole = read(content, layout, rescue=rescue)
    blocks = [block for part in parts for block in part]
    assert rows_of(blocks) == rows_of(whole)
    assert [
        (lines_before(content, start, layout) + bad.record, bad.error, bad.raw)
        for start, part in zip(edges, parts, strict=True)
        for bad in bads_of(part)
    ] == [(bad.record, bad.error, bad.raw) for bad in bads_of(whole)]
    assert sum(block.lines for block in blocks) == sum(block.lines for block in whole)
    assert sum(block.blank for block in blocks) == sum(block.blank for block in whole)


@settings(deadline=None, max_examples=300)
@given(case=cases, start=st.integers(0, 60), block_bytes=st.integers(1, 80))
def test_the_line_number_of_a_record_leads_to_the_record(
    case: tuple[CsvLayout, bytes], start: int, block_bytes: int
) -> None:
    layout, content = case
    layout = replace(layout, skip_lines=1)

    blocks = read(content, layout, start=start, block_bytes=block_bytes)

    for bad in bads_of(blocks):
        line = lines_before(content, start, layout) + bad.record
        assert content.split(layout.ending, line)[line].startswith(bad.raw)
    assert all(
        block.lines == block.batch.num_rows + block.blank + len(block.bad) for block in blocks
    )
    in_order = [line for block in blocks for line in lines_of(block)]
    assert in_order == sorted(set(in_order))


def lines_before(content: bytes, start: int, layout: CsvLayout) -> int:
    stream = io.BytesIO(content)
    return 1 + count_lines_before(stream, start - 1, ending=layout.ending) if start else 0


def split_records(content: bytes, layout: CsvLayout) -> CsvRecords:
    lines = Lines(offset=1, data=memoryview(content), size_bytes=len(content))
    return RecordSplitter(layout, line_bytes_max=1 << 20).split_block(lines)


def read(  # noqa: PLR0913 - Every parameter varies in a test.
    content: bytes,
    layout: CsvLayout,
    *,
    start: int = 0,
    end: int | None = None,
    block_bytes: int = 1 << 20,
    missing: MissingColumns = MissingColumns.NULL,
    rescue: bool = False,
) -> list[RecordBlock]:
    return list(
        read_csv(
            io.BytesIO(content),
            wanted=Wanted(columns=COLUMNS, names=WANTED, missing=missing, rescue=rescue),
            layout=layout,
            start=start,
            end=end,
            lines=LineLayout(block_bytes=block_bytes, line_bytes_max=LINE_BYTES_MAX),
        )
    )


def rows_of(blocks: list[RecordBlock]) -> list[Any]:
    return [row for block in blocks for row in block.batch.to_pylist()]


def bads_of(blocks: list[RecordBlock]) -> list[BadRecord]:
    return [bad for block in blocks for bad in block.bad]


def lines_of(block: RecordBlock) -> list[int]:
    return sorted([*block.record_of_row, *(bad.record for bad in block.bad)])
