"""Read a byte range of a file of JSON lines into Arrow record batches.

Invariant: cut a file into ranges in any way, and every line is read by exactly one of them:
a range owns the lines that begin in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import BinaryIO

import pyarrow as pa

from penstock.sources.formats.json_arrow import (
    JsonShape,
    json_shape,
    parse_records,
    read_directly,
)
from penstock.sources.formats.json_records import read_line_by_line

_MARK = b"\xef\xbb\xbf"
_LOOK_AHEAD_BYTES = 1 << 16
_COUNT_BYTES = 1 << 20
# What is kept of a line that is too long to be read.
_RAW_BYTES_MAX = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line that could not be loaded: where it is, why, and what it holds."""

    line: int
    offset: int
    error: str
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonBlock:
    """Some whole lines of a range: the rows read, and the lines that gave none."""

    batch: pa.RecordBatch
    first_line: int
    lines: int
    bytes: int
    blank: int = 0
    bad: tuple[BadLine, ...] = ()
    row_lines: tuple[int, ...] | None = None

    @property
    def rows(self) -> int:
        """Number of rows read."""
        return self.batch.num_rows

    def line_of(self, row: int) -> int:
        """Give the line of a row, counted from the block's first."""
        return row if self.row_lines is None else self.row_lines[row]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Whole lines of the file, or the beginning of one that is too long."""

    offset: int
    data: bytes
    size_bytes: int
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenLine:
    """A line whose end was not read yet, in parts, so that growing does not copy it."""

    bytes_max: int
    parts: tuple[bytes, ...] = ()
    size_bytes: int = 0

    def extended(self, more: bytes) -> "_OpenLine":
        """Give the line with more of it read; one too long keeps only its beginning."""
        parts, size_bytes = (*self.parts, more), self.size_bytes + len(more)
        if size_bytes > self.bytes_max:
            parts = (b"".join(part[:_RAW_BYTES_MAX] for part in parts)[:_RAW_BYTES_MAX],)
        return replace(self, parts=parts, size_bytes=size_bytes)

    def piece(self, offset: int, *, ending_bytes: int) -> _Piece:
        """Give the line as it was read, or its beginning if it is too long."""
        return _Piece(
            offset=offset,
            data=b"".join(self.parts),
            size_bytes=self.size_bytes + ending_bytes,
            bytes_max=self.bytes_max if self.size_bytes > self.bytes_max else None,
        )


def read_json_lines(
    stream: BinaryIO,
    *,
    schema: pa.Schema,
    start: int,
    end: int | None,
    block_bytes: int = 1 << 20,
    line_bytes_max: int = 1 << 28,
) -> Iterator[JsonBlock]:
    """Read the lines that begin in ``[start, end)`` of the file; None is the file's end."""
    shape = json_shape(schema)
    first = _first_line_at(stream, start)
    if first is None or (end is not None and first >= end):
        return
    read_bytes = min(block_bytes, line_bytes_max)
    chunks = _owned_chunks(stream, start=first, end=end, read_bytes=read_bytes)
    first_line = 0
    for piece in _pieces(chunks, offset=first, line_bytes_max=line_bytes_max):
        block = _block(piece, shape=shape, first_line=first_line)
        yield block
        first_line += block.lines


def count_lines_before(stream: BinaryIO, offset: int) -> int:
    """Count the line ends in the first ``offset`` bytes of the file."""
    stream.seek(0)
    count = 0
    while offset > 0 and (chunk := stream.read(min(_COUNT_BYTES, offset))):
        count += chunk.count(b"\n")
        offset -= len(chunk)
    return count


def _first_line_at(stream: BinaryIO, start: int) -> int | None:
    if start == 0:
        return 0
    at = start - 1
    stream.seek(at)
    while chunk := stream.read(_LOOK_AHEAD_BYTES):
        newline = chunk.find(b"\n")
        if newline >= 0:
            return at + newline + 1
        at += len(chunk)
    return None


def _owned_chunks(
    stream: BinaryIO, *, start: int, end: int | None, read_bytes: int
) -> Iterator[bytes]:
    """Give the bytes from the line at ``start`` to the end of the last line of the range."""
    stream.seek(start)
    at = start
    while chunk := stream.read(_read_bytes(at, end=end, read_bytes=read_bytes)):
        if end is not None and at + len(chunk) >= end:
            stop = chunk.find(b"\n", max(end - 1 - at, 0)) + 1
            if stop:
                yield chunk[:stop]
                return
        yield chunk
        at += len(chunk)


def _read_bytes(at: int, *, end: int | None, read_bytes: int) -> int:
    if end is None:
        return read_bytes
    return min(read_bytes, max(end - at, 0) + _LOOK_AHEAD_BYTES)


def _pieces(chunks: Iterator[bytes], *, offset: int, line_bytes_max: int) -> Iterator[_Piece]:
    """Cut chunks at line ends; of a line that is too long only the beginning is kept."""
    open_line = _OpenLine(bytes_max=line_bytes_max)
    for chunk in chunks:
        newline = chunk.find(b"\n")
        cut = chunk.rfind(b"\n") + 1
        begin = 0
        if newline >= 0 and open_line.size_bytes + newline > line_bytes_max:
            piece = open_line.extended(chunk[:newline]).piece(offset, ending_bytes=1)
            yield piece
            offset += piece.size_bytes
            begin = newline + 1
            open_line = _OpenLine(bytes_max=line_bytes_max)
        if cut > begin:
            data = b"".join((*open_line.parts, memoryview(chunk)[begin:cut]))
            yield _Piece(offset=offset, data=data, size_bytes=len(data))
            offset += len(data)
            open_line = _OpenLine(bytes_max=line_bytes_max)
        open_line = open_line.extended(chunk[cut:])
    if open_line.size_bytes:
        yield open_line.piece(offset, ending_bytes=0)


def _block(piece: _Piece, *, shape: JsonShape, first_line: int) -> JsonBlock:
    if piece.bytes_max is not None:
        return _too_long_block(piece, shape=shape, first_line=first_line)
    marked = piece.offset == 0 and piece.data.startswith(_MARK)
    data = piece.data[len(_MARK) :] if marked else piece.data
    batch = read_directly(data, shape)
    if batch is not None:
        return JsonBlock(
            batch=batch, first_line=first_line, lines=batch.num_rows, bytes=piece.size_bytes
        )
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    records = read_line_by_line(lines, shape)
    offsets = _line_offsets(lines, first=piece.offset + len(piece.data) - len(data))
    bad = tuple(
        BadLine(
            line=first_line + line,
            offset=offsets[line],
            error=records.reason_by_bad_line[line],
            raw=lines[line].removesuffix(b"\r"),
        )
        for line in sorted(records.reason_by_bad_line)
    )
    return JsonBlock(
        batch=records.batch,
        first_line=first_line,
        lines=len(lines),
        bytes=piece.size_bytes,
        blank=records.blank,
        bad=bad,
        row_lines=records.row_lines if records.blank or bad else None,
    )


def _line_offsets(lines: list[bytes], *, first: int) -> list[int]:
    return list(accumulate((len(line) + 1 for line in lines), initial=first))


def _too_long_block(piece: _Piece, *, shape: JsonShape, first_line: int) -> JsonBlock:
    bad = BadLine(
        line=first_line,
        offset=piece.offset,
        error=f"a line may have {piece.bytes_max} bytes at most, found {piece.size_bytes}",
        raw=piece.data.removesuffix(b"\r"),
    )
    return JsonBlock(
        batch=parse_records(b"", shape),
        first_line=first_line,
        lines=1,
        bytes=piece.size_bytes,
        bad=(bad,),
        row_lines=(),
    )
