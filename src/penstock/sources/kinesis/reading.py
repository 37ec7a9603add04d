"""Read one shard as far as an epoch may: until a limit, the tip, or the end of the shard.

Invariant: the position lies behind the last item that was given out, and nowhere else. What a
page holds beyond that is read again by the next epoch.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.clock import Clock
from penstock.model.position import After, End, Position
from penstock.sources.kinesis.lineage import ListedShard
from penstock.sources.kinesis.pages import Page, ShardPages
from penstock.sources.kinesis.records import ForeignRecords, Item, items_of

# The service allows five reads of a shard in a second.
READ_INTERVAL = timedelta(milliseconds=200)
PAGE_RECORDS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How much of a shard an epoch takes; the record that crosses a limit is taken whole."""

    records: int
    size_bytes: int
    duration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOutcome:
    """Where a reading ended, and what the stream said then.

    ``behind`` and ``iterator`` are those of a page that was taken whole; of one that was not,
    nobody knows.
    """

    position: Position
    behind: timedelta | None = None
    at: datetime | None = None
    iterator: str | None = None
    children: tuple[ListedShard, ...] = ()


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
        stop: threading.Event | None = None,
    ) -> None:
        self._pages = pages
        self._limits = limits
        self._clock = clock
        self._hash_keys = hash_keys
        self._foreign = foreign
        self._stop = stop or threading.Event()
        self._records = 0
        self._size_bytes = 0
        self._deadline = clock.monotonic() + limits.duration.total_seconds()
        self._read_at: float | None = None
        self.outcome = ShardOutcome(position=begun)

    def items(self) -> Iterator[Item]:
        """Yield items; the outcome is right after every one of them."""
        while not self._full():
            page = self._next_page()
            yield from self._items_of(page)
            if self._full() and not self._taken_whole(page):
                return
            self._end_page(page)
            if page.ended or not page.behind:
                return

    def _next_page(self) -> Page:
        now = self._clock.monotonic()
        if self._read_at is not None:
            left = READ_INTERVAL.total_seconds() - (now - self._read_at)
            self._clock.wait(self._stop, timedelta(seconds=max(0.0, left)))
        self._read_at = self._clock.monotonic()
        wanted = self._limits.records - self._records
        return self._pages.next(limit=max(1, min(PAGE_RECORDS_MAX, wanted)))

    def _items_of(self, page: Page) -> Iterator[Item]:
        begun = self.outcome.position
        items = items_of(
            page.records, begun=begun, hash_keys=self._hash_keys, foreign=self._foreign
        )
        for item in items:
            self._records += 1
            self._size_bytes += len(item.data)
            self.outcome = ShardOutcome(position=item.after)
            yield item
            if self._full():
                return

    def _full(self) -> bool:
        return (
            self._records >= self._limits.records
            or self._size_bytes >= self._limits.size_bytes
            or self._clock.monotonic() >= self._deadline
            or self._stop.is_set()
        )

    def _taken_whole(self, page: Page) -> bool:
        """Tell whether the last item of a page was given out, or there was none."""
        if not page.records:
            return True
        return self.outcome.position == After(value=page.records[-1].sequence)

    def _end_page(self, page: Page) -> None:
        self.outcome = ShardOutcome(
            position=End() if page.ended else self.outcome.position,
            behind=page.behind,
            at=page.at,
            iterator=self._pages.iterator,
            children=page.children,
        )
