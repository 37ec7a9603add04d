"""Read records that are texts: each is one row, and a row is one text."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.errors import Code, UserError
from penstock.model.payload import TEXT_COLUMNS
from penstock.sources.payloads.decoded import (
    BadPayload,
    Decoded,
    ReadTexts,
    RecordNumbers,
    Wanted,
)
from penstock.storage.arrow_types import AnyArray


def text_reader(wanted: Wanted) -> ReadTexts:
    """Give what reads texts; ``UserError`` if the columns are not the one of texts."""
    (column,) = TEXT_COLUMNS
    expected = (column.name, pa.string())
    found = [(field.name, field.type) for field in wanted.columns]
    if found != [expected]:
        raise UserError(
            f'records of format "text" have one column, {column.name} {column.type.sql},'
            f" not {', '.join(name for name, _ in found) or 'none'}",
            code=Code.TYPE_ERR,
            hint='Leave the columns away, or choose the format "csv" or "json".',
        )
    field = wanted.columns.field(0)

    def read(texts: Sequence[bytes]) -> Iterator[Decoded]:
        values, records, bad = _values(texts)
        batch = pa.RecordBatch.from_arrays([values], schema=pa.schema([field]))
        yield Decoded(
            batch=batch.select(list(wanted.names)),
            record_of_row=records,
            lines=len(texts),
            bad=bad,
        )

    return read


def _values(
    texts: Sequence[bytes],
) -> tuple[AnyArray, RecordNumbers, tuple[BadPayload, ...]]:
    try:
        values = pa.array(texts, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        reason_by_record = _reasons(texts)
        good = [record for record in range(len(texts)) if record not in reason_by_record]
        values = pa.array([texts[record] for record in good], pa.binary()).cast(pa.string())
        bad = tuple(
            BadPayload(record=record, error=reason, raw=texts[record])
            for record, reason in reason_by_record.items()
        )
        return values, np.array(good, np.int64), bad
    return values, range(len(texts)), ()


def _reasons(texts: Sequence[bytes]) -> dict[int, str]:
    reason_by_record: dict[int, str] = {}
    for record, text in enumerate(texts):
        try:
            text.decode()
        except UnicodeDecodeError as error:
            reason_by_record[record] = f"byte {error.start + 1} of the record is not UTF-8"
    return reason_by_record
