"""Read a byte range of a CSV file into Arrow record batches.

Arrow's parser reads whole blocks of plain records. Other records are read one by one.

Invariant: Arrow's parser and the reader of single records return the same values. So the result
of a record does not depend on its neighbours.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from io import BufferedIOBase
from math import inf
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from penstock.arrow.casts import CastError, cast_array
from penstock.arrow.types import AnyArray, AnyField, NestedArray, data_type
from penstock.sources.formats.blocks import (
    BadRecord,
    RecordBlock,
    Wanted,
    column_message,
    misfit_reasons,
)
from penstock.sources.formats.csv_records import (
    CsvRecords,
    CsvShape,
    Preamble,
    RecordSplitter,
    csv_shape,
    read_preamble,
)
from penstock.sources.formats.csv_text import (
    BrokenRecordError,
    CommonForm,
    CsvLayout,
    Fields,
    common_form,
    csv_splittable,
    field_splitter,
)
from penstock.sources.formats.lines import LineLayout, Lines, count_lines_before, read_lines


def column_values(texts: NestedArray, field: AnyField, layout: CsvLayout) -> AnyArray:
    """Convert texts to the type of a column; raise ``CastError`` for the first bad text."""
    if layout.empty_field_as_null or not pa.types.is_string(field.type):
        empty = pc.equal(texts, pa.scalar(""))
        if pc.any(empty).as_py():
            texts = pc.if_else(empty, pa.scalar(None, pa.string()), texts)
    values = cast_array(texts, field.type)
    if not field.nullable and values.null_count:
        row = pc.index(values.is_null(), value=True).as_py()
        raise CastError(row, f"expected {data_type(field.type).sql}, found null")
    return values


_NULL = "\\N"


def read_at_once(data: bytes, shape: CsvShape) -> pa.RecordBatch | None:
    """Read a block in which each line is one plain record; return None for other blocks."""
    form = common_form(data, shape.layout)
    if form is None or (shape.rescue and shape.extra_name_by_field):
        return None
    fields = _fields_of_first_line(form, shape)
    if fields is None or not max(shape.fields_min, 1) <= fields <= shape.fields_max:
        return None
    try:
        batch = _parse(form, shape, fields=fields)
        # Blank lines and line ends inside fields lead to fewer rows than lines.
        return _shaped(batch, form, shape) if batch.num_rows == form.lines else None
    except (pa.ArrowInvalid, CastError):
        return None


def _fields_of_first_line(form: CommonForm, shape: CsvShape) -> int | None:
    line, _, _ = form.data.partition(b"\n")
    if form.enclose is None:
        return line.count(form.separator) + 1
    try:
        return len(field_splitter(shape.layout)(line.removesuffix(b"\r")))
    except BrokenRecordError:
        return None


def _parse(form: CommonForm, shape: CsvShape, *, fields: int) -> pa.RecordBatch:
    """Read the fields of the wanted columns as texts; the column names are field numbers."""
    wanted = {str(at) for at in shape.field_by_column if at is not None and at < fields}
    # Arrow reads all columns if none is included.
    included = sorted(wanted) or ["0"]
    table = pa_csv.read_csv(
        cast("IO[bytes]", pa.BufferReader(form.data)),
        read_options=pa_csv.ReadOptions(
            use_threads=False,
            block_size=len(form.data) + 1,
            column_names=[str(field) for field in range(fields)],
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=form.separator.decode(),
            quote_char=form.enclose.decode() if form.enclose else False,
            escape_char=False,
            newlines_in_values=form.enclose is not None,
        ),
        convert_options=pa_csv.ConvertOptions(
            include_columns=included,
            column_types=dict.fromkeys(included, pa.string()),
            null_values=[_NULL],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    (batch,) = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    return batch


def _shaped(batch: pa.RecordBatch, form: CommonForm, shape: CsvShape) -> pa.RecordBatch:
    texts_by_field = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns: list[AnyArray] = []
    for column, at in enumerate(shape.field_by_column):
        texts = texts_by_field.get(str(at))
        if texts is None:
            texts = pa.nulls(batch.num_rows, pa.string())
        if form.trimmed:
            texts = _without_quotes(texts)
        columns.append(column_values(texts, shape.schema.field(column), shape.layout))
    if shape.rescue:
        columns.append(pa.nulls(batch.num_rows, pa.string()))
    if not columns:
        return batch.select([])
    return pa.RecordBatch.from_arrays(columns, schema=shape.schema)


def _without_quotes(texts: NestedArray) -> NestedArray:
    quoted = pc.and_(
        pc.and_(pc.starts_with(texts, '"'), pc.ends_with(texts, '"')),
        pc.not_equal(texts, pa.scalar('"')),
    )
    if not pc.any(quoted).as_py():
        return texts
    return pc.if_else(quoted, pc.utf8_slice_codeunits(texts, 1, -1), texts)


def read_one_by_one(records: CsvRecords, shape: CsvShape) -> RecordBlock:
    """Read each record by itself and report the bad ones."""
    fields_by_record, reason_by_record = _split(records, shape)
    blank = len(records.texts) - len(fields_by_record) - len(reason_by_record)
    numbers = list(fields_by_record)
    texts, reason_by_row = _texts(list(fields_by_record.values()), shape)
    for column, field in zip(texts, shape.schema, strict=True):
        convert = partial(column_values, layout=shape.layout)
        reason_by_row = misfit_reasons(column, field, convert) | reason_by_row
    kept = [row for row in range(len(numbers)) if row not in reason_by_row]
    reason_by_record |= {numbers[row]: reason for row, reason in reason_by_row.items()}
    return RecordBlock(
        batch=_batch(texts, kept, shape),
        record_of_row=np.array([records.lines[numbers[row]] for row in kept], np.int64),
        lines=len(records.texts),
        blank=blank,
        bad=tuple(
            BadRecord(
                record=records.lines[record],
                error=reason,
                raw=records.texts[record],
            )
            for record, reason in sorted(reason_by_record.items())
        ),
    )


def _split(records: CsvRecords, shape: CsvShape) -> tuple[dict[int, Fields], dict[int, str]]:
    """Split records into fields; omit blank records."""
    split_fields = field_splitter(shape.layout)
    fields_by_record: dict[int, Fields] = {}
    bad = dict(records.fault_by_record)
    for number, text in enumerate(records.texts):
        if not text or number in bad:
            continue
        try:
            fields = split_fields(text)
        except BrokenRecordError as error:
            bad[number] = str(error)
            continue
        found = len(fields)
        if found < shape.fields_min:
            bad[number] = f"a row must have {shape.fields_min} fields, found {found}"
        elif found > shape.fields_max and not shape.rescue:
            bad[number] = f"a row must have at most {shape.fields_max} fields, found {found}"
        else:
            fields_by_record[number] = fields
    return fields_by_record, bad


def _texts(rows: Sequence[Fields], shape: CsvShape) -> tuple[list[NestedArray], dict[int, str]]:
    """Return the texts of each column, and the reason for each row that is not UTF-8."""
    nothing = (None,) * len(rows)
    width = shape.fields_max
    padded = [row if len(row) >= width else row + [None] * (width - len(row)) for row in rows]
    # Some rows have more fields than the limit; zip stops at the shortest row.
    texts_by_field = list(zip(*padded, strict=False))
    reason_by_row: dict[int, str] = {}
    columns: list[NestedArray] = []
    for at, name in zip(shape.field_by_column, shape.schema.names, strict=False):
        octets = nothing if at is None or not rows else texts_by_field[at]
        columns.append(_decoded(octets, name=name, reason_by_row=reason_by_row))
    if shape.rescue:
        columns.append(_rescued(rows, shape, reason_by_row=reason_by_row))
    return columns, reason_by_row


def _decoded(
    octets: Sequence[bytes | None], *, name: str, reason_by_row: dict[int, str]
) -> NestedArray:
    try:
        return pa.array(octets, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        for row, octet in enumerate(octets):
            try:
                texts.append(None if octet is None else octet.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                reason_by_row.setdefault(row, column_message((name,), _not_utf8(error)))
        return pa.array(texts, pa.string())


def _rescued(
    rows: Sequence[Fields], shape: CsvShape, *, reason_by_row: dict[int, str]
) -> NestedArray:
    """Return the fields without a column as one JSON object per row."""
    texts: list[str | None] = []
    for row, fields in enumerate(rows):
        extra = [at for at in shape.extra_name_by_field if at < len(fields)]
        extra += range(shape.fields_max, len(fields))
        try:
            value_by_name = {shape.extra_name(at): _extra(fields[at], shape) for at in extra}
            texts.append(json.dumps(value_by_name, ensure_ascii=False) if extra else None)
        except UnicodeDecodeError as error:
            texts.append(None)
            reason_by_row.setdefault(row, f"a field without a column: {_not_utf8(error)}")
    return pa.array(texts, pa.string())


def _extra(field: bytes | None, shape: CsvShape) -> str | None:
    if field is None or (not field and shape.layout.empty_field_as_null):
        return None
    return field.decode()


def _not_utf8(error: UnicodeDecodeError) -> str:
    return f"byte {error.start + 1} of the field is not UTF-8"


def _batch(texts: list[NestedArray], kept: list[int], shape: CsvShape) -> pa.RecordBatch:
    if not texts:
        # Only ``select`` can create a batch with rows but without columns.
        counted = pa.RecordBatch.from_arrays([pa.nulls(len(kept))], names=[""])
        return counted.select([])
    arrays = [
        column_values(
            column if len(column) == len(kept) else column.take(pa.array(kept, pa.int64())),
            field,
            shape.layout,
        )
        for column, field in zip(texts, shape.schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=shape.schema)


_LINES = LineLayout()


def read_csv(
    stream: BufferedIOBase,
    *,
    wanted: Wanted,
    layout: CsvLayout,
    start: int,
    end: int | None,
    lines: LineLayout = _LINES,
) -> Iterator[RecordBlock]:
    """Read the records that start in ``[start, end)`` of the file; None is the file's end.

    Line numbers include the lines of the header.
    """
    lines = replace(lines, ending=layout.ending)
    preamble = read_preamble(stream, layout=layout, line_bytes_max=lines.line_bytes_max)
    if preamble is None:
        return
    shape = csv_shape(wanted, layout=layout, names=preamble.names)
    splitter = RecordSplitter(
        layout,
        line_bytes_max=lines.line_bytes_max,
        offset=preamble.size_bytes,
        line=_first_line(stream, preamble, layout=layout, start=start),
    )
    if csv_splittable(layout):
        first = max(start, preamble.size_bytes)
        read = read_lines(stream, start=first, end=end, layout=lines)
        yield from _blocks(read, splitter, shape=shape, start=0, end=inf)
    else:
        read = read_lines(stream, start=preamble.size_bytes, end=None, layout=lines)
        after = inf if end is None else end
        yield from _blocks(read, splitter, shape=shape, start=start, end=after)


def _first_line(
    stream: BufferedIOBase, preamble: Preamble, *, layout: CsvLayout, start: int
) -> int:
    """Return the number of the first line to read; the first line of the range is 0."""
    if start == 0:
        return preamble.lines
    if csv_splittable(layout) and start >= preamble.size_bytes:
        return 0
    earlier = 1 + count_lines_before(stream, start - 1, ending=layout.ending)
    return preamble.lines - earlier


def _blocks(
    read: Iterator[Lines], splitter: RecordSplitter, *, shape: CsvShape, start: int, end: float
) -> Iterator[RecordBlock]:
    """Read the records that start in ``[start, end)`` of the file."""
    for lines in read:
        if end <= splitter.offset:
            return
        own = start <= lines.offset and lines.offset + lines.size_bytes <= end
        plain = own and splitter.idle and not lines.too_long
        batch = read_at_once(bytes(lines.content), shape) if plain else None
        if batch is None:
            yield from _slow_blocks(splitter.split_block(lines).between(start, end), shape)
            continue
        first, count = splitter.line, batch.num_rows
        yield RecordBlock(batch=batch, record_of_row=range(first, first + count), lines=count)
        splitter.skip(lines, count=count)
    yield from _slow_blocks(splitter.finish().between(start, end), shape)


def _slow_blocks(records: CsvRecords, shape: CsvShape) -> Iterator[RecordBlock]:
    if records.texts:
        yield read_one_by_one(records, shape)
