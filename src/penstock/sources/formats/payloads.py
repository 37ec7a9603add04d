"""Decode the payloads of stream records into Arrow rows.

Invariant: the result of a record does not depend on the records that are decoded with it.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from operator import methodcaller
from typing import TypeAlias, assert_never

import numpy as np
import pyarrow as pa

from penstock.arrow.types import AnyArray, AnyField, arrow_schema
from penstock.errors import Code, InvariantError, UserError
from penstock.model.formats import TEXT_COLUMNS, Payload, PayloadCompression, PayloadFormat
from penstock.model.schema import Column
from penstock.sources.files.kind import RESCUED
from penstock.sources.formats.blocks import (
    BadRecord,
    RecordBlock,
    RowNumbers,
    UnreadableFileError,
    Wanted,
)
from penstock.sources.formats.compression import (
    BrokenStreamError,
    StreamEndsTooEarlyError,
    TooMuchContentError,
    gunzipped,
)
from penstock.sources.formats.csv_reader import read_csv
from penstock.sources.formats.csv_text import CsvLayout, Enclosing, csv_layout, enclosing
from penstock.sources.formats.json_arrays import (
    GROUP_RECORDS_MAX,
    JsonSource,
    element_groups,
    read_elements,
)
from penstock.sources.formats.json_reader import (
    JsonLayout,
    JsonReading,
    json_layout,
    json_reading,
    read_json,
    read_sources,
)
from penstock.sources.formats.json_values import BadRecordError, JsonPath, decode_document
from penstock.sources.formats.lines import BLOCK_BYTES, BYTE_ORDER_MARK, LineLayout

UNPACKED_BYTES_MAX = 1 << 26

# Arrow parses less than one MiB at once, and allocating memory costs more than reading.
_CHUNK_BYTES = (1 << 20) - 1
_CHUNK_RECORDS = 1 << 16
# The elements of a longer text are not all held at once.
_LONG_BYTES = 1 << 20
_GZIP_BEGIN = b"\x1f\x8b"
_NEWLINE = b"\n"

_marked = methodcaller("startswith", BYTE_ORDER_MARK)

# Reads texts. The records of the result are indexes of the texts.
_ReadTexts: TypeAlias = Callable[[Sequence[bytes]], Iterator[RecordBlock]]


class Decoder:
    """Decodes the records of one source; raises ``UserError`` for a malformed option."""

    def __init__(
        self, payload: Payload, *, columns: tuple[Column, ...], needed: Sequence[str]
    ) -> None:
        own = arrow_schema(columns)
        wanted = Wanted(
            columns=own,
            names=tuple(name for name in own.names if name in needed),
            rescue=RESCUED in needed and RESCUED not in own.names,
        )
        self._payload = payload
        self._needed = tuple(needed)
        self._field_by_name: dict[str, AnyField] = {f.name: f for f in wanted.schema}
        self._read: _ReadTexts
        self._separator: bytes | None = None
        match payload.format:
            case PayloadFormat.CSV:
                layout = csv_layout(payload)
                self._separator = layout.separator
                self._read = _csv_reader(layout, wanted)
            case PayloadFormat.JSON:
                self._read = _json_reader(json_layout(payload), wanted)
            case PayloadFormat.TEXT:
                self._read = _text_reader(wanted)
            case _:
                assert_never(payload.format)

    def decode(
        self, payloads: Sequence[bytes], metadata: Mapping[str, AnyArray]
    ) -> Iterator[RecordBlock]:
        """Yield the rows of records, in order, in several blocks.

        Batches have exactly the needed columns. ``metadata`` has one value per record for the
        needed columns that are not in the payloads.
        """
        schema = self._schema(metadata)
        gzip = self._payload.compress_type is PayloadCompression.GZIP
        for chunk in _unpacked_chunks(payloads) if gzip else _chunks(payloads):
            own = chunk if self._payload.format is PayloadFormat.TEXT else _without_marks(chunk)
            contents = _without_blanks(own, separator=self._separator)
            if contents.blank or contents.bad:
                yield without_rows(schema, blank=contents.blank, bad=contents.bad)
            if contents.texts:
                for block in self._read(contents.texts):
                    numbered = _renumbered(block, partial(_chosen, contents.records))
                    yield _completed(numbered, schema=schema, metadata=metadata)

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


def without_rows(
    schema: pa.Schema, *, blank: int = 0, bad: tuple[BadRecord, ...] = ()
) -> RecordBlock:
    """Return the block of records that are all blank or bad."""
    return RecordBlock(
        batch=pa.RecordBatch.from_pylist([], schema=schema),
        record_of_row=range(0),
        lines=blank + len(bad),
        blank=blank,
        bad=bad,
    )


def _completed(
    block: RecordBlock, *, schema: pa.Schema, metadata: Mapping[str, AnyArray]
) -> RecordBlock:
    """Add the metadata columns."""
    # A batch without columns keeps its number of rows.
    if not schema.names:
        return block
    names = set(block.batch.schema.names)
    columns = [
        block.batch.column(name) if name in names else _taken(metadata[name], block)
        for name in schema.names
    ]
    return replace(block, batch=pa.RecordBatch.from_arrays(columns, schema=schema))


def _taken(values: AnyArray, block: RecordBlock) -> AnyArray:
    records = block.record_of_row
    if isinstance(records, range):
        return values.slice(records.start, len(records))
    return values.take(records)


def _renumbered(
    block: RecordBlock, record_of: Callable[[RowNumbers], RowNumbers]
) -> RecordBlock:
    """Convert the numbers of the records."""
    bad_records = record_of(np.array([bad.record for bad in block.bad], np.int64))
    return replace(
        block,
        record_of_row=record_of(block.record_of_row),
        bad=tuple(
            replace(bad, record=int(record))
            for bad, record in zip(block.bad, bad_records, strict=True)
        ),
    )


def _chosen(records: RowNumbers, indexes: RowNumbers) -> RowNumbers:
    if isinstance(indexes, range):
        return records[indexes.start : indexes.stop]
    return np.asarray(records, np.int64)[indexes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contents:
    """The texts of some records, their numbers, and the blank and bad records."""

    texts: Sequence[bytes]
    records: RowNumbers
    blank: int = 0
    bad: tuple[BadRecord, ...] = ()


def _chunks(payloads: Sequence[bytes]) -> Iterator[_Contents]:
    """Yield payloads in chunks of limited size; a longer payload alone."""
    # The line end of each payload is included.
    ends = np.fromiter(map(len, payloads), np.int64, len(payloads)).cumsum()
    ends += np.arange(1, len(payloads) + 1)
    first = 0
    while first < len(payloads):
        before = int(ends[first - 1]) if first else 0
        fitting = int(np.searchsorted(ends, before + _CHUNK_BYTES, side="right"))
        after = min(max(fitting, first + 1), first + _CHUNK_RECORDS)
        yield _Contents(texts=payloads[first:after], records=range(first, after))
        first = after


def _unpacked_chunks(payloads: Sequence[bytes]) -> Iterator[_Contents]:
    texts: list[bytes] = []
    records: list[int] = []
    bad: list[BadRecord] = []
    size_bytes = 0
    for record, payload in enumerate(payloads):
        try:
            text = _unpacked(payload)
        except BrokenStreamError as error:
            bad.append(BadRecord(record=record, error=str(error), raw=payload))
            continue
        size_bytes += len(text)
        if texts and (size_bytes > _CHUNK_BYTES or len(texts) == _CHUNK_RECORDS):
            yield _Contents(texts=texts, records=np.array(records, np.int64), bad=tuple(bad))
            texts, records, bad, size_bytes = [], [], [], len(text)
        texts.append(text)
        records.append(record)
    yield _Contents(texts=texts, records=np.array(records, np.int64), bad=tuple(bad))


def _unpacked(payload: bytes) -> bytes:
    if not payload.startswith(_GZIP_BEGIN):
        raise BrokenStreamError("the record is not compressed with gzip")
    try:
        return gunzipped(payload, content_bytes_max=UNPACKED_BYTES_MAX)
    except StreamEndsTooEarlyError as error:
        raise BrokenStreamError("the record's gzip stream ends too early") from error
    except TooMuchContentError as error:
        raise BrokenStreamError(
            f"the record may unpack to {UNPACKED_BYTES_MAX} bytes at most, and has more"
        ) from error
    except BrokenStreamError as error:
        raise BrokenStreamError(f"the record's gzip stream is broken: {error}") from error


def _without_marks(contents: _Contents) -> _Contents:
    """Remove byte order marks, which some programs write before a text."""
    if not any(map(_marked, contents.texts)):
        return contents
    texts = [text.removeprefix(BYTE_ORDER_MARK) for text in contents.texts]
    return replace(contents, texts=texts)


def _without_blanks(contents: _Contents, *, separator: bytes | None) -> _Contents:
    """Remove texts that are empty, or white space without a separator of fields."""
    texts = contents.texts
    if all(texts) and not any(map(bytes.isspace, texts)):
        return contents
    kept = [
        at
        for at, text in enumerate(texts)
        if text and not (text.isspace() and (separator is None or separator not in text))
    ]
    return replace(
        contents,
        texts=[texts[at] for at in kept],
        records=np.asarray(contents.records, np.int64)[kept],
        blank=len(texts) - len(kept),
    )


def _csv_reader(layout: CsvLayout, wanted: Wanted) -> _ReadTexts:
    enclosed = enclosing(layout)
    read_lines = partial(read_csv, wanted=wanted, layout=layout)
    if enclosed is None:
        return partial(_read_joined, read=read_lines)

    def read(texts: Sequence[bytes]) -> Iterator[RecordBlock]:
        for first, after in _runs(texts, enclosed):
            for block in _read_joined(texts[first:after], read_lines):
                yield _renumbered(block, partial(_chosen, range(first, after)))

    return read


def _runs(texts: Sequence[bytes], enclosed: Enclosing) -> Iterator[tuple[int, int]]:
    """Yield ranges of texts; a text that leaves a field open is alone in its range."""
    first = 0
    for at, text in enumerate(texts):
        if enclosed.enclose in text and _left_open(text, enclosed):
            if first < at:
                yield first, at
            yield at, at + 1
            first = at + 1
    if first < len(texts):
        yield first, len(texts)


def _left_open(text: bytes, enclosed: Enclosing) -> bool:
    opened = False
    for line in text.split(_NEWLINE):
        opened = enclosed.open_after(line, opened=opened)
    return opened


def _read_joined(
    texts: Sequence[bytes],
    read: Callable[..., Iterator[RecordBlock]],
    *,
    folded: Callable[[bytes], bytes] | None = None,
) -> Iterator[RecordBlock]:
    """Read texts as the lines of a file; ``folded`` may join the lines of a text."""
    data = _joined(texts)
    # numpy counts bytes faster than ``bytes.count``.
    one_line_each = np.count_nonzero(np.frombuffer(data, np.uint8) == _NEWLINE[0]) == len(texts)
    if not one_line_each:
        texts = [text.removesuffix(_NEWLINE) for text in texts]
        if folded is not None:
            texts = [folded(text) if _NEWLINE in text else text for text in texts]
        data = _joined(texts)
    # All lines are read at once, unless a text is very long.
    lines = LineLayout(block_bytes=min(len(data), 2 * BLOCK_BYTES))
    blocks = read(BytesIO(data), start=0, end=None, lines=lines)
    if one_line_each:
        yield from blocks
        return
    counts = np.fromiter((text.count(_NEWLINE) + 1 for text in texts), np.int64, len(texts))
    first_lines = np.cumsum(counts) - counts
    for block in blocks:
        yield _renumbered(
            block, lambda lines: np.searchsorted(first_lines, lines, side="right") - 1
        )


def _joined(texts: Sequence[bytes]) -> bytes:
    data = _NEWLINE.join([*texts, b""])
    # Readers remove a mark at the beginning of a file, but this mark belongs to a record.
    return BYTE_ORDER_MARK + data if data.startswith(BYTE_ORDER_MARK) else data


def _json_reader(layout: JsonLayout, wanted: Wanted) -> _ReadTexts:
    reading = json_reading(wanted, layout=layout)
    if layout.strip_outer_array:
        return partial(_read_arrays, reading=reading)
    read_lines = partial(read_json, reading=reading)
    return partial(_read_joined, read=read_lines, folded=_fold_document)


def _fold_document(text: bytes) -> bytes:
    """Write a JSON document on one line; return other texts unchanged."""
    try:
        decode_document(text)
    except BadRecordError:
        return text
    # JSON strings contain neither.
    return text.replace(b"\r", b" ").replace(_NEWLINE, b" ").strip(b" ")


def _read_arrays(texts: Sequence[bytes], reading: JsonReading) -> Iterator[RecordBlock]:
    elements: list[JsonSource] = []
    owners: list[int] = []
    bad: list[BadRecord] = []
    for number, text in enumerate(texts):
        try:
            for group in _groups(text, reading.layout.root):
                elements += group
                owners += [number] * len(group)
                if len(elements) >= GROUP_RECORDS_MAX:
                    yield from _element_blocks(elements, owners, reading)
                    elements, owners = [], []
        except UnreadableFileError as error:
            bad.append(BadRecord(record=number, error=error.message, raw=text))
    if elements:
        yield from _element_blocks(elements, owners, reading)
    if bad:
        yield without_rows(reading.shape.schema, bad=tuple(bad))


def _groups(text: bytes, root: JsonPath) -> Iterator[list[JsonSource]]:
    """Return the elements of a text; raise before the first one if the text is broken."""
    if len(text) <= _LONG_BYTES:
        return iter(list(element_groups(BytesIO(text), root=root)))
    deque(read_elements(BytesIO(text), objects=bool(root.steps)), maxlen=0)
    return element_groups(BytesIO(text), root=root)


def _element_blocks(
    elements: list[JsonSource], owners: list[int], reading: JsonReading
) -> Iterator[RecordBlock]:
    record_of_element = np.array(owners, np.int64)
    for block in read_sources(elements, reading=reading):
        yield _renumbered(block, partial(_chosen, record_of_element))


def _text_reader(wanted: Wanted) -> _ReadTexts:
    """Return the reader of plain text; raise ``UserError`` for other columns than its one."""
    (column,) = TEXT_COLUMNS
    found = [(field.name, field.type) for field in wanted.columns]
    if found != [(column.name, pa.string())]:
        raise UserError(
            f'records of format "text" have one column, {column.name} {column.type.sql},'
            f" not {', '.join(name for name, _ in found) or 'none'}",
            code=Code.TYPE_ERR,
            hint='Omit the columns, or choose the format "csv" or "json".',
        )

    def read(texts: Sequence[bytes]) -> Iterator[RecordBlock]:
        values, records, bad = _values(texts)
        batch = pa.RecordBatch.from_arrays([values], schema=wanted.columns)
        yield RecordBlock(
            batch=batch.select(list(wanted.names)),
            record_of_row=records,
            lines=len(texts),
            bad=bad,
        )

    return read


def _values(texts: Sequence[bytes]) -> tuple[AnyArray, RowNumbers, tuple[BadRecord, ...]]:
    try:
        return pa.array(texts, pa.binary()).cast(pa.string()), range(len(texts)), ()
    except pa.ArrowInvalid:
        value_by_record: dict[int, str] = {}
        bad: list[BadRecord] = []
        for record, text in enumerate(texts):
            try:
                value_by_record[record] = text.decode()
            except UnicodeDecodeError as error:
                reason = f"byte {error.start + 1} of the record is not UTF-8"
                bad.append(BadRecord(record=record, error=reason, raw=text))
        values = pa.array(list(value_by_record.values()), pa.string())
        return values, np.array(list(value_by_record), np.int64), tuple(bad)
