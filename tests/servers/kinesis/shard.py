"""One shard: its range of hash keys, its parents and its records.

Times are milliseconds since 1970. A record is stored as the JSON of its response. So a
page of ten thousand records is a single join.
"""

import json
from bisect import bisect_left
from collections.abc import Sequence as Listed
from dataclasses import dataclass, field

from tests.servers.kinesis.sequence import Sequence, ending_number, starting_number

HASH_KEYS = 2**128


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Records of a shard; ``more`` is whether later records exist."""

    records: Listed[bytes]
    next_index: int
    size_bytes: int
    more: bool
    last_arrival_ms: int


@dataclass(slots=True, kw_only=True)
class Shard:
    """A shard; records are appended while it is open, and the oldest are trimmed."""

    number: int
    creation_second: int
    created_ms: int
    first_key: int
    last_key: int
    parents: tuple[str, ...] = ()
    closed_ms: int | None = None
    gone: bool = False
    # How many records were trimmed; the lists contain the later records.
    trimmed: int = 0
    _trimmed_bytes: int = 0
    _records: list[bytes] = field(default_factory=list)
    _arrivals: list[int] = field(default_factory=list)
    # Latest arrival and total bytes up to each record, both sorted for binary search.
    _latest: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)

    @property
    def shard_id(self) -> str:
        """The shard id."""
        return shard_name(self.number)

    @property
    def end(self) -> int:
        """The index of the next record."""
        return self.trimmed + len(self._records)

    @property
    def open(self) -> bool:
        """Whether records can be added."""
        return self.closed_ms is None

    def contains(self, hash_key: int) -> bool:
        """Return whether a hash key is in the range of the shard."""
        return self.first_key <= hash_key <= self.last_key

    def append(
        self, data: str, *, partition_key: str, arrival_ms: int, encryption: str = "NONE"
    ) -> int:
        """Store a record with data in base64; return its sequence number."""
        number = Sequence(
            creation_second=self.creation_second,
            index=self.end + 1,
            arrival_ms=arrival_ms,
            shard=self.number,
        ).number()
        key = json.dumps(partition_key)
        self._records.append(
            f'{{"SequenceNumber":"{number}","ApproximateArrivalTimestamp":{seconds(arrival_ms)},'
            f'"Data":"{data}","PartitionKey":{key},'
            f'"EncryptionType":"{encryption}"}}'.encode()
        )
        before = self._ends[-1] if self._ends else self._trimmed_bytes
        self._ends.append(before + decoded_bytes(data))
        self._arrivals.append(arrival_ms)
        self._latest.append(max(arrival_ms, self._latest[-1] if self._latest else 0))
        return number

    def page(self, index: int, *, records_max: int, bytes_max: int) -> Page:
        """Return the records from an index, or from the oldest record if it was trimmed."""
        start = max(0, index - self.trimmed)
        before = self._ends[start - 1] if start else self._trimmed_bytes
        fitting = bisect_left(self._ends, before + bytes_max + 1, start)
        end = min(start + records_max, max(fitting, start + 1), len(self._records))
        more = end < len(self._records)
        return Page(
            records=self._records[start:end],
            next_index=self.trimmed + end,
            size_bytes=(self._ends[end - 1] - before) if end > start else 0,
            more=more,
            last_arrival_ms=self._arrivals[max(0, end - 1)] if more else 0,
        )

    def index_from(self, arrival_ms: int) -> int:
        """Return the index of the first record that arrived at a time or later."""
        return self.trimmed + bisect_left(self._latest, arrival_ms)

    def trim(self, count: int) -> int:
        """Delete the oldest records; return how many were deleted."""
        count = min(count, len(self._records))
        if count:
            self._trimmed_bytes = self._ends[count - 1]
        for values in (self._records, self._arrivals, self._latest, self._ends):
            del values[:count]
        self.trimmed += count
        return count

    def trim_before(self, horizon_ms: int) -> None:
        """Delete records from before a time, and the shard if it closed before that time."""
        self.trim(bisect_left(self._latest, horizon_ms))
        self.gone = self.gone or (self.closed_ms is not None and self.closed_ms < horizon_ms)

    def described(self, *, as_open: bool = False) -> dict[str, object]:
        """Return the shard as listings show it; a stale listing shows it ``as_open``."""
        first = starting_number(creation_second=self.creation_second, shard=self.number)
        numbers = {"StartingSequenceNumber": str(first)}
        if self.closed_ms is not None and not as_open:
            numbers["EndingSequenceNumber"] = str(
                ending_number(
                    creation_second=self.creation_second,
                    shard=self.number,
                    closed_ms=self.closed_ms,
                )
            )
        names = ("ParentShardId", "AdjacentParentShardId")
        return {
            "ShardId": self.shard_id,
            **dict(zip(names, self.parents, strict=False)),
            "HashKeyRange": self.key_range(),
            "SequenceNumberRange": numbers,
        }

    def key_range(self) -> dict[str, str]:
        """Return the range of hash keys; both ends are inclusive."""
        return {"StartingHashKey": str(self.first_key), "EndingHashKey": str(self.last_key)}

    def as_child(self) -> dict[str, object]:
        """Return the shard as the last page of its parent shows it."""
        return {
            "ShardId": self.shard_id,
            "ParentShards": list(self.parents),
            "HashKeyRange": self.key_range(),
        }


def shard_name(number: int) -> str:
    """Return the id of a shard by its number."""
    return f"shardId-{number:012d}"


def seconds(instant_ms: int) -> str:
    """Convert milliseconds to seconds with three decimals, as in JSON."""
    return f"{instant_ms // 1000}.{instant_ms % 1000:03d}"


def decoded_bytes(text: str) -> int:
    """Return the number of bytes that a base64 text encodes."""
    return len(text) // 4 * 3 - text[-2:].count("=")
