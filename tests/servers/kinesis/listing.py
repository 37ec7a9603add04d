"""Which shards a listing shows, and how."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from tests.servers.kinesis.refusal import invalid
from tests.servers.kinesis.shard import Shard
from tests.servers.kinesis.stream import StaleListing, Stream


class FilterType(StrEnum):
    """What a ShardFilter asks for."""

    AFTER_SHARD_ID = "AFTER_SHARD_ID"
    AT_TRIM_HORIZON = "AT_TRIM_HORIZON"
    FROM_TRIM_HORIZON = "FROM_TRIM_HORIZON"
    AT_LATEST = "AT_LATEST"
    AT_TIMESTAMP = "AT_TIMESTAMP"
    FROM_TIMESTAMP = "FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFilter:
    """The wish to see only some shards."""

    kind: FilterType
    shard_id: str = ""
    at_ms: int = 0


def filtered(shards: Sequence[Shard], wish: ShardFilter, *, horizon_ms: int) -> list[Shard]:
    """Answer the shards that a filter lets through."""
    match wish.kind:
        case FilterType.AFTER_SHARD_ID:
            return [shard for shard in shards if shard.shard_id > wish.shard_id]
        case FilterType.AT_LATEST:
            return [shard for shard in shards if shard.open]
        case FilterType.FROM_TRIM_HORIZON:
            return list(shards)
        case FilterType.AT_TRIM_HORIZON:
            return [shard for shard in shards if _open_at(shard, horizon_ms)]
        case FilterType.AT_TIMESTAMP:
            return [shard for shard in shards if _open_at(shard, wish.at_ms)]
        case FilterType.FROM_TIMESTAMP:
            return [shard for shard in shards if _closed_after(shard, wish.at_ms)]
        case _:
            assert_never(wish.kind)


def parse_filter(kind: str, *, shard_id: str, at_ms: int | None) -> ShardFilter:
    """Check that a filter says all that its type needs."""
    if kind not in set(FilterType):
        raise invalid(f"ShardFilter type {kind} does not exist.")
    wish = FilterType(kind)
    if wish is FilterType.AFTER_SHARD_ID and not shard_id:
        raise invalid("ShardFilter AFTER_SHARD_ID needs a ShardId.")
    if wish in (FilterType.AT_TIMESTAMP, FilterType.FROM_TIMESTAMP) and at_ms is None:
        raise invalid(f"ShardFilter {kind} needs a Timestamp.")
    return ShardFilter(kind=wish, shard_id=shard_id, at_ms=at_ms or 0)


def shown(stream: Stream, shards: Sequence[Shard], *, stale: bool) -> list[dict[str, object]]:
    """Answer shards as a listing shows them, which may not know of the last reshard yet."""
    if not stale:
        return [shard.described() for shard in shards]
    newer = stream.shards[stream.stale_from :]
    young = {shard.shard_id for shard in newer}
    reopened = {parent for shard in newer for parent in shard.parents}
    if stream.stale_shape is StaleListing.CHILDREN_MISSING:
        reopened = set()
    children_shown = stream.stale_shape is StaleListing.PARENT_OPEN_BESIDE_CHILDREN
    return [
        shard.described(as_open=shard.shard_id in reopened - young)
        for shard in shards
        if children_shown or shard.shard_id not in young
    ]


def _open_at(shard: Shard, instant_ms: int) -> bool:
    return shard.born_ms <= instant_ms and _closed_after(shard, instant_ms)


def _closed_after(shard: Shard, instant_ms: int) -> bool:
    return shard.closed_ms is None or shard.closed_ms >= instant_ms
