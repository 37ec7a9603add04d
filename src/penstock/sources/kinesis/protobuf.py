"""The few things of Protocol Buffers' wire format that aggregated records need."""

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}


class WireError(ValueError):
    """These bytes are no message."""


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of every field; numbers of fixed width are skipped."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise WireError("a field has the number 0")
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
        elif kind == _BYTES:
            size, at = _varint(message, at)
            yield number, _cut(message, at, size)
            at += size
        elif kind in _FIXED_BYTES:
            at += len(_cut(message, at, _FIXED_BYTES[kind]))
        else:
            raise WireError(f"a field has the unknown kind {kind}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_VARINT_BYTES_MAX):
        if at + place >= len(message):
            raise WireError("the message ends inside a number")
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # noqa: PLR2004 - The highest bit says that more follows.
            return value, at + place + 1
    raise WireError("a number is too long")


def _cut(message: bytes, at: int, size: int) -> bytes:
    if at + size > len(message):
        raise WireError("the message ends inside a field")
    return message[at : at + size]
