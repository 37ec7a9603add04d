"""Poll a stream from the driver: which shards exist, and which have records.

A shard is polled only while no task reads it. A poll requests one record. The next iterator is
kept between polls, and the iterator that found records is passed to the task.

Invariant: a listing that lacks a shard does not prove that the shard is gone. The shard is gone
only if the service reports, for a request by name, that it does not exist.
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
from penstock.sources.kinesis.reading import Page, ShardPages, list_shards, shard_exists
from penstock.sources.kinesis.shards import (
    ListedShard,
    ShardMemory,
    ShardOutcome,
    ShardWork,
    add_new_shards,
    childless,
    known_by_name_only,
    readable,
    removable,
    split_of,
    unknown_parents,
    unlisted,
)


class PollState(StrEnum):
    """Result of the polls of a shard so far."""

    # Only empty pages; the tip of the shard is not reached yet.
    SEARCHING = "searching"
    # Records, or the end of the shard.
    FOUND = "found"
    # No records up to the tip, or a task reads the shard.
    IDLE = "idle"


@dataclass(slots=True, kw_only=True)
class ShardPoller:
    """Poller of one readable shard; used by one thread at a time."""

    shard: ListedShard
    position: Position
    # The iterator of these pages is passed to the task that reads the shard.
    pages: ShardPages
    memory: ShardMemory
    # None after the check has shown that no records were lost.
    gap_check: "GapCheck | None"
    state: PollState = PollState.SEARCHING
    # Whether all records that arrived before the start of the run are loaded.
    caught_up: bool = False
    # The time of the driver's last request, and of the last response to the driver or a task.
    requested_at: float | None = None
    responded_at: float | None = None

    def poll(self, retention: timedelta) -> None:
        """Send one request; store the state and the lag that the response shows."""
        iterator: str | None = self._opened()
        page = self.pages.next(limit=1)
        check, position = self.gap_check, self.position
        if check is not None:
            if check.decide(page, retention=retention):
                self.gap_check = None
            if not check.refused and isinstance(position, After) and position.sub is None:
                # The check starts at the last loaded record, not after it.
                iterator = None
                loaded = [record.sequence for record in page.records] == [position.value]
                if loaded and not page.ended:
                    return
        starts_at_horizon = isinstance(position, Horizon) and not self.memory.caught_up_at
        if page.records and not starts_at_horizon:
            self._set_loaded_until(datetime.fromtimestamp(page.records[0].arrived_at, UTC))
        if page.records or page.ended:
            self.state = PollState.FOUND
            # The task reads the same page again.
            self.pages = replace(self.pages, position=position, iterator=iterator)
        elif not page.lag:
            self._set_at_tip(page.at)
        # The response has the lag at the end of the page, but its records are not loaded yet.
        lag = page.lag or None if page.records else page.lag
        self.memory = replace(self.memory, lag=lag, at=page.at)

    def read(self, limits: ReadLimits) -> SplitRead:
        """Return a read of the shard from its position."""
        return SplitRead(
            id=self.shard.id,
            split=self.shard.id,
            begin=self.position,
            limits=limits,
            shown=self.shard.id,
            work=to_text(ShardWork(shard=self.shard, iterator=self.pages.iterator)),
        )

    def passed(
        self,
        boundary: Position,
        *,
        run_started_at: datetime | None,
        outcome: ShardOutcome | None = None,
    ) -> bool:
        """Return whether all records that arrived before a boundary are loaded.

        ``outcome`` is the end of a read that is about to be committed.
        """
        if not isinstance(boundary, AtTime):
            return False
        loaded_until = self.memory.caught_up_at
        if loaded_until is not None and loaded_until >= boundary.at:
            return True
        if outcome is not None and outcome.passes(boundary.at):
            return True
        # Every request of the run was sent after the run started.
        caught_up = self.caught_up or (outcome is not None and outcome.at_tip)
        return boundary.at == run_started_at and caught_up

    def advance(self, outcome: ShardOutcome, *, run_started_at: datetime) -> None:
        """Move to the end of a read that was committed."""
        moved = outcome.position != self.position
        self.position = outcome.position
        self.pages = replace(self.pages, position=outcome.position, iterator=outcome.iterator)
        # A page that was read in part has more records. After a full page, there may be more.
        found = outcome.lag is None or (bool(outcome.lag) and moved)
        self.state = PollState.FOUND if found else PollState.SEARCHING
        self.gap_check = None
        if outcome.arrived_at is not None:
            arrived_at = datetime.fromtimestamp(outcome.arrived_at, UTC)
            self.caught_up = self.caught_up or arrived_at >= run_started_at
            self._set_loaded_until(arrived_at)
        if outcome.at is not None:
            self.memory = replace(self.memory, lag=outcome.lag, at=outcome.at)
            if not outcome.lag:
                self._set_at_tip(outcome.at)

    def _set_at_tip(self, at: datetime) -> None:
        self.caught_up, self.state = True, PollState.IDLE
        # A closed shard does not get this time, because its children inherit the time. The
        # children contain the records that arrived after the shard was closed.
        if not self.shard.closed and not isinstance(self.position, End):
            self._set_loaded_until(at)

    def _set_loaded_until(self, at: datetime) -> None:
        known = self.memory.caught_up_at
        self.memory = replace(self.memory, caught_up_at=at if known is None else max(at, known))

    def _opened(self) -> str:
        """Return the current iterator; restart at the horizon if the position is refused.

        A sequence number that the service refuses may have been trimmed.
        """
        try:
            return self.pages.current_iterator()
        except StreamError as error:
            unnamed = _sequence(self.position) is None
            if self.gap_check is None or unnamed or error.kind is not Kind.BAD_ARGUMENT:
                raise
            self.gap_check.refused = error
            self.pages = replace(self.pages, position=Horizon(), iterator=None)
            return self.pages.current_iterator()


@dataclass(slots=True, kw_only=True)
class GapCheck:
    """A single check that no records were trimmed between a position and the first page.

    The service does not report trimmed records. The first request therefore reads the record
    at the position. No records were lost if the stream still has that record.
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
        """Return whether a page proves that no records were lost.

        Raise UserError if records may have been lost.
        """
        sequence = _sequence(self.position)
        # A trimmed number is less than all numbers that are left. This number is not less, so
        # the service refused it for another reason.
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
    """Return the check of a stored position; None if no records can have been lost."""
    if isinstance(position, At | After | AtTime) or memory.caught_up_at is not None:
        return GapCheck(position=position, memory=memory)
    return None


def require_no_gap(
    position: Position, memory: ShardMemory, *, at: datetime, retention: timedelta
) -> None:
    """Raise UserError if records may have been trimmed before they were read.

    No records are lost if all were loaded up to a time within the retention. The same holds
    if the position itself is such a time.
    """
    safe = loaded_until(position, memory)
    oldest = at - retention
    if safe is not None and safe >= oldest:
        return
    loaded = (
        f"all records up to {format_instant(safe)} UTC were loaded"
        if safe
        else "the time of the last loaded record is unknown"
    )
    raise UserError(
        f"records of shard {memory.shard} may have been trimmed before they were read: "
        f"{loaded}; the stream retains records from {format_instant(oldest)} UTC on",
        code=Code.CANNOT_RESUME_ERR,
        detail=f"The job is at {position_text(position)}.",
        hint=_continue_hint(
            "the remaining records", shard=memory.shard, position="TRIM_HORIZON"
        ),
    )


def loaded_until(position: Position, memory: ShardMemory) -> datetime | None:
    """Return the time up to which all arrived records are loaded; None if unknown.

    A position at a time needs no earlier records.
    """
    start = position.at if isinstance(position, AtTime) else None
    times = [at for at in (memory.caught_up_at, start) if at is not None]
    return max(times, default=None)


def _continue_hint(what: str, *, shard: str, position: str) -> str:
    return (
        f"To continue with {what}, run ALTER ROUTINE LOAD with "
        f"""'property.kinesis_positions' = '{{"{shard}": "{position}"}}', then RESUME it."""
    )


def _sequence(position: Position) -> str | None:
    return position.value if isinstance(position, At | After) else None


LISTING_INTERVAL = timedelta(seconds=60)
_RELISTINGS_MAX = 5
_LISTING_PAUSE = timedelta(seconds=1)


class ShardDirectory:
    """The shards that a stream has reported so far."""

    def __init__(self, client: StreamClient, *, pinned: tuple[str, ...]) -> None:
        self._client = client
        self._pinned = pinned
        self._clock = client.retries.clock
        self.listed: tuple[ListedShard, ...] = ()
        self._listed_at: float | None = None
        # Children that the last page of a parent named, but that no listing has shown yet.
        self._children: dict[str, ListedShard] = {}
        # Results of requests for shards by name.
        self._existing: set[str] = set()
        self._gone: set[str] = set()

    def refresh(self, progress: Progress) -> Progress:
        """Add new shards to progress; list shards if due, and again if some are missing.

        Reading a shard needs its parents, because parents are read first. The range of hash
        keys is needed to find foreign sub-records. The children are needed to continue after
        the end of the shard.
        """
        interval = LISTING_INTERVAL.total_seconds()
        if self._listed_at is None or self._clock.monotonic() - self._listed_at >= interval:
            self._list()
        progress = self.completed(progress)
        self._require_existing(progress)
        for _ in range(_RELISTINGS_MAX):
            awaited = (*readable(progress), *known_by_name_only(progress))
            missing = unlisted(awaited, self.listed_by_id().values())
            if not missing and not self.awaits_child(progress):
                break
            self._clock.wait(self._client.retries.stop, _LISTING_PAUSE)
            self._list()
            progress = self.completed(progress)
        return progress

    def require_listing(self) -> None:
        """List the shards at the next refresh, even if that is not due."""
        self._listed_at = None

    def completed(self, progress: Progress) -> Progress:
        """Add reported shards to progress; remove finished shards that are gone."""
        if self._pinned:
            return add_new_shards(progress, [s for s in self.listed if s.id in self._pinned])
        found = add_new_shards(progress, self.listed_by_id().values())
        # Add parents that no listing has shown, unless the stream has deleted them.
        parents = (name for name in unknown_parents(found) if self._exists(name))
        found = (*found, *(split_of(ListedShard(id=name), Horizon()) for name in parents))
        missing = removable(found, self.listed)
        gone = {name for name in missing if not self._exists(name)}
        return tuple(split for split in found if split.split not in gone)

    def listed_by_id(self) -> Mapping[str, ListedShard]:
        """Return the reported shards by id."""
        return {shard.id: shard for shard in (*self._children.values(), *self.listed)}

    def add(self, child: ListedShard) -> None:
        """Add a shard that the last page of its parent named."""
        self._children[child.id] = child

    def awaits_child(self, progress: Progress) -> bool:
        """Return whether a finished shard must have children that no listing has shown yet."""
        return not self._pinned and bool(childless(progress, self.listed))

    def is_closed(self, shard: str) -> bool:
        """List the shards; return whether a shard is closed, so that no records are added."""
        self._list()
        return any(one.id == shard and one.closed for one in self.listed)

    def _list(self) -> None:
        self.listed = list_shards(self._client)
        self._listed_at = self._clock.monotonic()
        seen = {shard.id for shard in self.listed}
        self._children = {k: v for k, v in self._children.items() if k not in seen}
        self._existing.clear()

    def _exists(self, shard: str) -> bool:
        """Return whether a shard exists; send at most one request per listing."""
        if shard not in self._existing | self._gone:
            exists = shard_exists(self._client, shard)
            (self._existing if exists else self._gone).add(shard)
        return shard in self._existing

    def _require_existing(self, progress: Progress) -> None:
        """Raise UserError if an unfinished shard no longer exists."""
        for split in unlisted(progress, self.listed_by_id().values()):
            if not self._exists(split.split):
                position = position_text(split.position)
                raise UserError(
                    f"shard {split.split} no longer exists, but was not read to its end",
                    code=Code.CANNOT_RESUME_ERR,
                    detail=f"The job is at {position}. Later records were trimmed.",
                    hint=_continue_hint("the other shards", shard=split.split, position="END"),
                )
