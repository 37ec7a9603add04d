"""Every line is read once, with the same result for all ranges and block sizes."""

import io
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sources.formats.blocks import BadRecord, Wanted
from penstock.sources.formats.json_reader import json_reading, read_json
from penstock.sources.formats.lines import LineLayout, count_lines_before

TYPES: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "note": pa.string(),
    "price": pa.float64(),
    "total": pa.decimal128(6, 2),
    "at": pa.timestamp("us", "UTC"),
}
SCHEMA = pa.schema(TYPES)
LINE_BYTES_MAX = 60

fragments = st.sampled_from(
    [
        b'{"id":1}',
        b'{"id":2,"note":"x"}',
        b'{"note":1.10}',
        b'{"note":"\xc3\xb8"}',
        b'{"note":"\\u00f8","other":Inf}',
        b'{"price":1e5}',
        b'{"price":NaN}',
        b'{"total":1.5}',
        b'{"total":99999}',
        b'{"total":1.005}',
        b'{"at":"2026-11-15"}',
        b'{"at":"2026-11-15T10:00:00Z"}',
        b'{"at":"x"}',
        b'{"note":"' + b"y" * 60 + b'"}',
        b"null",
        b"[]",
        b"{",
        b"}",
        b'"',
        b" ",
        b"\r",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b",",
        b"\n",
        b"\r\n",
    ]
)
# Most lines are whole records, so that plain blocks occur too.
clean_lines = st.sampled_from([b'{"id":3}\n', b'{"id":4,"note":"z"}\n', b'{"id":5}\r\n'])
contents = st.lists(st.one_of(clean_lines, fragments), max_size=14).map(b"".join)


@settings(deadline=None, max_examples=200)
@given(
    content=contents, split_points=st.sets(st.integers(0, 220)), block_bytes=st.integers(1, 100)
)
def test_ranges_together_read_every_line_of_the_file_once_and_in_order(
    content: bytes, split_points: set[int], block_bytes: int
) -> None:
    stream = io.BytesIO(content)
    edges = [0, *sorted(split_points - {0})]
    ranges = zip(edges, [*edges[1:], None], strict=True)

    parts = [read_part(stream, start, end, block_bytes) for start, end in ranges]

    whole_rows, whole_bad, whole_counts = read_part(stream, 0, None, 1 << 20)
    assert [row for rows, _, _ in parts for row in rows] == whole_rows
    assert [
        (lines_before(content, start) + bad.record, bad.error, bad.raw)
        for start, (_, bads, _) in zip(edges, parts, strict=True)
        for bad in bads
    ] == [(bad.record, bad.error, bad.raw) for bad in whole_bad]
    assert tuple(sum(sums) for sums in zip(*(part[2] for part in parts), strict=True)) == (
        whole_counts
    )


@settings(deadline=None, max_examples=200)
@given(content=contents, start=st.integers(0, 200))
def test_the_place_of_a_bad_line_leads_to_the_line(content: bytes, start: int) -> None:
    stream = io.BytesIO(content)

    _, bads, _ = read_part(stream, start, None, 16)

    own = content.find(b"\n", start - 1) + 1 if start else 0
    first = count_lines_before(stream, own)
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert all(lines[first + bad.record].startswith(bad.raw) for bad in bads)


@settings(deadline=None, max_examples=200)
@given(content=contents)
def test_every_line_is_a_row_or_blank_or_bad(content: bytes) -> None:
    rows, bads, (lines, blank) = read_part(io.BytesIO(content), 0, None, 1 << 20)

    assert len(rows) + len(bads) + blank == lines


def read_part(
    stream: io.BytesIO, start: int, end: int | None, block_bytes: int
) -> tuple[list[Any], list[BadRecord], tuple[int, int]]:
    blocks = list(
        read_json(
            stream,
            reading=json_reading(Wanted(columns=SCHEMA, names=tuple(SCHEMA.names))),
            start=start,
            end=end,
            lines=LineLayout(block_bytes=block_bytes, line_bytes_max=LINE_BYTES_MAX),
        )
    )
    return (
        [row for block in blocks for row in block.batch.to_pylist()],
        [bad for block in blocks for bad in block.bad],
        (
            sum(block.lines for block in blocks),
            sum(block.blank for block in blocks),
        ),
    )


def lines_before(content: bytes, start: int) -> int:
    return content.count(b"\n", 0, start - 1) + 1 if start else 0
