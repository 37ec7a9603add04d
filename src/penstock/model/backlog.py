"""The backlog of a job: the data before a stored boundary in each split.

A job in backlog works for throughput. Otherwise it works for low latency. The boundaries are
fixed when a job is started, resumed or moved by a user. A split is finished when it reaches its
own boundary. The lag rule also puts a split in backlog while its lag is high. This rule does
not use boundaries.

Invariant: copies of a ``Backlog`` can be merged in any order. A split finishes each boundary at
most once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from penstock.model.split import Amount, Position, Progress, position_text

BOUNDARY, LAG, UPSTREAM = "boundary", "lag", "upstream"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitBacklog:
    """The backlog of one split; the job's progress stores the position of the split."""

    split: str
    # None: the split was found after the boundaries were fixed, or had no unread data then.
    boundary: Position | None = None
    finished_at: datetime | None = None
    # The epoch that reached the boundary; 0 if no epoch was needed.
    epoch: int = 0
    # How often the lag rule has switched ``lagging`` on or off. An odd number means on.
    lag_changes: int = 0
    # Whether the split was removed from the source.
    gone: bool = False

    @property
    def open(self) -> bool:
        """Whether the boundary is not reached yet."""
        return self.boundary is not None and self.finished_at is None

    @property
    def lagging(self) -> bool:
        """Whether the lag exceeded the high mark, and is not below the low mark yet."""
        return self.lag_changes % 2 == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The backlog of a job; ``armed`` counts how often the boundaries were fixed."""

    armed: int = 0
    fixed_at: datetime | None = None
    splits: tuple[SplitBacklog, ...] = ()

    @property
    def cause(self) -> str:
        """Why the job is in backlog; empty if it is not."""
        if any(split.open for split in self.splits):
            return BOUNDARY
        return LAG if any(split.lagging for split in self.splits) else ""


class LagUnit(StrEnum):
    """The unit of the marks of the lag rule."""

    ROWS = "rows"
    BYTES = "bytes"
    TIME = "time"

    def of(self, amount: Amount) -> float | None:
        """Return an amount in this unit; None if the source cannot measure it."""
        match self:
            case LagUnit.ROWS:
                return amount.rows
            case LagUnit.BYTES:
                return amount.size_bytes
            case LagUnit.TIME:
                return None if amount.lag is None else amount.lag.total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class LagMarks:
    """A split enters the backlog above the high mark, and leaves it below the low mark."""

    unit: LagUnit
    high: float
    low: float

    def lagging(self, amount: Amount, *, before: bool) -> bool:
        """Return whether a split lags.

        Return ``before`` if the lag is unknown or between the marks. An incomplete amount is a
        lower bound. Such an amount can exceed the high mark, but never counts as below the low
        mark.
        """
        found = self.unit.of(amount)
        if found is None:
            return before
        return found > self.high or (before and (found >= self.low or not amount.complete))


# Returns whether all records of a split before a position are committed.
Passed = Callable[[str, Position], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The state of the splits after a poll, or at the end of an epoch."""

    progress: Progress
    passed: Passed
    remaining: Mapping[str, Amount]
    at: datetime
    # The epoch that ended; 0 for a poll.
    epoch: int = 0


def fix_boundaries(record: Backlog, heads: Mapping[str, Position], found: Findings) -> Backlog:
    """Fix the boundaries at the heads; a split without unread data gets none."""
    lagging = {split.split: split.lag_changes for split in record.splits if split.lagging}
    ended = {split.split for split in found.progress if split.finished}
    waiting = {
        name: head
        for name, head in heads.items()
        if name not in ended and not found.passed(name, head)
    }
    splits = (
        SplitBacklog(split=name, boundary=waiting.get(name), lag_changes=lagging.get(name, 0))
        for name in sorted({*waiting, *lagging})
    )
    return Backlog(armed=record.armed + 1, fixed_at=found.at, splits=tuple(splits))


def review(record: Backlog, found: Findings, *, marks: LagMarks | None) -> Backlog:
    """Return the record after a poll, or after the commit of an epoch."""
    known = {split.split: split for split in record.splits}
    current = {split.split: split for split in found.progress}
    splits = []
    for name in sorted({*known, *current}):
        before, here = known.get(name, SplitBacklog(split=name)), current.get(name)
        ended = here is None or here.finished
        after = _with_lag(before, None if ended else found.remaining.get(name), marks)
        boundary = before.boundary if before.open else None
        if boundary is not None and (ended or found.passed(name, boundary)):
            gone = here is None
            after = replace(after, finished_at=found.at, epoch=found.epoch, gone=gone)
        if after.boundary is not None or after.lag_changes:
            splits.append(after)
    return replace(record, splits=tuple(splits))


def _with_lag(
    split: SplitBacklog, amount: Amount | None, marks: LagMarks | None
) -> SplitBacklog:
    """Apply the lag rule.

    A split does not lag if there is no rule, or if the split ended or was removed.
    """
    lagging = split.lagging and marks is not None and amount is not None
    if marks is not None and amount is not None:
        lagging = marks.lagging(amount, before=split.lagging)
    return replace(split, lag_changes=split.lag_changes + (lagging is not split.lagging))


def newly_finished(before: Backlog, after: Backlog) -> tuple[SplitBacklog, ...]:
    """Return the splits that reached their boundaries between two records."""
    # A fence contains the backlog of the newest epoch, whose boundaries can be stale.
    if after.armed < before.armed:
        return ()
    same = before.armed == after.armed
    done = {split.split for split in before.splits if same and split.finished_at is not None}
    return tuple(
        split
        for split in after.splits
        if split.finished_at is not None and split.split not in done
    )


def merge(one: Backlog, other: Backlog) -> Backlog:
    """Return the newer of two copies; combine two copies of the same boundaries."""
    if one.armed != other.armed:
        return max(one, other, key=lambda record: record.armed)
    splits = {split.split: split for split in one.splits}
    for split in other.splits:
        mine = splits.get(split.split)
        splits[split.split] = split if mine is None else _merged(mine, split)
    times = [at for at in (one.fixed_at, other.fixed_at) if at is not None]
    return Backlog(
        armed=one.armed,
        fixed_at=min(times, default=None),
        splits=tuple(splits[name] for name in sorted(splits)),
    )


def _merged(one: SplitBacklog, other: SplitBacklog) -> SplitBacklog:
    """Combine two copies; a finished split keeps its earliest finish time."""
    boundaries = [split.boundary for split in (one, other) if split.boundary is not None]
    finishes = [
        (split.finished_at, split.epoch)
        for split in (one, other)
        if split.finished_at is not None
    ]
    finished_at, epoch = min(finishes, default=(None, 0))
    return SplitBacklog(
        split=one.split,
        boundary=min(boundaries, key=position_text, default=None),
        finished_at=finished_at,
        epoch=epoch,
        lag_changes=max(one.lag_changes, other.lag_changes),
        gone=one.gone or other.gone,
    )
