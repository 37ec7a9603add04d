"""Shards of a stream: what is told of them, what is read of them, where a reading ended."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from penstock.model.position import Horizon, Position, SplitProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedShard:
    """A shard as the stream tells of it."""

    id: str
    # The sequence number with which it begins; empty where a parent's end names its children.
    begins: str = ""
    parents: tuple[str, ...] = ()
    closed: bool = False
    # The first and the last hash key of its records.
    hash_keys: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How much of a shard an epoch takes; the record that crosses a limit is taken whole.

    Two requests for records lie at least ``interval`` apart, and so does the first from
    whatever was asked before.
    """

    records: int
    size_bytes: int
    duration: timedelta
    interval: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRead:
    """What one task reads of one shard: from a position to a limit, to the tip or the end."""

    shard: ListedShard
    begin: Position
    limits: ReadLimits
    # The one that has found something there; it may have expired meanwhile.
    iterator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOutcome:
    """Where a reading ended, and what the stream said then.

    ``behind``, ``at`` and ``iterator`` are those of a page that was taken whole; of one that
    was not, nobody knows.
    """

    position: Position
    behind: timedelta | None = None
    at: datetime | None = None
    iterator: str | None = None
    children: tuple[ListedShard, ...] = ()
    # When the last record that was taken had arrived, in seconds since 1970.
    arrived_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPart:
    """The part of a shard that a task has read."""

    shard: str
    begin: Position
    outcome: ShardOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """The newest report of a shard, by the service's clock."""

    shard: str
    # How old the oldest unread record was; None where nobody knows.
    behind: timedelta | None = None
    at: datetime | None = None
    # Everything that had arrived in the shard by then is loaded.
    caught_up_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReport:
    """What a job last heard about its stream; kept outside of epochs, the newest wins.

    An idle shard moves no position, but how long it has been idle decides whether anything can
    have been lost.
    """

    shards: tuple[ShardReport, ...] = ()
    # The shards that take no new records.
    closed: tuple[str, ...] = ()
    # For how long the stream keeps records.
    retention: timedelta | None = None
    # When the stream was made; one that was made again under its name is another.
    created_at: datetime | None = None


def report_behind_move(
    report: StreamReport,
    *,
    before: tuple[SplitProgress, ...],
    after: tuple[SplitProgress, ...],
) -> StreamReport:
    """Forget what was heard of shards that are read from elsewhere now, or are others.

    Whoever asks for the horizon takes what there is, whatever was before.
    """
    known = {split.split: split for split in before}
    stayed = {
        split.split
        for split in after
        if split.split in known
        and known[split.split].position == split.position
        and same_shard(known[split.split], split)
        and not isinstance(split.position, Horizon)
    }
    return replace(
        report,
        shards=tuple(one for one in report.shards if one.shard in stayed),
        closed=tuple(shard for shard in report.closed if shard in stayed),
        created_at=None,
    )


def same_shard(one: SplitProgress, other: SplitProgress) -> bool:
    """Tell whether two shards of a name are one, as far as it was told where they begin."""
    begins = {split.lineage.begins for split in (one, other) if split.lineage} - {""}
    return len(begins) <= 1
