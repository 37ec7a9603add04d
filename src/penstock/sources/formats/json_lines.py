"""Read a byte range of a file of JSON lines into Arrow record batches."""

from collections.abc import Iterator
from io import BufferedIOBase
from itertools import accumulate

import pyarrow as pa

from penstock.sources.formats.blocks import BadRecord, RecordBlock
from penstock.sources.formats.json_arrow import (
    JsonShape,
    json_shape,
    read_directly,
)
from penstock.sources.formats.json_records import read_line_by_line
from penstock.sources.formats.lines import BYTE_ORDER_MARK, LineLayout, Lines, read_lines

_LAYOUT = LineLayout()


def read_json_lines(
    stream: BufferedIOBase,
    *,
    schema: pa.Schema,
    start: int,
    end: int | None,
    layout: LineLayout = _LAYOUT,
) -> Iterator[RecordBlock]:
    """Read the lines that begin in ``[start, end)`` of the file; None is the file's end."""
    shape = json_shape(schema)
    first_line = 0
    for lines in read_lines(stream, start=start, end=end, layout=layout):
        for block in _blocks(lines, shape=shape, first_line=first_line, layout=layout):
            yield block
            first_line += block.lines


def _blocks(
    lines: Lines, *, shape: JsonShape, first_line: int, layout: LineLayout
) -> Iterator[RecordBlock]:
    if lines.too_long:
        yield _too_long_block(lines, shape=shape, first_line=first_line, layout=layout)
        return
    marked = lines.offset == 0 and lines.data[: len(BYTE_ORDER_MARK)] == BYTE_ORDER_MARK
    data = lines.data[len(BYTE_ORDER_MARK) :] if marked else lines.data
    batches = read_directly(data, shape)
    if batches is None:
        offset = lines.offset + len(lines.data) - len(data)
        yield _mixed_block(bytes(data), offset=offset, shape=shape, first_line=first_line)
        return
    for batch in batches:
        yield RecordBlock(batch=batch, first_line=first_line, lines=batch.num_rows)
        first_line += batch.num_rows


def _mixed_block(data: bytes, *, offset: int, shape: JsonShape, first_line: int) -> RecordBlock:
    texts = data.split(b"\n")
    if not texts[-1]:
        texts.pop()
    records = read_line_by_line(texts, shape)
    offsets = _line_offsets(texts, first=offset)
    bad = tuple(
        BadRecord(
            line=first_line + line,
            offset=offsets[line],
            error=records.reason_by_bad_line[line],
            raw=texts[line].removesuffix(b"\r"),
        )
        for line in sorted(records.reason_by_bad_line)
    )
    return RecordBlock(
        batch=records.batch,
        first_line=first_line,
        lines=len(texts),
        blank=records.blank,
        bad=bad,
        row_lines=records.row_lines if records.blank or bad else None,
    )


def _line_offsets(texts: list[bytes], *, first: int) -> list[int]:
    return list(accumulate((len(text) + 1 for text in texts), initial=first))


def _too_long_block(
    lines: Lines, *, shape: JsonShape, first_line: int, layout: LineLayout
) -> RecordBlock:
    limit, found = layout.line_bytes_max, lines.size_bytes
    bad = BadRecord(
        line=first_line,
        offset=lines.offset,
        error=f"a line may have {limit} bytes at most, found {found}",
        raw=bytes(lines.data).removesuffix(b"\r"),
    )
    return RecordBlock(
        batch=pa.RecordBatch.from_pylist([], schema=shape.schema),
        first_line=first_line,
        lines=1,
        bad=(bad,),
        row_lines=(),
    )
