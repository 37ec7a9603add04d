"""One stream: its state over time, its shards, and what changes them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from tests.servers.kinesis.refusal import in_use, missing
from tests.servers.kinesis.resharding import KeyRange, Merge, Split, Step, even_ranges
from tests.servers.kinesis.shard import Shard

HOUR_MS = 3_600_000


class StreamStatus(StrEnum):
    """What a stream is doing."""

    CREATING = "CREATING"
    ACTIVE = "ACTIVE"
    UPDATING = "UPDATING"
    DELETING = "DELETING"


class StaleListing(StrEnum):
    """How a listing may lag behind a reshard."""

    PARENT_OPEN = "parent_open"
    CHILDREN_MISSING = "children_missing"
    PARENT_OPEN_BESIDE_CHILDREN = "parent_open_beside_children"


@dataclass(slots=True, kw_only=True)
class Stream:
    """A stream; ``pass_time`` brings it to the present before anything is asked of it."""

    name: str
    arn: str
    created_ms: int
    ready_ms: int
    next_birth: Callable[[], int]
    record_bytes_max: int = 1024 * 1024
    mode: str = "PROVISIONED"
    status: StreamStatus = StreamStatus.CREATING
    retention_hours: int = 24
    # Tells the stream from an earlier one of the same name.
    birth: int = 0
    shards: list[Shard] = field(default_factory=list)
    # The shards that a late listing does not know of yet, while calls are left.
    stale_calls: int = 0
    stale_shape: StaleListing = StaleListing.PARENT_OPEN
    stale_from: int = 0
    _steps: list[Step] = field(default_factory=list)

    def begin(self, count: int) -> None:
        """Lay out the first shards."""
        self.birth = self.next_birth()
        for first, last in even_ranges(count):
            self._add(self.birth, self.created_ms, (first, last))

    def pass_time(self, now_ms: int) -> None:
        """Finish what should be finished by now."""
        if self.status in (StreamStatus.CREATING, StreamStatus.UPDATING):
            if now_ms < self.ready_ms:
                return
            for step in self._steps:
                self._take(step, self.ready_ms)
            self._steps.clear()
            self.status = StreamStatus.ACTIVE

    def deleted(self, now_ms: int) -> bool:
        """Answer whether its deletion has come to an end."""
        return self.status is StreamStatus.DELETING and now_ms >= self.ready_ms

    def trim(self, now_ms: int) -> None:
        """Forget what is older than the retention."""
        for shard in self.shards:
            shard.trim_before(now_ms - self.retention_hours * HOUR_MS)

    def reshard(self, steps: Iterable[Step], *, ready_ms: int, now_ms: int) -> None:
        """Change the shards, now or when it is time."""
        self.require_active()
        self.status = StreamStatus.UPDATING
        self.stale_from = len(self.shards)
        self._steps = list(steps)
        self.ready_ms = ready_ms
        self.pass_time(now_ms)

    def delete(self, *, ready_ms: int) -> None:
        """Begin to go away."""
        self.status = StreamStatus.DELETING
        self.ready_ms = ready_ms

    def require_active(self) -> None:
        """Refuse what only an active stream can do."""
        if self.status is not StreamStatus.ACTIVE:
            raise in_use(f"Stream {self.name} is {self.status}, not ACTIVE.")

    def require_readable(self) -> None:
        """Refuse what a stream that comes or goes cannot do."""
        if self.status in (StreamStatus.CREATING, StreamStatus.DELETING):
            raise missing(f"Stream {self.name} is {self.status} and has no records.")

    def listed(self) -> list[Shard]:
        """Answer the shards that still have something to read, or may get it."""
        if self.status is StreamStatus.CREATING:
            return []
        return [shard for shard in self.shards if not shard.gone]

    def open_shards(self) -> list[Shard]:
        """Answer the shards that take records, by their keys."""
        return sorted((s for s in self.shards if s.open), key=lambda s: s.first_key)

    def open_ranges(self) -> list[KeyRange]:
        """Answer the ranges of the open shards."""
        return [(shard.first_key, shard.last_key) for shard in self.open_shards()]

    def shard(self, shard_id: str) -> Shard:
        """Find a shard by its name."""
        for shard in self.listed():
            if shard.shard_id == shard_id:
                return shard
        raise missing(f"Shard {shard_id} in stream {self.name} does not exist.")

    def shard_of(self, hash_key: int) -> Shard:
        """Find the open shard that holds a key."""
        return next(s for s in self.shards if s.open and s.holds(hash_key))

    def children_of(self, shard: Shard) -> list[Shard]:
        """Answer the shards that took a closed one's place."""
        return [s for s in self.shards if shard.shard_id in s.parents]

    def _take(self, step: Step, now_ms: int) -> None:
        birth = self.next_birth()
        match step:
            case Split(at_key=key):
                parent = self.shard_of(key)
                parent.closed_ms = now_ms
                self._add(birth, now_ms, (parent.first_key, key - 1), parent)
                self._add(birth, now_ms, (key, parent.last_key), parent)
            case Merge(at_key=key):
                lower, upper = self.shard_of(key - 1), self.shard_of(key)
                lower.closed_ms = upper.closed_ms = now_ms
                self._add(birth, now_ms, (lower.first_key, upper.last_key), lower, upper)
            case _:
                assert_never(step)

    def _add(self, birth: int, born_ms: int, keys: KeyRange, *parents: Shard) -> None:
        self.shards.append(
            Shard(
                number=len(self.shards),
                birth=birth,
                born_ms=born_ms,
                first_key=keys[0],
                last_key=keys[1],
                parents=tuple(parent.shard_id for parent in parents),
            )
        )
