"""Turn the payloads of records into Arrow rows, with what is known beside them.

Invariant: records never influence each other. What becomes of a record is the same, whichever
records are decoded with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

import numpy as np
import pyarrow as pa

from penstock.errors import InvariantError
from penstock.model.files import RESCUED
from penstock.model.payload import Payload, PayloadFormat
from penstock.model.schema import Column
from penstock.sources.formats.csv_layout import csv_layout
from penstock.sources.formats.json_documents import json_layout
from penstock.sources.payloads.contents import (
    Contents,
    contents_of,
    without_blanks,
    without_marks,
)
from penstock.sources.payloads.csv_payloads import csv_reader
from penstock.sources.payloads.decoded import (
    Decoded,
    ReadTexts,
    RecordNumbers,
    Wanted,
    without_rows,
)
from penstock.sources.payloads.json_payloads import json_reader
from penstock.sources.payloads.text_payloads import text_reader
from penstock.storage.arrow_types import AnyArray, AnyField, arrow_schema


class Decoder:
    """Decodes the records of one source; ``UserError`` if an option has no meaning."""

    def __init__(
        self, payload: Payload, *, columns: tuple[Column, ...], needed: Sequence[str]
    ) -> None:
        own = arrow_schema(columns)
        rescue = RESCUED in needed and RESCUED not in own.names
        wanted = Wanted(
            columns=own,
            names=tuple(name for name in own.names if name in needed),
            rescue=rescue,
        )
        self._payload = payload
        self._needed = tuple(needed)
        self._read = _reader(payload, wanted)
        self._field_by_name: dict[str, AnyField] = {field.name: field for field in own}
        if rescue:
            self._field_by_name[RESCUED] = pa.field(RESCUED, pa.string())
        self._separator = (
            csv_layout(payload).separator if payload.format is PayloadFormat.CSV else None
        )

    def decode(
        self, payloads: Sequence[bytes], metadata: Mapping[str, AnyArray]
    ) -> Iterator[Decoded]:
        """Give the rows of records, in their order, some at a time.

        Batches have exactly the needed columns. ``metadata`` has arrays of one value per record
        for those that are not in the payloads.
        """
        schema = self._schema(metadata)
        for unpacked in contents_of(payloads, compression=self._payload.compress_type):
            contents = self._readable(unpacked)
            if contents.blank or contents.bad:
                yield without_rows(schema, blank=contents.blank, bad=contents.bad)
            if contents.texts:
                for part in self._read(contents.texts):
                    yield _completed(part, contents.records, schema=schema, metadata=metadata)

    def _schema(self, metadata: Mapping[str, AnyArray]) -> pa.Schema:
        absent = [n for n in self._needed if n not in self._field_by_name and n not in metadata]
        if absent:
            raise InvariantError(
                f'column "{absent[0]}" is neither in the records nor beside them'
            )
        return pa.schema(
            [
                self._field_by_name.get(name) or pa.field(name, metadata[name].type)
                for name in self._needed
            ]
        )

    def _readable(self, contents: Contents) -> Contents:
        if self._payload.format is not PayloadFormat.TEXT:
            contents = without_marks(contents)
        return without_blanks(contents, meaningless=self._meaningless)

    def _meaningless(self, space: bytes) -> bool:
        """Say whether white space separates no fields, of which there would be two."""
        return self._separator is None or self._separator not in space


def _reader(payload: Payload, wanted: Wanted) -> ReadTexts:
    match payload.format:
        case PayloadFormat.CSV:
            return csv_reader(csv_layout(payload), wanted)
        case PayloadFormat.JSON:
            return json_reader(json_layout(payload), wanted)
        case PayloadFormat.TEXT:
            return text_reader(wanted)
        case _:
            assert_never(payload.format)


def _completed(
    part: Decoded,
    records: RecordNumbers,
    *,
    schema: pa.Schema,
    metadata: Mapping[str, AnyArray],
) -> Decoded:
    """Give the batch all needed columns, and records the numbers that the caller knows."""
    owners = _numbers(records, part.record_of_row)
    names = set(part.batch.schema.names)
    columns = [
        part.batch.column(name) if name in names else _taken(metadata[name], owners)
        for name in schema.names
    ]
    return replace(
        part,
        # Without columns, only the batch itself knows its number of rows.
        batch=pa.RecordBatch.from_arrays(columns, schema=schema) if columns else part.batch,
        record_of_row=owners,
        bad=tuple(replace(bad, record=int(records[bad.record])) for bad in part.bad),
    )


def _numbers(records: RecordNumbers, chosen: RecordNumbers) -> RecordNumbers:
    if isinstance(chosen, range):
        return records[chosen.start : chosen.stop]
    return np.asarray(records, np.int64)[chosen]


def _taken(values: AnyArray, records: RecordNumbers) -> AnyArray:
    if isinstance(records, range):
        return values.slice(records.start, len(records))
    return values.take(records)
