"""Sequence numbers in the format of Kinesis: large integers that contain the shard.

The fields, from the highest hexadecimal digit to the lowest: version, creation second of the
shard, index of the record in the shard, second of its arrival, shard, version.
"""

from dataclasses import dataclass

_VERSION = 2
_CREATION_BITS, _INDEX_BITS, _ARRIVAL_BITS, _SHARD_BITS, _VERSION_BITS = 40, 64, 44, 32, 4
_LAST_INDEX = 0x7FFF_FFFF_FFFF_FFFF
_DIGITS_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """The fields of a sequence number; ``creation_second`` is that of the shard."""

    creation_second: int
    index: int
    arrival_ms: int
    shard: int

    def number(self) -> int:
        """Return the sequence number as an integer."""
        number = _VERSION
        number = number << _CREATION_BITS | self.creation_second
        number = number << _INDEX_BITS | self.index
        number = number << _ARRIVAL_BITS | self.arrival_ms // 1000
        number = number << _SHARD_BITS | self.shard
        return number << _VERSION_BITS | _VERSION


def starting_number(*, creation_second: int, shard: int) -> int:
    """Return the number at the start of a shard; no record has this number."""
    return Sequence(
        creation_second=creation_second, index=0, arrival_ms=creation_second * 1000, shard=shard
    ).number()


def ending_number(*, creation_second: int, shard: int, closed_ms: int) -> int:
    """Return the number at the end of a closed shard; no record has this number."""
    return Sequence(
        creation_second=creation_second, index=_LAST_INDEX, arrival_ms=closed_ms, shard=shard
    ).number()


def parse_sequence(text: str) -> Sequence | None:
    """Parse a sequence number; return None if the text is not a sequence number."""
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        return None
    rest = int(text)
    rest, low = _split_bits(rest, _VERSION_BITS)
    rest, shard = _split_bits(rest, _SHARD_BITS)
    rest, second = _split_bits(rest, _ARRIVAL_BITS)
    rest, index = _split_bits(rest, _INDEX_BITS)
    high, creation_second = _split_bits(rest, _CREATION_BITS)
    if (high, low) != (_VERSION, _VERSION):
        return None
    return Sequence(
        creation_second=creation_second, index=index, arrival_ms=second * 1000, shard=shard
    )


def _split_bits(number: int, bits: int) -> tuple[int, int]:
    return number >> bits, number & ((1 << bits) - 1)
