"""One shard: its range of hash keys, its parents and its records.

Times are milliseconds since 1970, as the wire carries them. A record is kept as the piece of
JSON in which it is answered, so that a page of ten thousand is one join.
"""

import json
from bisect import bisect_left
from collections.abc import Sequence as Listed
from dataclasses import dataclass, field

from tests.servers.kinesis.sequence import Sequence, first_number, last_number

HASH_KEYS = 2**128


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of a shard: the pieces, where the next page begins, and what lies around it."""

    pieces: Listed[bytes]
    next_index: int
    size_bytes: int
    behind: bool
    seen_ms: int


@dataclass(slots=True, kw_only=True)
class Shard:
    """A shard that grows at its end while it is open, and loses records at its beginning."""

    number: int
    birth: int
    born_ms: int
    first_key: int
    last_key: int
    parents: tuple[str, ...] = ()
    closed_ms: int | None = None
    gone: bool = False
    # How many records were trimmed; the lists hold those behind them.
    trimmed: int = 0
    _trimmed_bytes: int = 0
    _pieces: list[bytes] = field(default_factory=list)
    _arrivals: list[int] = field(default_factory=list)
    # The latest arrival so far and the bytes so far, so that both can be searched by halves.
    _latest: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)

    @property
    def shard_id(self) -> str:
        """The name by which clients know it."""
        return shard_name(self.number)

    @property
    def end(self) -> int:
        """The index that the next record gets."""
        return self.trimmed + len(self._pieces)

    @property
    def open(self) -> bool:
        """Whether it takes records."""
        return self.closed_ms is None

    def holds(self, hash_key: int) -> bool:
        """Answer whether a key lies in its range."""
        return self.first_key <= hash_key <= self.last_key

    def append(
        self, data: str, *, partition_key: str, arrival_ms: int, encryption: str = "NONE"
    ) -> int:
        """Keep a record, whose data is in base64; answer its sequence number."""
        made = Sequence(
            birth=self.birth, index=self.end + 1, arrival_ms=arrival_ms, shard=self.number
        ).number()
        key = json.dumps(partition_key)
        self._pieces.append(
            f'{{"SequenceNumber":"{made}","ApproximateArrivalTimestamp":{seconds(arrival_ms)},'
            f'"Data":"{data}","PartitionKey":{key},'
            f'"EncryptionType":"{encryption}"}}'.encode()
        )
        before = self._ends[-1] if self._ends else self._trimmed_bytes
        self._ends.append(before + decoded_bytes(data))
        self._arrivals.append(arrival_ms)
        self._latest.append(max(arrival_ms, self._latest[-1] if self._latest else 0))
        return made

    def page(self, index: int, *, records_max: int, bytes_max: int) -> Page:
        """Answer the records from an index on; a trimmed one means the oldest that is left."""
        begin = max(0, index - self.trimmed)
        before = self._ends[begin - 1] if begin else self._trimmed_bytes
        fitting = bisect_left(self._ends, before + bytes_max + 1, begin)
        end = min(begin + records_max, max(fitting, begin + 1), len(self._pieces))
        behind = end < len(self._pieces)
        return Page(
            pieces=self._pieces[begin:end],
            next_index=self.trimmed + end,
            size_bytes=(self._ends[end - 1] - before) if end > begin else 0,
            behind=behind,
            seen_ms=self._arrivals[max(0, end - 1)] if behind else 0,
        )

    def index_from(self, arrival_ms: int) -> int:
        """Answer the index of the first record that arrived then or later."""
        return self.trimmed + bisect_left(self._latest, arrival_ms)

    def trim(self, count: int) -> int:
        """Forget the oldest records; answer how many there were."""
        count = min(count, len(self._pieces))
        if count:
            self._trimmed_bytes = self._ends[count - 1]
        for kept in (self._pieces, self._arrivals, self._latest, self._ends):
            del kept[:count]
        self.trimmed += count
        return count

    def trim_before(self, horizon_ms: int) -> None:
        """Forget what arrived before an instant, and the shard itself if it closed before."""
        self.trim(bisect_left(self._latest, horizon_ms))
        self.gone = self.gone or (self.closed_ms is not None and self.closed_ms < horizon_ms)

    def described(self, *, as_open: bool = False) -> dict[str, object]:
        """Answer the shard as listings show it, or as one that did not see it close would."""
        first = first_number(birth=self.birth, shard=self.number)
        numbers = {"StartingSequenceNumber": str(first)}
        if self.closed_ms is not None and not as_open:
            numbers["EndingSequenceNumber"] = str(
                last_number(birth=self.birth, shard=self.number, closed_ms=self.closed_ms)
            )
        names = ("ParentShardId", "AdjacentParentShardId")
        return {
            "ShardId": self.shard_id,
            **dict(zip(names, self.parents, strict=False)),
            "HashKeyRange": self.key_range(),
            "SequenceNumberRange": numbers,
        }

    def key_range(self) -> dict[str, str]:
        """Answer its range of hash keys, both ends inclusive."""
        return {"StartingHashKey": str(self.first_key), "EndingHashKey": str(self.last_key)}

    def as_child(self) -> dict[str, object]:
        """Answer the shard as the last page of its parent shows it."""
        return {
            "ShardId": self.shard_id,
            "ParentShards": list(self.parents),
            "HashKeyRange": self.key_range(),
        }


def shard_name(number: int) -> str:
    """Answer the name of a stream's shard by its number."""
    return f"shardId-{number:012d}"


def seconds(instant_ms: int) -> str:
    """Answer an instant as JSON carries it, with milliseconds."""
    return f"{instant_ms // 1000}.{instant_ms % 1000:03d}"


def decoded_bytes(text: str) -> int:
    """Answer how many bytes a text in base64 stands for."""
    return len(text) // 4 * 3 - text[-2:].count("=")
