"""Shards of a stream: which ones a job follows, and what it remembers about them.

Parents are read before children, and each shard once, whatever is listed. A listing is not
atomic with a reshard: it may show a parent without its children, or children without their
parent. A shard that a listing lacks is therefore gone only if the stream does not know it when
asked by name. A shard that a listing shows is new only if it cannot have been read before.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from penstock.errors import Code, UserError
from penstock.model.codec import from_text, to_text
from penstock.model.split import Horizon, Position, Progress, SplitProgress, stayed_splits
from penstock.model.split import readable as readable_splits


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedShard:
    """A shard as the stream reports it."""

    id: str
    # Its starting sequence number; empty if only a parent's end has named the shard.
    begins: str = ""
    parents: tuple[str, ...] = ()
    closed: bool = False
    # The first and the last hash key of its records.
    hash_keys: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWork:
    """What one read of a shard needs, in addition to its position."""

    shard: ListedShard
    # The iterator that found records; it may have expired meanwhile.
    iterator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOutcome:
    """Where a read ended, and what the stream reported there.

    ``lag``, ``at`` and ``iterator`` are those of a page that was taken whole; None otherwise.
    """

    begin: Position
    position: Position
    lag: timedelta | None = None
    at: datetime | None = None
    iterator: str | None = None
    children: tuple[ListedShard, ...] = ()
    # Arrival of the last record that was taken, in seconds since 1970.
    arrived_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMemory:
    """The newest report of a shard, by the service's clock."""

    shard: str
    # Age of the oldest unread record; None if unknown.
    lag: timedelta | None = None
    at: datetime | None = None
    # Everything that had arrived in the shard by then is loaded.
    caught_up_at: datetime | None = None
    # The commit that had placed the shard; a later placement makes this obsolete.
    placed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMemory:
    """What a job last learned about its stream; stored outside of epochs, the newest wins.

    An idle shard moves no position, but how long it has been idle decides whether records can
    have been lost.
    """

    shards: tuple[ShardMemory, ...] = ()
    # The shards that take no new records.
    closed: tuple[str, ...] = ()
    # For how long the stream keeps records.
    retention: timedelta | None = None
    # When the stream was created; a stream recreated under its name is another one.
    created_at: datetime | None = None
    # The newest placement of any shard, also of one that was forgotten since.
    placed: int = 0


def remembered(text: str, progress: Progress) -> StreamMemory:
    """Read the memory of a job, without memory of older placements and of other shards."""
    memory = from_text(StreamMemory, text) if text else StreamMemory()
    placed = {split.split: split.placed for split in progress}
    moved = max(placed.values(), default=0) > memory.placed
    # A shard that no commit knows yet was never placed; a move forgets it.
    unknown = -1 if moved else 0
    kept = tuple(one for one in memory.shards if placed.get(one.shard, unknown) == one.placed)
    return replace(
        memory,
        shards=kept,
        # A shard that was placed later may be another one of the same name.
        closed=tuple(
            shard
            for shard in memory.closed
            if shard in placed and placed[shard] <= memory.placed
        ),
        created_at=None if moved else memory.created_at,
    )


def inherited(text: str, *, before: Progress, after: Progress) -> str:
    """Return the memory of the shards that another job continues at the same position."""
    memory = remembered(text, before)
    stayed = stayed_splits(before, after)
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
    """Return the progress of a shard before it is read."""
    return SplitProgress(
        split=shard.id,
        floor=position,
        position=position,
        identity=shard.begins,
        parents=shard.parents,
    )


def follow(progress: Progress, listed: Iterable[ListedShard]) -> Progress:
    """Add the shards that are new; they start at the horizon, after their parents.

    A shard with a known name and another first sequence number belongs to another stream.
    """
    known = {split.split: split for split in progress}
    newest = max(known, default="")
    for shard in sorted(listed, key=lambda shard: shard.id):
        found = known.get(shard.id)
        if found is not None:
            known[shard.id] = _identified(found, shard)
        elif shard.id > newest or any(parent in known for parent in shard.parents):
            known[shard.id] = split_of(shard, Horizon())
    return tuple(known.values())


def _identified(split: SplitProgress, shard: ListedShard) -> SplitProgress:
    """Require that a listed shard is the known one; add what only a listing reports."""
    if shard.begins and not split.identity:
        return replace(split, identity=shard.begins, parents=shard.parents)
    if shard.begins and shard.begins != split.identity:
        raise stream_changed(
            f"shard {shard.id} begins at {shard.begins} and not at {split.identity} any more"
        )
    return split


def stream_changed(message: str) -> UserError:
    """Return the error of a stream that is another one under the same name."""
    return UserError(
        message,
        code=Code.STREAM_CHANGED_ERR,
        detail="The stream was deleted and made again under the same name.",
        hint=(
            "What the old stream held and was not loaded is gone. To load the new one from "
            "its beginning, ALTER ROUTINE LOAD with 'property.kinesis_default_pos' = "
            "'TRIM_HORIZON', then RESUME it."
        ),
    )


def readable(progress: Progress) -> Progress:
    """Return the shards that may be read.

    A shard that no listing has shown is held back: one of its parents may be unfinished.
    """
    return readable_splits(
        progress, held_back={split.split for split in unlisted_yet(progress)}
    )


def unfinished_descendants(progress: Progress, shard: str) -> tuple[str, ...]:
    """Return the shards that continue a shard; an unfinished shard continues itself.

    A merged shard has several parents; it is visited once, however many paths lead to it.
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
    """Return the parents that no listing has shown; the stream must be asked for each.

    Those that it does not know any more were trimmed before the job began.
    """
    known = {split.split for split in progress}
    unfinished = (split for split in progress if not split.finished)
    named = {parent for split in unfinished for parent in split.parents}
    return tuple(sorted(named - known))


def unlisted_yet(progress: Progress) -> Progress:
    """Return the unfinished shards that are known by name only, as parents of others."""
    return tuple(
        split
        for split in progress
        if not split.finished and not split.identity and not split.parents
    )


def unlisted(progress: Progress, listed: Iterable[ListedShard]) -> Progress:
    """Return the unfinished shards that a listing lacks; the stream must be asked for each."""
    seen = {shard.id for shard in listed}
    return tuple(split for split in progress if split.split not in seen and not split.finished)


def childless(progress: Progress, listed: Iterable[ListedShard]) -> Progress:
    """Return the finished shards that a listing shows as closed, but without a child.

    The reshard that closes a shard creates its children, and the stream forgets it before
    them. A user may also place an open shard at END.
    """
    named = {parent for split in progress for parent in split.parents}
    closed = {shard.id for shard in listed if shard.closed}
    return tuple(
        split for split in progress if split.finished and split.split in closed - named
    )


def forgettable(progress: Progress, listed: Iterable[ListedShard]) -> tuple[str, ...]:
    """Return the finished shards that a listing lacks and that no child waits for.

    A shard stays until its children are known, so the newest shard is never forgotten: its
    name separates old shards from new ones.
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
