"""Unpack plain and aggregated stream records, with the position after each.

An aggregate is a magic number, a Protocol Buffers message, and the MD5 of that message. All
other bytes are a plain record, because a record may contain any bytes. An aggregate is broken
only if its message is valid but its sub-records refer to missing keys.

Several epochs may load parts of one aggregate. Skipped records are counted and advance the
position, too.
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
    """Error for bytes that are not a Protocol Buffers message."""


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of every field; skip fields of fixed width."""
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
            yield number, _slice(message, at, size)
            at += size
        elif kind in _FIXED_BYTES:
            at += len(_slice(message, at, _FIXED_BYTES[kind]))
        else:
            raise WireError(f"a field has the unknown kind {kind}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_VARINT_BYTES_MAX):
        if at + place >= len(message):
            raise WireError("the message ends inside a number")
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # noqa: PLR2004 - The highest bit is set if more bytes follow.
            return value, at + place + 1
    raise WireError("a number is too long")


def _slice(message: bytes, at: int, size: int) -> bytes:
    if at + size > len(message):
        raise WireError("the message ends inside a field")
    return message[at : at + size]


MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST_BYTES = 16
_KEYS, _HASH_KEYS, _RECORDS = 1, 2, 3
_KEY_INDEX, _HASH_KEY_INDEX, _DATA = 1, 2, 3


class BrokenAggregateError(ValueError):
    """Error for an aggregate with an unreadable sub-record; the whole record is rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubRecord:
    """One record of an aggregate; an explicit hash key replaces the hash of its key."""

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
            raise BrokenAggregateError(f'explicit hash key "{explicit}" is not a number')
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
        raise WireError("a field has a number instead of bytes")
    return value


# Records are decoded in chunks of this size.
_CHUNK_RECORDS = 5_000
_CHUNK_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord:
    """A plain or aggregated record of the stream."""

    sequence: str
    partition_key: str
    data: bytes
    # Seconds since 1970.
    arrived_at: float
    encryption: str = ""


class RecordState(StrEnum):
    """Result of reading a record."""

    LOADED = "loaded"
    SKIPPED = "skipped"
    REJECTED = "rejected"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A plain record or sub-record with its state and the position after it."""

    record: StreamRecord
    state: RecordState
    after: After
    error: str = ""


def items_of(
    records: Iterable[StreamRecord],
    *,
    start: Position,
    hash_keys: tuple[int, int] | None,
    foreign: ForeignRecords,
) -> Iterator[Item]:
    """Yield plain records and sub-records after a position.

    ``hash_keys`` are the first and the last hash key of the shard; None if unknown.
    """
    for number, record in enumerate(records):
        # Only the first record can have been read in part.
        last_read = _last_read_part(record, start) if number == 0 else None
        yield from _parts(record, last_read=last_read, hash_keys=hash_keys, foreign=foreign)


def chunks_of(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield items in chunks; the number of records and of bytes is limited."""
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


def _last_read_part(record: StreamRecord, position: Position) -> int | None:
    """Return the number of the last sub-record before a position; None if there is none."""
    if isinstance(position, After) and position.value == record.sequence:
        return position.sub
    return None


def _parts(
    record: StreamRecord,
    *,
    last_read: int | None,
    hash_keys: tuple[int, int] | None,
    foreign: ForeignRecords,
) -> Iterator[Item]:
    whole = After(value=record.sequence)
    try:
        subs = unpack(record.data)
    except BrokenAggregateError as error:
        yield Item(record=record, state=RecordState.REJECTED, after=whole, error=str(error))
        return
    if not subs:
        loaded = subs is None and record.data
        yield Item(
            record=record,
            state=RecordState.LOADED if loaded else RecordState.SKIPPED,
            after=whole,
        )
        return
    for number, sub in enumerate(subs):
        if last_read is not None and number <= last_read:
            continue
        last = number == len(subs) - 1
        after = whole if last else After(value=record.sequence, sub=number)
        state = _state_of(sub, hash_keys, foreign)
        fault = ""
        if state is RecordState.FOREIGN:
            fault = f'partition key "{sub.partition_key}" belongs to another shard'
        # Calls of ``replace`` would take a tenth of the time that an aggregate needs.
        part = StreamRecord(
            sequence=record.sequence,
            partition_key=sub.partition_key,
            data=sub.data,
            arrived_at=record.arrived_at,
            encryption=record.encryption,
        )
        yield Item(record=part, state=state, after=after, error=fault)


def _state_of(
    sub: SubRecord, hash_keys: tuple[int, int] | None, foreign: ForeignRecords
) -> RecordState:
    in_range = hash_keys is None or hash_keys[0] <= sub.hash_key <= hash_keys[1]
    if not in_range and foreign is ForeignRecords.REJECT:
        return RecordState.FOREIGN
    if not sub.data or (not in_range and foreign is ForeignRecords.SKIP):
        return RecordState.SKIPPED
    return RecordState.LOADED


_MICROSECONDS = 1_000_000
_TYPE_BY_NAME = {column.name: arrow_type(column.type) for column in STREAM_COLUMNS}


def metadata_of(
    items: Sequence[Item], *, shard: str, needed: Sequence[str]
) -> dict[str, AnyArray]:
    """Return the needed metadata columns by name, with one value for every item."""
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
