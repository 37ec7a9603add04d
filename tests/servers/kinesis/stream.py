"""One stream: its status over time, its shards, and their changes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from tests.servers.kinesis.errors import in_use, not_found
from tests.servers.kinesis.resharding import KeyRange, Merge, Split, Step, even_ranges
from tests.servers.kinesis.shard import Shard

HOUR_MS = 3_600_000


class StreamStatus(StrEnum):
    """Status of a stream, as the service reports it."""

    CREATING = "CREATING"
    ACTIVE = "ACTIVE"
    UPDATING = "UPDATING"
    DELETING = "DELETING"


class StaleListing(StrEnum):
    """Kinds of stale listings after a reshard."""

    PARENT_OPEN = "parent_open"
    CHILDREN_MISSING = "children_missing"
    PARENT_OPEN_BESIDE_CHILDREN = "parent_open_beside_children"


@dataclass(slots=True, kw_only=True)
class Stream:
    """A stream; call ``advance_to`` with the current time before using it."""

    name: str
    arn: str
    created_ms: int
    ready_ms: int
    next_creation_second: Callable[[], int]
    record_bytes_max: int = 1024 * 1024
    mode: str = "PROVISIONED"
    status: StreamStatus = StreamStatus.CREATING
    retention_hours: int = 24
    # Differs from that of an earlier stream with the same name.
    creation_second: int = 0
    shards: list[Shard] = field(default_factory=list)
    # The next ``stale_calls`` listings omit the shards from ``stale_from`` on.
    stale_calls: int = 0
    stale_shape: StaleListing = StaleListing.PARENT_OPEN
    stale_from: int = 0
    _steps: list[Step] = field(default_factory=list)

    def create_shards(self, count: int) -> None:
        """Create the first shards."""
        self.creation_second = self.next_creation_second()
        for first, last in even_ranges(count):
            self._add(self.creation_second, self.created_ms, (first, last))

    def advance_to(self, now_ms: int) -> None:
        """Finish pending changes that are due."""
        if self.status in (StreamStatus.CREATING, StreamStatus.UPDATING):
            if now_ms < self.ready_ms:
                return
            for step in self._steps:
                self._apply(step, self.ready_ms)
            self._steps.clear()
            self.status = StreamStatus.ACTIVE

    def deleted(self, now_ms: int) -> bool:
        """Return whether the deletion is finished."""
        return self.status is StreamStatus.DELETING and now_ms >= self.ready_ms

    def trim(self, now_ms: int) -> None:
        """Delete records that are older than the retention."""
        for shard in self.shards:
            shard.trim_before(now_ms - self.retention_hours * HOUR_MS)

    def reshard(self, steps: Iterable[Step], *, ready_ms: int, now_ms: int) -> None:
        """Change the shards at ``ready_ms``, or now if that time has passed."""
        self.require_active()
        self.status = StreamStatus.UPDATING
        self.stale_from = len(self.shards)
        self._steps = list(steps)
        self.ready_ms = ready_ms
        self.advance_to(now_ms)

    def delete(self, *, ready_ms: int) -> None:
        """Start the deletion."""
        self.status = StreamStatus.DELETING
        self.ready_ms = ready_ms

    def require_active(self) -> None:
        """Raise ServiceError unless the stream is active."""
        if self.status is not StreamStatus.ACTIVE:
            raise in_use(f"Stream {self.name} is {self.status}, not ACTIVE.")

    def require_readable(self) -> None:
        """Raise ServiceError while the stream is being created or deleted."""
        if self.status in (StreamStatus.CREATING, StreamStatus.DELETING):
            raise not_found(f"Stream {self.name} is {self.status} and has no records.")

    def listed(self) -> list[Shard]:
        """Return the shards that are not deleted."""
        if self.status is StreamStatus.CREATING:
            return []
        return [shard for shard in self.shards if not shard.gone]

    def open_shards(self) -> list[Shard]:
        """Return the open shards, sorted by hash key."""
        return sorted((s for s in self.shards if s.open), key=lambda s: s.first_key)

    def open_ranges(self) -> list[KeyRange]:
        """Return the key ranges of the open shards."""
        return [(shard.first_key, shard.last_key) for shard in self.open_shards()]

    def shard(self, shard_id: str) -> Shard:
        """Return a shard by its id."""
        for shard in self.listed():
            if shard.shard_id == shard_id:
                return shard
        raise not_found(f"Shard {shard_id} in stream {self.name} does not exist.")

    def shard_of(self, hash_key: int) -> Shard:
        """Return the open shard that contains a hash key."""
        return next(s for s in self.shards if s.open and s.contains(hash_key))

    def children_of(self, shard: Shard) -> list[Shard]:
        """Return the children of a shard."""
        return [s for s in self.shards if shard.shard_id in s.parents]

    def _apply(self, step: Step, now_ms: int) -> None:
        creation_second = self.next_creation_second()
        match step:
            case Split(at_key=key):
                parent = self.shard_of(key)
                parent.closed_ms = now_ms
                self._add(creation_second, now_ms, (parent.first_key, key - 1), parent)
                self._add(creation_second, now_ms, (key, parent.last_key), parent)
            case Merge(at_key=key):
                lower, upper = self.shard_of(key - 1), self.shard_of(key)
                lower.closed_ms = upper.closed_ms = now_ms
                self._add(
                    creation_second, now_ms, (lower.first_key, upper.last_key), lower, upper
                )
            case _:
                assert_never(step)

    def _add(
        self, creation_second: int, created_ms: int, keys: KeyRange, *parents: Shard
    ) -> None:
        self.shards.append(
            Shard(
                number=len(self.shards),
                creation_second=creation_second,
                created_ms=created_ms,
                first_key=keys[0],
                last_key=keys[1],
                parents=tuple(parent.shard_id for parent in parents),
            )
        )
