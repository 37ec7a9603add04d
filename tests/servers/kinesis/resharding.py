"""Splitting and merging: which shards close, and which begin in their place."""

from dataclasses import dataclass

from tests.servers.kinesis.refusal import invalid
from tests.servers.kinesis.shard import HASH_KEYS, Shard

KeyRange = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Cut the shard that holds a key before it."""

    at_key: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Join the shard that ends before a key with the one that begins there."""

    at_key: int


Step = Split | Merge


def even_ranges(count: int) -> list[KeyRange]:
    """Cut all hash keys into equal ranges; the last one takes the rest."""
    width = HASH_KEYS // count
    firsts = [n * width for n in range(count)]
    lasts = [first - 1 for first in firsts[1:]] + [HASH_KEYS - 1]
    return list(zip(firsts, lasts, strict=True))


def split_step(shard: Shard, key: int) -> Split:
    """Check that a shard can be cut before a key."""
    if not shard.open:
        raise invalid(f"Shard {shard.shard_id} is closed and cannot be split.")
    if not shard.first_key < key <= shard.last_key:
        raise invalid(
            f"NewStartingHashKey {key} used in SplitShard() on shard {shard.shard_id} is not "
            f"both greater than one plus the shard's StartingHashKey {shard.first_key} and "
            f"less than the shard's EndingHashKey {shard.last_key}."
        )
    return Split(at_key=key)


def merge_step(one: Shard, other: Shard) -> Merge:
    """Check that two shards lie side by side."""
    if not (one.open and other.open):
        raise invalid("Only open shards can be merged.")
    lower, upper = sorted((one, other), key=lambda shard: shard.first_key)
    if lower.last_key + 1 != upper.first_key:
        raise invalid(f"Shards {one.shard_id} and {other.shard_id} are not adjacent.")
    return Merge(at_key=upper.first_key)


def even_steps(ranges: list[KeyRange], count: int) -> list[Step]:
    """Answer the steps from open ranges to equal ones: first all cuts, then all joins."""
    if not (len(ranges) + 1) // 2 <= count <= len(ranges) * 2:
        raise invalid(
            f"TargetShardCount {count} must be between half and double of {len(ranges)}."
        )
    now = {first for first, _ in ranges}
    wanted = {first for first, _ in even_ranges(count)}
    cuts: list[Step] = [Split(at_key=key) for key in sorted(wanted - now)]
    return cuts + [Merge(at_key=key) for key in sorted(now - wanted)]
