"""Read what stands before the records of a CSV file: skipped lines, and the header."""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase

from penstock.sources.formats.blocks import UnreadableFileError
from penstock.sources.formats.csv_columns import generated_name
from penstock.sources.formats.csv_fields import BrokenRecordError, field_cutter
from penstock.sources.formats.csv_layout import CsvLayout
from penstock.sources.formats.csv_records import CsvRecords, RecordCutter
from penstock.sources.formats.lines import LineLayout, Lines, read_lines

_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Preamble:
    """Where the records of a file begin, and how the file names their fields."""

    size_bytes: int
    lines: int
    # None where the layout has no header.
    names: tuple[str, ...] | None


def read_preamble(
    stream: BufferedIOBase, *, layout: CsvLayout, line_bytes_max: int
) -> Preamble | None:
    """Read the beginning of a file; None if the file ends before its header does."""
    lines = LineLayout(
        ending=layout.ending, block_bytes=_BLOCK_BYTES, line_bytes_max=line_bytes_max
    )
    offset = _skipped_bytes(stream, count=layout.skip_lines, lines=lines)
    if offset is None:
        return None
    if not layout.header_lines:
        return Preamble(size_bytes=offset, lines=layout.skip_lines, names=None)
    cutter = RecordCutter(
        layout, line_bytes_max=line_bytes_max, offset=offset, line=layout.skip_lines
    )
    seen = 0
    names: tuple[str, ...] = ()
    for records in _records(stream, cutter, offset=offset, lines=lines):
        if not seen and records.texts:
            names = _names(records, layout)
        own = layout.header_lines - seen
        seen += len(records.texts)
        if len(records.texts) > own:
            return Preamble(
                size_bytes=records.offsets[own], lines=records.lines[own], names=names
            )
        if seen == layout.header_lines:
            return Preamble(size_bytes=cutter.offset, lines=cutter.line, names=names)
    return None


def _skipped_bytes(stream: BufferedIOBase, *, count: int, lines: LineLayout) -> int | None:
    """Give the place behind so many lines; None if the file has no more."""
    if not count:
        return 0
    for block in read_lines(stream, start=0, end=None, layout=lines):
        found = 1 if block.too_long else bytes(block.data).count(lines.ending)
        if found >= count:
            return _behind_lines(block, count=count, lines=lines)
        count -= found
    return None


def _behind_lines(block: Lines, *, count: int, lines: LineLayout) -> int:
    if block.too_long:
        return block.offset + block.size_bytes
    rest = bytes(block.data).split(lines.ending, count)[count]
    return block.offset + block.size_bytes - len(rest)


def _records(
    stream: BufferedIOBase, cutter: RecordCutter, *, offset: int, lines: LineLayout
) -> Iterator[CsvRecords]:
    for block in read_lines(stream, start=offset, end=None, layout=lines):
        yield cutter.cut(block)
    yield cutter.finish()


def _names(records: CsvRecords, layout: CsvLayout) -> tuple[str, ...]:
    """Read the names of the first record; a field without a name gets one by its position."""
    if not records.texts[0]:
        return ()
    try:
        if 0 in records.fault_by_record:
            raise BrokenRecordError(records.fault_by_record[0])
        fields = field_cutter(layout)(records.texts[0])
        names = [(field or b"").decode() for field in fields]
    except UnicodeDecodeError as error:
        raise _unreadable("a name is not UTF-8", line=records.lines[0]) from error
    except BrokenRecordError as error:
        raise _unreadable(str(error), line=records.lines[0]) from error
    return tuple(name or generated_name(field) for field, name in enumerate(names))


def _unreadable(reason: str, *, line: int) -> UnreadableFileError:
    return UnreadableFileError(
        f"the header on line {line + 1} of the file cannot be read: {reason}",
        hint='Mend the file, or skip lines before its header with the option "skip_lines".',
    )
