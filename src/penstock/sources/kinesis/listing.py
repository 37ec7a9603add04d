"""Everything that a stream says about itself: all its shards, its age, its retention."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import Code, ExternalError
from penstock.model.shards import ListedShard
from penstock.sources.kinesis.client import Answer, StreamAccess, StreamClient
from penstock.sources.kinesis.failures import Kind, StreamError
from penstock.sources.kinesis.patience import Patience

_LISTINGS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """A stream as a whole; ``at`` is the service's own clock."""

    created_at: datetime
    retention: timedelta
    status: str
    at: datetime


def describe(client: StreamClient, access: StreamAccess, patience: Patience) -> StreamSummary:
    """Ask for the stream as a whole."""
    answer = patience.ask(client, "describe_stream_summary", **access.naming)
    told = answer.data["StreamDescriptionSummary"]
    return StreamSummary(
        created_at=datetime.fromtimestamp(told["StreamCreationTimestamp"], UTC),
        retention=timedelta(hours=told["RetentionPeriodHours"]),
        status=told["StreamStatus"],
        at=answer.at,
    )


def list_shards(
    client: StreamClient, access: StreamAccess, patience: Patience, *, page: int
) -> tuple[ListedShard, ...]:
    """Answer all shards of all pages; a listing whose token has expired begins anew."""
    for _ in range(_LISTINGS_MAX):
        try:
            shards = _all_pages(client, access, patience, page=page)
        except StreamError as error:
            if error.kind is not Kind.EXPIRED_NEXT_TOKEN:
                raise
            continue
        if not shards:
            raise ExternalError(
                f"{access.told} listed no shards",
                code=Code.GET_REMOTE_DATA_ERROR,
                detail="Every stream has some, so this answer is wrong.",
            )
        return shards
    raise ExternalError(
        f"the shards of {access.told} could not be listed",
        code=Code.GET_REMOTE_DATA_ERROR,
        detail=f"Its pages expired {_LISTINGS_MAX} times before the last one was read.",
    )


def _all_pages(
    client: StreamClient, access: StreamAccess, patience: Patience, *, page: int
) -> tuple[ListedShard, ...]:
    answer = patience.ask(client, "list_shards", MaxResults=page, **access.naming)
    shards = _shards(answer)
    while token := answer.data.get("NextToken"):
        # A token stands for the stream, which must not be named beside it.
        answer = patience.ask(client, "list_shards", MaxResults=page, NextToken=token)
        shards += _shards(answer)
    return tuple(shards)


def _shards(answer: Answer) -> list[ListedShard]:
    return [_listed(shard) for shard in answer.data.get("Shards", ())]


def _listed(shard: dict[str, Any]) -> ListedShard:
    numbers = shard["SequenceNumberRange"]
    parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
    return ListedShard(
        id=shard["ShardId"],
        begins=numbers["StartingSequenceNumber"],
        parents=tuple(parent for parent in parents if parent),
        closed=bool(numbers.get("EndingSequenceNumber")),
        hash_keys=hash_keys_of(shard),
    )


def hash_keys_of(shard: Mapping[str, Any]) -> tuple[int, int]:
    """Answer the first and the last hash key of a shard as the service tells of it."""
    keys = shard["HashKeyRange"]
    return int(keys["StartingHashKey"]), int(keys["EndingHashKey"])
