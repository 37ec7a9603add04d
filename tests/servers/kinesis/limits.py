"""How much AWS lets one shard, or one account, be asked.

A call that is refused does not count.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field

from tests.servers.kinesis.refusal import throttled, too_many_calls

READS_PER_SECOND = 5
ITERATORS_PER_SECOND = 5
READ_BYTES_PER_SECOND = 2 * 1024 * 1024
# What an account may ask per second; ListShards counts by stream.
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

    def take(self, now_ms: int, calls_max: int) -> bool:
        """Count a call; answer whether there was room for it."""
        while self._calls_ms and self._calls_ms[0] <= now_ms - _SECOND_MS:
            self._calls_ms.popleft()
        if len(self._calls_ms) >= calls_max:
            return False
        self._calls_ms.append(now_ms)
        return True


@dataclass(slots=True)
class Volume:
    """The bytes that were read and not yet paid with time."""

    _debt_bytes: float = 0.0
    _counted_ms: int = 0
    _blocked_until_ms: float = 0.0

    def free(self, now_ms: int) -> bool:
        """Answer whether more may be read."""
        return now_ms >= self._blocked_until_ms

    def take(self, now_ms: int, size_bytes: int) -> None:
        """Count an answer; one above the rate blocks until all of it is paid."""
        paid = (now_ms - self._counted_ms) / _SECOND_MS * READ_BYTES_PER_SECOND
        self._debt_bytes = max(0.0, self._debt_bytes - paid) + size_bytes
        self._counted_ms = now_ms
        if self._debt_bytes > READ_BYTES_PER_SECOND:
            seconds = self._debt_bytes / READ_BYTES_PER_SECOND
            self._blocked_until_ms = now_ms + seconds * _SECOND_MS


@dataclass(slots=True)
class Limits:
    """The calls and bytes of all shards and of the account."""

    _reads: dict[str, Window] = field(default_factory=lambda: defaultdict(Window))
    _volumes: dict[str, Volume] = field(default_factory=lambda: defaultdict(Volume))
    _iterators: dict[str, Window] = field(default_factory=lambda: defaultdict(Window))
    _control: dict[str, Window] = field(default_factory=lambda: defaultdict(Window))

    def require_read(self, shard: str, now_ms: int) -> None:
        """Refuse a GetRecords above five per second, or while large answers are unpaid."""
        if not self._volumes[shard].free(now_ms):
            raise throttled(f"Rate exceeded for shard {shard}: 2 MiB per second.")
        if not self._reads[shard].take(now_ms, READS_PER_SECOND):
            raise throttled(f"Rate exceeded for shard {shard}: 5 GetRecords per second.")

    def count_read(self, shard: str, now_ms: int, size_bytes: int) -> None:
        """Count the bytes of an answer."""
        self._volumes[shard].take(now_ms, size_bytes)

    def require_iterator(self, shard: str, now_ms: int) -> None:
        """Refuse a GetShardIterator above five per second."""
        if not self._iterators[shard].take(now_ms, ITERATORS_PER_SECOND):
            raise throttled(f"Rate exceeded for shard {shard}: 5 GetShardIterator per second.")

    def require_control(self, counted: str, now_ms: int, calls_max: int) -> None:
        """Refuse a control call above a rate; ``counted`` says whose calls are counted."""
        if not self._control[counted].take(now_ms, calls_max):
            raise too_many_calls(f"Rate exceeded for {counted}: {calls_max} per second.")
