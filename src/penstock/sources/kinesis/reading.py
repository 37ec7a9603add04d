"""Read one shard as far as an epoch may: until a limit, the tip, or the end of the shard.

Invariant: the position lies behind the last item that was given out, and nowhere else. What a
page holds beyond that is read again by the next epoch.
"""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from penstock.clock import Clock
from penstock.model.split import After, End, Position, ReadLimits, ShardOutcome
from penstock.sources.kinesis.options import ForeignRecords
from penstock.sources.kinesis.pages import Page, ShardPages
from penstock.sources.kinesis.records import Item, items_of

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
        self.outcome = ShardOutcome(position=begun)

    def items(self) -> Iterator[Item]:
        """Yield items; the outcome is right after every one of them."""
        # Time is looked at between pages: of one that was fetched, everything is taken.
        while not self._full() and self._clock.monotonic() < self._deadline:
            page = self._next_page()
            yield from self._items_of(page)
            if self._full() and not self._taken_whole(page):
                return
            self._end_page(page)
            if page.ended or not page.behind:
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
            self.outcome = ShardOutcome(position=item.after, arrived_at=item.arrived_at)
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
            behind=page.behind,
            at=page.at,
            iterator=self._pages.iterator,
            children=page.children,
        )
