"""Read a stream: list its shards, page through one, read one within the limits of an epoch.

The chain of iterators is followed as long as it holds: a new iterator would meet the same empty
pages again. Where it breaks, reading continues after the last record that was returned.

Invariant: a position is after the last item that was returned. What a page holds beyond that is
read again by the next epoch.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.clock import Clock
from penstock.errors import Code, ExternalError
from penstock.model.split import After, At, AtTime, End, Horizon, Position, ReadLimits
from penstock.sources.kinesis.client import (
    Answer,
    Kind,
    Patience,
    StreamAccess,
    StreamClient,
    StreamError,
)
from penstock.sources.kinesis.kind import ForeignRecords
from penstock.sources.kinesis.records import Item, StreamRecord, items_of
from penstock.sources.kinesis.shards import ListedShard, ShardOutcome

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
class Page:
    """What one request gave; ``lag`` is the age of the newest unread record at its end."""

    records: tuple[StreamRecord, ...]
    lag: timedelta
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
            lag=timedelta(milliseconds=data.get("MillisBehindLatest", 0)),
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


# The service allows five reads of a shard in a second.
READ_INTERVAL = timedelta(milliseconds=200)
PAGE_RECORDS_MAX = 10_000


class ShardReading:
    """One shard within the limits of one epoch; used by one thread."""

    def __init__(  # noqa: PLR0913 - A reading is made of what it is told.
        self,
        pages: ShardPages,
        *,
        begun: Position,
        limits: ReadLimits,
        clock: Clock,
        hash_keys: tuple[int, int] | None = None,
        foreign: ForeignRecords = ForeignRecords.REJECT,
        page_records_max: int = PAGE_RECORDS_MAX,
        stop: threading.Event | None = None,
    ) -> None:
        self._pages = pages
        self._begun = begun
        self._limits = limits
        self._clock = clock
        self._hash_keys = hash_keys
        self._foreign = foreign
        self._page_records_max = page_records_max
        self._stop = stop or threading.Event()
        self._records = 0
        self._size_bytes = 0
        self._deadline = clock.monotonic() + limits.duration.total_seconds()
        self._read_at = clock.monotonic()
        self.outcome = ShardOutcome(begin=begun, position=begun)

    def items(self) -> Iterator[Item]:
        """Yield items; the outcome is right after every one of them."""
        # Time is looked at between pages: of one that was fetched, everything is taken.
        while not self._full() and self._clock.monotonic() < self._deadline:
            page = self._next_page()
            yield from self._items_of(page)
            if self._full() and not self._taken_whole(page):
                return
            self._end_page(page)
            if page.ended or not page.lag:
                return

    def _next_page(self) -> Page:
        passed = timedelta(seconds=self._clock.monotonic() - self._read_at)
        if passed < self._limits.interval:
            self._clock.wait(self._stop, self._limits.interval - passed)
        self._read_at = self._clock.monotonic()
        wanted = self._limits.records - self._records
        return self._pages.next(limit=max(1, min(self._page_records_max, wanted)))

    def _items_of(self, page: Page) -> Iterator[Item]:
        begun = self.outcome.position
        items = items_of(
            page.records, begun=begun, hash_keys=self._hash_keys, foreign=self._foreign
        )
        for item in items:
            self._records += 1
            self._size_bytes += len(item.data)
            self.outcome = ShardOutcome(
                begin=self._begun, position=item.after, arrived_at=item.arrived_at
            )
            yield item
            if self._full():
                return

    def _full(self) -> bool:
        return (
            self._records >= self._limits.records
            or self._size_bytes >= self._limits.size_bytes
            or self._stop.is_set()
        )

    def _taken_whole(self, page: Page) -> bool:
        """Tell whether the last item of a page was given out, or there was none."""
        if not page.records:
            return True
        return self.outcome.position == After(value=page.records[-1].sequence)

    def _end_page(self, page: Page) -> None:
        self.outcome = replace(
            self.outcome,
            position=End() if page.ended else self.outcome.position,
            lag=page.lag,
            at=page.at,
            iterator=self._pages.iterator,
            children=page.children,
        )
