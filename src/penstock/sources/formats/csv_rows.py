"""Read a byte range of a CSV file into Arrow record batches."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BufferedIOBase

import pyarrow as pa

from penstock.model.files import MissingColumns
from penstock.sources.formats.blocks import BadRecord, RecordBlock
from penstock.sources.formats.csv_arrow import read_at_once
from penstock.sources.formats.csv_columns import CsvShape, csv_shape
from penstock.sources.formats.csv_layout import CsvLayout, csv_splittable
from penstock.sources.formats.csv_one_by_one import read_one_by_one
from penstock.sources.formats.csv_preamble import Preamble, read_preamble
from penstock.sources.formats.csv_records import CsvRecords, RecordCutter, content
from penstock.sources.formats.lines import LineLayout, Lines, count_lines_before, read_lines

_LINES = LineLayout()


def read_csv(  # noqa: PLR0913 - A file's columns, its layout and a range of it are all needed.
    stream: BufferedIOBase,
    *,
    columns: pa.Schema,
    wanted: tuple[str, ...],
    layout: CsvLayout,
    start: int,
    end: int | None,
    missing: MissingColumns,
    rescue: bool,
    lines: LineLayout = _LINES,
) -> Iterator[RecordBlock]:
    """Read the records that begin in ``[start, end)`` of the file; None is the file's end.

    The header is no record, but its lines count where records are numbered.
    """
    lines = replace(lines, ending=layout.ending)
    preamble = read_preamble(stream, layout=layout, line_bytes_max=lines.line_bytes_max)
    if preamble is None:
        return
    shape = csv_shape(
        columns,
        wanted=wanted,
        layout=layout,
        names=preamble.names,
        missing=missing,
        rescue=rescue,
    )
    cutter = RecordCutter(
        layout,
        line_bytes_max=lines.line_bytes_max,
        offset=preamble.size_bytes,
        line=_first_line(stream, preamble, layout=layout, start=start),
    )
    if csv_splittable(layout):
        begin = max(start, preamble.size_bytes)
        read = read_lines(stream, start=begin, end=end, layout=lines)
        yield from _blocks(read, cutter, shape=shape, own=_Range(start=0, end=None))
    else:
        read = read_lines(stream, start=preamble.size_bytes, end=None, layout=lines)
        yield from _blocks(read, cutter, shape=shape, own=_Range(start=start, end=end))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """The part of the records read that is wanted, by where they begin."""

    start: int
    end: int | None

    def before(self, offset: int) -> bool:
        """Say whether the range ends before a place."""
        return self.end is not None and self.end <= offset

    def holds(self, lines: Lines) -> bool:
        """Say whether all that begins in a block is wanted."""
        behind = lines.offset + lines.size_bytes
        return self.start <= lines.offset and (self.end is None or behind <= self.end)

    def of(self, records: CsvRecords) -> CsvRecords:
        """Give the records that are wanted."""
        first = bisect_left(records.offsets, self.start)
        count = len(records.offsets)
        behind = count if self.end is None else bisect_left(records.offsets, self.end)
        return records if (first, behind) == (0, count) else records.part(first, behind)


def _first_line(
    stream: BufferedIOBase, preamble: Preamble, *, layout: CsvLayout, start: int
) -> int:
    """Give the number of the first line that is read; the first one of the range is 0."""
    if start == 0:
        return preamble.lines
    if csv_splittable(layout) and start >= preamble.size_bytes:
        return 0
    earlier = 1 + count_lines_before(stream, start - 1, ending=layout.ending)
    return preamble.lines - earlier


def _blocks(
    read: Iterator[Lines], cutter: RecordCutter, *, shape: CsvShape, own: _Range
) -> Iterator[RecordBlock]:
    for lines in read:
        if own.before(cutter.offset):
            return
        plain = cutter.idle and not lines.too_long and own.holds(lines)
        batch = read_at_once(content(lines), shape) if plain else None
        if batch is None:
            yield from _mixed_block(own.of(cutter.cut(lines)), shape)
            continue
        yield RecordBlock(batch=batch, first_line=cutter.line, lines=batch.num_rows)
        cutter.pass_over(lines, count=batch.num_rows)
    yield from _mixed_block(own.of(cutter.finish()), shape)


def _mixed_block(records: CsvRecords, shape: CsvShape) -> Iterator[RecordBlock]:
    if not records.texts:
        return
    rows = read_one_by_one(records, shape)
    first = records.lines[0]
    row_lines = tuple(records.lines[record] - first for record in rows.records)
    yield RecordBlock(
        batch=rows.batch,
        first_line=first,
        lines=len(records.texts),
        blank=rows.blank,
        bad=tuple(
            BadRecord(
                line=records.lines[record],
                offset=records.offsets[record],
                error=rows.reason_by_bad_record[record],
                raw=records.texts[record],
            )
            for record in sorted(rows.reason_by_bad_record)
        ),
        row_lines=None if row_lines == tuple(range(len(row_lines))) else row_lines,
    )
