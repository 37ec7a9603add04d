"""Read a block of whole CSV lines with Arrow, if every line is one plain record."""

from typing import IO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from penstock.sources.formats.csv_columns import CsvShape
from penstock.sources.formats.csv_fields import BrokenRecordError, field_cutter
from penstock.sources.formats.csv_screen import CommonForm, common_form
from penstock.sources.formats.csv_values import column_values
from penstock.storage.arrow_types import AnyArray, NestedArray
from penstock.storage.casts import CastError

_NULL = "\\N"


def read_at_once(data: bytes, shape: CsvShape) -> pa.RecordBatch | None:
    """Read a block whose every line is one plain record; else give None."""
    form = common_form(data, shape.layout)
    if form is None or (shape.rescue and shape.extra_name_by_field):
        return None
    fields = _fields_of_first_line(form, shape)
    if fields is None or not max(shape.fields_min, 1) <= fields <= shape.fields_max:
        return None
    try:
        batch = _parse(form, shape, fields=fields)
        # Blank lines, and line ends inside of fields, only ever make fewer rows than lines.
        return _shaped(batch, form, shape) if batch.num_rows == form.lines else None
    except (pa.ArrowInvalid, CastError):
        return None


def _fields_of_first_line(form: CommonForm, shape: CsvShape) -> int | None:
    line, _, _ = form.data.partition(b"\n")
    if form.enclose is None:
        return line.count(form.separator) + 1
    try:
        return len(field_cutter(shape.layout)(line.removesuffix(b"\r")))
    except BrokenRecordError:
        return None


def _parse(form: CommonForm, shape: CsvShape, *, fields: int) -> pa.RecordBatch:
    """Read the fields of the wanted columns as texts, each under the number of its field."""
    wanted = {str(field) for field in shape.field_by_column if _among(field, fields)}
    # Without any column Arrow would read all of them.
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


def _among(field: int | None, fields: int) -> bool:
    return field is not None and field < fields


def _without_quotes(texts: NestedArray) -> NestedArray:
    quoted = pc.and_(
        pc.and_(pc.starts_with(texts, '"'), pc.ends_with(texts, '"')),
        pc.not_equal(texts, pa.scalar('"')),
    )
    if not pc.any(quoted).as_py():
        return texts
    return pc.if_else(quoted, pc.utf8_slice_codeunits(texts, 1, -1), texts)
