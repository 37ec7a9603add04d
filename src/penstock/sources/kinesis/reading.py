"""Read a stream: list its shards, and read a shard page by page within the limits of an epoch.

Every page has the iterator of the next page. Reading uses these iterators as long as possible,
because a new iterator would return the same empty pages again. If an iterator is missing or
expired, reading continues after the last returned record.

Invariant: a position is after the last returned item. The next epoch reads the remaining
records of the page again.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import ExternalError
from penstock.model.split import After, At, AtTime, End, Horizon, Position, ReadLimits
from penstock.sources.kinesis.client import Kind, Response, StreamClient, StreamError
from penstock.sources.kinesis.kind import KinesisOptions
from penstock.sources.kinesis.records import Item, StreamRecord, items_of
from penstock.sources.kinesis.shards import ListedShard, ShardOutcome

_LISTINGS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """Description of a stream; ``at`` is the time by the service's clock."""

    created_at: datetime
    retention: timedelta
    status: str
    at: datetime


def describe(client: StreamClient) -> StreamSummary:
    """Return the description of the stream."""
    response = client.send("describe_stream_summary", **client.access.naming)
    summary = response.data["StreamDescriptionSummary"]
    return StreamSummary(
        created_at=datetime.fromtimestamp(summary["StreamCreationTimestamp"], UTC),
        retention=timedelta(hours=summary["RetentionPeriodHours"]),
        status=summary["StreamStatus"],
        at=response.at,
    )


def list_shards(client: StreamClient) -> tuple[ListedShard, ...]:
    """Return the shards of all pages; start again if a page token has expired."""
    for _ in range(_LISTINGS_MAX):
        try:
            shards = _all_pages(client)
        except StreamError as error:
            if error.kind is not Kind.EXPIRED_NEXT_TOKEN:
                raise
            continue
        if not shards:
            raise ExternalError(
                f"{client.access.shown} listed no shards",
                detail="Every stream has shards, so this response is wrong.",
            )
        return shards
    raise ExternalError(
        f"the shards of {client.access.shown} could not be listed",
        detail=(f"The page token expired {_LISTINGS_MAX} times before the last page was read."),
    )


def _all_pages(client: StreamClient) -> tuple[ListedShard, ...]:
    page = client.access.page_shards_max
    response = client.send("list_shards", MaxResults=page, **client.access.naming)
    shards = _shards(response)
    while token := response.data.get("NextToken"):
        # The token identifies the stream; the service refuses a request with both.
        response = client.send("list_shards", MaxResults=page, NextToken=token)
        shards += _shards(response)
    return tuple(shards)


def _shards(response: Response) -> list[ListedShard]:
    found = []
    for shard in response.data.get("Shards", ()):
        numbers = shard["SequenceNumberRange"]
        parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
        found.append(
            ListedShard(
                id=shard["ShardId"],
                first_sequence=numbers["StartingSequenceNumber"],
                parents=tuple(parent for parent in parents if parent),
                closed=bool(numbers.get("EndingSequenceNumber")),
                hash_keys=_hash_keys(shard),
            )
        )
    return found


def _hash_keys(shard: Mapping[str, Any]) -> tuple[int, int]:
    keys = shard["HashKeyRange"]
    return int(keys["StartingHashKey"]), int(keys["EndingHashKey"])


_REOPENINGS_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Records of one response; ``lag`` is from the end of the page to the tip of the shard."""

    records: tuple[StreamRecord, ...]
    lag: timedelta
    at: datetime
    # Whether the shard is closed and has no more records. Its children have the later records.
    ended: bool = False
    children: tuple[ListedShard, ...] = ()


@dataclass(slots=True, kw_only=True, eq=False)
class ShardPages:
    """Pages of one shard, in order; used by one thread."""

    client: StreamClient
    shard: str
    # Reading restarts here if the iterator is missing or expired.
    position: Position
    # Returns whether the stream lists the shard as closed.
    is_closed: Callable[[], bool]
    iterator: str | None = None

    def current_iterator(self) -> str:
        """Return the iterator of the next page; request an iterator if there is none."""
        if self.iterator is None:
            self.iterator = open_shard(self.client, self.shard, self.position)
        return self.iterator

    def next(self, *, limit: int) -> Page:
        """Return the next page of at most ``limit`` records; the page may be empty."""
        arn = self.client.access.stream_arn
        naming = {"StreamARN": arn} if arn else {}
        for tries in range(_REOPENINGS_MAX):
            try:
                response = self.client.send(
                    "get_records", ShardIterator=self.current_iterator(), Limit=limit, **naming
                )
            except StreamError as error:
                if error.kind is not Kind.EXPIRED_ITERATOR:
                    raise
            else:
                if self._is_complete(response.data):
                    return self._page(response)
            self.iterator = None
            retries = self.client.retries
            retries.wait(retries.delay(tries))
        raise StreamError(
            f"shard {self.shard} returned {_REOPENINGS_MAX} incomplete responses in a row",
            detail="Each response lacked its records, its lag, or the next iterator.",
        )

    def _is_complete(self, data: Mapping[str, Any]) -> bool:
        """Return whether a response is a page with a next iterator, or the end of the shard."""
        # Every page has a lag. A response without a lag may lack records, too.
        if "Records" not in data or "MillisBehindLatest" not in data:
            return False
        if data.get("NextShardIterator") or data.get("ChildShards"):
            return True
        return self.is_closed()

    def _page(self, response: Response) -> Page:
        data = response.data
        records = tuple(_record(record) for record in data["Records"])
        self.iterator = data.get("NextShardIterator")
        if records:
            self.position = After(value=records[-1].sequence)
        return Page(
            records=records,
            lag=timedelta(milliseconds=data.get("MillisBehindLatest", 0)),
            at=response.at,
            ended=self.iterator is None,
            children=tuple(_child(child) for child in data.get("ChildShards", ())),
        )


def shard_exists(client: StreamClient, shard: str) -> bool:
    """Return whether a shard exists, by a request for its name; a listing may be stale."""
    try:
        open_shard(client, shard, Horizon())
    except StreamError as error:
        if error.kind is not Kind.NOT_FOUND:
            raise
        # If the stream was deleted, this call raises an error that names the stream.
        describe(client)
        return False
    return True


def open_shard(client: StreamClient, shard: str, position: Position) -> str:
    """Return an iterator at a position; raise StreamError if the service refuses it."""
    response = client.send(
        "get_shard_iterator",
        ShardId=shard,
        **client.access.naming,
        **iterator_arguments(position),
    )
    iterator: str = response.data["ShardIterator"]
    return iterator


def iterator_arguments(position: Position) -> dict[str, Any]:
    """Return the request arguments for an iterator at a position.

    For a position inside a record, the iterator starts at that record. The reader then skips
    the parts before the position.
    """
    match position:
        case Horizon():
            return {"ShardIteratorType": "TRIM_HORIZON"}
        case AtTime(at=at):
            return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": at}
        case At(value=value) | After(value=value):
            whole = isinstance(position, After) and position.sub is None
            kind = "AFTER_SEQUENCE_NUMBER" if whole else "AT_SEQUENCE_NUMBER"
            return {"ShardIteratorType": kind, "StartingSequenceNumber": value}
        case End():
            raise ValueError("a finished shard has no iterator")


def _record(record: Mapping[str, Any]) -> StreamRecord:
    return StreamRecord(
        sequence=record["SequenceNumber"],
        partition_key=record["PartitionKey"],
        data=record["Data"],
        arrived_at=record["ApproximateArrivalTimestamp"],
        encryption=record.get("EncryptionType", ""),
    )


def _child(shard: Mapping[str, Any]) -> ListedShard:
    return ListedShard(
        id=shard["ShardId"],
        parents=tuple(shard.get("ParentShards", ())),
        hash_keys=_hash_keys(shard),
    )


# The service allows five reads per second and shard.
READ_INTERVAL = timedelta(milliseconds=200)


class ShardReading:
    """Read of one shard within the limits of one epoch; used by one thread."""

    def __init__(
        self,
        pages: ShardPages,
        *,
        limits: ReadLimits,
        options: KinesisOptions,
        hash_keys: tuple[int, int] | None,
    ) -> None:
        self._pages = pages
        self._limits = limits
        self._options = options
        self._hash_keys = hash_keys
        self._clock = pages.client.retries.clock
        self._stop = pages.client.retries.stop
        self._records = 0
        self._size_bytes = 0
        self._deadline = self._clock.monotonic() + limits.duration.total_seconds()
        self._read_at = self._clock.monotonic()
        self.outcome = ShardOutcome(begin=pages.position, position=pages.position)

    def items(self) -> Iterator[Item]:
        """Yield items; ``outcome`` is current after every item."""
        # The time is checked between pages only, because a fetched page is read to its end.
        while not self._full() and self._clock.monotonic() < self._deadline:
            page = self._next_page()
            yield from self._items_of(page)
            if self._full() and not self._has_read_all(page):
                return
            self.outcome = replace(
                self.outcome,
                position=End() if page.ended else self.outcome.position,
                lag=page.lag,
                at=page.at,
                iterator=self._pages.iterator,
                children=page.children,
            )
            if page.ended or not page.lag:
                return

    def _next_page(self) -> Page:
        passed = timedelta(seconds=self._clock.monotonic() - self._read_at)
        if passed < self._limits.interval:
            self._clock.wait(self._stop, self._limits.interval - passed)
        self._read_at = self._clock.monotonic()
        wanted = self._limits.records - self._records
        return self._pages.next(limit=max(1, min(self._options.page_records_max, wanted)))

    def _items_of(self, page: Page) -> Iterator[Item]:
        items = items_of(
            page.records,
            start=self.outcome.position,
            hash_keys=self._hash_keys,
            foreign=self._options.foreign_records,
        )
        for item in items:
            self._records += 1
            self._size_bytes += len(item.record.data)
            self.outcome = ShardOutcome(
                begin=self.outcome.begin,
                position=item.after,
                arrived_at=item.record.arrived_at,
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

    def _has_read_all(self, page: Page) -> bool:
        """Return whether the last item of a page was yielded, or the page is empty."""
        if not page.records:
            return True
        return self.outcome.position == After(value=page.records[-1].sequence)
