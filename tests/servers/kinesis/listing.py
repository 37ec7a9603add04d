"""ListShards: pages, filters, and stale listings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from tests.servers.kinesis.errors import in_use, invalid_argument, not_found
from tests.servers.kinesis.parameters import Parameters
from tests.servers.kinesis.reply import Reply
from tests.servers.kinesis.shard import Shard
from tests.servers.kinesis.state import State
from tests.servers.kinesis.stream import HOUR_MS, StaleListing, Stream, StreamStatus
from tests.servers.kinesis.tokens import (
    PageToken,
    decode_page_token,
    encode,
    require_unexpired_page_token,
)

_PAGE_MAX = 1000
_NOT_WITH_TOKEN = (
    "StreamName",
    "StreamARN",
    "ExclusiveStartShardId",
    "ShardFilter",
    "StreamCreationTimestamp",
)


def list_shards(state: State, parameters: Parameters) -> Reply:
    """Return a page of the shards of a stream."""
    results_max = parameters.number("MaxResults", default=_PAGE_MAX, at_most=10_000)
    token = (
        _next(state, parameters) if parameters.has("NextToken") else _first(state, parameters)
    )
    stream = _stream(state, token)
    later = [s for s in _matching(state, stream, token) if s.shard_id > token.after]
    page = later[: min(results_max, _PAGE_MAX)]
    fields: dict[str, object] = {"Shards": _shown(stream, page, stale=_stale(stream))}
    if len(later) > len(page):
        fields["NextToken"] = encode(replace(token, after=page[-1].shard_id))
    return Reply(fields=fields)


def _first(state: State, parameters: Parameters) -> PageToken:
    """Return a token for the first page, as if it were a later page."""
    stream = state.stream(parameters)
    created_ms = parameters.instant_ms("StreamCreationTimestamp")
    # Clients truncate the time to whole seconds.
    if created_ms is not None and created_ms // 1000 != stream.created_ms // 1000:
        raise not_found(f"Stream {stream.name} was not created at {created_ms} ms.")
    if stream.status in (StreamStatus.CREATING, StreamStatus.DELETING):
        raise in_use(f"Stream {stream.name} is {stream.status}, not ACTIVE.")
    token = PageToken(
        stream=stream.name,
        creation_second=stream.creation_second,
        after=parameters.text_or_empty("ExclusiveStartShardId"),
        issued_ms=state.now_ms(),
        series=state.page_series,
    )
    if not parameters.has("ShardFilter"):
        return token
    inner = parameters.inner("ShardFilter")
    parsed = _parse_filter(
        inner.text("Type"),
        shard_id=inner.text_or_empty("ShardId"),
        at_ms=inner.instant_ms("Timestamp"),
    )
    return replace(
        token, filter_type=parsed.kind, filter_shard=parsed.shard_id, filter_ms=parsed.at_ms
    )


def _next(state: State, parameters: Parameters) -> PageToken:
    for name in _NOT_WITH_TOKEN:
        if parameters.has(name):
            raise invalid_argument(f"NextToken and {name} cannot be provided together.")
    token = decode_page_token(parameters.text("NextToken"))
    now_ms = state.now_ms()
    require_unexpired_page_token(token, now_ms=now_ms, series=state.page_series)
    return replace(token, issued_ms=now_ms)


def _stream(state: State, token: PageToken) -> Stream:
    stream = state.stream_named(token.stream)
    if stream.creation_second != token.creation_second:
        raise not_found(f"Stream {token.stream} of the NextToken no longer exists.")
    return stream


def _matching(state: State, stream: Stream, token: PageToken) -> Sequence[Shard]:
    if not token.filter_type:
        return stream.listed()
    horizon_ms = state.now_ms() - stream.retention_hours * HOUR_MS
    return _filtered(
        stream.listed(),
        _parse_filter(token.filter_type, shard_id=token.filter_shard, at_ms=token.filter_ms),
        horizon_ms=max(horizon_ms, stream.created_ms),
    )


def _stale(stream: Stream) -> bool:
    """Return whether this listing omits the last reshard; count the call."""
    if stream.stale_calls <= 0 or len(stream.shards) == stream.stale_from:
        return False
    stream.stale_calls -= 1
    return True


class _FilterType(StrEnum):
    """Types of ShardFilter."""

    AFTER_SHARD_ID = "AFTER_SHARD_ID"
    AT_TRIM_HORIZON = "AT_TRIM_HORIZON"
    FROM_TRIM_HORIZON = "FROM_TRIM_HORIZON"
    AT_LATEST = "AT_LATEST"
    AT_TIMESTAMP = "AT_TIMESTAMP"
    FROM_TIMESTAMP = "FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShardFilter:
    """A filter of shards."""

    kind: _FilterType
    shard_id: str = ""
    at_ms: int = 0


def _filtered(
    shards: Sequence[Shard], shard_filter: _ShardFilter, *, horizon_ms: int
) -> list[Shard]:
    """Return the shards that match a filter."""
    match shard_filter.kind:
        case _FilterType.AFTER_SHARD_ID:
            return [shard for shard in shards if shard.shard_id > shard_filter.shard_id]
        case _FilterType.AT_LATEST:
            return [shard for shard in shards if shard.open]
        case _FilterType.FROM_TRIM_HORIZON:
            return list(shards)
        case _FilterType.AT_TRIM_HORIZON:
            return [shard for shard in shards if _open_at(shard, horizon_ms)]
        case _FilterType.AT_TIMESTAMP:
            return [shard for shard in shards if _open_at(shard, shard_filter.at_ms)]
        case _FilterType.FROM_TIMESTAMP:
            return [shard for shard in shards if _closed_after(shard, shard_filter.at_ms)]
        case _:
            assert_never(shard_filter.kind)


def _parse_filter(kind: str, *, shard_id: str, at_ms: int | None) -> _ShardFilter:
    """Return a filter; raise ServiceError if its type needs another parameter."""
    if kind not in set(_FilterType):
        raise invalid_argument(f"ShardFilter type {kind} does not exist.")
    filter_type = _FilterType(kind)
    if filter_type is _FilterType.AFTER_SHARD_ID and not shard_id:
        raise invalid_argument("ShardFilter AFTER_SHARD_ID needs a ShardId.")
    if filter_type in (_FilterType.AT_TIMESTAMP, _FilterType.FROM_TIMESTAMP) and at_ms is None:
        raise invalid_argument(f"ShardFilter {kind} needs a Timestamp.")
    return _ShardFilter(kind=filter_type, shard_id=shard_id, at_ms=at_ms or 0)


def _shown(stream: Stream, shards: Sequence[Shard], *, stale: bool) -> list[dict[str, object]]:
    """Return the descriptions of shards; a stale listing omits the last reshard."""
    if not stale:
        return [shard.described() for shard in shards]
    new = stream.shards[stream.stale_from :]
    new_ids = {shard.shard_id for shard in new}
    reopened = {parent for shard in new for parent in shard.parents}
    if stream.stale_shape is StaleListing.CHILDREN_MISSING:
        reopened = set()
    children_shown = stream.stale_shape is StaleListing.PARENT_OPEN_BESIDE_CHILDREN
    return [
        shard.described(as_open=shard.shard_id in reopened - new_ids)
        for shard in shards
        if children_shown or shard.shard_id not in new_ids
    ]


def _open_at(shard: Shard, instant_ms: int) -> bool:
    return shard.created_ms <= instant_ms and _closed_after(shard, instant_ms)


def _closed_after(shard: Shard, instant_ms: int) -> bool:
    return shard.closed_ms is None or shard.closed_ms >= instant_ms
