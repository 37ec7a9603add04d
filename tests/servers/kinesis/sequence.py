"""Sequence numbers as Kinesis makes them: large integers that tell their shard.

From the highest hexadecimal digit to the lowest: a version, the second in which the shard was
made, the index of the record in its shard, the second of its arrival, the shard, a version.
"""

from dataclasses import dataclass

_VERSION = 2
_BIRTH_BITS, _INDEX_BITS, _ARRIVAL_BITS, _SHARD_BITS, _VERSION_BITS = 40, 64, 44, 32, 4
_LAST_INDEX = 0x7FFF_FFFF_FFFF_FFFF
_DIGITS_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """What a sequence number tells; ``birth`` is the second in which its shard was made."""

    birth: int
    index: int
    arrival_ms: int
    shard: int

    def number(self) -> int:
        """Answer the integer."""
        made = _VERSION
        made = made << _BIRTH_BITS | self.birth
        made = made << _INDEX_BITS | self.index
        made = made << _ARRIVAL_BITS | self.arrival_ms // 1000
        made = made << _SHARD_BITS | self.shard
        return made << _VERSION_BITS | _VERSION


def first_number(*, birth: int, shard: int) -> int:
    """Answer the number with which a shard begins; no record has it."""
    return Sequence(birth=birth, index=0, arrival_ms=birth * 1000, shard=shard).number()


def last_number(*, birth: int, shard: int, closed_ms: int) -> int:
    """Answer the number with which a closed shard ends; no record has it."""
    return Sequence(birth=birth, index=_LAST_INDEX, arrival_ms=closed_ms, shard=shard).number()


def parse_sequence(text: str) -> Sequence | None:
    """Take a sequence number apart; answer nothing for what is none."""
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        return None
    rest = int(text)
    rest, low = _cut(rest, _VERSION_BITS)
    rest, shard = _cut(rest, _SHARD_BITS)
    rest, second = _cut(rest, _ARRIVAL_BITS)
    rest, index = _cut(rest, _INDEX_BITS)
    high, birth = _cut(rest, _BIRTH_BITS)
    if (high, low) != (_VERSION, _VERSION):
        return None
    return Sequence(birth=birth, index=index, arrival_ms=second * 1000, shard=shard)


def _cut(number: int, bits: int) -> tuple[int, int]:
    return number >> bits, number & ((1 << bits) - 1)
