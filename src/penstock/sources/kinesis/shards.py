"""Which shards a job follows: parents before children, each shard once, whatever is listed.

A listing is not atomic with a reshard: it may show a parent without its children, or children
without their parent. So what a listing lacks says nothing, unless the stream does not know the
shard when it is asked for it by name; and a shard that a listing shows is new only if it cannot
be one that was read before.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum

from penstock.errors import Code, UserError
from penstock.model.split import End, Horizon, Lineage, ListedShard, Position, SplitProgress

Progress = tuple[SplitProgress, ...]


class ShardState(StrEnum):
    """Where a job is with a shard."""

    WAITING = "waiting"
    OPEN = "open"
    DRAINING = "draining"
    FINISHED = "finished"


def begin(listed: Iterable[ListedShard], position: Position) -> Progress:
    """Answer the shards that a new job follows: all that are listed, closed ones too."""
    return tuple(
        replace(_new(shard), floor=position, position=position)
        for shard in sorted(listed, key=lambda shard: shard.id)
    )


def follow(progress: Progress, listed: Iterable[ListedShard]) -> Progress:
    """Add the shards that are new; they begin at the horizon, once their parents are finished.

    A shard of a known name that began elsewhere belongs to another stream.
    """
    known = {split.split: split for split in progress}
    newest = max(known, default="")
    for shard in sorted(listed, key=lambda shard: shard.id):
        found = known.get(shard.id)
        if found is not None:
            known[shard.id] = _same(found, shard)
        elif shard.id > newest or any(parent in known for parent in shard.parents):
            known[shard.id] = _new(shard)
    return tuple(known.values())


def named(shard: str) -> SplitProgress:
    """Answer a shard of which nothing but its name is known."""
    return SplitProgress(split=shard, floor=Horizon(), position=Horizon())


def _new(shard: ListedShard) -> SplitProgress:
    lineage = Lineage(begins=shard.begins, parents=shard.parents)
    return SplitProgress(split=shard.id, floor=Horizon(), position=Horizon(), lineage=lineage)


def _same(split: SplitProgress, shard: ListedShard) -> SplitProgress:
    """Require that a listed shard is the known one; complete what only a listing tells."""
    lineage = split.lineage or Lineage(begins="")
    if shard.begins and not lineage.begins:
        return replace(split, lineage=Lineage(begins=shard.begins, parents=shard.parents))
    if shard.begins and shard.begins != lineage.begins:
        raise stream_changed(
            f"shard {shard.id} begins at {shard.begins} and not at {lineage.begins} any more"
        )
    return split


def stream_changed(message: str) -> UserError:
    """Answer the error of a stream that is another one under the same name."""
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
    """Answer the shards that may be read: unfinished, with every known parent finished.

    One of which no listing has told may have a parent that is not.
    """
    finished = {split.split for split in progress if isinstance(split.position, End)}
    known = {split.split for split in progress}
    held_back = finished | {split.split for split in untold(progress)}
    return tuple(
        split
        for split in progress
        if split.split not in held_back
        and all(parent in finished or parent not in known for parent in parents_of(split))
    )


def states(progress: Progress, *, closed: Collection[str]) -> Mapping[str, ShardState]:
    """Answer where a job is with each of its shards, of which some take no new records."""
    may_be_read = {split.split for split in readable(progress)}
    return {split.split: _state(split, may_be_read, closed) for split in progress}


def _state(
    split: SplitProgress, may_be_read: Collection[str], closed: Collection[str]
) -> ShardState:
    if isinstance(split.position, End):
        return ShardState.FINISHED
    if split.split not in may_be_read:
        return ShardState.WAITING
    return ShardState.DRAINING if split.split in closed else ShardState.OPEN


def unknown_parents(progress: Progress) -> tuple[str, ...]:
    """Answer the parents that no listing has shown; the stream must be asked for each.

    Those that it does not know any more were trimmed before the job began.
    """
    known = {split.split for split in progress}
    unfinished = (split for split in progress if not isinstance(split.position, End))
    named = {parent for split in unfinished for parent in parents_of(split)}
    return tuple(sorted(named - known))


def untold(progress: Progress) -> Progress:
    """Answer the unfinished shards that are known by name only, as parents of others."""
    return tuple(
        split
        for split in progress
        if not isinstance(split.position, End) and split.lineage is None
    )


def unlisted(progress: Progress, listed: Iterable[ListedShard]) -> Progress:
    """Answer the unfinished shards that a listing lacks; the stream must be asked for each."""
    seen = {shard.id for shard in listed}
    return tuple(
        split
        for split in progress
        if split.split not in seen and not isinstance(split.position, End)
    )


def childless(progress: Progress, listed: Iterable[ListedShard]) -> Progress:
    """Answer the finished shards that a listing shows as closed, but without a child.

    A shard is closed by what makes its children, and is forgotten before them. A person may
    also have said END of one that is open.
    """
    named = {parent for split in progress for parent in parents_of(split)}
    closed = {shard.id for shard in listed if shard.closed}
    return tuple(
        split
        for split in progress
        if isinstance(split.position, End) and split.split in closed - named
    )


def forgettable(progress: Progress, listed: Iterable[ListedShard]) -> tuple[str, ...]:
    """Answer the finished shards that a listing lacks and that nobody waits for.

    One stays until its children are known, so that the newest of all is never forgotten: by its
    name old shards are told from new ones.
    """
    seen = {shard.id for shard in listed}
    named = {parent for split in progress for parent in parents_of(split)}
    waited_for = {
        parent
        for split in progress
        if not isinstance(split.position, End)
        for parent in parents_of(split)
    }
    return tuple(
        split.split
        for split in progress
        if isinstance(split.position, End) and split.split in named - waited_for - seen
    )


def forget(progress: Progress, gone: Collection[str]) -> Progress:
    """Leave out shards that the stream does not know any more."""
    return tuple(split for split in progress if split.split not in gone)


def parents_of(split: SplitProgress) -> tuple[str, ...]:
    """Answer the shards that must be read before a shard, as far as they were told."""
    return split.lineage.parents if split.lineage else ()
