"""What the driver knows of a shard between epochs, found out with requests for one record.

A shard is asked only while no task reads it. The chain of iterators is kept from one question
to the next; the one that found something goes to the task.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from penstock.errors import Code, UserError
from penstock.model.split import (
    After,
    At,
    AtTime,
    End,
    Horizon,
    ListedShard,
    Position,
    ShardOutcome,
    ShardReport,
    position_text,
)
from penstock.sources.kinesis.client import Kind, StreamError
from penstock.sources.kinesis.pages import Page, ShardPages


@dataclass(slots=True, kw_only=True)
class Watch:
    """One shard that may be read; used by one thread at a time."""

    shard: ListedShard
    position: Position
    pages: ShardPages
    report: ShardReport
    # Whether the stream still holds what the position names, or nothing was lost without it.
    proven: bool
    # Whether something waits, or the end; and the iterator that has found it.
    found: bool = False
    iterator: str | None = None
    caught_up: bool = False
    asked_at: float | None = None
    # When the driver or a task last had an answer.
    heard_at: float | None = None
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
            if page.records or page.ended or not page.behind:
                self._prove(page, retention)
            if _names_taken(self.position, page):
                # The next request looks behind that record.
                return
        wants_what_is_left = isinstance(self.position, Horizon) and not self.report.caught_up_at
        if page.records and not wants_what_is_left:
            self._loaded_until(_arrival(page.records[0].arrived_at))
        if page.records or page.ended:
            self.found, self.searching = True, False
            self.iterator = iterator
            # Whoever asks again finds the same.
            self.pages = self.pages.again(self.position, iterator=iterator)
        elif not page.behind:
            self._at_tip(page.at)
        # The distance is that of the page's end, and what it holds is not loaded yet.
        behind = page.behind or None if page.records else page.behind
        self.report = replace(self.report, behind=behind, at=page.at)

    def take(self, outcome: ShardOutcome, *, begun_at: datetime) -> None:
        """Go on behind what was committed."""
        moved = outcome.position != self.position
        self.position = outcome.position
        self.iterator = outcome.iterator
        self.pages = self.pages.again(outcome.position, iterator=outcome.iterator)
        # Of a page that was not taken whole there is more; behind one that was, there may be.
        self.found = outcome.behind is None or (bool(outcome.behind) and moved)
        self.searching = not self.found
        self.proven = True
        arrived_at = outcome.arrived_at
        if arrived_at is not None and arrived_at >= begun_at.timestamp():
            self.caught_up = True
        if arrived_at is not None:
            self._loaded_until(_arrival(arrived_at))
        if outcome.at is not None:
            self.report = replace(self.report, behind=outcome.behind, at=outcome.at)
        if outcome.at is not None and not outcome.behind:
            self._at_tip(outcome.at)

    def _at_tip(self, at: datetime) -> None:
        self.caught_up, self.searching, self.found = True, False, False
        # A closed shard may have been closed for long; its children hold what came since, and
        # what they are told by its report must not make that look loaded.
        if not self.shard.closed and not isinstance(self.position, End):
            self._loaded_until(at)

    def _loaded_until(self, at: datetime) -> None:
        known = self.report.caught_up_at
        self.report = replace(self.report, caught_up_at=at if known is None else max(at, known))

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
        require_no_gap(self.position, self.report, at=page.at, retention=retention)


def probe_of(position: Position) -> Position:
    """Answer where to ask first: at the record that a position names, to see it again."""
    named = _named(position)
    return position if named is None else At(value=named)


def needs_proof(position: Position, report: ShardReport) -> bool:
    """Tell whether what a position means may have been lost since it was stored."""
    return isinstance(position, At | After | AtTime) or report.caught_up_at is not None


def _arrival(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def require_no_gap(
    position: Position, report: ShardReport, *, at: datetime, retention: timedelta
) -> None:
    """Refuse to go on where records may have been trimmed that nobody has read.

    The service says nothing about what it has trimmed. Nothing is lost if everything was loaded
    at a moment that lies within the retention, or if the position is such a moment itself.
    """
    safe = loaded_until(position, report)
    oldest = at - retention
    if safe is not None and safe >= oldest:
        return
    told = f"{safe:%Y-%m-%d %H:%M:%S} UTC" if safe else "an unknown time"
    raise UserError(
        f"records of shard {report.shard} may have been trimmed before they were read: all "
        f"that arrived until {told} was loaded, and the stream keeps nothing from before "
        f"{oldest:%Y-%m-%d %H:%M:%S} UTC",
        code=Code.CANNOT_RESUME_ERR,
        detail=f"The job stands at {position_text(position)}.",
        hint=way_on("what the shard still holds", shard=report.shard, position="TRIM_HORIZON"),
    )


def loaded_until(position: Position, report: ShardReport) -> datetime | None:
    """Answer until when nothing is missing of what arrived; None where nobody knows.

    Whoever begins at a time wants nothing from before.
    """
    wanted_from = position.at if isinstance(position, AtTime) else None
    times = [at for at in (report.caught_up_at, wanted_from) if at is not None]
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
