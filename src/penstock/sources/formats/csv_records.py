"""Split CSV text into records, read the header and map fields to columns.

Invariant: the bounds of a record depend only on the bytes before it. The bounds never depend on
how the file is split into blocks.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from io import BufferedIOBase
from itertools import accumulate

import pyarrow as pa

from penstock.sources.files.kind import MissingColumns
from penstock.sources.formats.blocks import UnreadableFileError, Wanted
from penstock.sources.formats.csv_text import (
    BrokenRecordError,
    CsvLayout,
    Enclosing,
    enclosing,
    field_splitter,
)
from penstock.sources.formats.lines import LineLayout, Lines, read_lines

_RETURN = b"\r"
# How much of an overlong or unclosed record is stored in rejects().
_RAW_BYTES_MAX = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvRecords:
    """Some records of a file: their bytes without line ends, and their offsets."""

    texts: Sequence[bytes]
    offsets: Sequence[int]
    # The first line of each record; line ends inside records are counted too.
    lines: Sequence[int]
    fault_by_record: dict[int, str] = field(default_factory=dict)

    def between(self, start: int, end: float) -> "CsvRecords":
        """Return the records that start in ``[start, end)`` of the file."""
        first, after = bisect_left(self.offsets, start), bisect_left(self.offsets, end)
        return CsvRecords(
            texts=self.texts[first:after],
            offsets=self.offsets[first:after],
            lines=self.lines[first:after],
            fault_by_record={
                at - first: fault
                for at, fault in self.fault_by_record.items()
                if first <= at < after
            },
        )


class RecordSplitter:
    """Splits blocks into records; holds a record that continues in the next block."""

    def __init__(
        self, layout: CsvLayout, *, line_bytes_max: int, offset: int = 0, line: int = 0
    ) -> None:
        self._layout = layout
        self._enclosing = enclosing(layout)
        self._bytes_max = line_bytes_max
        # The offset and the line at which the next record starts.
        self.offset = offset
        self.line = line
        self._held: list[bytes] = []
        self._held_lines = 0
        self._held_bytes = 0

    @property
    def idle(self) -> bool:
        """Whether the next block starts with a new record."""
        return not self._held_lines

    def skip(self, lines: Lines, *, count: int) -> None:
        """Skip a block of ``count`` lines, each a whole record that was read elsewhere."""
        self.offset = lines.offset + lines.size_bytes
        self.line += count

    def split_block(self, lines: Lines) -> CsvRecords:
        """Return the records that end in the next block."""
        if lines.too_long:
            return self._too_long(lines)
        data = bytes(lines.content)
        if self.idle:
            self.offset = lines.offset + len(lines.data) - len(data)
        texts = data.split(self._layout.ending)
        if not texts[-1]:
            texts.pop()
        if self._enclosing is None or (self.idle and self._enclosing.enclose not in data):
            return self._one_per_line(texts)
        return self._joined(texts, self._enclosing)

    def finish(self) -> CsvRecords:
        """Return the record that is still open at the end of the file, if any."""
        if self.idle:
            return CsvRecords(texts=(), offsets=(), lines=())
        return self._faulty("an enclosed field is not closed before the end of the file")

    def _one_per_line(self, texts: list[bytes]) -> CsvRecords:
        ending_bytes = len(self._layout.ending)
        sizes = (len(text) + ending_bytes for text in texts)
        *offsets, self.offset = accumulate(sizes, initial=self.offset)
        lines = range(self.line, self.line + len(texts))
        self.line += len(texts)
        return CsvRecords(texts=self._without_returns(texts), offsets=offsets, lines=lines)

    def _joined(self, texts: list[bytes], enclosed: Enclosing) -> CsvRecords:
        whole: list[bytes] = []
        offsets: list[int] = []
        lines: list[int] = []
        faults: dict[int, str] = {}
        for text in texts:
            opened = enclosed.open_after(text, opened=not self.idle)
            self._hold(text)
            if opened:
                continue
            offsets.append(self.offset)
            lines.append(self.line)
            if self._held_bytes > self._bytes_max + len(self._layout.ending):
                found = self._held_bytes - len(self._layout.ending)
                faults[len(whole)] = (
                    f"a record must have at most {self._bytes_max} bytes, found {found}"
                )
            whole.append(self._released())
        return CsvRecords(
            texts=self._without_returns(whole),
            offsets=offsets,
            lines=lines,
            fault_by_record=faults,
        )

    def _hold(self, text: bytes) -> None:
        self._held.append(text)
        self._held_lines += 1
        self._held_bytes += len(text) + len(self._layout.ending)
        if self._held_bytes > self._bytes_max + len(self._layout.ending):
            self._held = [self._layout.ending.join(self._held)[:_RAW_BYTES_MAX]]

    def _released(self) -> bytes:
        """Return the held record; the next record starts after it."""
        data = self._layout.ending.join(self._held)
        self.offset += self._held_bytes
        self.line += self._held_lines
        self._held, self._held_lines, self._held_bytes = [], 0, 0
        return data

    def _too_long(self, lines: Lines) -> CsvRecords:
        if self.idle:
            self.offset = lines.offset
        fault = f"a line must have at most {self._bytes_max} bytes, found {lines.size_bytes}"
        self._hold(bytes(lines.data))
        # It is unknown whether the line leaves a field open. So the record ends with the line.
        records = self._faulty(fault)
        self.offset = lines.offset + lines.size_bytes
        return records

    def _faulty(self, fault: str) -> CsvRecords:
        offset, line = self.offset, self.line
        return CsvRecords(
            texts=self._without_returns([self._released()[:_RAW_BYTES_MAX]]),
            offsets=(offset,),
            lines=(line,),
            fault_by_record={0: fault},
        )

    def _without_returns(self, texts: list[bytes]) -> list[bytes]:
        if not self._layout.strips_carriage_return:
            return texts
        return [text.removesuffix(_RETURN) for text in texts]


_NAMES_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvShape:
    """The fields of a file, and their columns."""

    layout: CsvLayout
    # The schema of the batches, including the rescued column.
    schema: pa.Schema
    # The field of each wanted column, counted from 0; None if the file does not have it.
    field_by_column: tuple[int | None, ...]
    fields_max: int
    fields_min: int
    rescue: bool
    # The names of the fields without a column.
    extra_name_by_field: dict[int, str]
    extra_names: frozenset[str]

    def extra_name(self, field: int) -> str:
        """Return the name of a field without a column."""
        named = self.extra_name_by_field.get(field)
        return named or _free(generated_name(field), self.extra_names)


def csv_shape(wanted: Wanted, *, layout: CsvLayout, names: Sequence[str] | None) -> CsvShape:
    """Return the shape of a file; find columns by name, or by position without a header."""
    columns = wanted.columns.names
    field_by_name: dict[str, int | None]
    if names is None:
        field_by_name = {name: field for field, name in enumerate(columns)}
    else:
        field_by_name = _matched(columns, names)
        _require_columns(field_by_name, wanted.missing)
    held = set(field_by_name.values())
    extra = _distinct(
        {field: name for field, name in enumerate(names or ()) if field not in held}
    )
    fields_max = len(columns if names is None else names)
    return CsvShape(
        layout=layout,
        schema=wanted.schema,
        field_by_column=tuple(field_by_name[name] for name in wanted.names),
        fields_max=fields_max,
        fields_min=fields_max if wanted.missing is MissingColumns.FAIL else 0,
        rescue=wanted.rescue,
        extra_name_by_field=extra,
        extra_names=frozenset(extra.values()),
    )


def generated_name(field: int) -> str:
    """Return the generated name of an unnamed field; ``field`` counts from 0."""
    return f"c{field + 1}"


def _matched(columns: Sequence[str], names: Sequence[str]) -> dict[str, int | None]:
    """Return the field of each column: the exact name, else the name in another case."""
    exact: defaultdict[str, list[int]] = defaultdict(list)
    folded: defaultdict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(names):
        exact[name].append(number)
        folded[name.lower()].append(number)
    return {
        column: _only(column, exact.get(column) or folded.get(column.lower(), []))
        for column in columns
    }


def _only(column: str, fields: list[int]) -> int | None:
    if len(fields) > 1:
        raise UnreadableFileError(
            f"fields {fields[0] + 1} and {fields[1] + 1} of the header have the same name,"
            f' "{column}"',
            hint="Write the file with a unique name for each column.",
        )
    return fields[0] if fields else None


def _require_columns(field_by_name: dict[str, int | None], missing: MissingColumns) -> None:
    absent = [f'"{name}"' for name, field in field_by_name.items() if field is None]
    if not absent or missing is MissingColumns.NULL:
        return
    shown = ", ".join(absent[:_NAMES_SHOWN_MAX])
    more = (
        "" if len(absent) <= _NAMES_SHOWN_MAX else f" and {len(absent) - _NAMES_SHOWN_MAX} more"
    )
    raise UnreadableFileError(
        f"the header of the file does not contain column {shown}{more}",
        hint="Fix the file, or set the option \"missing_columns\" to 'null'.",
    )


def _distinct(name_by_field: dict[int, str]) -> dict[int, str]:
    """Append the position to duplicate names, so that no field is lost."""
    count_by_name = Counter(name_by_field.values())
    taken = {name for name, count in count_by_name.items() if count == 1}
    distinct: dict[int, str] = {}
    for number, name in name_by_field.items():
        shared = count_by_name[name] > 1
        free = f"{name}_{generated_name(number)}"
        distinct[number] = _free(free, taken) if shared else name
        taken.add(distinct[number])
    return distinct


def _free(name: str, taken: Set[str]) -> str:
    while name in taken:
        name += "_"
    return name


_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Preamble:
    """The lines before the first record of a file, and the field names in them."""

    size_bytes: int
    lines: int
    # None if the layout has no header.
    names: tuple[str, ...] | None


def read_preamble(
    stream: BufferedIOBase, *, layout: CsvLayout, line_bytes_max: int
) -> Preamble | None:
    """Read the lines before the first record; return None if the header is incomplete."""
    lines = LineLayout(
        ending=layout.ending, block_bytes=_BLOCK_BYTES, line_bytes_max=line_bytes_max
    )
    offset = _skipped_bytes(stream, count=layout.skip_lines, lines=lines)
    if offset is None:
        return None
    if not layout.header_lines:
        return Preamble(size_bytes=offset, lines=layout.skip_lines, names=None)
    splitter = RecordSplitter(
        layout, line_bytes_max=line_bytes_max, offset=offset, line=layout.skip_lines
    )
    seen = 0
    names: tuple[str, ...] = ()
    for records in _records(stream, splitter, offset=offset, lines=lines):
        if not seen and records.texts:
            names = _names(records, layout)
        own = layout.header_lines - seen
        seen += len(records.texts)
        if len(records.texts) > own:
            return Preamble(
                size_bytes=records.offsets[own], lines=records.lines[own], names=names
            )
        if seen == layout.header_lines:
            return Preamble(size_bytes=splitter.offset, lines=splitter.line, names=names)
    return None


def _skipped_bytes(stream: BufferedIOBase, *, count: int, lines: LineLayout) -> int | None:
    """Return the offset after ``count`` lines; None if the file has fewer lines."""
    if not count:
        return 0
    for block in read_lines(stream, start=0, end=None, layout=lines):
        # A block with an overlong line contains only this line.
        texts = [b"", b""] if block.too_long else bytes(block.data).split(lines.ending, count)
        if len(texts) > count:
            return block.offset + block.size_bytes - len(texts[count])
        count -= len(texts) - 1
    return None


def _records(
    stream: BufferedIOBase, splitter: RecordSplitter, *, offset: int, lines: LineLayout
) -> Iterator[CsvRecords]:
    for block in read_lines(stream, start=offset, end=None, layout=lines):
        yield splitter.split_block(block)
    yield splitter.finish()


def _names(records: CsvRecords, layout: CsvLayout) -> tuple[str, ...]:
    """Return the names in the first record; generate a name for each empty field."""
    if not records.texts[0]:
        return ()
    try:
        if 0 in records.fault_by_record:
            raise BrokenRecordError(records.fault_by_record[0])
        fields = field_splitter(layout)(records.texts[0])
        names = [(field or b"").decode() for field in fields]
    except (UnicodeDecodeError, BrokenRecordError) as error:
        decoded = isinstance(error, BrokenRecordError)
        reason = str(error) if decoded else "a name is not UTF-8"
        raise UnreadableFileError(
            f"the header on line {records.lines[0] + 1} of the file cannot be read: {reason}",
            hint='Fix the file, or skip lines before the header with the option "skip_lines".',
        ) from error
    return tuple(name or generated_name(field) for field, name in enumerate(names))
