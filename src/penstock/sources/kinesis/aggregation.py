"""Records of producers that put many into one: Amazon's Kinesis Producer Library and its kin.

An aggregate is a magic number, a Protocol Buffers message, and the MD5 of that message. What
does not add up to one is a plain record, because any bytes may be: only a sound message whose
sub-records point at keys that it does not have is broken.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.sources.kinesis.protobuf import WireError, fields_of

MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST_BYTES = 16
_KEYS, _HASH_KEYS, _RECORDS = 1, 2, 3
_KEY_INDEX, _HASH_KEY_INDEX, _DATA = 1, 2, 3


class BrokenAggregateError(ValueError):
    """An aggregate whose sub-records cannot all be told apart; nothing of it may be taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubRecord:
    """One record of an aggregate; the explicit hash key stands instead of the key's hash."""

    partition_key: str
    data: bytes
    explicit_hash_key: str | None = None

    @property
    def hash_key(self) -> int:
        """The number that decides to which shard the record belongs."""
        if self.explicit_hash_key is not None:
            return int(self.explicit_hash_key)
        digest = hashlib.md5(self.partition_key.encode(), usedforsecurity=False)
        return int.from_bytes(digest.digest(), "big")


def unpack(data: bytes) -> tuple[SubRecord, ...] | None:
    """Answer the records inside of one; None if it is a plain one."""
    if not data.startswith(MAGIC) or len(data) < len(MAGIC) + _DIGEST_BYTES:
        return None
    message, digest = data[len(MAGIC) : -_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.md5(message, usedforsecurity=False).digest() != digest:
        return None
    try:
        found = list(fields_of(message))
        keys = _texts(found, _KEYS)
        hash_keys = _texts(found, _HASH_KEYS)
        packed = [dict(fields_of(_bytes(v))) for n, v in found if n == _RECORDS]
    except (WireError, UnicodeDecodeError):
        return None
    return tuple(_record(fields, keys=keys, hash_keys=hash_keys) for fields in packed)


def _record(
    fields: dict[int, int | bytes], *, keys: Sequence[str], hash_keys: Sequence[str]
) -> SubRecord:
    data = fields.get(_DATA)
    if not isinstance(data, bytes):
        raise BrokenAggregateError("a record of the aggregate has no data")
    explicit: str | None = None
    if _HASH_KEY_INDEX in fields:
        explicit = _entry(hash_keys, fields[_HASH_KEY_INDEX], what="explicit hash key")
        if not explicit.isdecimal():
            raise BrokenAggregateError(f'explicit hash key "{explicit}" is no number')
    key = _entry(keys, fields.get(_KEY_INDEX), what="partition key")
    return SubRecord(partition_key=key, data=data, explicit_hash_key=explicit)


def _entry(table: Sequence[str], index: int | bytes | None, *, what: str) -> str:
    if not isinstance(index, int) or index >= len(table):
        raise BrokenAggregateError(
            f"a record of the aggregate has {what} number {index!r}, but there are {len(table)}"
        )
    return table[index]


def _texts(fields: Sequence[tuple[int, int | bytes]], number: int) -> list[str]:
    return [_bytes(value).decode() for found, value in fields if found == number]


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise WireError("a number stands where bytes must be")
    return value
