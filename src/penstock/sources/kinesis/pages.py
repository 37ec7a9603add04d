"""Read a stream's shards: list them, and page through one from a position.

The chain of iterators is followed as long as it holds: a new one would meet the same empty
pages again. Where it breaks, reading goes on behind the last record that was given out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import Code, ExternalError
from penstock.model.split import After, At, AtTime, End, Horizon, ListedShard, Position
from penstock.sources.kinesis.client import (
    Answer,
    Kind,
    Patience,
    StreamAccess,
    StreamClient,
    StreamError,
)

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


_REOPENINGS_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord:
    """A record as the stream holds it; it may hold others."""

    sequence: str
    partition_key: str
    data: bytes
    # Seconds since 1970.
    arrived_at: float
    encryption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What one request gave; ``behind`` is how old the newest unread record is at its end."""

    records: tuple[StreamRecord, ...]
    behind: timedelta
    at: datetime
    # Whether the shard holds nothing more and never will, and who follows it.
    ended: bool = False
    children: tuple[ListedShard, ...] = ()


class ShardPages:
    """Pages of one shard, one behind the other; used by one thread."""

    def __init__(  # noqa: PLR0913 - A reading is made of what it is told.
        self,
        client: StreamClient,
        access: StreamAccess,
        shard: str,
        position: Position,
        *,
        patience: Patience,
        is_closed: Callable[[], bool],
        iterator: str | None = None,
    ) -> None:
        self._client = client
        self._access = access
        self._shard = shard
        self._position = position
        self._patience = patience
        self._is_closed = is_closed
        self.iterator = iterator

    def again(self, position: Position, *, iterator: str | None) -> "ShardPages":
        """Answer the pages of the same shard from another position."""
        return ShardPages(
            self._client,
            self._access,
            self._shard,
            position,
            patience=self._patience,
            is_closed=self._is_closed,
            iterator=iterator,
        )

    def opened(self) -> str:
        """Answer the iterator of the next page; the first one is asked for."""
        if self.iterator is None:
            self.iterator = open_shard(
                self._client, self._shard, self._position, patience=self._patience
            )
        return self.iterator

    def next(self, *, limit: int) -> Page:
        """Answer the next page of at most so many records; it may be empty."""
        for tries in range(_REOPENINGS_MAX):
            answer = self._answer(limit=limit)
            if answer is not None:
                return self._page(answer)
            self.iterator = None
            self._patience.wait(tries)
        raise StreamError(
            f"shard {self._shard} gave {_REOPENINGS_MAX} answers that are none",
            detail="Each lacked its records, or the iterator of the next page.",
        )

    def _answer(self, *, limit: int) -> Answer | None:
        """Ask for a page; None if reading must begin anew behind the last record."""
        named = {"StreamARN": self._access.stream_arn} if self._access.stream_arn else {}
        try:
            answer = self._patience.ask(
                self._client,
                "get_records",
                ShardIterator=self.opened(),
                Limit=limit,
                **named,
            )
        except StreamError as error:
            if error.kind is not Kind.EXPIRED_ITERATOR:
                raise
            return None
        return answer if self._is_whole(answer.data) else None

    def _is_whole(self, data: Mapping[str, Any]) -> bool:
        """Tell whether an answer has a next page, or is the end and can prove it."""
        # What lacks even the lag, which every page tells, may lack its records as well.
        if "Records" not in data or "MillisBehindLatest" not in data:
            return False
        if data.get("NextShardIterator") or data.get("ChildShards"):
            return True
        return self._is_closed()

    def _page(self, answer: Answer) -> Page:
        data = answer.data
        records = tuple(_record(record) for record in data["Records"])
        self.iterator = data.get("NextShardIterator")
        if records:
            self._position = After(value=records[-1].sequence)
        return Page(
            records=records,
            behind=timedelta(milliseconds=data.get("MillisBehindLatest", 0)),
            at=answer.at,
            ended=self.iterator is None,
            children=tuple(_child(child) for child in data.get("ChildShards", ())),
        )


def knows_shard(client: StreamClient, shard: str, *, patience: Patience) -> bool:
    """Ask the stream for a shard by its name: a listing may be older than its end."""
    try:
        open_shard(client, shard, Horizon(), patience=patience)
    except StreamError as error:
        if error.kind is not Kind.NOT_FOUND:
            raise
        # A stream that is gone does not know any shard; that is another matter.
        describe(client, client.access, patience)
        return False
    return True


def open_shard(
    client: StreamClient, shard: str, position: Position, *, patience: Patience
) -> str:
    """Answer the iterator of a position; the stream refuses what it does not have."""
    answer = patience.ask(
        client,
        "get_shard_iterator",
        ShardId=shard,
        **client.access.naming,
        **iterator_of(position),
    )
    iterator: str = answer.data["ShardIterator"]
    return iterator


def iterator_of(position: Position) -> dict[str, Any]:
    """Answer how a position is asked for.

    Behind a part of a record means at that record: what was taken of it is passed over.
    """
    match position:
        case Horizon():
            return {"ShardIteratorType": "TRIM_HORIZON"}
        case AtTime(at=at):
            return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": at}
        case After(value=value, sub=None):
            return _by_number("AFTER_SEQUENCE_NUMBER", value)
        case At(value=value) | After(value=value):
            return _by_number("AT_SEQUENCE_NUMBER", value)
        case End():
            raise ValueError("nothing is read behind the end")


def _by_number(kind: str, sequence: str) -> dict[str, Any]:
    return {"ShardIteratorType": kind, "StartingSequenceNumber": sequence}


def _record(told: Mapping[str, Any]) -> StreamRecord:
    return StreamRecord(
        sequence=told["SequenceNumber"],
        partition_key=told["PartitionKey"],
        data=told["Data"],
        arrived_at=told["ApproximateArrivalTimestamp"],
        encryption=told.get("EncryptionType", ""),
    )


def _child(told: Mapping[str, Any]) -> ListedShard:
    return ListedShard(
        id=told["ShardId"],
        parents=tuple(told.get("ParentShards", ())),
        hash_keys=hash_keys_of(told),
    )
