"""Splits of a source: typed positions, progress, planned reads and task notes.

A split is one independently readable part of a source. Positions are typed; the text inside
one belongs to the source kind. This module knows no kind.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """Before everything that the source still holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """At the first record that arrived at this time or later."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """At the named record, which was not read yet."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """After the named record or item, which was read."""

    value: str
    # Number of the last part that was read of a record with parts; None: all.
    sub: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """After the last record that the split will ever have."""


Position = Horizon | AtTime | At | After | End


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitProgress:
    """How far one split was read, and the floor that a person set."""

    split: str
    floor: Position
    position: Position
    records: int = 0
    # Differs when a split of the same name was recreated; empty while unknown.
    identity: str = ""
    # The splits that must be finished before this one is read.
    parents: tuple[str, ...] = ()
    # Number of the commit that last placed the split. What a source remembers of an older
    # placement is ignored.
    placed: int = 0

    @property
    def finished(self) -> bool:
        """Whether the split was read to its end."""
        return isinstance(self.position, End)


Progress = tuple[SplitProgress, ...]


def same_split(one: SplitProgress, other: SplitProgress) -> bool:
    """Return whether two splits of one name are the same, as far as their identity is known."""
    return len({one.identity, other.identity} - {""}) <= 1


def stayed_splits(before: Progress, after: Progress) -> dict[str, SplitProgress]:
    """Return the splits by name that were not placed anew, as they were before.

    A split at the horizon counts as placed: the person asked for everything that is left.
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


def placed_at(number: int, *, before: Progress, after: Progress) -> Progress:
    """Mark the splits that a commit placed anew; the others keep their mark."""
    stayed = stayed_splits(before, after)
    return tuple(
        replace(split, placed=stayed[split.split].placed if split.split in stayed else number)
        for split in after
    )


class SplitState(StrEnum):
    """Where a job is with a split."""

    WAITING = "waiting"
    OPEN = "open"
    DRAINING = "draining"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How much waits; None where the source cannot measure it."""

    items: int | None = None
    rows: int | None = None
    size_bytes: int | None = None
    # Age of the oldest unread record.
    lag: timedelta | None = None
    # Whether this is everything that the last poll could see.
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitStatus:
    """What is known of one split beside its progress."""

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
    # Shortest time between two requests.
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
    # Text of the source kind; nothing else reads it.
    work: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCounts:
    """What one read counted."""

    rows_read: int = 0
    rows_parsed: int = 0
    rows_skipped: int = 0
    rows_rejected: int = 0
    # Rejected rows that belong to another split.
    rows_foreign: int = 0
    # Records and bytes of a source whose plans do not know them in advance.
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
    # Text of the source kind; nothing else reads it.
    result: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitBacklog:
    """The boundary of one split's backlog, and whether it was reached."""

    split: str
    boundary: Position
    finished_at: datetime | None = None
    epoch: int = 0
    lagging: bool = False
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The backlog of a job; ``armed`` counts how often the boundaries were fixed."""

    armed: int = 0
    splits: tuple[SplitBacklog, ...] = ()


def position_text(position: Position) -> str:
    """Write one position: a word, and the value that it is about."""
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


def readable(progress: Progress, *, held_back: Collection[str] = ()) -> Progress:
    """Return the splits that may be read: unfinished, with every known parent finished."""
    finished = {split.split for split in progress if split.finished}
    known = {split.split for split in progress}
    return tuple(
        split
        for split in progress
        if split.split not in finished
        and split.split not in held_back
        and all(parent in finished or parent not in known for parent in split.parents)
    )
