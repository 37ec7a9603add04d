"""Split a byte range of a file into blocks of whole lines.

Invariant: if ranges cover a file without overlap, exactly one range reads each line:
the range in which the line starts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase

# Some programs write this mark at the start of UTF-8 text.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLOCK_BYTES = 1 << 22
LINE_BYTES_MAX = 1 << 28
_LOOK_AHEAD_BYTES = 1 << 16
# How much of an overlong line is stored in rejects().
_RAW_BYTES_MAX = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLayout:
    """The line ending, and limits for memory.

    The ending must not overlap itself. Otherwise the end of a line would depend on where the
    search starts.
    """

    ending: bytes = b"\n"
    block_bytes: int = BLOCK_BYTES
    line_bytes_max: int = LINE_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Whole lines of a file, or the first bytes of an overlong line."""

    offset: int
    # Valid only until the next block is read, because the memory is reused.
    data: memoryview
    size_bytes: int
    too_long: bool = False

    @property
    def content(self) -> memoryview:
        """The lines without the byte order mark of their file."""
        mark_bytes = len(BYTE_ORDER_MARK)
        marked = self.offset == 0 and self.data[:mark_bytes] == BYTE_ORDER_MARK
        return self.data[mark_bytes:] if marked else self.data


def read_lines(
    stream: BufferedIOBase, *, start: int, end: int | None, layout: LineLayout
) -> Iterator[Lines]:
    """Read the lines that start in ``[start, end)`` of the file; None is the file's end."""
    first = _first_line_at(stream, start, layout.ending)
    if first is None or (end is not None and first >= end):
        return
    stream.seek(first)
    yield from _Window(stream, offset=first, end=end, layout=layout).blocks()


def read_at_most(stream: BufferedIOBase, size_bytes: int) -> bytes:
    """Read up to ``size_bytes`` or the end; a single ``read`` may return less."""
    parts = []
    while size_bytes and (part := stream.read(size_bytes)):
        parts.append(part)
        size_bytes -= len(part)
    return b"".join(parts)


def count_lines_before(stream: BufferedIOBase, offset: int, *, ending: bytes = b"\n") -> int:
    """Count the lines that end in the first ``offset`` bytes of the file."""
    stream.seek(0)
    count, held = 0, b""
    while offset > 0 and (chunk := stream.read(min(BLOCK_BYTES, offset))):
        offset -= len(chunk)
        held += chunk
        count += held.count(ending)
        held = _tail(held, ending)
    return count


def _first_line_at(stream: BufferedIOBase, start: int, ending: bytes) -> int | None:
    if start == 0:
        return 0
    at = max(start - len(ending), 0)
    stream.seek(at)
    held = b""
    while chunk := stream.read(_LOOK_AHEAD_BYTES):
        held += chunk
        found = held.find(ending)
        if found >= 0:
            return at + found + len(ending)
        at += len(held)
        held = _tail(held, ending)
        at -= len(held)
    return None


def _tail(held: bytes, ending: bytes) -> bytes:
    """Return the last bytes, which may be the first part of an ending."""
    return held[max(len(held) - len(ending) + 1, 0) :]


class _Window:
    """A reused buffer that moves over the file; allocating memory is slower than reading."""

    def __init__(
        self, stream: BufferedIOBase, *, offset: int, end: int | None, layout: LineLayout
    ) -> None:
        self._stream = stream
        self._offset = offset
        self._end = end
        self._ending = layout.ending
        self._bytes_max = layout.line_bytes_max + len(layout.ending)
        self._memory = bytearray(min(layout.block_bytes, self._bytes_max))
        self._filled = 0

    def blocks(self) -> Iterator[Lines]:
        """Yield the lines of the range in blocks as large as the buffer."""
        while self._end is None or self._offset < self._end:
            if not self._read_more():
                if self._filled:
                    yield self._lines(self._own_bytes())
                return
            last = self._memory.rfind(self._ending, 0, self._own_bytes())
            if last >= 0:
                size_bytes = last + len(self._ending)
                yield self._lines(size_bytes)
                self._move(size_bytes)
            elif self._filled == self._bytes_max:
                yield self._skip_line()

    def _lines(self, size_bytes: int) -> Lines:
        data = memoryview(self._memory)[:size_bytes]
        return Lines(offset=self._offset, data=data, size_bytes=size_bytes)

    def _skip_line(self) -> Lines:
        """Skip an overlong line; return its first bytes."""
        raw, start = bytes(self._memory[:_RAW_BYTES_MAX]), self._offset
        while (last := self._memory.find(self._ending, 0, self._filled)) < 0:
            # A line ending can be split between two reads.
            self._move(self._filled - len(self._ending) + 1)
            if not self._read_more():
                self._move(self._filled)
                break
        else:
            self._move(last + len(self._ending))
        size_bytes = self._offset - start
        return Lines(offset=start, data=memoryview(raw), size_bytes=size_bytes, too_long=True)

    def _read_more(self) -> int:
        """Fill the buffer; return the number of bytes read.

        Reads little beyond the range, only to find the end of its last line.
        """
        if self._filled == len(self._memory):
            larger = bytearray(min(2 * len(self._memory), self._bytes_max))
            larger[: self._filled] = self._memory
            self._memory = larger
        room = len(self._memory) - self._filled
        if self._end is not None:
            own_bytes = max(self._end - self._offset - self._filled, 0)
            room = min(room, own_bytes + _LOOK_AHEAD_BYTES)
        read = self._stream.readinto(
            memoryview(self._memory)[self._filled : self._filled + room]
        )
        self._filled += read
        return read

    def _move(self, count: int) -> None:
        """Remove bytes from the front of the buffer."""
        self._memory[: self._filled - count] = self._memory[count : self._filled]
        self._offset += count
        self._filled -= count

    def _own_bytes(self) -> int:
        """Return the number of buffered bytes that belong to lines of the range."""
        if self._end is None or self._offset + self._filled < self._end:
            return self._filled
        from_byte = max(self._end - len(self._ending) - self._offset, 0)
        last = self._memory.find(self._ending, from_byte, self._filled)
        return last + len(self._ending) if last >= 0 else self._filled
