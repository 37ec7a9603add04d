"""Unpack snappy streams in the three framings that are found in files.

The framing format begins with an identifier and carries checksums. Hadoop writes blocks
behind their lengths. A raw stream is one block without a frame and is held in memory whole.
"""

from collections.abc import Iterator
from functools import cache
from io import BufferedIOBase
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
