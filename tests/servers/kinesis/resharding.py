"""Steps that split and merge shards."""

from dataclasses import dataclass

from tests.servers.kinesis.errors import invalid_argument
from tests.servers.kinesis.shard import HASH_KEYS, Shard

KeyRange = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Split of the shard that contains a key; the key starts the upper half."""

    at_key: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Merge of the shard that ends before a key with the shard that starts at the key."""

    at_key: int


Step = Split | Merge


def even_ranges(count: int) -> list[KeyRange]:
    """Divide all hash keys into equal ranges; the last range includes the remainder."""
    width = HASH_KEYS // count
    firsts = [n * width for n in range(count)]
    lasts = [first - 1 for first in firsts[1:]] + [HASH_KEYS - 1]
    return list(zip(firsts, lasts, strict=True))


def split_step(shard: Shard, key: int) -> Split:
    """Return the split of a shard at a key; raise ServiceError if it is impossible."""
    if not shard.open:
        raise invalid_argument(f"Shard {shard.shard_id} is closed and cannot be split.")
    if not shard.first_key < key <= shard.last_key:
        raise invalid_argument(
            f"NewStartingHashKey {key} used in SplitShard() on shard {shard.shard_id} is not "
            f"both greater than one plus the shard's StartingHashKey {shard.first_key} and "
            f"less than the shard's EndingHashKey {shard.last_key}."
        )
    return Split(at_key=key)


def merge_step(one: Shard, other: Shard) -> Merge:
    """Return the merge of two shards; raise ServiceError unless they are adjacent."""
    if not (one.open and other.open):
        raise invalid_argument("Only open shards can be merged.")
    lower, upper = sorted((one, other), key=lambda shard: shard.first_key)
    if lower.last_key + 1 != upper.first_key:
        raise invalid_argument(f"Shards {one.shard_id} and {other.shard_id} are not adjacent.")
    return Merge(at_key=upper.first_key)


def even_steps(ranges: list[KeyRange], count: int) -> list[Step]:
    """Return the steps from open ranges to equal ranges: all splits, then all merges."""
    if not (len(ranges) + 1) // 2 <= count <= len(ranges) * 2:
        raise invalid_argument(
            f"TargetShardCount {count} must be between half and double of {len(ranges)}."
        )
    current = {first for first, _ in ranges}
    target = {first for first, _ in even_ranges(count)}
    splits: list[Step] = [Split(at_key=key) for key in sorted(target - current)]
    return splits + [Merge(at_key=key) for key in sorted(current - target)]
