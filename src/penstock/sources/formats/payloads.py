"""Decode the payloads of stream records into Arrow rows.

Invariant: the result of a record does not depend on the other records of the call.
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
    decompress_gzip,
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

# Arrow parses less than one MiB in one piece. Allocating more memory is slower than reading.
_CHUNK_BYTES = (1 << 20) - 1
_CHUNK_RECORDS = 1 << 16
# The elements of longer texts are not held in memory all at once.
_LONG_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_NEWLINE = b"\n"

_marked = methodcaller("startswith", BYTE_ORDER_MARK)

# Reads texts. The record numbers in the result are indexes of the texts.
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
        """Yield the rows of records, in order, in one or more blocks.

        Batches have exactly the needed columns. ``metadata`` contains the needed columns that
        are not in the payloads, with one value per record.
        """
        schema = self._schema(metadata)
        gzip = self._payload.compress_type is PayloadCompression.GZIP
        for chunk in _unpacked_chunks(payloads) if gzip else _chunks(payloads):
            own = chunk if self._payload.format is PayloadFormat.TEXT else _without_marks(chunk)
            contents = _without_blanks(own, separator=self._separator)
            if contents.blank or contents.bad:
                yield empty_block(schema, blank=contents.blank, bad=contents.bad)
            if contents.texts:
                for block in self._read(contents.texts):
                    numbered = _renumbered(block, partial(_chosen, contents.records))
                    yield _completed(numbered, schema=schema, metadata=metadata)

    def _schema(self, metadata: Mapping[str, AnyArray]) -> pa.Schema:
        absent = [n for n in self._needed if n not in self._field_by_name and n not in metadata]
        if absent:
            raise InvariantError(
                f'column "{absent[0]}" is neither in the records nor in their metadata'
            )
        return pa.schema(
            [
                self._field_by_name.get(name) or pa.field(name, metadata[name].type)
                for name in self._needed
            ]
        )


def empty_block(
    schema: pa.Schema, *, blank: int = 0, bad: tuple[BadRecord, ...] = ()
) -> RecordBlock:
    """Return a block without rows, for blank and bad records."""
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
    """Return the block with the metadata columns added."""
    # A new batch without columns would lose its number of rows.
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
    """Return the block with record numbers converted by ``record_of``."""
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
    """Yield payloads in chunks of limited size; a longer payload is one chunk."""
    # Each payload is counted with a line end.
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
    if not payload.startswith(_GZIP_MAGIC):
        raise BrokenStreamError("the record is not compressed with gzip")
    try:
        return decompress_gzip(payload, content_bytes_max=UNPACKED_BYTES_MAX)
    except StreamEndsTooEarlyError as error:
        raise BrokenStreamError("the record's gzip stream ends too early") from error
    except TooMuchContentError as error:
        raise BrokenStreamError(
            f"the record has more than {UNPACKED_BYTES_MAX} bytes after decompression"
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
    """Remove blank texts; white space that contains a field separator is not blank."""
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
        if enclosed.enclose in text and _ends_open(text, enclosed):
            if first < at:
                yield first, at
            yield at, at + 1
            first = at + 1
    if first < len(texts):
        yield first, len(texts)


def _ends_open(text: bytes, enclosed: Enclosing) -> bool:
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
    """Read texts as the lines of a file; ``folded`` joins the lines of one text if it can."""
    data = _joined(texts)
    # numpy counts bytes faster than ``bytes.count``.
    one_line_each = np.count_nonzero(np.frombuffer(data, np.uint8) == _NEWLINE[0]) == len(texts)
    if not one_line_each:
        texts = [text.removesuffix(_NEWLINE) for text in texts]
        if folded is not None:
            texts = [folded(text) if _NEWLINE in text else text for text in texts]
        data = _joined(texts)
    # Read all lines at once, unless a text is very long.
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
    # Readers remove a mark at the start of a file. Here the mark is part of a record, so it is
    # written twice.
    return BYTE_ORDER_MARK + data if data.startswith(BYTE_ORDER_MARK) else data


def _json_reader(layout: JsonLayout, wanted: Wanted) -> _ReadTexts:
    reading = json_reading(wanted, layout=layout)
    if layout.strip_outer_array:
        return partial(_read_arrays, reading=reading)
    read_lines = partial(read_json, reading=reading)
    return partial(_read_joined, read=read_lines, folded=_fold_document)


def _fold_document(text: bytes) -> bytes:
    """Return a JSON document on one line; return other texts unchanged."""
    try:
        decode_document(text)
    except BadRecordError:
        return text
    # Valid JSON strings contain neither carriage returns nor newlines.
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
        yield empty_block(reading.shape.schema, bad=tuple(bad))


def _groups(text: bytes, root: JsonPath) -> Iterator[list[JsonSource]]:
    """Return the elements of a text; raise before the first element if the text is broken."""
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
    """Return the reader of plain text; raise ``UserError`` if the columns do not match."""
    (column,) = TEXT_COLUMNS
    found = [(field.name, field.type) for field in wanted.columns]
    if found != [(column.name, pa.string())]:
        raise UserError(
            f'records of format "text" must have one column, {column.name} {column.type.sql},'
            f" not {', '.join(name for name, _ in found) or 'none'}",
            code=Code.TYPE_ERR,
            hint='Remove the list of columns, or set the format to "csv" or "json".',
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
