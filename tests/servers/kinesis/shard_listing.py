"""ListShards, page by page."""

from collections.abc import Sequence
from dataclasses import replace

from tests.servers.kinesis.given import Given
from tests.servers.kinesis.listing import filtered, parse_filter, shown
from tests.servers.kinesis.refusal import in_use, invalid, missing
from tests.servers.kinesis.reply import Reply
from tests.servers.kinesis.shard import Shard
from tests.servers.kinesis.state import State
from tests.servers.kinesis.stream import HOUR_MS, Stream, StreamStatus
from tests.servers.kinesis.tokens import (
    PageToken,
    decode_page_token,
    encode,
    require_young_page_token,
)

_PAGE_MAX = 1000
_NOT_WITH_TOKEN = (
    "StreamName",
    "StreamARN",
    "ExclusiveStartShardId",
    "ShardFilter",
    "StreamCreationTimestamp",
)


def list_shards(state: State, given: Given) -> Reply:
    """List a page of a stream's shards."""
    results_max = given.number("MaxResults", default=_PAGE_MAX, at_most=10_000)
    token = _next(state, given) if given.has("NextToken") else _first(state, given)
    stream = _stream(state, token)
    later = [s for s in _wanted(state, stream, token) if s.shard_id > token.after]
    page = later[: min(results_max, _PAGE_MAX)]
    fields: dict[str, object] = {"Shards": shown(stream, page, stale=_stale(stream))}
    if len(later) > len(page):
        fields["NextToken"] = encode(replace(token, after=page[-1].shard_id))
    return Reply(fields=fields)


def _first(state: State, given: Given) -> PageToken:
    """Answer the token that a listing would have if its first page were a later one."""
    stream = state.stream(given)
    created_ms = given.instant_ms("StreamCreationTimestamp")
    # Clients cut the time to whole seconds.
    if created_ms is not None and created_ms // 1000 != stream.created_ms // 1000:
        raise missing(f"Stream {stream.name} was not created at {created_ms} ms.")
    if stream.status in (StreamStatus.CREATING, StreamStatus.DELETING):
        raise in_use(f"Stream {stream.name} is {stream.status}, not ACTIVE.")
    token = PageToken(
        stream=stream.name,
        birth=stream.birth,
        after=given.text_or_none("ExclusiveStartShardId"),
        issued_ms=state.now_ms(),
        series=state.page_series,
    )
    if not given.has("ShardFilter"):
        return token
    wish = given.inner("ShardFilter")
    parsed = parse_filter(
        wish.text("Type"),
        shard_id=wish.text_or_none("ShardId"),
        at_ms=wish.instant_ms("Timestamp"),
    )
    return replace(
        token, filter_type=parsed.kind, filter_shard=parsed.shard_id, filter_ms=parsed.at_ms
    )


def _next(state: State, given: Given) -> PageToken:
    for name in _NOT_WITH_TOKEN:
        if given.has(name):
            raise invalid(f"NextToken and {name} cannot be provided together.")
    token = decode_page_token(given.text("NextToken"))
    now_ms = state.now_ms()
    require_young_page_token(token, now_ms=now_ms, series=state.page_series)
    return replace(token, issued_ms=now_ms)


def _stream(state: State, token: PageToken) -> Stream:
    stream = state.stream_named(token.stream)
    if stream.birth != token.birth:
        raise missing(f"Stream {token.stream} of the NextToken does not exist any more.")
    return stream


def _wanted(state: State, stream: Stream, token: PageToken) -> Sequence[Shard]:
    if not token.filter_type:
        return stream.listed()
    horizon_ms = state.now_ms() - stream.retention_hours * HOUR_MS
    return filtered(
        stream.listed(),
        parse_filter(token.filter_type, shard_id=token.filter_shard, at_ms=token.filter_ms),
        horizon_ms=max(horizon_ms, stream.created_ms),
    )


def _stale(stream: Stream) -> bool:
    """Answer whether this listing is one that does not know of the last reshard."""
    if stream.stale_calls <= 0 or len(stream.shards) == stream.stale_from:
        return False
    stream.stale_calls -= 1
    return True
