"""Read a byte range of a JSON file into Arrow record batches.

Arrow's parser reads whole blocks of plain records. Other records are decoded one by one.

Invariant: the result of a record does not depend on its neighbours.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from io import BufferedIOBase
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.arrow.bisect import bad_rows
from penstock.arrow.casts import shown
from penstock.errors import Code, UserError
from penstock.model.formats import Payload
from penstock.sources.files.kind import RESCUED, FilesOptions, MissingColumns
from penstock.sources.formats.blocks import BadRecord, RecordBlock, Wanted, column_message
from penstock.sources.formats.json_arrays import (
    NOT_DECODED,
    JsonSource,
    element_groups,
    line_sources,
    part_at_root,
)
from penstock.sources.formats.json_columns import (
    JsonShape,
    json_shape,
    parse_records,
    read_directly,
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
    shown_value,
)
from penstock.sources.formats.lines import LineLayout, read_lines

_BLANK = b" \t\r"
_LINES = LineLayout()
_WHOLE = JsonPath(text="$", steps=())


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLayout:
    """The locations of records, and of their values, in the documents of a file."""

    strip_outer_array: bool = False
    root: JsonPath = _WHOLE
    # One path per column. Without paths, columns are found by name.
    paths: tuple[JsonPath, ...] = ()
    num_as_string: bool = False

    @property
    def plain(self) -> bool:
        """Whether each line is a record, and each field is the value of a column."""
        return self == _PLAIN


_PLAIN = JsonLayout()


def json_layout(options: FilesOptions | Payload) -> JsonLayout:
    """Return the layout of the JSON options; raise ``UserError`` for a malformed option."""
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
            'option "jsonpaths" must be a JSON array of one or more strings, not '
            f"{shown(text)}",
            code=Code.OPTION_ERR,
            hint='For example, write ["$.id", "$.customer.city"].',
        )
    return tuple(json_path(path, option="jsonpaths") for path in paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonReading:
    """How to convert a record to a row."""

    wanted: Wanted
    layout: JsonLayout
    shape: JsonShape
    path_by_column: dict[str, JsonPath]
    # The top-level fields that the columns use.
    named: frozenset[str | int]
    # Whether each column is the field of the same name, and no option changes the conversion.
    plain: bool


def json_reading(wanted: Wanted, *, layout: JsonLayout = _PLAIN) -> JsonReading:
    """Return how to convert records to rows of the wanted columns."""
    columns = wanted.columns.names
    if layout.paths and len(layout.paths) != len(columns):
        raise UserError(
            f'option "jsonpaths" must have one path for each of the {len(columns)} columns,'
            f" not {len(layout.paths)} paths",
            code=Code.TYPE_ERR,
            detail=f"The columns are {', '.join(columns)}.",
            hint='Declare the columns with the option "schema", in the order of the paths.',
        )
    path_by_column = dict(zip(columns, layout.paths, strict=False))
    return JsonReading(
        wanted=wanted,
        layout=layout,
        shape=json_shape(wanted.schema),
        path_by_column={name: path_by_column[name] for name in wanted.names if layout.paths},
        named=frozenset(path.steps[0] for path in layout.paths if path.steps)
        if layout.paths
        else frozenset(columns),
        plain=replace(layout, strip_outer_array=False).plain
        and not wanted.rescue
        and wanted.missing is MissingColumns.NULL,
    )


def read_json(
    stream: BufferedIOBase,
    *,
    reading: JsonReading,
    start: int,
    end: int | None,
    lines: LineLayout = _LINES,
) -> Iterator[RecordBlock]:
    """Read the records that start in ``[start, end)`` of the file; None is the file's end.

    A file of arrays cannot be split: the range that starts at 0 reads the whole file.
    """
    parts = _parts(stream, reading.layout, start=start, end=end, lines=lines)
    first_line = 0
    for data, sources in parts:
        for block in _blocks(data, sources, reading=reading, first_line=first_line):
            yield block
            first_line += block.lines


# Some records in two forms: as JSON lines (None if impossible), and as single records.
_Part: TypeAlias = tuple[bytes | memoryview | None, Callable[[], list[JsonSource]]]


def _parts(
    stream: BufferedIOBase,
    layout: JsonLayout,
    *,
    start: int,
    end: int | None,
    lines: LineLayout,
) -> Iterator[_Part]:
    if layout.strip_outer_array:
        for group in element_groups(stream, root=layout.root) if start == 0 else ():
            yield _joined(group), partial(list, group)
        return
    for block in read_lines(stream, start=start, end=end, layout=lines):
        data = None if block.too_long else block.content
        yield data, partial(line_sources, block, lines)


def _joined(sources: list[JsonSource]) -> bytes | None:
    if any(source.error for source in sources):
        return None
    data = b"\n".join([source.text for source in sources])
    # The second condition detects an empty last text.
    one_line_each = data.count(b"\n") == len(sources) - 1 and not data.endswith(b"\n")
    return data if one_line_each else None


def _blocks(
    data: bytes | memoryview | None,
    sources: Callable[[], list[JsonSource]],
    *,
    reading: JsonReading,
    first_line: int,
) -> Iterator[RecordBlock]:
    batches = read_directly(data, reading.shape) if data and reading.plain else None
    if batches is None:
        yield read_one_by_one(sources(), reading=reading, first_line=first_line)
        return
    for batch in batches:
        after = first_line + batch.num_rows
        yield RecordBlock(
            batch=batch, record_of_row=range(first_line, after), lines=batch.num_rows
        )
        first_line = after


def read_sources(sources: list[JsonSource], *, reading: JsonReading) -> Iterator[RecordBlock]:
    """Yield the rows of some elements; the first element is line 0."""
    data = _joined(sources)
    return _blocks(data, lambda: sources, reading=reading, first_line=0)


def first_records(stream: BufferedIOBase, *, layout: JsonLayout, records_max: int) -> bytes:
    """Return the first records of a file as JSON lines; omit bad records."""
    parts = _parts(stream, layout, start=0, end=None, lines=_LINES)
    lines: list[bytes] = []
    for source in islice((source for _, sources in parts for source in sources()), records_max):
        with suppress(BadRecordError):
            lines.append(json_text(_record(source, layout.root)).encode())
    return b"\n".join(lines)


def read_one_by_one(
    sources: Sequence[JsonSource], *, reading: JsonReading, first_line: int = 0
) -> RecordBlock:
    """Decode each record by itself and report the bad ones."""
    record_by_line: dict[int, bytes] = {}
    reason_by_line: dict[int, str] = {}
    for line, source in enumerate(sources):
        try:
            record = _rendered(source, reading)
        except BadRecordError as error:
            reason_by_line[line] = str(error)
            continue
        if record is not None:
            record_by_line[line] = record
    blank = len(sources) - len(record_by_line) - len(reason_by_line)
    try:
        batch = _parse(record_by_line.values(), reading.shape)
    except ValueError:
        for line, reason in _refused(record_by_line, reading.shape).items():
            reason_by_line[line] = reason
            del record_by_line[line]
        batch = _parse(record_by_line.values(), reading.shape)
    bad = tuple(
        BadRecord(
            record=first_line + line,
            error=reason,
            raw=sources[line].text.removesuffix(b"\r"),
        )
        for line, reason in sorted(reason_by_line.items())
    )
    return RecordBlock(
        batch=batch,
        record_of_row=first_line + np.array(list(record_by_line), np.int64),
        lines=len(sources),
        blank=blank,
        bad=bad,
    )


def _parse(records: Iterable[bytes], shape: JsonShape) -> pa.RecordBatch:
    (batch,) = parse_records(b"\n".join(records), shape)
    return batch


def _refused(record_by_line: dict[int, bytes], shape: JsonShape) -> dict[int, str]:
    """Return the reason for each record that does not fit."""
    lines, records = list(record_by_line), list(record_by_line.values())

    def check(first: int, count: int) -> None:
        _parse(records[first : first + count], shape)

    return {
        lines[at]: str(error)
        if isinstance(error, BadRecordError)
        else "the record does not fit the columns"
        for at, error in bad_rows(len(lines), check, ValueError)
    }


def _rendered(source: JsonSource, reading: JsonReading) -> bytes | None:
    """Return the record in a form that Arrow can parse; None for a blank line."""
    if source.error:
        raise BadRecordError(source.error)
    if source.line and not source.text.strip(_BLANK):
        return None
    shape = reading.shape
    try:
        record = _record(source, reading.layout.root)
        return shape.render(record if reading.plain else _row(record, reading)).encode()
    except BadRecordError:
        # In fields that no column needs, Arrow accepts nesting of any depth, and constants that
        # are not JSON. A record that Arrow accepts in a block must be accepted here too.
        if reading.plain and b"\n" not in source.text and read_directly(source.text, shape):
            return source.text
        raise


def _record(source: JsonSource, root: JsonPath) -> dict[str, Any]:
    if source.value is NOT_DECODED and not root.steps:
        return decode_record(source.text)
    value = source.value
    if value is NOT_DECODED:
        value = part_at_root(decode_document(source.text), root)
    if isinstance(value, dict):
        return value
    raise BadRecordError(f"json_root {root.text} must be an object, not {shown_value(value)}")


def _row(record: dict[str, Any], reading: JsonReading) -> dict[str, Any]:
    row = _by_paths(record, reading) if reading.path_by_column else _by_names(record, reading)
    if reading.layout.num_as_string:
        for field in reading.shape.schema:
            row[field.name] = numbers_as_texts(row.get(field.name), field.type)
    if reading.wanted.rescue:
        extra = {name: value for name, value in record.items() if name not in reading.named}
        row[RESCUED] = json_text(extra) if extra else None
    return row


def _by_names(record: dict[str, Any], reading: JsonReading) -> dict[str, Any]:
    names = reading.wanted.names
    absent = [name for name in names if name not in record]
    if absent and reading.wanted.missing is MissingColumns.FAIL:
        raise BadRecordError(
            column_message((absent[0],), f"the record has no field {shown(absent[0])}")
        )
    row = {name: record[name] for name in names if name in record}
    if not isinstance(record, AmbiguousObject):
        return row
    ambiguous = AmbiguousObject(list(row.items()))
    ambiguous.repeated = record.repeated.intersection(names)
    return ambiguous


def _by_paths(record: dict[str, Any], reading: JsonReading) -> dict[str, Any]:
    row = {}
    for name, path in reading.path_by_column.items():
        try:
            row[name] = path.part_of(record)
        except NoSuchPartError as error:
            if reading.wanted.missing is MissingColumns.FAIL:
                reason = f"the path {path.text} does not exist in the record"
                raise BadRecordError(column_message((name,), reason)) from error
        except BadRecordError as error:
            raise BadRecordError(column_message((name,), str(error))) from error
    return row
