"""Unpack stream records, aggregated ones too, with the position after each.

An aggregate is a magic number, a Protocol Buffers message, and the MD5 of that message. Other
bytes are a plain record, because a record may hold any bytes. An aggregate is broken only if
its message is valid but its sub-records refer to keys that it does not have.

An aggregate may be taken in parts. Skipped records are counted and move the position, too.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from penstock.arrow.types import AnyArray, arrow_type
from penstock.model.split import After, Position
from penstock.sources.kinesis.kind import STREAM_COLUMNS, ForeignRecords

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}


class WireError(ValueError):
    """The bytes are no message of Protocol Buffers."""


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of every field; skip numbers of fixed width."""
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


MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST_BYTES = 16
_KEYS, _HASH_KEYS, _RECORDS = 1, 2, 3
_KEY_INDEX, _HASH_KEY_INDEX, _DATA = 1, 2, 3


class BrokenAggregateError(ValueError):
    """An aggregate with a sub-record that cannot be read; it is rejected as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubRecord:
    """One record of an aggregate; an explicit hash key replaces the hash of the key."""

    partition_key: str
    data: bytes
    explicit_hash_key: str | None = None

    @property
    def hash_key(self) -> int:
        """The number that decides which shard the record belongs to."""
        if self.explicit_hash_key is not None:
            return int(self.explicit_hash_key)
        digest = hashlib.md5(self.partition_key.encode(), usedforsecurity=False)
        return int.from_bytes(digest.digest(), "big")


def unpack(data: bytes) -> tuple[SubRecord, ...] | None:
    """Return the records of an aggregate; None if the data is a plain record."""
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


# Records are decoded in chunks of this size.
_CHUNK_RECORDS = 5_000
_CHUNK_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord:
    """A record of the stream, plain or an aggregate."""

    sequence: str
    partition_key: str
    data: bytes
    # Seconds since 1970.
    arrived_at: float
    encryption: str = ""


class Fate(StrEnum):
    """What happens to a record."""

    LOADED = "loaded"
    SKIPPED = "skipped"
    REJECTED = "rejected"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A plain record or a sub-record, its fate, and the position after it."""

    record: StreamRecord
    fate: Fate
    after: After
    error: str = ""


def items_of(
    records: Iterable[StreamRecord],
    *,
    begun: Position,
    hash_keys: tuple[int, int] | None,
    foreign: ForeignRecords,
) -> Iterator[Item]:
    """Yield plain records and sub-records after a position.

    ``hash_keys`` are the first and the last of the shard; None if unknown.
    """
    for number, record in enumerate(records):
        # Only the first record can be the one that was taken in part.
        taken = _taken_of(record, begun) if number == 0 else None
        yield from _parts(record, taken=taken, hash_keys=hash_keys, foreign=foreign)


def chunks_of(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield items in chunks of limited records and bytes."""
    chunk: list[Item] = []
    size_bytes = 0
    for item in items:
        chunk.append(item)
        size_bytes += len(item.record.data)
        if len(chunk) >= _CHUNK_RECORDS or size_bytes >= _CHUNK_BYTES:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk


def _taken_of(record: StreamRecord, position: Position) -> int | None:
    """Return the number of the last sub-record before a position; None if none was taken."""
    if isinstance(position, After) and position.value == record.sequence:
        return position.sub
    return None


def _parts(
    record: StreamRecord,
    *,
    taken: int | None,
    hash_keys: tuple[int, int] | None,
    foreign: ForeignRecords,
) -> Iterator[Item]:
    whole = After(value=record.sequence)
    try:
        subs = unpack(record.data)
    except BrokenAggregateError as error:
        yield Item(record=record, fate=Fate.REJECTED, after=whole, error=str(error))
        return
    if not subs:
        loaded = subs is None and record.data
        yield Item(record=record, fate=Fate.LOADED if loaded else Fate.SKIPPED, after=whole)
        return
    for number, sub in enumerate(subs):
        if taken is not None and number <= taken:
            continue
        last = number == len(subs) - 1
        after = whole if last else After(value=record.sequence, sub=number)
        fate = _fate(sub, hash_keys, foreign)
        fault = ""
        if fate is Fate.FOREIGN:
            fault = f'the key "{sub.partition_key}" belongs to another shard'
        # ``replace`` would cost a tenth of the time of an aggregate.
        part = StreamRecord(
            sequence=record.sequence,
            partition_key=sub.partition_key,
            data=sub.data,
            arrived_at=record.arrived_at,
            encryption=record.encryption,
        )
        yield Item(record=part, fate=fate, after=after, error=fault)


def _fate(sub: SubRecord, hash_keys: tuple[int, int] | None, foreign: ForeignRecords) -> Fate:
    at_home = hash_keys is None or hash_keys[0] <= sub.hash_key <= hash_keys[1]
    if not at_home and foreign is ForeignRecords.REJECT:
        return Fate.FOREIGN
    if not sub.data or (not at_home and foreign is ForeignRecords.SKIP):
        return Fate.SKIPPED
    return Fate.LOADED


_MICROSECONDS = 1_000_000
_TYPE_BY_NAME = {column.name: arrow_type(column.type) for column in STREAM_COLUMNS}


def metadata_of(
    items: Sequence[Item], *, shard: str, needed: Sequence[str]
) -> dict[str, AnyArray]:
    """Return the needed metadata columns, with one value for every record."""
    return {
        name: pa.array(_values(name, items, shard), _TYPE_BY_NAME[name])
        for name in needed
        if name in _TYPE_BY_NAME
    }


def _values(name: str, items: Sequence[Item], shard: str) -> list[object]:
    match name:
        case "_shard":
            return [shard] * len(items)
        case "_sequence":
            return [item.record.sequence for item in items]
        case "_partition_key":
            return [item.record.partition_key for item in items]
        case "_arrived_at":
            return [round(item.record.arrived_at * _MICROSECONDS) for item in items]
        case _:
            return [item.record.encryption or "NONE" for item in items]
