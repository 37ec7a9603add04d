"""Read compressed files in bounded memory.

Invariant: truncated or damaged content raises an error; it is never read as a short file.
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
from penstock.sources.files.kind import CompressType
from penstock.sources.formats.blocks import UnreadableFileError
from penstock.sources.formats.lines import read_at_most

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_Parts = Callable[[BufferedIOBase], Iterator[bytes]]

_INPUT_BYTES = 1 << 16
_PART_BYTES = 1 << 18
_GZIP_HEADER = 16 + zlib.MAX_WBITS

_LENGTH_BYTES = 4
_VARINT_BYTES_MAX = 5
# A Hadoop block starts with its length. Up to this limit, the first byte of the length is 0.
# Framed Snappy starts with 0xff. Raw Snappy starts with 0 only if the content is empty. So a
# larger length means that the file is not in Hadoop blocks.
_SNAPPY_BLOCK_BYTES_MAX = (1 << 24) - 1

_KIND_BY_SUFFIX = {
    ".gz": CompressType.GZ,
    ".gzip": CompressType.GZ,
    ".zst": CompressType.ZSTD,
    ".zstd": CompressType.ZSTD,
    ".bz2": CompressType.BZ2,
    ".lz4": CompressType.LZ4,
    ".snappy": CompressType.SNAPPY,
}


class BrokenStreamError(ValueError):
    """A compressed stream that is damaged."""


class StreamEndsTooEarlyError(BrokenStreamError):
    """A compressed stream whose end is missing."""


class TooMuchContentError(BrokenStreamError):
    """A compressed stream with more content than the reader accepts."""


def compression_of(chosen: CompressType, key: str) -> CompressType:
    """Return the chosen compression of a file; for AUTO, the compression of its suffix."""
    if chosen is not CompressType.AUTO:
        return chosen
    return _KIND_BY_SUFFIX.get(PurePosixPath(key).suffix.lower(), CompressType.PLAIN)


def decompress(stream: BufferedIOBase, kind: CompressType) -> BufferedIOBase:
    """Return the decompressed content of a stream; closing it closes the stream too."""
    if kind is CompressType.PLAIN:
        return stream
    if kind not in _PARTS_BY_KIND:
        raise InvariantError(f'a stream cannot be read with the compression "{kind}"')
    name, parts = _PARTS_BY_KIND[kind]
    content = _Content(stream, name=name, parts=parts)
    return io.BufferedReader(content, buffer_size=_INPUT_BYTES)


def decompress_gzip(data: bytes, *, content_bytes_max: int) -> bytes:
    """Return the content of gzip bytes; raise ``BrokenStreamError`` if they are damaged."""
    parts = []
    size_bytes = 0
    for part in _gzip_parts(io.BytesIO(data)):
        size_bytes += len(part)
        if size_bytes > content_bytes_max:
            raise TooMuchContentError
        parts.append(part)
    return b"".join(parts)


class _Content(io.RawIOBase):
    """The content of a compressed stream. Seeking backwards reads it again from the start."""

    def __init__(self, stream: BufferedIOBase, *, name: str, parts: _Parts) -> None:
        super().__init__()
        self._stream = stream
        self._name = name
        self._parts_of = parts
        self._restart()

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
        self._skip(len(part))
        return len(part)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence not in (os.SEEK_SET, os.SEEK_CUR):
            raise io.UnsupportedOperation("a compressed stream cannot seek from its end")
        target = offset + (self._position if whence == os.SEEK_CUR else 0)
        if target < self._position:
            self._stream.seek(0)
            self._restart()
        while self._position < target and (part := self._part_ahead()):
            self._skip(min(len(part), target - self._position))
        return self._position

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()

    def _restart(self) -> None:
        self._position = 0
        self._failure: UnreadableFileError | None = None
        self._part = memoryview(b"")
        self._parts = self._parts_of(self._stream)

    def _part_ahead(self) -> memoryview:
        """Return the unread bytes of the current part; empty only at the end."""
        while not self._part:
            if self._failure:
                # Every later read raises the same error, so the stream never seems to end.
                raise self._failure
            try:
                part = next(self._parts, None)
            except BrokenStreamError as error:
                early = isinstance(error, StreamEndsTooEarlyError)
                what = "ends too early" if early else "is broken"
                self._failure = UnreadableFileError(
                    f"the {self._name} stream {what}, at byte {self._position} of the content",
                    detail=str(error),
                    hint="Write the file again, or remove it."
                    if self._position
                    else 'Check the option "compress_type"; for a file without compression, set'
                    ' it to "plain".',
                )
                raise self._failure from error
            if part is None:
                break
            self._part = memoryview(part)
        return self._part

    def _skip(self, count: int) -> None:
        self._part = self._part[count:]
        self._position += count


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
        # Some programs pad a member with zeros.
        data = member.unused_data.lstrip(b"\0")
        while not data and (data := stream.read(_INPUT_BYTES)):
            data = data.lstrip(b"\0")


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
    try:
        while part := content.read(_PART_BYTES):
            yield part
    except OSError as error:
        if error.errno is not None:
            # The stream itself could not be read.
            raise
        if "Truncated" in str(error):
            raise StreamEndsTooEarlyError from error
        raise BrokenStreamError(str(error)) from error


class _Borrowed:
    """A stream that Arrow can read, but not close."""

    closed = False

    def __init__(self, stream: BufferedIOBase) -> None:
        self.read = stream.read

    def close(self) -> None:
        """Leave the stream open for its owner."""


def _snappy_parts(stream: BufferedIOBase) -> Iterator[bytes]:
    """Decompress Hadoop blocks: the length of the content, then chunks with their lengths."""
    blocks, filled = 0, 0
    while head := read_at_most(stream, _LENGTH_BYTES):
        rest = int.from_bytes(_whole(head, _LENGTH_BYTES), "big")
        if rest > _SNAPPY_BLOCK_BYTES_MAX:
            raise BrokenStreamError(
                "Snappy must be written in Hadoop blocks (SNAPPYBLOCK) of at most"
                f" {_SNAPPY_BLOCK_BYTES_MAX} bytes; framed and raw Snappy are not supported."
            )
        blocks, filled = blocks + 1, filled + (rest > 0)
        while rest:
            head = _whole(read_at_most(stream, _LENGTH_BYTES), _LENGTH_BYTES)
            size_bytes = int.from_bytes(head, "big")
            if size_bytes > 32 + rest + rest // 6:
                raise BrokenStreamError(
                    f"A chunk has {size_bytes} bytes, too many for {rest} bytes of content."
                )
            packed = _whole(read_at_most(stream, size_bytes), size_bytes)
            part = _unpacked(packed, content_bytes_max=rest)
            yield part
            rest -= len(part)
    if blocks > 1 and not filled:
        # A valid empty stream has one empty block. A file of zeros is damaged.
        raise BrokenStreamError("All bytes of the file are zero.")


def _whole(data: bytes, size_bytes: int) -> bytes:
    if len(data) < size_bytes:
        raise StreamEndsTooEarlyError
    return data


def _unpacked(packed: bytes, *, content_bytes_max: int) -> bytes:
    content_bytes = _content_bytes(packed)
    if content_bytes > content_bytes_max:
        raise BrokenStreamError(
            f"A chunk has {content_bytes} bytes of content; at most {content_bytes_max} are"
            " allowed."
        )
    codec = pa.Codec("snappy")
    return _decoded(lambda: codec.decompress(packed, content_bytes, asbytes=True))


def _content_bytes(packed: bytes) -> int:
    """Return the length at the start of a chunk: seven bits per byte, lowest first."""
    length = 0
    for at, octet in enumerate(packed[:_VARINT_BYTES_MAX]):
        length |= (octet & 0x7F) << (7 * at)
        if octet < 0x80:  # noqa: PLR2004 - The highest bit is set if more bytes follow.
            return length
    raise BrokenStreamError("A chunk does not start with the length of its content.")


_PARTS_BY_KIND: dict[CompressType, tuple[str, _Parts]] = {
    CompressType.GZ: ("gzip", _gzip_parts),
    CompressType.BZ2: ("bzip2", _bzip2_parts),
    CompressType.ZSTD: ("zstd", partial(_arrow_parts, codec="zstd")),
    CompressType.LZ4: ("lz4", partial(_arrow_parts, codec="lz4")),
    CompressType.SNAPPY: ("snappy", _snappy_parts),
}
