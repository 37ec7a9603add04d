"""Read a byte range of a JSON file into Arrow record batches.

Invariant: a line that is read as part of a clean block is read here too, with the same
values; what happens to a line does not depend on its neighbours.

Invariant: what happens to a record does not depend on its neighbours, and without any of the
options it is what happens to it among plain lines.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from io import BufferedIOBase
from itertools import accumulate, islice
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from penstock.arrow.casts import shown
from penstock.errors import Code, UserError
from penstock.sources.files.options import RESCUED, MissingColumns
from penstock.sources.formats.blocks import BadRecord, RecordBlock, column_message
from penstock.sources.formats.json_arrays import (
    NOT_DECODED,
    JsonSource,
    element_groups,
    line_groups,
    rooted,
)
from penstock.sources.formats.json_columns import (
    JsonShape,
    json_shape,
    parse_records,
    read_directly,
    shown_value,
)
from penstock.sources.formats.json_values import (
    AmbiguousObject,
    BadRecordError,
    JsonPath,
    NoSuchPartError,
    decode_document,
    decode_record,
    json_path,
    json_text,
    numbers_as_texts,
)
from penstock.sources.formats.lines import BYTE_ORDER_MARK, LineLayout, Lines, read_lines

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
        yield _mixed_lines(bytes(data), offset=offset, shape=shape, first_line=first_line)
        return
    for batch in batches:
        yield RecordBlock(batch=batch, first_line=first_line, lines=batch.num_rows)
        first_line += batch.num_rows


def _mixed_lines(data: bytes, *, offset: int, shape: JsonShape, first_line: int) -> RecordBlock:
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


_LINES = LineLayout()
_WHOLE = JsonPath(text="$", steps=())


class JsonOptions(Protocol):
    """What a source says of its JSON: the options of files, or of a stream's payloads."""

    @property
    def strip_outer_array(self) -> bool: ...
    @property
    def json_root(self) -> str: ...
    @property
    def jsonpaths(self) -> str: ...
    @property
    def num_as_string(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLayout:
    """Where the records and their values are in the documents of a file."""

    strip_outer_array: bool = False
    root: JsonPath = _WHOLE
    # One for each column, or none: columns are then found by name.
    paths: tuple[JsonPath, ...] = ()
    num_as_string: bool = False

    @property
    def plain(self) -> bool:
        """Say whether every line is a record, and every field a column's value."""
        return not (
            self.strip_outer_array or self.root.steps or self.paths or self.num_as_string
        )


def json_layout(options: JsonOptions) -> JsonLayout:
    """Read the options about JSON; ``UserError`` if one of them has no meaning."""
    return JsonLayout(
        strip_outer_array=options.strip_outer_array,
        root=json_path(options.json_root, option="json_root") if options.json_root else _WHOLE,
        paths=_column_paths(options.jsonpaths) if options.jsonpaths else (),
        num_as_string=options.num_as_string,
    )


def _column_paths(text: str) -> tuple[JsonPath, ...]:
    try:
        paths = json.loads(text)
    except (ValueError, RecursionError):
        paths = None
    if not isinstance(paths, list) or not paths or not all(isinstance(p, str) for p in paths):
        raise UserError(
            f'option "jsonpaths" must be a JSON array of one or more texts, not {shown(text)}',
            code=Code.OPTION_ERR,
            hint='Write for example ["$.id", "$.customer.city"].',
        )
    return tuple(json_path(path, option="jsonpaths") for path in paths)


def read_json_documents(  # noqa: PLR0913 - What a range needs, as in every format.
    stream: BufferedIOBase,
    *,
    columns: pa.Schema,
    wanted: tuple[str, ...],
    layout: JsonLayout,
    start: int,
    end: int | None,
    missing: MissingColumns,
    rescue: bool,
) -> Iterator[RecordBlock]:
    """Read the records that begin in ``[start, end)`` of the file; None is the file's end.

    A file of arrays is not cut: all of it belongs to the range that begins at 0.
    """
    reading = json_reading(columns, wanted, layout=layout, missing=missing, rescue=rescue)
    first_line = 0
    if layout.strip_outer_array:
        groups = element_groups(stream, root=layout.root) if start == 0 else iter(())
    else:
        groups = line_groups(stream, start=start, end=end, layout=_LINES)
    for group in groups:
        yield from read_sources(group, reading=reading, first_line=first_line)
        first_line += len(group)


def first_records(stream: BufferedIOBase, *, layout: JsonLayout, records_max: int) -> bytes:
    """Give the first records of a file as JSON lines; what is no record teaches nothing."""
    groups = (
        element_groups(stream, root=layout.root)
        if layout.strip_outer_array
        else line_groups(stream, start=0, end=None, layout=_LINES)
    )
    lines: list[bytes] = []
    for source in islice((source for group in groups for source in group), records_max):
        with suppress(BadRecordError):
            lines.append(json_text(_record(source, layout.root)).encode())
    return b"\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonReading:
    """How a record becomes a row."""

    layout: JsonLayout
    shape: JsonShape
    path_by_column: dict[str, JsonPath]
    # The top-level fields that columns are read from.
    named: frozenset[str | int]
    missing: MissingColumns
    rescue: bool
    # Whether a record is read as among plain lines.
    neutral: bool


def json_reading(
    columns: pa.Schema,
    wanted: tuple[str, ...],
    *,
    layout: JsonLayout,
    missing: MissingColumns,
    rescue: bool,
) -> JsonReading:
    """Work out how records become rows of the wanted columns."""
    if layout.paths and len(layout.paths) != len(columns.names):
        raise UserError(
            f'option "jsonpaths" must have as many paths as there are columns,'
            f" {len(columns.names)}, not {len(layout.paths)}",
            code=Code.TYPE_ERR,
            detail=f"The columns are {', '.join(columns.names)}.",
            hint='Name the columns with the option "schema", in the order of the paths.',
        )
    path_by_column = dict(zip(columns.names, layout.paths, strict=False))
    rescued = [pa.field(RESCUED, pa.string())] if rescue else []
    return JsonReading(
        layout=layout,
        shape=json_shape(pa.schema([*(columns.field(name) for name in wanted), *rescued])),
        path_by_column={name: path_by_column[name] for name in wanted if layout.paths},
        named=frozenset(path.steps[0] for path in layout.paths if path.steps)
        if layout.paths
        else frozenset(columns.names),
        missing=missing,
        rescue=rescue,
        neutral=replace(layout, strip_outer_array=False).plain
        and not rescue
        and missing is MissingColumns.NULL,
    )


def read_sources(
    sources: list[JsonSource], *, reading: JsonReading, first_line: int
) -> Iterator[RecordBlock]:
    """Read the records of some lines or elements; the first of them has the given number."""
    batches = _direct_batches(sources, reading)
    if batches is None:
        yield _mixed_block(sources, reading=reading, first_line=first_line)
        return
    for batch in batches:
        yield RecordBlock(batch=batch, first_line=first_line, lines=batch.num_rows)
        first_line += batch.num_rows


def _direct_batches(
    sources: list[JsonSource], reading: JsonReading
) -> list[pa.RecordBatch] | None:
    """Read plain records as Arrow reads them, many at once; else give None."""
    if not reading.neutral or any(source.error for source in sources):
        return None
    lines = b"\n".join([source.text for source in sources])
    # A last text without any octet would not be noticed.
    one_line_each = lines.count(b"\n") == len(sources) - 1 and not lines.endswith(b"\n")
    return read_directly(lines, reading.shape) if one_line_each else None


def _mixed_block(
    sources: list[JsonSource], *, reading: JsonReading, first_line: int
) -> RecordBlock:
    records = read_records(sources, reading.shape, write=partial(_written, reading=reading))
    bad = tuple(
        BadRecord(
            line=first_line + line,
            offset=sources[line].offset,
            error=reason,
            raw=sources[line].text.removesuffix(b"\r"),
        )
        for line, reason in sorted(records.reason_by_bad_line.items())
    )
    return RecordBlock(
        batch=records.batch,
        first_line=first_line,
        lines=len(sources),
        blank=records.blank,
        bad=bad,
        row_lines=records.row_lines if records.blank or bad else None,
    )


def _written(source: JsonSource, *, reading: JsonReading) -> bytes | None:
    if source.error:
        raise BadRecordError(source.error)
    if source.line and blank(source.text):
        return None
    # A text over several lines is not given to those who take a line for a record.
    if reading.neutral and b"\n" not in source.text:
        return rendered(source.text, reading.shape)
    record = _record(source, reading.layout.root)
    row = _by_paths(record, reading) if reading.path_by_column else _by_names(record, reading)
    if reading.layout.num_as_string:
        for field in reading.shape.schema:
            row[field.name] = numbers_as_texts(row.get(field.name), field.type)
    if reading.rescue:
        row[RESCUED] = _rescued(record, reading.named)
    return reading.shape.render(row).encode()


def _record(source: JsonSource, root: JsonPath) -> dict[str, Any]:
    if source.value is NOT_DECODED and not root.steps:
        return decode_record(source.text)
    value = source.value
    if value is NOT_DECODED:
        value = rooted(decode_document(source.text), root)
    if isinstance(value, dict):
        return value
    raise BadRecordError(
        f"json_root {root.text} must lead to an object, not {shown_value(value)}"
    )


def _by_names(record: dict[str, Any], reading: JsonReading) -> dict[str, Any]:
    names = [name for name in reading.shape.schema.names if not _is_rescued(name, reading)]
    if reading.missing is MissingColumns.FAIL:
        for name in names:
            if name not in record:
                raise BadRecordError(
                    column_message((name,), f"the record has no field {shown(name)}")
                )
    row = {name: record[name] for name in names if name in record}
    if not isinstance(record, AmbiguousObject):
        return row
    ambiguous = AmbiguousObject(list(row.items()))
    ambiguous.repeated = record.repeated.intersection(names)
    return ambiguous


def _is_rescued(name: str, reading: JsonReading) -> bool:
    return reading.rescue and name == RESCUED


def _by_paths(record: dict[str, Any], reading: JsonReading) -> dict[str, Any]:
    row = {}
    for name, path in reading.path_by_column.items():
        try:
            row[name] = path.part_of(record)
        except NoSuchPartError as error:
            if reading.missing is MissingColumns.FAIL:
                reason = f"the path {path.text} leads nowhere"
                raise BadRecordError(column_message((name,), reason)) from error
        except BadRecordError as error:
            raise BadRecordError(column_message((name,), str(error))) from error
    return row


def _rescued(record: dict[str, Any], named: frozenset[str | int]) -> str | None:
    extra = {name: value for name, value in record.items() if name not in named}
    return json_text(extra) if extra else None
