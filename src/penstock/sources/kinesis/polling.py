"""Poll a stream from the driver: which shards exist, and which have records.

A shard is polled only while no task reads it, with requests for one record. The chain of
iterators is kept between polls; the iterator that found records goes to the task.

Invariant: a shard that a listing lacks is gone only if the stream, asked for it by name, does
not know it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from penstock.errors import Code, UserError
from penstock.model.codec import to_text
from penstock.model.split import (
    After,
    At,
    AtTime,
    End,
    Horizon,
    Position,
    Progress,
    ReadLimits,
    SplitRead,
    position_text,
)
from penstock.model.text import format_instant
from penstock.sources.kinesis.client import Kind, StreamClient, StreamError
from penstock.sources.kinesis.reading import Page, ShardPages, knows_shard, list_shards
from penstock.sources.kinesis.shards import (
    ListedShard,
    ShardMemory,
    ShardOutcome,
    ShardWork,
    childless,
    follow,
    forgettable,
    readable,
    split_of,
    unknown_parents,
    unlisted,
    unlisted_yet,
)


class PollState(StrEnum):
    """What the polls of a shard have found so far."""

    # Only empty pages, and not the tip.
    SEARCHING = "searching"
    # Records, or the end.
    FOUND = "found"
    # Nothing up to the tip, or a task reads the shard.
    IDLE = "idle"


@dataclass(slots=True, kw_only=True)
class ShardPoller:
    """One shard that may be read; used by one thread at a time."""

    shard: ListedShard
    position: Position
    # The iterator of these pages goes to the task that reads the shard.
    pages: ShardPages
    memory: ShardMemory
    # None once it is known that nothing was lost.
    gap_check: "GapCheck | None"
    state: PollState = PollState.SEARCHING
    # Everything that had arrived when the run started is loaded.
    caught_up: bool = False
    # When the driver last sent a request, and when it or a task last got a response.
    asked_at: float | None = None
    seen_at: float | None = None

    def ask(self, retention: timedelta) -> None:
        """Send one request and store what it reports."""
        iterator: str | None = self._opened()
        page = self.pages.next(limit=1)
        check, position = self.gap_check, self.position
        if check is not None:
            if check.decide(page, retention=retention):
                self.gap_check = None
            if not check.refused and isinstance(position, After) and position.sub is None:
                # The check starts at the record that was taken, and not after it.
                iterator = None
                taken = [record.sequence for record in page.records] == [position.value]
                if taken and not page.ended:
                    return
        wants_what_is_left = isinstance(position, Horizon) and not self.memory.caught_up_at
        if page.records and not wants_what_is_left:
            self._loaded_until(datetime.fromtimestamp(page.records[0].arrived_at, UTC))
        if page.records or page.ended:
            self.state = PollState.FOUND
            # The task finds the same page.
            self.pages = replace(self.pages, position=position, iterator=iterator)
        elif not page.lag:
            self._at_tip(page.at)
        # The lag is that of the page's end, but its records are not loaded yet.
        lag = page.lag or None if page.records else page.lag
        self.memory = replace(self.memory, lag=lag, at=page.at)

    def read(self, limits: ReadLimits) -> SplitRead:
        """Return the read of the shard from its position."""
        return SplitRead(
            id=self.shard.id,
            split=self.shard.id,
            begin=self.position,
            limits=limits,
            shown=self.shard.id,
            work=to_text(ShardWork(shard=self.shard, iterator=self.pages.iterator)),
        )

    def passed(self, boundary: Position, *, run_began_at: datetime | None) -> bool:
        """Return whether everything that arrived before a time is loaded."""
        if not isinstance(boundary, AtTime):
            return False
        loaded_until = self.memory.caught_up_at
        of_this_run = boundary.at == run_began_at and self.caught_up
        return of_this_run or (loaded_until is not None and loaded_until >= boundary.at)

    def take(self, outcome: ShardOutcome, *, begun_at: datetime) -> None:
        """Continue after what was committed."""
        moved = outcome.position != self.position
        self.position = outcome.position
        self.pages = replace(self.pages, position=outcome.position, iterator=outcome.iterator)
        # A page that was not taken whole has more; after a whole one, there may be more.
        found = outcome.lag is None or (bool(outcome.lag) and moved)
        self.state = PollState.FOUND if found else PollState.SEARCHING
        self.gap_check = None
        if outcome.arrived_at is not None:
            arrived_at = datetime.fromtimestamp(outcome.arrived_at, UTC)
            self.caught_up = self.caught_up or arrived_at >= begun_at
            self._loaded_until(arrived_at)
        if outcome.at is not None:
            self.memory = replace(self.memory, lag=outcome.lag, at=outcome.at)
            if not outcome.lag:
                self._at_tip(outcome.at)

    def _at_tip(self, at: datetime) -> None:
        self.caught_up, self.state = True, PollState.IDLE
        # A closed shard may have been closed for long. Its children inherit this time, but
        # hold what arrived since.
        if not self.shard.closed and not isinstance(self.position, End):
            self._loaded_until(at)

    def _loaded_until(self, at: datetime) -> None:
        known = self.memory.caught_up_at
        self.memory = replace(self.memory, caught_up_at=at if known is None else max(at, known))

    def _opened(self) -> str:
        """Open the pages; a sequence number that the service refuses may be trimmed."""
        try:
            return self.pages.opened()
        except StreamError as error:
            unnamed = _sequence(self.position) is None
            if self.gap_check is None or unnamed or error.kind is not Kind.BAD_ARGUMENT:
                raise
            self.gap_check.refused = error
            self.pages = replace(self.pages, position=Horizon(), iterator=None)
            return self.pages.opened()


@dataclass(slots=True, kw_only=True)
class GapCheck:
    """Checks once that nothing was trimmed between a stored position and the first page.

    The service does not report what it trimmed. The first request therefore asks for the record
    that the position names: nothing was lost if the stream still has it.
    """

    position: Position
    memory: ShardMemory
    # The error, if the service refused the sequence number of the position.
    refused: StreamError | None = None

    @property
    def start(self) -> Position:
        """The position of the first request."""
        sequence = _sequence(self.position)
        return self.position if sequence is None else At(value=sequence)

    def decide(self, page: Page, *, retention: timedelta) -> bool:
        """Return whether a page shows that nothing was lost; raise if something may be."""
        sequence = _sequence(self.position)
        # A trimmed number lies before everything that is left of the shard.
        if self.refused and any(
            int(record.sequence) <= int(sequence or 0) for record in page.records
        ):
            raise self.refused
        if not page.records and not page.ended and page.lag:
            return False
        if not page.records or page.records[0].sequence != sequence:
            require_no_gap(self.position, self.memory, at=page.at, retention=retention)
        return True


def gap_check_of(position: Position, memory: ShardMemory) -> GapCheck | None:
    """Return the check of a stored position; None if nothing can have been lost."""
    if isinstance(position, At | After | AtTime) or memory.caught_up_at is not None:
        return GapCheck(position=position, memory=memory)
    return None


def require_no_gap(
    position: Position, memory: ShardMemory, *, at: datetime, retention: timedelta
) -> None:
    """Raise UserError if records may have been trimmed before they were read.

    Nothing is lost if everything was loaded at a time within the retention, or if the position
    is such a time itself.
    """
    safe = loaded_until(position, memory)
    oldest = at - retention
    if safe is not None and safe >= oldest:
        return
    shown = f"{format_instant(safe)} UTC" if safe else "an unknown time"
    raise UserError(
        f"records of shard {memory.shard} may have been trimmed before they were read: all "
        f"that arrived until {shown} was loaded, and the stream keeps nothing from before "
        f"{format_instant(oldest)} UTC",
        code=Code.CANNOT_RESUME_ERR,
        detail=f"The job stands at {position_text(position)}.",
        hint=_way_on("what the shard still holds", shard=memory.shard, position="TRIM_HORIZON"),
    )


def loaded_until(position: Position, memory: ShardMemory) -> datetime | None:
    """Return the time until which everything that arrived is loaded; None if unknown.

    A position at a time needs nothing from before.
    """
    wanted_from = position.at if isinstance(position, AtTime) else None
    times = [at for at in (memory.caught_up_at, wanted_from) if at is not None]
    return max(times, default=None)


def _way_on(what: str, *, shard: str, position: str) -> str:
    return (
        f"To go on with {what}, ALTER ROUTINE LOAD with "
        f"""'property.kinesis_positions' = '{{"{shard}": "{position}"}}', then RESUME it."""
    )


def _sequence(position: Position) -> str | None:
    return position.value if isinstance(position, At | After) else None


LISTING_INTERVAL = timedelta(seconds=60)
_LATE_LISTINGS_MAX = 5
_LISTING_PAUSE = timedelta(seconds=1)


class ShardDirectory:
    """The shards of a stream, as far as it has reported them."""

    def __init__(self, client: StreamClient, *, pinned: tuple[str, ...]) -> None:
        self._client = client
        self._pinned = pinned
        self._clock = client.retries.clock
        self.listed: tuple[ListedShard, ...] = ()
        self._listed_at: float | None = None
        # Children that the end of a parent named, and no listing has shown.
        self._children: dict[str, ListedShard] = {}
        # Shards that the stream knew, or did not know, when asked for them by name.
        self._known: set[str] = set()
        self._gone: set[str] = set()

    def refresh(self, progress: Progress) -> Progress:
        """Complete progress, by a new listing if one is due; repeat a listing that is late.

        Reading a shard needs its parents, because they come first. It needs its range of keys
        to find foreign sub-records, and its children to continue after its end.
        """
        interval = LISTING_INTERVAL.total_seconds()
        if self._listed_at is None or self._clock.monotonic() - self._listed_at >= interval:
            self._list()
        progress = self.completed(progress)
        self._require_known(progress)
        for _ in range(_LATE_LISTINGS_MAX):
            awaited = (*readable(progress), *unlisted_yet(progress))
            late = unlisted(awaited, self.listed_by_id().values())
            if not late and not self.awaits_child(progress):
                break
            self._clock.wait(self._client.retries.stop, _LISTING_PAUSE)
            self._list()
            progress = self.completed(progress)
        return progress

    def completed(self, progress: Progress) -> Progress:
        """Add the reported shards that progress lacks; remove finished ones that are gone."""
        if self._pinned:
            return follow(progress, [s for s in self.listed if s.id in self._pinned])
        found = follow(progress, self.listed_by_id().values())
        # Parents that no listing has shown, unless the stream has forgotten them.
        parents = (name for name in unknown_parents(found) if self._is_known(name))
        found = (*found, *(split_of(ListedShard(id=name), Horizon()) for name in parents))
        missing = forgettable(found, self.listed)
        gone = {name for name in missing if not self._is_known(name)}
        return tuple(split for split in found if split.split not in gone)

    def listed_by_id(self) -> Mapping[str, ListedShard]:
        """Return what the stream reported of each shard."""
        return {shard.id: shard for shard in (*self._children.values(), *self.listed)}

    def add(self, child: ListedShard) -> None:
        """Add a shard that the end of its parent named."""
        self._children[child.id] = child

    def awaits_child(self, progress: Progress) -> bool:
        """Return whether a finished shard has children that no listing has shown yet."""
        return not self._pinned and bool(childless(progress, self.listed))

    def is_closed(self, shard: str) -> bool:
        """Ask the stream whether a shard takes no new records."""
        self._list()
        return any(one.id == shard and one.closed for one in self.listed)

    def _list(self) -> None:
        self.listed = list_shards(self._client)
        self._listed_at = self._clock.monotonic()
        seen = {shard.id for shard in self.listed}
        self._children = {k: v for k, v in self._children.items() if k not in seen}
        self._known.clear()

    def _is_known(self, shard: str) -> bool:
        """Ask the stream whether it knows a shard, once for every listing."""
        if shard not in self._known | self._gone:
            known = knows_shard(self._client, shard)
            (self._known if known else self._gone).add(shard)
        return shard in self._known

    def _require_known(self, progress: Progress) -> None:
        """Raise UserError if a shard that was not read to its end is gone."""
        for split in unlisted(progress, self.listed_by_id().values()):
            if not self._is_known(split.split):
                stands_at = position_text(split.position)
                raise UserError(
                    f"shard {split.split} is gone, and was not read to its end",
                    code=Code.CANNOT_RESUME_ERR,
                    detail=f"The job stands at {stands_at}; the rest was trimmed.",
                    hint=_way_on("the other shards", shard=split.split, position="END"),
                )
