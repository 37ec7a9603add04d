"""Shards that a job reads, and the job's memory of them.

Parents are read before children, and each shard is read once, even if a listing is stale. A
listing during a reshard may show a parent without its children, or children without their
parent. So a listing that lacks a shard does not prove that the shard is gone. The shard is gone
only if the service reports, for a request by name, that it does not exist. A listed shard is
new only if it cannot have been read before.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from penstock.errors import Code, UserError
from penstock.model.codec import from_text, to_text
from penstock.model.split import Horizon, Position, Progress, SplitProgress, unmoved_splits
from penstock.model.split import readable as readable_splits


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedShard:
    """A shard as the stream reports it."""

    id: str
    # Starting sequence number; empty if only the last page of a parent named the shard.
    first_sequence: str = ""
    parents: tuple[str, ...] = ()
    closed: bool = False
    # The first and the last hash key.
    hash_keys: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWork:
    """Data that a read of a shard needs in addition to its position."""

    shard: ListedShard
    # The iterator that found records. It may have expired since.
    iterator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOutcome:
    """End of a read, and the data that the stream reported there.

    ``lag``, ``at`` and ``iterator`` belong to the last page. They are None if that page was
    read only in part.
    """

    begin: Position
    position: Position
    lag: timedelta | None = None
    at: datetime | None = None
    iterator: str | None = None
    children: tuple[ListedShard, ...] = ()
    # Arrival of the last record that was read, in seconds since 1970.
    arrived_at: float | None = None

    @property
    def at_tip(self) -> bool:
        """Whether the shard had no further records at the end of the read."""
        return self.at is not None and not self.lag

    def passes(self, boundary: datetime) -> bool:
        """Return whether the read contains all records that arrived before a time."""
        if self.arrived_at is not None and self.arrived_at >= boundary.timestamp():
            return True
        return self.at is not None and self.at_tip and self.at >= boundary


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMemory:
    """Last known lag of a shard; times are of the service's clock."""

    shard: str
    # Age of the oldest unread record; None if unknown.
    lag: timedelta | None = None
    at: datetime | None = None
    # All records that arrived before this time are loaded.
    caught_up_at: datetime | None = None
    # The number of the last commit that moved the shard. Another move invalidates this memory.
    placed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMemory:
    """Last known facts about the stream of a job; stored outside of epochs, last write wins.

    The position of an idle shard does not change. Only this memory shows how long the shard
    has been idle, and thus whether records can have been lost.
    """

    shards: tuple[ShardMemory, ...] = ()
    # The closed shards.
    closed: tuple[str, ...] = ()
    # How long the stream retains records.
    retention: timedelta | None = None
    # Creation time of the stream. A recreated stream has the same name but another time.
    created_at: datetime | None = None
    # The number of the last commit that moved any shard, including shards removed since.
    placed: int = 0


def load_memory(text: str, progress: Progress) -> StreamMemory:
    """Read the memory of a job without shards that were moved or are not in progress."""
    memory = from_text(StreamMemory, text) if text else StreamMemory()
    placed = {split.split: split.placed for split in progress}
    moved = max(placed.values(), default=0) > memory.placed
    # Keep the memory of a shard that is not in progress yet, unless any shard was moved.
    unknown = -1 if moved else 0
    kept = tuple(one for one in memory.shards if placed.get(one.shard, unknown) == one.placed)
    return replace(
        memory,
        shards=kept,
        # A shard that was moved later may be a shard of another stream with the same name.
        closed=tuple(
            shard
            for shard in memory.closed
            if shard in placed and placed[shard] <= memory.placed
        ),
        created_at=None if moved else memory.created_at,
    )


def inherit_memory(text: str, *, before: Progress, after: Progress) -> str:
    """Return the memory for a job that continues shards at the same position."""
    memory = load_memory(text, before)
    stayed = unmoved_splits(before, after)
    placed = {split.split: split.placed for split in after}
    kept = (replace(m, placed=placed[m.shard]) for m in memory.shards if m.shard in stayed)
    return to_text(
        replace(
            memory,
            shards=tuple(kept),
            closed=tuple(shard for shard in memory.closed if shard in stayed),
            created_at=None,
            placed=max(placed.values(), default=0),
        )
    )


def split_of(shard: ListedShard, position: Position) -> SplitProgress:
    """Return the progress of an unread shard that starts at a position."""
    return SplitProgress(
        split=shard.id,
        floor=position,
        position=position,
        identity=shard.first_sequence,
        parents=shard.parents,
    )


def add_new_shards(progress: Progress, listed: Iterable[ListedShard]) -> Progress:
    """Add new shards to progress; they start at the horizon, after their parents.

    Raise UserError if a known shard has another first sequence number, because it then
    belongs to another stream.
    """
    known = {split.split: split for split in progress}
    newest = max(known, default="")
    for shard in sorted(listed, key=lambda shard: shard.id):
        found = known.get(shard.id)
        if found is not None:
            known[shard.id] = _same_shard(found, shard)
        elif shard.id > newest or any(parent in known for parent in shard.parents):
            known[shard.id] = split_of(shard, Horizon())
    return tuple(known.values())


def _same_shard(split: SplitProgress, shard: ListedShard) -> SplitProgress:
    """Return a shard's progress with listed data; raise UserError for another shard."""
    if shard.first_sequence and not split.identity:
        return replace(split, identity=shard.first_sequence, parents=shard.parents)
    if shard.first_sequence and shard.first_sequence != split.identity:
        raise stream_changed(
            f"shard {shard.id} starts at {shard.first_sequence}, "
            f"but started at {split.identity} before"
        )
    return split


def stream_changed(message: str) -> UserError:
    """Return the error for a stream that was recreated under the same name."""
    return UserError(
        message,
        code=Code.STREAM_CHANGED_ERR,
        detail="The stream was deleted and created again under the same name.",
        hint=(
            "Unread records of the old stream are lost. To load the new stream from its first "
            "record, run ALTER ROUTINE LOAD with 'property.kinesis_default_pos' = "
            "'TRIM_HORIZON', then RESUME it."
        ),
    )


def readable(progress: Progress) -> Progress:
    """Return the shards that can be read now.

    A shard that no listing has shown must wait, because one of its parents may be unfinished.
    """
    return readable_splits(
        progress, excluded={split.split for split in known_by_name_only(progress)}
    )


def unfinished_descendants(progress: Progress, shard: str) -> tuple[str, ...]:
    """Return the unfinished descendants of a shard, or the shard itself if unfinished.

    A merged shard has two parents. It is visited once, although several paths lead to it.
    """
    by_id = {split.split: split for split in progress}
    children: dict[str, list[str]] = {}
    for split in progress:
        for parent in split.parents:
            children.setdefault(parent, []).append(split.split)
    found: list[str] = []
    seen, waiting = {shard}, [shard]
    while waiting:
        name = waiting.pop()
        known = by_id.get(name)
        if known is not None and not known.finished:
            found.append(name)
            continue
        new = [child for child in children.get(name, ()) if child not in seen]
        seen.update(new)
        waiting += new
    return tuple(found)


def unknown_parents(progress: Progress) -> tuple[str, ...]:
    """Return the parents that no listing has shown; each needs a request by name.

    Parents that no longer exist were trimmed before the job started.
    """
    known = {split.split for split in progress}
    unfinished = (split for split in progress if not split.finished)
    named = {parent for split in unfinished for parent in split.parents}
    return tuple(sorted(named - known))


def known_by_name_only(progress: Progress) -> Progress:
    """Return the unfinished shards that are known only as parents of other shards."""
    return tuple(
        split
        for split in progress
        if not split.finished and not split.identity and not split.parents
    )


def unlisted(progress: Progress, listed: Iterable[ListedShard]) -> Progress:
    """Return the unfinished shards that a listing lacks; each needs a request by name."""
    seen = {shard.id for shard in listed}
    return tuple(split for split in progress if split.split not in seen and not split.finished)


def childless(progress: Progress, listed: Iterable[ListedShard]) -> Progress:
    """Return the finished shards that are listed as closed, but have no child in progress.

    The reshard that closes a shard creates its children, and the stream deletes the shard
    before its children. A finished shard is not always closed: a user may set it to END.
    """
    named = {parent for split in progress for parent in split.parents}
    closed = {shard.id for shard in listed if shard.closed}
    return tuple(
        split for split in progress if split.finished and split.split in closed - named
    )


def removable(progress: Progress, listed: Iterable[ListedShard]) -> tuple[str, ...]:
    """Return the finished shards that a listing lacks and that no child waits for.

    A shard stays in progress until its children are known. The newest shard is therefore
    never removed. Its name separates old shards from new shards.
    """
    seen = {shard.id for shard in listed}
    named = {parent for split in progress for parent in split.parents}
    waited_for = {
        parent for split in progress if not split.finished for parent in split.parents
    }
    return tuple(
        split.split
        for split in progress
        if split.finished and split.split in named - waited_for - seen
    )
