"""Splits of a source: typed positions, progress, planned reads and task notes.

A split is one independently readable part of a source. Positions are typed; only the source
kind interprets the text inside a position. This module does not depend on any source kind.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """The position before the oldest record or item that the source retains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """The position at the first record that arrived at this time or later."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """The position at the named record, which has not been read yet."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """The position after the named record or item, which was read."""

    value: str
    # For a record with parts: the number of the last part that was read. None: all parts.
    sub: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The position after the last record that the split will ever have."""


Position = Horizon | AtTime | At | After | End


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitProgress:
    """The position of one split, and the floor that a user set."""

    split: str
    floor: Position
    position: Position
    records: int = 0
    # An id that changes if a split is recreated with the same name; empty if unknown.
    identity: str = ""
    # The splits that must be finished before this one is read.
    parents: tuple[str, ...] = ()
    # Number of the commit that last moved the split. State that a source stored before that
    # commit is ignored.
    placed: int = 0

    @property
    def finished(self) -> bool:
        """Whether the split was read to its end."""
        return isinstance(self.position, End)


Progress = tuple[SplitProgress, ...]


def same_split(one: SplitProgress, other: SplitProgress) -> bool:
    """Return whether two splits of one name are the same; an unknown identity matches all."""
    return len({one.identity, other.identity} - {""}) <= 1


def unmoved_splits(before: Progress, after: Progress) -> dict[str, SplitProgress]:
    """Return the splits that a commit did not move, by name, as they were before.

    A split at the horizon counts as moved, because the user requested all remaining records.
    """
    old = {split.split: split for split in before}
    return {
        split.split: old[split.split]
        for split in after
        if split.split in old
        and old[split.split].position == split.position
        and same_split(old[split.split], split)
        and not isinstance(split.position, Horizon)
    }


def mark_moved(number: int, *, before: Progress, after: Progress) -> Progress:
    """Set ``placed`` to a commit's number in all splits that the commit moved."""
    unmoved = unmoved_splits(before, after)
    return tuple(
        replace(split, placed=unmoved[split.split].placed if split.split in unmoved else number)
        for split in after
    )


class SplitState(StrEnum):
    """How far a job has read a split."""

    WAITING = "waiting"
    OPEN = "open"
    DRAINING = "draining"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Unread data; None where the source cannot measure it."""

    items: int | None = None
    rows: int | None = None
    size_bytes: int | None = None
    # Age of the oldest unread record.
    lag: timedelta | None = None
    # False if the source may have more data than this amount.
    complete: bool = True


def total_amount(amounts: Sequence[Amount]) -> Amount:
    """Return the sum of amounts; the lag is the longest one."""

    def added(values: Sequence[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    return Amount(
        items=added([amount.items for amount in amounts]),
        rows=added([amount.rows for amount in amounts]),
        size_bytes=added([amount.size_bytes for amount in amounts]),
        lag=max((amount.lag for amount in amounts if amount.lag is not None), default=None),
        complete=all(amount.complete for amount in amounts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitStatus:
    """Status of one split, in addition to its progress."""

    split: str
    state: SplitState = SplitState.OPEN
    remaining: Amount = Amount()
    seen_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """Limits of one read; the record that crosses a limit is read whole."""

    records: int
    size_bytes: int
    duration: timedelta
    # Minimum time between two requests.
    interval: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRead:
    """One planned unit of work of a task."""

    # Unique in the plan; the tasks must report every id exactly once.
    id: str
    split: str
    begin: Position
    # None: the end is found by reading.
    end: Position | None = None
    limits: ReadLimits | None = None
    size_bytes: int = 0
    # Name of the file, shard or partition in messages.
    shown: str = ""
    # Text that only the source kind reads.
    work: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCounts:
    """Counters of one read."""

    rows_read: int = 0
    rows_parsed: int = 0
    rows_skipped: int = 0
    rows_rejected: int = 0
    # Rejected rows that belong to another split.
    rows_foreign: int = 0
    # Rows that are older than the watermark.
    rows_late: int = 0
    # Files, records and bytes, if the plan does not contain the numbers.
    files: int = 0
    records: int = 0
    size_bytes: int = 0
    # Requests sent to the source.
    requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Report of one finished read, from the reading half of a task to the writing half."""

    read: str
    end: Position
    counts: ReadCounts
    # Text that only the source kind reads.
    result: str = ""


def position_text(position: Position) -> str:
    """Format a position: a keyword and its value."""
    match position:
        case Horizon():
            return "TRIM_HORIZON"
        case AtTime(at=at):
            return f"TIME {at.astimezone(UTC).isoformat(timespec='microseconds')}"
        case At(value=value):
            return f"AT {value}"
        case After(value=value, sub=None):
            return f"AFTER {value}"
        case After(value=value, sub=sub):
            return f"AFTER {value}/{sub}"
        case End():
            return "END"


def readable(progress: Progress, *, excluded: Collection[str] = ()) -> Progress:
    """Return the splits that can be read: unfinished, with every known parent finished."""
    finished = {split.split for split in progress if split.finished}
    known = {split.split for split in progress}
    return tuple(
        split
        for split in progress
        if split.split not in finished
        and split.split not in excluded
        and all(parent in finished or parent not in known for parent in split.parents)
    )
