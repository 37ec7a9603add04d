"""Read compressed files in bounded memory.

The framing format begins with an identifier and carries checksums. Hadoop writes blocks
behind their lengths. A raw stream is one block without a frame and is held in memory whole.

Invariant: content that is cut off or damaged never looks like content that has ended.
"""

import bz2
import io
import os
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from io import BufferedIOBase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import InvariantError
from penstock.sources.files.options import CompressType
from penstock.sources.formats.blocks import UnreadableFileError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

RAW_BYTES_MAX = 1 << 28

_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_CHUNK_CONTENT_BYTES_MAX = 1 << 16
_COMPRESSED, _UNCOMPRESSED, _FIRST_SKIPPABLE, _STREAM_IDENTIFIER = 0x00, 0x01, 0x80, 0xFF
_CHECKSUM_BYTES = 4
_LENGTH_BYTES = 4
_VARINT_BYTES_MAX = 5
_SKIP_BYTES = 1 << 16

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_LANES = 256
_WORD = 0xFFFFFFFF

_Words: TypeAlias = npt.NDArray[np.uint32]


class BrokenStreamError(ValueError):
    """A compressed stream that cannot be unpacked from here on."""


class StreamEndsTooEarlyError(BrokenStreamError):
    """A compressed stream whose end is missing."""


def snappy_parts(stream: BufferedIOBase) -> Iterator[bytes]:
    """Unpack a stream that begins where it is read next; find out its framing."""
    head = _at_most(stream, len(_IDENTIFIER))
    stream.seek(-len(head), 1)
    if not head:
        return
    if head.startswith(_IDENTIFIER[:4]):
        yield from _framed_parts(stream)
    elif head[0] == 0 and head != b"\0":
        # Hadoop begins with a length below 2**24, so with a zero; a raw stream that begins
        # so is empty and ends there.
        yield from _hadoop_parts(stream)
    else:
        yield _raw_content(stream)


def _framed_parts(stream: BufferedIOBase) -> Iterator[bytes]:
    while head := _at_most(stream, _LENGTH_BYTES):
        if len(head) < _LENGTH_BYTES:
            raise StreamEndsTooEarlyError
        kind, size_bytes = head[0], int.from_bytes(head[1:], "little")
        if kind in (_COMPRESSED, _UNCOMPRESSED):
            yield _chunk_content(kind, _exactly(stream, size_bytes))
        elif kind == _STREAM_IDENTIFIER:
            if head + _exactly(stream, size_bytes) != _IDENTIFIER:
                raise BrokenStreamError("A stream identifier is not one.")
        elif kind < _FIRST_SKIPPABLE:
            raise BrokenStreamError(f"A chunk has the unknown type {kind}.")
        else:
            _skip(stream, size_bytes)


def _chunk_content(kind: int, chunk: bytes) -> bytes:
    checksum, body = chunk[:_CHECKSUM_BYTES], chunk[_CHECKSUM_BYTES:]
    if kind == _COMPRESSED:
        body = _unpacked(body, content_bytes_max=_CHUNK_CONTENT_BYTES_MAX)
    if len(body) > _CHUNK_CONTENT_BYTES_MAX:
        raise BrokenStreamError("A chunk holds more than 65536 bytes.")
    if int.from_bytes(checksum, "little") != masked_checksum(body):
        raise BrokenStreamError("A checksum does not fit its chunk.")
    return body


def _hadoop_parts(stream: BufferedIOBase) -> Iterator[bytes]:
    blocks, filled = 0, 0
    while head := _at_most(stream, _LENGTH_BYTES):
        if len(head) < _LENGTH_BYTES:
            raise StreamEndsTooEarlyError
        blocks, filled = blocks + 1, filled + any(head)
        rest = int.from_bytes(head, "big")
        if rest > RAW_BYTES_MAX:
            raise BrokenStreamError(f"A block holds more than {RAW_BYTES_MAX} bytes.")
        while rest:
            size_bytes = int.from_bytes(_exactly(stream, _LENGTH_BYTES), "big")
            if size_bytes > _packed_bytes_max(rest):
                raise BrokenStreamError("A block is longer than its content can need.")
            part = _unpacked(_exactly(stream, size_bytes), content_bytes_max=rest)
            yield part
            rest -= len(part)
    if blocks > 1 and not filled:
        # An empty stream is one empty block; a file of zeros was never written.
        raise BrokenStreamError("Every byte is zero.")


def _raw_content(stream: BufferedIOBase) -> bytes:
    packed = _at_most(stream, _packed_bytes_max(RAW_BYTES_MAX) + 1)
    return _unpacked(packed, content_bytes_max=RAW_BYTES_MAX)


def _packed_bytes_max(content_bytes: int) -> int:
    return 32 + content_bytes + content_bytes // 6


def _unpacked(packed: bytes, *, content_bytes_max: int) -> bytes:
    content_bytes = _content_bytes(packed)
    if content_bytes > content_bytes_max:
        raise BrokenStreamError(
            f"A block holds {content_bytes} bytes, more than the {content_bytes_max} allowed."
        )
    try:
        content = pa.Codec("snappy").decompress(packed, decompressed_size=content_bytes)
    except (OSError, ValueError) as error:
        raise BrokenStreamError(str(error)) from error
    return content.to_pybytes()


def _content_bytes(packed: bytes) -> int:
    """Read the length in front of a block, seven bits to a byte, the lowest first."""
    length = 0
    for at, octet in enumerate(packed[:_VARINT_BYTES_MAX]):
        length |= (octet & 0x7F) << (7 * at)
        if octet < 0x80:  # noqa: PLR2004 - The highest bit says that more follow.
            return length
    raise BrokenStreamError("A block does not begin with its length.")


def _at_most(stream: BufferedIOBase, size_bytes: int) -> bytes:
    """Read on to the size or the end; one read may give less than there is."""
    parts = []
    while size_bytes and (part := stream.read(size_bytes)):
        parts.append(part)
        size_bytes -= len(part)
    return b"".join(parts)


def _exactly(stream: BufferedIOBase, size_bytes: int) -> bytes:
    data = _at_most(stream, size_bytes)
    if len(data) < size_bytes:
        raise StreamEndsTooEarlyError
    return data


def _skip(stream: BufferedIOBase, size_bytes: int) -> None:
    while size_bytes:
        size_bytes -= len(_exactly(stream, min(size_bytes, _SKIP_BYTES)))


def masked_checksum(content: bytes) -> int:
    """Give the CRC-32C of a chunk's content in the form that the framing format stores."""
    checksum = _crc32c(content)
    return ((checksum >> 15 | checksum << 17) + _MASK_DELTA) & _WORD


def _crc32c(content: bytes) -> int:
    # A register that begins with ones is one that begins with zeros and sees the first four
    # octets inverted; and zeros in front of them then change nothing. So the content is
    # filled up in front, and its lanes are summed all at once.
    if len(content) < _CHECKSUM_BYTES:
        return _advanced(_WORD, content) ^ _WORD
    lane_bytes = -(-len(content) // _LANES)
    octets = np.zeros(_LANES * lane_bytes, np.uint8)
    begin = len(octets) - len(content)
    octets[begin:] = np.frombuffer(content, np.uint8)
    octets[begin : begin + _CHECKSUM_BYTES] ^= 0xFF
    table = _table()
    sums = np.zeros(_LANES, np.uint32)
    for column in octets.reshape(_LANES, lane_bytes).T:
        sums = table[(sums ^ column) & 0xFF] ^ (sums >> 8)
    return _joined(sums.tolist(), lane_bytes) ^ _WORD


def _joined(sums: list[int], lane_bytes: int) -> int:
    """Sum up lanes that follow each other."""
    first, second, third, fourth = _zeros_behind(lane_bytes)
    register = 0
    for lane_sum in sums:
        register = lane_sum ^ (
            first[register & 0xFF]
            ^ second[register >> 8 & 0xFF]
            ^ third[register >> 16 & 0xFF]
            ^ fourth[register >> 24]
        )
    return register


@cache
def _zeros_behind(count: int) -> tuple[list[int], ...]:
    """Give what becomes of each octet of a register when so many zeros follow."""
    registers: list[_Words] = [
        np.arange(256, dtype=np.uint32) << np.uint32(shift) for shift in (0, 8, 16, 24)
    ]
    table = _table()
    for _ in range(count):
        registers = [table[register & 0xFF] ^ (register >> 8) for register in registers]
    return tuple(register.tolist() for register in registers)


def _advanced(register: int, octets: bytes) -> int:
    table = _table()
    for octet in octets:
        register = int(table[(register ^ octet) & 0xFF]) ^ register >> 8
    return register


@cache
def _table() -> _Words:
    registers: _Words = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        odd = registers & 1 == 1
        registers = np.where(odd, registers >> 1 ^ _POLYNOMIAL, registers >> 1).astype(
            np.uint32
        )
    return registers


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
