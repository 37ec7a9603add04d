"""Read JSON that is more than plain lines: arrays, parts of documents, paths, rescued fields.

Invariant: what happens to a record does not depend on its neighbours, and without any of the
options it is what happens to it among plain lines.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from io import BufferedIOBase
from itertools import islice
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import Code, UserError
from penstock.model.files import RESCUED, MissingColumns
from penstock.sources.formats.blocks import BadRecord, RecordBlock, column_message
from penstock.sources.formats.json_arrow import JsonShape, json_shape, read_directly
from penstock.sources.formats.json_decode import (
    AmbiguousObject,
    BadRecordError,
    decode_document,
    decode_record,
)
from penstock.sources.formats.json_paths import JsonPath, NoSuchPartError, json_path
from penstock.sources.formats.json_records import blank, read_records, rendered
from penstock.sources.formats.json_render import shown_value
from penstock.sources.formats.json_sources import (
    NOT_DECODED,
    JsonSource,
    element_groups,
    line_groups,
    rooted,
)
from penstock.sources.formats.json_texts import json_text, numbers_as_texts
from penstock.sources.formats.lines import LineLayout
from penstock.storage.casts import shown

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
