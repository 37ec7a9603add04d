"""Read CSV records one by one, so that a bad record costs only itself.

Invariant: a record that is read as part of a plain block is read here too, with the same
values; what happens to a record does not depend on its neighbours.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.sources.formats.blocks import column_message
from penstock.sources.formats.csv_columns import CsvShape
from penstock.sources.formats.csv_fields import BrokenRecordError, Fields, field_cutter
from penstock.sources.formats.csv_records import CsvRecords
from penstock.sources.formats.csv_values import column_values, misfits
from penstock.storage.arrow_types import NestedArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What was read of some records: rows, their records, the blank and the bad ones."""

    batch: pa.RecordBatch
    records: tuple[int, ...]
    blank: int
    reason_by_bad_record: dict[int, str]


def read_one_by_one(records: CsvRecords, shape: CsvShape) -> Rows:
    """Read every record that the columns can hold; say what is wrong with the others."""
    fields_by_record, bad = _cut(records, shape)
    blank = len(records.texts) - len(fields_by_record) - len(bad)
    numbers = list(fields_by_record)
    texts, reason_by_row = _texts(list(fields_by_record.values()), shape)
    for column, field in zip(texts, shape.schema, strict=True):
        for row, reason in misfits(column, field, shape.layout).items():
            reason_by_row.setdefault(row, column_message((field.name,), reason))
    kept = [row for row in range(len(numbers)) if row not in reason_by_row]
    bad |= {numbers[row]: reason for row, reason in reason_by_row.items()}
    return Rows(
        batch=_batch(texts, kept, shape),
        records=tuple(numbers[row] for row in kept),
        blank=blank,
        reason_by_bad_record=bad,
    )


def _cut(records: CsvRecords, shape: CsvShape) -> tuple[dict[int, Fields], dict[int, str]]:
    """Cut records into fields; blank ones are left out."""
    cut = field_cutter(shape.layout)
    fields_by_record: dict[int, Fields] = {}
    bad = dict(records.fault_by_record)
    for number, text in enumerate(records.texts):
        if not text or number in bad:
            continue
        try:
            fields = cut(text)
            if not shape.fields_min <= len(fields) <= shape.fields_max:
                _require_count(len(fields), shape)
            fields_by_record[number] = fields
        except BrokenRecordError as error:
            bad[number] = str(error)
    return fields_by_record, bad


def _require_count(found: int, shape: CsvShape) -> None:
    if found < shape.fields_min:
        raise BrokenRecordError(f"a row must have {shape.fields_min} fields, found {found}")
    if not shape.rescue:
        raise BrokenRecordError(f"a row may have {shape.fields_max} fields, found {found}")


def _texts(rows: Sequence[Fields], shape: CsvShape) -> tuple[list[NestedArray], dict[int, str]]:
    """Give the texts of every column, and the rows in which some are not UTF-8."""
    nothing = (None,) * len(rows)
    width = shape.fields_max
    padded = [row if len(row) >= width else row + [None] * (width - len(row)) for row in rows]
    # Rows may be wider, so the shortest, which is as wide as it may be, says where to stop.
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
    """Write the fields that no column holds as JSON, by name."""
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
        # Without columns a batch still knows the number of rows.
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
