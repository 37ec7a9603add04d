"""Decode the payloads of stream records into Arrow rows.

Invariant: the result of a record does not depend on the records that are decoded with it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from operator import methodcaller
from typing import TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrow.types import AnyArray, AnyField, arrow_schema
from penstock.errors import Code, InvariantError, UserError
from penstock.model.formats import TEXT_COLUMNS, Payload, PayloadCompression, PayloadFormat
from penstock.model.schema import Column
from penstock.sources.files.kind import RESCUED, MissingColumns
from penstock.sources.formats.blocks import RecordBlock, UnreadableFileError
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

Numbers: TypeAlias = npt.NDArray[np.int64]
# Indexes of records, one per row.
RecordNumbers: TypeAlias = range | Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class BadPayload:
    """A row or record that could not be loaded: its record, the reason, and its bytes."""

    record: int
    error: str
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Rows of some records, the record of each row, and the bad rows.

    ``lines`` counts good, blank and bad rows: ``lines == batch.num_rows + blank + len(bad)``.
    """

    batch: pa.RecordBatch
    record_of_row: RecordNumbers
    lines: int
    blank: int = 0
    bad: tuple[BadPayload, ...] = ()


# Reads texts. The records of the result are indexes of the texts.
ReadTexts: TypeAlias = Callable[[Sequence[bytes]], Iterator[Decoded]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The columns of the records, and the wanted ones."""

    columns: pa.Schema
    names: tuple[str, ...]
    rescue: bool


def without_rows(
    schema: pa.Schema, *, blank: int = 0, bad: tuple[BadPayload, ...] = ()
) -> Decoded:
    """Return the result of records that are all blank or bad."""
    return Decoded(
        batch=pa.RecordBatch.from_pylist([], schema=schema),
        record_of_row=range(0),
        lines=blank + len(bad),
        blank=blank,
        bad=bad,
    )


def decoded_blocks(
    blocks: Iterable[RecordBlock], *, records_of: Callable[[Numbers], Numbers] | None
) -> Iterator[Decoded]:
    """Convert blocks; ``records_of`` maps lines to records, None if they are the same."""
    for block in blocks:
        lines = _lines_of_rows(block)
        faulty = np.array([bad.line for bad in block.bad], np.int64)
        owners = faulty if records_of is None else records_of(faulty)
        yield Decoded(
            batch=block.batch,
            record_of_row=lines if records_of is None else records_of(np.asarray(lines)),
            lines=block.lines,
            blank=block.blank,
            bad=tuple(
                BadPayload(record=owner, error=bad.error, raw=bad.raw)
                for owner, bad in zip(owners.tolist(), block.bad, strict=True)
            ),
        )


def _lines_of_rows(block: RecordBlock) -> RecordNumbers:
    if block.row_lines is None:
        return range(block.first_line, block.first_line + block.rows)
    return np.array(block.row_lines, np.int64) + block.first_line


UNPACKED_BYTES_MAX = 1 << 26

# Arrow parses less than one MiB at once, and allocating memory costs more than reading.
_CHUNK_BYTES = (1 << 20) - 1
_CHUNK_RECORDS = 1 << 16
_GZIP_BEGIN = b"\x1f\x8b"

_marked = methodcaller("startswith", BYTE_ORDER_MARK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The texts of some records, their numbers, and the blank and bad records."""

    texts: Sequence[bytes]
    records: RecordNumbers
    blank: int = 0
    bad: tuple[BadPayload, ...] = ()


def contents_of(
    payloads: Sequence[bytes], *, compression: PayloadCompression
) -> Iterator[Contents]:
    """Yield the contents of payloads in chunks of limited size; a longer payload alone."""
    if compression is PayloadCompression.GZIP:
        return _unpacked_chunks(payloads)
    return _chunks(payloads)


def without_marks(contents: Contents) -> Contents:
    """Remove byte order marks, which some programs write before a text."""
    if not any(map(_marked, contents.texts)):
        return contents
    return Contents(
        texts=[text.removeprefix(BYTE_ORDER_MARK) for text in contents.texts],
        records=contents.records,
        bad=contents.bad,
    )


def without_blanks(contents: Contents, *, meaningless: Callable[[bytes], bool]) -> Contents:
    """Remove texts that are empty, or meaningless white space."""
    texts = contents.texts
    if all(texts) and not any(map(bytes.isspace, texts)):
        return contents
    kept = [
        at
        for at, text in enumerate(texts)
        if text and not (text.isspace() and meaningless(text))
    ]
    return Contents(
        texts=[texts[at] for at in kept],
        records=np.asarray(contents.records, np.int64)[kept],
        blank=contents.blank + len(texts) - len(kept),
        bad=contents.bad,
    )


def _chunks(payloads: Sequence[bytes]) -> Iterator[Contents]:
    # The line end of each payload is included.
    ends = np.fromiter(map(len, payloads), np.int64, len(payloads)).cumsum()
    ends += np.arange(1, len(payloads) + 1)
    first = 0
    while first < len(payloads):
        before = int(ends[first - 1]) if first else 0
        fitting = int(np.searchsorted(ends, before + _CHUNK_BYTES, side="right"))
        after = min(max(fitting, first + 1), first + _CHUNK_RECORDS)
        yield Contents(texts=payloads[first:after], records=range(first, after))
        first = after


def _unpacked_chunks(payloads: Sequence[bytes]) -> Iterator[Contents]:
    texts: list[bytes] = []
    records: list[int] = []
    bad: list[BadPayload] = []
    size_bytes = 0
    for record, payload in enumerate(payloads):
        try:
            text = _unpacked(payload)
        except BrokenStreamError as error:
            bad.append(BadPayload(record=record, error=str(error), raw=payload))
            continue
        size_bytes += len(text)
        if texts and (size_bytes > _CHUNK_BYTES or len(texts) == _CHUNK_RECORDS):
            yield _contents(texts, records, bad)
            texts, records, bad, size_bytes = [], [], [], len(text)
        texts.append(text)
        records.append(record)
    yield _contents(texts, records, bad)


def _contents(texts: list[bytes], records: list[int], bad: list[BadPayload]) -> Contents:
    return Contents(texts=texts, records=np.array(records, np.int64), bad=tuple(bad))


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


_NEWLINE = b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedLines:
    """The lines of some records."""

    data: bytes
    # The first line of each record; None if each record is one line.
    first_lines: Numbers | None = None

    @property
    def layout(self) -> LineLayout:
        """Layout that reads all lines at once, unless a record is very long."""
        return LineLayout(block_bytes=min(len(self.data), 2 * BLOCK_BYTES))

    @property
    def records_of(self) -> Callable[[Numbers], Numbers] | None:
        """Function from lines to records; None if they are the same."""
        first_lines = self.first_lines
        if first_lines is None:
            return None
        return lambda lines: np.searchsorted(first_lines, lines, side="right") - 1


def join_lines(
    texts: Sequence[bytes], *, folded: Callable[[bytes], bytes] | None = None
) -> JoinedLines:
    """Join records, each with a line end; ``folded`` may join the lines of a record."""
    data = _joined(texts)
    # numpy counts bytes faster than ``bytes.count``.
    if np.count_nonzero(np.frombuffer(data, np.uint8) == _NEWLINE[0]) == len(texts):
        return JoinedLines(data=data)
    texts = [text.removesuffix(_NEWLINE) for text in texts]
    if folded is not None:
        texts = [folded(text) if _NEWLINE in text else text for text in texts]
    counts = np.fromiter((text.count(_NEWLINE) + 1 for text in texts), np.int64, len(texts))
    return JoinedLines(data=_joined(texts), first_lines=np.cumsum(counts) - counts)


def fold_document(text: bytes) -> bytes:
    """Write a JSON document on one line; return other texts unchanged."""
    try:
        decode_document(text)
    except BadRecordError:
        return text
    # JSON strings contain neither.
    return text.replace(b"\r", b" ").replace(_NEWLINE, b" ").strip(b" ")


def _joined(texts: Sequence[bytes]) -> bytes:
    data = _NEWLINE.join([*texts, b""])
    # Readers remove a mark at the beginning of a file, but this mark belongs to a record.
    return BYTE_ORDER_MARK + data if data.startswith(BYTE_ORDER_MARK) else data


def csv_reader(layout: CsvLayout, wanted: Wanted) -> ReadTexts:
    """Return the reader of texts of CSV lines."""
    enclosed = enclosing(layout)

    def read_run(texts: Sequence[bytes]) -> Iterator[Decoded]:
        lines = join_lines(texts)
        blocks = read_csv(
            BytesIO(lines.data),
            columns=wanted.columns,
            wanted=wanted.names,
            layout=layout,
            start=0,
            end=None,
            missing=MissingColumns.NULL,
            rescue=wanted.rescue,
            lines=lines.layout,
        )
        return decoded_blocks(blocks, records_of=lines.records_of)

    if enclosed is None:
        return read_run

    def read(texts: Sequence[bytes]) -> Iterator[Decoded]:
        for first, after in _runs(texts, enclosed):
            for part in read_run(texts[first:after]):
                yield _moved(part, by=first)

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
    for line in text.split(b"\n"):
        opened = enclosed.open_after(line, opened=opened)
    return opened


def _moved(part: Decoded, *, by: int) -> Decoded:
    rows = part.record_of_row
    return replace(
        part,
        record_of_row=range(rows.start + by, rows.stop + by)
        if isinstance(rows, range)
        else rows + by,
        bad=tuple(replace(bad, record=bad.record + by) for bad in part.bad),
    )


# The elements of a longer text are not all held at once.
_LONG_BYTES = 1 << 20


def json_reader(layout: JsonLayout, wanted: Wanted) -> ReadTexts:
    """Return the reader of JSON; raise ``UserError`` if the layout does not fit the columns."""
    reading = json_reading(
        wanted.columns, wanted=wanted.names, layout=layout, rescue=wanted.rescue
    )
    if layout.strip_outer_array:
        return lambda texts: _read_arrays(texts, reading)

    def read(texts: Sequence[bytes]) -> Iterator[Decoded]:
        lines = join_lines(texts, folded=fold_document)
        blocks = read_json(
            BytesIO(lines.data), reading=reading, start=0, end=None, lines=lines.layout
        )
        return decoded_blocks(blocks, records_of=lines.records_of)

    return read


def _read_arrays(texts: Sequence[bytes], reading: JsonReading) -> Iterator[Decoded]:
    elements: list[JsonSource] = []
    owners: list[int] = []
    bad: list[BadPayload] = []
    for number, text in enumerate(texts):
        try:
            for group in _groups(text, reading.layout.root):
                elements += group
                owners += [number] * len(group)
                if len(elements) >= GROUP_RECORDS_MAX:
                    yield from _decoded(elements, owners, reading)
                    elements, owners = [], []
        except UnreadableFileError as error:
            bad.append(BadPayload(record=number, error=error.message, raw=text))
    if elements:
        yield from _decoded(elements, owners, reading)
    if bad:
        yield without_rows(reading.shape.schema, bad=tuple(bad))


def _groups(text: bytes, root: JsonPath) -> Iterator[list[JsonSource]]:
    """Return the elements of a text; raise before the first one if the text is broken."""
    if len(text) <= _LONG_BYTES:
        return iter(list(element_groups(BytesIO(text), root=root)))
    deque(read_elements(BytesIO(text), objects=bool(root.steps)), maxlen=0)
    return element_groups(BytesIO(text), root=root)


def _decoded(
    elements: list[JsonSource], owners: list[int], reading: JsonReading
) -> Iterator[Decoded]:
    record_of_element = np.array(owners, np.int64)
    blocks = read_sources(elements, reading=reading)
    return decoded_blocks(blocks, records_of=lambda lines: record_of_element[lines])


def text_reader(wanted: Wanted) -> ReadTexts:
    """Return the reader of plain text; raise ``UserError`` for other columns than its one."""
    (column,) = TEXT_COLUMNS
    expected = (column.name, pa.string())
    found = [(field.name, field.type) for field in wanted.columns]
    if found != [expected]:
        raise UserError(
            f'records of format "text" have one column, {column.name} {column.type.sql},'
            f" not {', '.join(name for name, _ in found) or 'none'}",
            code=Code.TYPE_ERR,
            hint='Omit the columns, or choose the format "csv" or "json".',
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


class Decoder:
    """Decodes the records of one source; raises ``UserError`` for a malformed option."""

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
        """Yield the rows of records, in order, in several parts.

        Batches have exactly the needed columns. ``metadata`` has one value per record for the
        needed columns that are not in the payloads.
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
        """Return whether white space contains no separator, and so no fields."""
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
    """Add the metadata columns, and convert record numbers to those of the caller."""
    owners = _numbers(records, part.record_of_row)
    names = set(part.batch.schema.names)
    columns = [
        part.batch.column(name) if name in names else _taken(metadata[name], owners)
        for name in schema.names
    ]
    return replace(
        part,
        # A batch without columns keeps its number of rows.
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
