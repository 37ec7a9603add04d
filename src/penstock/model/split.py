"""Splits of a source: typed positions, progress, and what was reported of shards."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """Before everything that the source still holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """At the first record that arrived at this moment or later."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """At the named record, which was not taken yet."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """Behind the named record or file, which was taken.

    Of a record that holds others, those up to the number ``sub`` were taken; None: all.
    """

    value: str
    sub: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Behind the last record that the split will ever have."""


Position = Horizon | AtTime | At | After | End


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """What tells a shard from one of the same name, and which shards it follows."""

    # The sequence number with which it began: a stream made again uses the names again.
    begins: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitProgress:
    """How far one split was read, and where a person said that reading begins."""

    split: str
    floor: Position
    position: Position
    # Of shards alone.
    lineage: Lineage | None = None
    records: int = 0


def further(one: Position, other: Position) -> Position:
    """Answer the position among files that lies further on, by the bytes of its key."""
    match one, other:
        case After(), After():
            return max(one, other, key=lambda position: position.value.encode())
        case After(), _:
            return one
        case _:
            return other


def lies_above(key: str, position: Position) -> bool:
    """Tell whether a key lies strictly behind a position among files."""
    return not isinstance(position, After) or key.encode() > position.value.encode()


def position_text(position: Position) -> str:
    """Write one position: a word, or a word and what it is about."""
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
