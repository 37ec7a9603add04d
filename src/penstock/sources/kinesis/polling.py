"""Poll a stream from the driver: which shards exist, and which have records.

A shard is polled only while no task reads it, with requests for one record. The chain of
iterators is kept between polls; the iterator that found records goes to the task.

Invariant: a shard that a listing lacks is gone only if the stream, asked for it by name, does
not know it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Event

from penstock.clock import Clock
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
from penstock.sources.kinesis.client import Kind, Patience, StreamClient, StreamError
from penstock.sources.kinesis.kind import KinesisOptions
from penstock.sources.kinesis.reading import Page, ShardPages, knows_shard, list_shards
from penstock.sources.kinesis.shards import (
    ListedShard,
    ShardMemory,
    ShardOutcome,
    ShardWork,
    childless,
    follow,
    forget,
    forgettable,
    named,
    readable,
    unknown_parents,
    unlisted,
    unlisted_yet,
)


@dataclass(slots=True, kw_only=True)
class ShardPoller:
    """One shard that may be read; used by one thread at a time."""

    shard: ListedShard
    position: Position
    pages: ShardPages
    memory: ShardMemory
    # Whether the stream still holds what the position names, or nothing was lost without it.
    proven: bool
    # Whether something waits, or the end; and the iterator that has found it.
    found: bool = False
    iterator: str | None = None
    caught_up: bool = False
    asked_at: float | None = None
    # When the driver or a task last had an answer.
    seen_at: float | None = None
    # Empty pages were met, but the tip was not.
    searching: bool = True
    # Why the service does not take the number that the position names.
    refused: StreamError | None = None

    def ask(self, retention: timedelta) -> None:
        """Send one request and remember what it says."""
        iterator: str | None = self._opened()
        page = self.pages.next(limit=1)
        if not self.proven:
            if self.refused is not None:
                self._require_behind(page, self.refused)
            elif isinstance(self.position, After) and self.position.sub is None:
                # It begins at the record that was taken, and not behind it.
                iterator = None
            if page.records or page.ended or not page.lag:
                self._prove(page, retention)
            if _names_taken(self.position, page):
                # The next request looks behind that record.
                return
        wants_what_is_left = isinstance(self.position, Horizon) and not self.memory.caught_up_at
        if page.records and not wants_what_is_left:
            self._loaded_until(_arrival(page.records[0].arrived_at))
        if page.records or page.ended:
            self.found, self.searching = True, False
            self.iterator = iterator
            # Whoever asks again finds the same.
            self.pages = self.pages.again(self.position, iterator=iterator)
        elif not page.lag:
            self._at_tip(page.at)
        # The distance is that of the page's end, and what it holds is not loaded yet.
        lag = page.lag or None if page.records else page.lag
        self.memory = replace(self.memory, lag=lag, at=page.at)

    def read(self, limits: ReadLimits) -> SplitRead:
        """Return the read of the shard from where it stands."""
        return SplitRead(
            id=self.shard.id,
            split=self.shard.id,
            begin=self.position,
            limits=limits,
            shown=self.shard.id,
            work=to_text(ShardWork(shard=self.shard, iterator=self.iterator)),
        )

    def passed(self, boundary: Position, *, run_began_at: datetime | None) -> bool:
        """Return whether everything that arrived before a time is loaded."""
        if not isinstance(boundary, AtTime):
            return False
        loaded_until = self.memory.caught_up_at
        of_this_run = boundary.at == run_began_at and self.caught_up
        return of_this_run or (loaded_until is not None and loaded_until >= boundary.at)

    def take(self, outcome: ShardOutcome, *, begun_at: datetime) -> None:
        """Go on behind what was committed."""
        moved = outcome.position != self.position
        self.position = outcome.position
        self.iterator = outcome.iterator
        self.pages = self.pages.again(outcome.position, iterator=outcome.iterator)
        # Of a page that was not taken whole there is more; behind one that was, there may be.
        self.found = outcome.lag is None or (bool(outcome.lag) and moved)
        self.searching = not self.found
        self.proven = True
        arrived_at = outcome.arrived_at
        if arrived_at is not None and arrived_at >= begun_at.timestamp():
            self.caught_up = True
        if arrived_at is not None:
            self._loaded_until(_arrival(arrived_at))
        if outcome.at is not None:
            self.memory = replace(self.memory, lag=outcome.lag, at=outcome.at)
        if outcome.at is not None and not outcome.lag:
            self._at_tip(outcome.at)

    def _at_tip(self, at: datetime) -> None:
        self.caught_up, self.searching, self.found = True, False, False
        # A closed shard may have been closed for long; its children hold what came since, and
        # what they are told by its report must not make that look loaded.
        if not self.shard.closed and not isinstance(self.position, End):
            self._loaded_until(at)

    def _loaded_until(self, at: datetime) -> None:
        known = self.memory.caught_up_at
        self.memory = replace(self.memory, caught_up_at=at if known is None else max(at, known))

    def _opened(self) -> str:
        """Open the pages; a number that the service refuses may be trimmed."""
        try:
            return self.pages.opened()
        except StreamError as error:
            named = _named(self.position)
            if self.proven or named is None or error.kind is not Kind.BAD_ARGUMENT:
                raise
            self.refused = error
            self.pages = self.pages.again(Horizon(), iterator=None)
            return self.pages.opened()

    def _require_behind(self, page: Page, refused: StreamError) -> None:
        """Require that all that is left of the shard lies behind a number that was refused."""
        named = int(_named(self.position) or 0)
        if any(int(record.sequence) <= named for record in page.records):
            raise refused

    def _prove(self, page: Page, retention: timedelta) -> None:
        """Require that nothing between the position and the page was lost."""
        self.proven = True
        if page.records and page.records[0].sequence == _named(self.position):
            return
        require_no_gap(self.position, self.memory, at=page.at, retention=retention)


def probe_of(position: Position) -> Position:
    """Answer where to ask first: at the record that a position names, to see it again."""
    named = _named(position)
    return position if named is None else At(value=named)


def needs_proof(position: Position, memory: ShardMemory) -> bool:
    """Tell whether what a position means may have been lost since it was stored."""
    return isinstance(position, At | After | AtTime) or memory.caught_up_at is not None


def _arrival(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def require_no_gap(
    position: Position, memory: ShardMemory, *, at: datetime, retention: timedelta
) -> None:
    """Refuse to go on where records may have been trimmed that nobody has read.

    The service says nothing about what it has trimmed. Nothing is lost if everything was loaded
    at a moment that lies within the retention, or if the position is such a moment itself.
    """
    safe = loaded_until(position, memory)
    oldest = at - retention
    if safe is not None and safe >= oldest:
        return
    told = f"{safe:%Y-%m-%d %H:%M:%S} UTC" if safe else "an unknown time"
    raise UserError(
        f"records of shard {memory.shard} may have been trimmed before they were read: all "
        f"that arrived until {told} was loaded, and the stream keeps nothing from before "
        f"{oldest:%Y-%m-%d %H:%M:%S} UTC",
        code=Code.CANNOT_RESUME_ERR,
        detail=f"The job stands at {position_text(position)}.",
        hint=way_on("what the shard still holds", shard=memory.shard, position="TRIM_HORIZON"),
    )


def loaded_until(position: Position, memory: ShardMemory) -> datetime | None:
    """Answer until when nothing is missing of what arrived; None where nobody knows.

    Whoever begins at a time wants nothing from before.
    """
    wanted_from = position.at if isinstance(position, AtTime) else None
    times = [at for at in (memory.caught_up_at, wanted_from) if at is not None]
    return max(times, default=None)


def way_on(what: str, *, shard: str, position: str) -> str:
    """Answer how a person lets a job go on from another position of one shard."""
    return (
        f"To go on with {what}, ALTER ROUTINE LOAD with "
        f"""'property.kinesis_positions' = '{{"{shard}": "{position}"}}', then RESUME it."""
    )


def _named(position: Position) -> str | None:
    return position.value if isinstance(position, At | After) else None


def _names_taken(position: Position, page: Page) -> bool:
    """Tell whether a page holds nothing but the record up to which all was taken."""
    return (
        isinstance(position, After)
        and position.sub is None
        and [record.sequence for record in page.records] == [position.value]
        and not page.ended
    )


LISTING_INTERVAL = timedelta(seconds=60)
_LATE_LISTINGS_MAX = 5
_LISTING_PAUSE = timedelta(seconds=1)


class ShardDirectory:
    """Knows which shards a stream has, as far as it was told."""

    def __init__(
        self,
        options: KinesisOptions,
        *,
        client: Callable[[], StreamClient],
        patience: Patience,
        clock: Clock,
        stop: Event,
    ) -> None:
        self._options = options
        self._client = client
        self._patience = patience
        self._clock = clock
        self._stop = stop
        self.listed: tuple[ListedShard, ...] = ()
        self._listed_at: float | None = None
        # Children that the end of a parent has told of.
        self._children: dict[str, ListedShard] = {}
        # Shards that the stream knew, or not, when it was asked for them by name.
        self._known: set[str] = set()
        self._gone: set[str] = set()

    def refresh(self, progress: Progress) -> Progress:
        """Complete progress, by a new listing if it is time; one that is late is repeated.

        Without its parents nobody knows whose turn a shard is, without its range of keys which
        parts of an aggregate are foreign, and without its children what comes after its end.
        """
        if self._listing_due():
            self._list()
        progress = self.completed(progress)
        self._require_known(progress)
        for _ in range(_LATE_LISTINGS_MAX):
            if not self._is_late(progress):
                break
            self._clock.wait(self._stop, _LISTING_PAUSE)
            self._list()
            progress = self.completed(progress)
        return progress

    def completed(self, progress: Progress) -> Progress:
        """Add what the stream has told of shards that progress does not know yet."""
        if self._options.pinned:
            return follow(progress, [s for s in self.listed if s.id in self._options.pinned])
        found = self._with_parents(follow(progress, self.listed_by_id().values()))
        missing = forgettable(found, self.listed)
        return forget(found, [name for name in missing if not self._is_known(name)])

    def listed_by_id(self) -> Mapping[str, ListedShard]:
        """Answer what is told of each shard."""
        return {shard.id: shard for shard in (*self._children.values(), *self.listed)}

    def add(self, child: ListedShard) -> None:
        """Take a shard of which the end of its parent has told."""
        self._children[child.id] = child

    def awaits_child(self, progress: Progress) -> bool:
        """Tell whether shards must follow on finished ones that no listing has shown yet."""
        return not self._options.pinned and bool(childless(progress, self.listed))

    def is_closed(self, shard: str) -> bool:
        """Ask the stream whether a shard takes no new records any more."""
        self._list()
        return any(one.id == shard and one.closed for one in self.listed)

    def _listing_due(self) -> bool:
        if self._listed_at is None:
            return True
        passed = self._clock.monotonic() - self._listed_at
        return passed >= LISTING_INTERVAL.total_seconds()

    def _list(self) -> None:
        client = self._client()
        page = self._options.page_shards_max
        self.listed = list_shards(client, client.access, self._patience, page=page)
        self._listed_at = self._clock.monotonic()
        seen = {shard.id for shard in self.listed}
        self._children = {k: v for k, v in self._children.items() if k not in seen}
        self._known.clear()

    def _is_late(self, progress: Progress) -> bool:
        """Tell whether a listing lacks what it must show sooner or later."""
        awaited = (*readable(progress), *unlisted_yet(progress))
        return bool(unlisted(awaited, self.listed_by_id().values())) or self.awaits_child(
            progress
        )

    def _with_parents(self, progress: Progress) -> Progress:
        """Add parents that no listing has shown, unless the stream has forgotten them."""
        known = tuple(
            named(parent) for parent in unknown_parents(progress) if self._is_known(parent)
        )
        return (*progress, *known)

    def _is_known(self, shard: str) -> bool:
        """Ask the stream whether it knows a shard, once for every listing."""
        if shard not in self._known | self._gone:
            known = knows_shard(self._client(), shard, patience=self._patience)
            (self._known if known else self._gone).add(shard)
        return shard in self._known

    def _require_known(self, progress: Progress) -> None:
        """Refuse to go on where a shard that was not read to its end is gone."""
        for split in unlisted(progress, self.listed_by_id().values()):
            if not self._is_known(split.split):
                stands_at = position_text(split.position)
                raise UserError(
                    f"shard {split.split} is gone, and was not read to its end",
                    code=Code.CANNOT_RESUME_ERR,
                    detail=f"The job stands at {stands_at}; the rest was trimmed.",
                    hint=way_on("the other shards", shard=split.split, position="END"),
                )
