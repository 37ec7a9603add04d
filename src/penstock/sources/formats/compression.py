"""Read the content of compressed files, in bounded memory.

Invariant: content that is cut off or damaged never looks like content that has ended.
"""

import bz2
import io
import os
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedIOBase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, cast

import pyarrow as pa

from penstock.errors import InvariantError
from penstock.model.files import CompressType
from penstock.sources.formats.blocks import UnreadableFileError
from penstock.sources.formats.snappy import (
    BrokenStreamError,
    StreamEndsTooEarlyError,
    snappy_parts,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_Parts = Callable[[BufferedIOBase], Iterator[bytes]]

_INPUT_BYTES = 1 << 16
_PART_BYTES = 1 << 18
_GZIP_HEADER = 16 + zlib.MAX_WBITS

_KIND_BY_SUFFIX = {
    ".gz": CompressType.GZ,
    ".gzip": CompressType.GZ,
    ".zst": CompressType.ZSTD,
    ".zstd": CompressType.ZSTD,
    ".bz2": CompressType.BZ2,
    ".lz4": CompressType.LZ4,
    ".snappy": CompressType.SNAPPY,
}


def compression_of(chosen: CompressType, key: str) -> CompressType:
    """Say how a file is compressed, by its suffix unless that was chosen; never AUTO."""
    if chosen is not CompressType.AUTO:
        return chosen
    return _KIND_BY_SUFFIX.get(PurePosixPath(key).suffix.lower(), CompressType.PLAIN)


def decompressed(stream: BufferedIOBase, kind: CompressType) -> BufferedIOBase:
    """Give the content of a compressed stream; to close it closes the stream."""
    if kind is CompressType.PLAIN:
        return stream
    if kind not in _PARTS_BY_KIND:
        raise InvariantError(f'a stream cannot be read with the compression "{kind}"')
    name, parts = _PARTS_BY_KIND[kind]
    content = _Content(stream, name=name, parts=parts)
    return io.BufferedReader(content, buffer_size=_INPUT_BYTES)


class TooMuchContentError(BrokenStreamError):
    """A compressed stream that holds more than its reader wants."""


def gunzipped(data: bytes, *, content_bytes_max: int) -> bytes:
    """Give the content of gzip bytes; ``BrokenStreamError`` if it is broken or too much."""
    parts = []
    size_bytes = 0
    for part in _gzip_parts(io.BytesIO(data)):
        size_bytes += len(part)
        if size_bytes > content_bytes_max:
            raise TooMuchContentError
        parts.append(part)
    return b"".join(parts)


class _Content(io.RawIOBase):
    """What a compressed stream holds; to go back it is read again from its beginning."""

    def __init__(self, stream: BufferedIOBase, *, name: str, parts: _Parts) -> None:
        super().__init__()
        self._stream = stream
        self._name = name
        self._parts_of = parts
        self._begin()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: "WriteableBuffer") -> int:
        target = memoryview(buffer).cast("B")
        part = self._part_ahead()[: len(target)]
        target[: len(part)] = part
        self._pass_over(len(part))
        return len(part)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence not in (os.SEEK_SET, os.SEEK_CUR):
            raise io.UnsupportedOperation("a compressed stream is not read from its end")
        target = offset + (self._position if whence == os.SEEK_CUR else 0)
        if target < self._position:
            self._stream.seek(0)
            self._begin()
        while self._position < target and (part := self._part_ahead()):
            self._pass_over(min(len(part), target - self._position))
        return self._position

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()

    def _begin(self) -> None:
        self._position = 0
        self._failure: UnreadableFileError | None = None
        self._part = memoryview(b"")
        self._parts = self._parts_of(self._stream)

    def _part_ahead(self) -> memoryview:
        """Give what was read and not yet passed over; empty only at the end."""
        while not self._part:
            if self._failure:
                # Whoever reads on meets the same error, not an end.
                raise self._failure
            try:
                part = next(self._parts, None)
            except BrokenStreamError as error:
                self._failure = self._unreadable(error)
                raise self._failure from error
            if part is None:
                break
            self._part = memoryview(part)
        return self._part

    def _pass_over(self, count: int) -> None:
        self._part = self._part[count:]
        self._position += count

    def _unreadable(self, error: BrokenStreamError) -> UnreadableFileError:
        what = "ends too early" if isinstance(error, StreamEndsTooEarlyError) else "is broken"
        return UnreadableFileError(
            f"the {self._name} stream {what}, at byte {self._position} of the content",
            detail=str(error),
            hint="Write the file again, or take it away."
            if self._position
            else "If the file is compressed in another way, or not at all, say so with the"
            ' option "compress_type", such as "plain".',
        )


def _gzip_parts(stream: BufferedIOBase) -> Iterator[bytes]:
    data = stream.read(_INPUT_BYTES)
    while data:
        member = zlib.decompressobj(wbits=_GZIP_HEADER)
        while not member.eof:
            data = data or stream.read(_INPUT_BYTES)
            part = _decoded(partial(member.decompress, data, _PART_BYTES))
            if not data and not part:
                raise StreamEndsTooEarlyError
            yield part
            data = member.unconsumed_tail
        data = _behind_padding(member.unused_data, stream)


def _behind_padding(data: bytes, stream: BufferedIOBase) -> bytes:
    """Pass over zeros behind a member, with which some programs fill up a block."""
    data = (data or stream.read(_INPUT_BYTES)).lstrip(b"\0")
    while not data and (data := stream.read(_INPUT_BYTES)):
        data = data.lstrip(b"\0")
    return data


def _bzip2_parts(stream: BufferedIOBase) -> Iterator[bytes]:
    data = stream.read(_INPUT_BYTES)
    while data:
        member = bz2.BZ2Decompressor()
        while not member.eof:
            if member.needs_input and not data and not (data := stream.read(_INPUT_BYTES)):
                raise StreamEndsTooEarlyError
            yield _decoded(partial(member.decompress, data, _PART_BYTES))
            data = b""
        data = member.unused_data or stream.read(_INPUT_BYTES)


def _decoded(decode: Callable[[], bytes]) -> bytes:
    try:
        return decode()
    except (zlib.error, OSError, ValueError) as error:
        raise BrokenStreamError(str(error)) from error


def _arrow_parts(stream: BufferedIOBase, *, codec: Literal["lz4", "zstd"]) -> Iterator[bytes]:
    source = cast("io.IOBase", _Borrowed(stream))
    content = pa.CompressedInputStream(pa.PythonFile(source, mode="r"), codec)
    while part := _arrow_part(content):
        yield part


def _arrow_part(content: pa.CompressedInputStream) -> bytes:
    try:
        return content.read(_PART_BYTES)
    except OSError as error:
        if error.errno is not None:
            # The stream itself could not be read.
            raise
        if "Truncated" in str(error):
            raise StreamEndsTooEarlyError from error
        raise BrokenStreamError(str(error)) from error


class _Borrowed:
    """A stream that Arrow reads but does not close."""

    closed = False

    def __init__(self, stream: BufferedIOBase) -> None:
        self.read = stream.read

    def close(self) -> None:
        """Leave the stream to its owner."""


_PARTS_BY_KIND: dict[CompressType, tuple[str, _Parts]] = {
    CompressType.GZ: ("gzip", _gzip_parts),
    CompressType.BZ2: ("bzip2", _bzip2_parts),
    CompressType.ZSTD: ("zstd", partial(_arrow_parts, codec="zstd")),
    CompressType.LZ4: ("lz4", partial(_arrow_parts, codec="lz4")),
    CompressType.SNAPPY: ("snappy", snappy_parts),
}
