"""Limits of AWS for one shard and for one account.

A refused call does not count.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field

from tests.servers.kinesis.errors import limit_exceeded, throughput_exceeded

READS_PER_SECOND = 5
ITERATORS_PER_SECOND = 5
READ_BYTES_PER_SECOND = 2 * 1024 * 1024
# Calls per second of an account; ListShards is limited per stream.
CONTROL_CALLS_PER_SECOND = {
    "CreateStream": 5,
    "DeleteStream": 5,
    "DescribeStream": 10,
    "DescribeStreamSummary": 20,
    "ListShards": 1000,
    "ListStreams": 5,
    "MergeShards": 5,
    "SplitShard": 5,
}
_SECOND_MS = 1000


@dataclass(slots=True)
class Window:
    """The calls of the last second."""

    _calls_ms: deque[int] = field(default_factory=deque)

    def count(self, now_ms: int, calls_max: int) -> bool:
        """Count a call; return False if the limit is reached."""
        while self._calls_ms and self._calls_ms[0] <= now_ms - _SECOND_MS:
            self._calls_ms.popleft()
        if len(self._calls_ms) >= calls_max:
            return False
        self._calls_ms.append(now_ms)
        return True


@dataclass(slots=True)
class Volume:
    """Bytes that were read faster than the limit allows; they decrease with time."""

    _excess_bytes: float = 0.0
    _counted_ms: int = 0
    _blocked_until_ms: float = 0.0

    def available(self, now_ms: int) -> bool:
        """Return whether more bytes can be read now."""
        return now_ms >= self._blocked_until_ms

    def count(self, now_ms: int, size_bytes: int) -> None:
        """Count the bytes of a response; block further reads if they exceed the limit."""
        allowed = (now_ms - self._counted_ms) / _SECOND_MS * READ_BYTES_PER_SECOND
        self._excess_bytes = max(0.0, self._excess_bytes - allowed) + size_bytes
        self._counted_ms = now_ms
        if self._excess_bytes > READ_BYTES_PER_SECOND:
            seconds = self._excess_bytes / READ_BYTES_PER_SECOND
            self._blocked_until_ms = now_ms + seconds * _SECOND_MS


@dataclass(slots=True)
class Limits:
    """Calls and bytes of all shards and of the account."""

    _reads: dict[str, Window] = field(default_factory=lambda: defaultdict(Window))
    _volumes: dict[str, Volume] = field(default_factory=lambda: defaultdict(Volume))
    _iterators: dict[str, Window] = field(default_factory=lambda: defaultdict(Window))
    _control: dict[str, Window] = field(default_factory=lambda: defaultdict(Window))

    def require_read(self, shard: str, now_ms: int) -> None:
        """Raise ServiceError if a shard has too many reads or too many bytes per second."""
        if not self._volumes[shard].available(now_ms):
            raise throughput_exceeded(f"Rate exceeded for shard {shard}: 2 MiB per second.")
        if not self._reads[shard].count(now_ms, READS_PER_SECOND):
            raise throughput_exceeded(
                f"Rate exceeded for shard {shard}: 5 GetRecords per second."
            )

    def count_read(self, shard: str, now_ms: int, size_bytes: int) -> None:
        """Count the bytes of a response."""
        self._volumes[shard].count(now_ms, size_bytes)

    def require_iterator(self, shard: str, now_ms: int) -> None:
        """Raise ServiceError if a shard has too many new iterators per second."""
        if not self._iterators[shard].count(now_ms, ITERATORS_PER_SECOND):
            raise throughput_exceeded(
                f"Rate exceeded for shard {shard}: 5 GetShardIterator per second."
            )

    def require_control(self, subject: str, now_ms: int, calls_max: int) -> None:
        """Raise ServiceError if there are too many calls per second of ``subject``."""
        if not self._control[subject].count(now_ms, calls_max):
            raise limit_exceeded(f"Rate exceeded for {subject}: {calls_max} per second.")
