"""Read JSON lines one by one, so that a bad line costs only itself.

Invariant: a line that is read as part of a clean block is read here too, with the same
values; what happens to a line does not depend on its neighbours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from penstock.sources.formats.json_arrow import JsonShape, parse_records, read_directly
from penstock.sources.formats.json_decode import BadRecordError, decode_record

_T = TypeVar("_T")

_BLANK = b" \t\r"


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What was read of some lines: rows, their lines, the blank and the bad ones."""

    batch: pa.RecordBatch
    row_lines: tuple[int, ...]
    blank: int
    reason_by_bad_line: dict[int, str]


def read_line_by_line(lines: Sequence[bytes], shape: JsonShape) -> Records:
    """Read every line that holds a record of the wanted columns; say what the others lack."""
    return read_records(
        lines, shape, write=lambda line: None if blank(line) else rendered(line, shape)
    )


def blank(line: bytes) -> bool:
    """Say whether a line holds nothing but space."""
    return not line.strip(_BLANK)


def read_records(
    sources: Sequence[_T], shape: JsonShape, *, write: Callable[[_T], bytes | None]
) -> Records:
    """Read what was written for every source; None is a blank, ``BadRecordError`` is kept."""
    record_by_line: dict[int, bytes] = {}
    bad: dict[int, str] = {}
    for number, source in enumerate(sources):
        try:
            record = write(source)
        except BadRecordError as error:
            bad[number] = str(error)
            continue
        if record is not None:
            record_by_line[number] = record
    blanks = len(sources) - len(record_by_line) - len(bad)
    try:
        batch = _parse(record_by_line, shape)
    except ValueError:
        bad |= _refused(record_by_line, shape)
        record_by_line = {
            line: record for line, record in record_by_line.items() if line not in bad
        }
        batch = _parse(record_by_line, shape)
    return Records(
        batch=batch, row_lines=tuple(record_by_line), blank=blanks, reason_by_bad_line=bad
    )


def rendered(line: bytes, shape: JsonShape) -> bytes:
    """Write a line's record again for the columns; ``BadRecordError`` if it has none."""
    try:
        return shape.render(decode_record(line)).encode()
    except BadRecordError:
        # Arrow is more patient in fields that no column needs: it bears nesting of any
        # depth and constants that are not JSON. What it accepts in a clean block must be
        # accepted here.
        if read_directly(line, shape) is None:
            raise
        return line


def _refused(record_by_line: dict[int, bytes], shape: JsonShape) -> dict[int, str]:
    """Find the records that do not fit by halving, because nearly all of them do."""
    try:
        _parse(record_by_line, shape)
    except ValueError as error:
        if len(record_by_line) > 1:
            items = list(record_by_line.items())
            half = len(items) // 2
            return _refused(dict(items[:half]), shape) | _refused(dict(items[half:]), shape)
        known = isinstance(error, BadRecordError)
        reason = str(error) if known else "the record does not fit the columns"
        return dict.fromkeys(record_by_line, reason)
    return {}


def _parse(record_by_line: dict[int, bytes], shape: JsonShape) -> pa.RecordBatch:
    (batch,) = parse_records(b"\n".join(record_by_line.values()), shape)
    return batch
