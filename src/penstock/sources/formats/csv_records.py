"""Cut whole lines of a CSV file into records, which are lines, or more with enclosed fields.

Invariant: where a record begins and ends depends on the bytes before it, never on how the
file is cut into blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from penstock.sources.formats.csv_fields import enclosing
from penstock.sources.formats.csv_layout import CsvLayout
from penstock.sources.formats.lines import BYTE_ORDER_MARK, Lines

_RETURN = b"\r"
# What is kept of a record that is too long, or that nothing closes.
_RAW_BYTES_MAX = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvRecords:
    """Some records of a file: their bytes without line ends, and where they begin."""

    texts: Sequence[bytes]
    offsets: Sequence[int]
    # Counted in line ends, also in those inside of records.
    lines: Sequence[int]
    fault_by_record: dict[int, str] = field(default_factory=dict)

    def part(self, first: int, behind: int) -> "CsvRecords":
        """Give the records from one place to another."""
        return CsvRecords(
            texts=self.texts[first:behind],
            offsets=self.offsets[first:behind],
            lines=self.lines[first:behind],
            fault_by_record={
                at - first: fault
                for at, fault in self.fault_by_record.items()
                if first <= at < behind
            },
        )


def content(lines: Lines) -> bytes:
    """Give the bytes of a block, without the byte order mark of its file."""
    data = bytes(lines.data)
    return data.removeprefix(BYTE_ORDER_MARK) if lines.offset == 0 else data


class RecordCutter:
    """Cuts block after block, and holds the record that goes on in the next one."""

    def __init__(
        self, layout: CsvLayout, *, line_bytes_max: int, offset: int = 0, line: int = 0
    ) -> None:
        self._layout = layout
        self._enclosing = enclosing(layout)
        self._bytes_max = line_bytes_max
        # Where the next record begins.
        self.offset = offset
        self.line = line
        self._held: list[bytes] = []
        self._held_lines = 0
        self._held_bytes = 0

    @property
    def idle(self) -> bool:
        """Whether the next block begins with a record."""
        return not self._held_lines

    def pass_over(self, lines: Lines, *, count: int) -> None:
        """Take note of a block that was read otherwise, one record per line."""
        self.offset = lines.offset + lines.size_bytes
        self.line += count

    def cut(self, lines: Lines) -> CsvRecords:
        """Give the records that end in the next block."""
        if lines.too_long:
            return self._too_long(lines)
        data = content(lines)
        if self.idle:
            self.offset = lines.offset + len(lines.data) - len(data)
        texts = data.split(self._layout.ending)
        if not texts[-1]:
            texts.pop()
        if self._enclosing is None or (self.idle and self._enclosing.enclose not in data):
            return self._one_per_line(texts)
        return self._joined(texts)

    def finish(self) -> CsvRecords:
        """Give the record that is still open at the end of the file, if there is one."""
        if self.idle:
            return CsvRecords(texts=(), offsets=(), lines=())
        return self._faulty("an enclosed field is never closed")

    def _one_per_line(self, texts: list[bytes]) -> CsvRecords:
        ending_bytes = len(self._layout.ending)
        sizes = (len(text) + ending_bytes for text in texts)
        *offsets, self.offset = accumulate(sizes, initial=self.offset)
        lines = range(self.line, self.line + len(texts))
        self.line += len(texts)
        return CsvRecords(texts=self._without_returns(texts), offsets=offsets, lines=lines)

    def _joined(self, texts: list[bytes]) -> CsvRecords:
        whole: list[bytes] = []
        offsets: list[int] = []
        lines: list[int] = []
        faults: dict[int, str] = {}
        for text in texts:
            opened = self._open_behind(text)
            self._hold(text)
            if opened:
                continue
            offsets.append(self.offset)
            lines.append(self.line)
            if self._held_bytes > self._bytes_max + len(self._layout.ending):
                found = self._held_bytes - len(self._layout.ending)
                faults[len(whole)] = (
                    f"a record may have {self._bytes_max} bytes at most, found {found}"
                )
            whole.append(self._released())
        return CsvRecords(
            texts=self._without_returns(whole),
            offsets=offsets,
            lines=lines,
            fault_by_record=faults,
        )

    def _open_behind(self, text: bytes) -> bool:
        return self._enclosing is not None and self._enclosing.open_behind(
            text, opened=not self.idle
        )

    def _hold(self, text: bytes) -> None:
        self._held.append(text)
        self._held_lines += 1
        self._held_bytes += len(text) + len(self._layout.ending)
        if self._held_bytes > self._bytes_max + len(self._layout.ending):
            self._held = [self._layout.ending.join(self._held)[:_RAW_BYTES_MAX]]

    def _released(self) -> bytes:
        """Give what is held of a record, and let the next one begin behind it."""
        data = self._layout.ending.join(self._held)
        self.offset += self._held_bytes
        self.line += self._held_lines
        self._held, self._held_lines, self._held_bytes = [], 0, 0
        return data

    def _too_long(self, lines: Lines) -> CsvRecords:
        if self.idle:
            self.offset = lines.offset
        fault = f"a line may have {self._bytes_max} bytes at most, found {lines.size_bytes}"
        self._hold(bytes(lines.data))
        # The record ends with the line, because what is open behind it is not known.
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
        if not self._layout.return_dropped:
            return texts
        return [text.removesuffix(_RETURN) for text in texts]
