"""From records of a stream to what is loaded: one by one, each with the position behind it.

A record that holds others may be taken in parts. What nobody wants is passed over and counted,
and moves the position like everything else: nothing is looked at twice.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from penstock.model.kinesis import ForeignRecords
from penstock.model.position import After, Position
from penstock.sources.kinesis.aggregation import BrokenAggregateError, SubRecord, unpack
from penstock.sources.kinesis.pages import StreamRecord

# So much is made rows of together.
_CHUNK_RECORDS = 5_000
_CHUNK_BYTES = 8 * 2**20


class Fate(StrEnum):
    """What becomes of a record."""

    LOADED = "loaded"
    SKIPPED = "skipped"
    REJECTED = "rejected"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One record, alone or out of another, what becomes of it, and the position behind it."""

    fate: Fate
    sequence: str
    partition_key: str
    data: bytes
    arrived_at: float
    encryption: str
    after: After
    error: str = ""


def items_of(
    records: Iterable[StreamRecord],
    *,
    begun: Position,
    hash_keys: tuple[int, int] | None,
    foreign: ForeignRecords,
) -> Iterator[Item]:
    """Take records apart, beginning behind a position; of a part that was taken nothing comes.

    ``hash_keys`` are the first and the last of the shard, where they are known.
    """
    for number, record in enumerate(records):
        # Only the first record can be the one that was taken in part.
        taken = _taken_of(record, begun) if number == 0 else None
        yield from _parts(record, taken=taken, hash_keys=hash_keys, foreign=foreign)


def chunks_of(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Take items together, so many records or bytes of them."""
    chunk: list[Item] = []
    size_bytes = 0
    for item in items:
        chunk.append(item)
        size_bytes += len(item.data)
        if len(chunk) >= _CHUNK_RECORDS or size_bytes >= _CHUNK_BYTES:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk


def _taken_of(record: StreamRecord, position: Position) -> int | None:
    """Answer the last part of a record that lies before a position."""
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
        yield _item(record, Fate.REJECTED, after=whole, error=str(error))
        return
    if subs is None:
        yield _item(record, Fate.LOADED if record.data else Fate.SKIPPED, after=whole)
        return
    if not subs:
        yield _item(record, Fate.SKIPPED, after=whole)
        return
    for number, sub in enumerate(subs):
        if taken is not None and number <= taken:
            continue
        last = number == len(subs) - 1
        after = whole if last else After(value=record.sequence, sub=number)
        fate = _fate(sub, hash_keys, foreign)
        why = _why_foreign(sub) if fate is Fate.FOREIGN else ""
        yield _item(record, fate, after=after, sub=sub, error=why)


def _fate(sub: SubRecord, hash_keys: tuple[int, int] | None, foreign: ForeignRecords) -> Fate:
    at_home = hash_keys is None or hash_keys[0] <= sub.hash_key <= hash_keys[1]
    if not at_home and foreign is ForeignRecords.REJECT:
        return Fate.FOREIGN
    if not sub.data or (not at_home and foreign is ForeignRecords.SKIP):
        return Fate.SKIPPED
    return Fate.LOADED


def _why_foreign(sub: SubRecord) -> str:
    return f'the key "{sub.partition_key}" belongs to another shard'


def _item(
    record: StreamRecord,
    fate: Fate,
    *,
    after: After,
    sub: SubRecord | None = None,
    error: str = "",
) -> Item:
    own = record if sub is None else sub
    return Item(
        fate=fate,
        sequence=record.sequence,
        partition_key=own.partition_key,
        data=own.data,
        arrived_at=record.arrived_at,
        encryption=record.encryption,
        after=after,
        error=error,
    )
