"""What must be true of every request, and of everything at the end."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from penstock.catalog.catalog import Catalog
from penstock.model.codec import from_text
from penstock.model.job import JobState
from penstock.model.split import End, SplitProgress
from penstock.sources.kinesis.shards import StreamMemory, remembered
from tests.property.streams.promise import Fate
from tests.property.streams.stream import StreamOfWorld
from tests.servers.kinesis.shard import shard_name
from tests.servers.kinesis.stream import Stream
from tests.servers.kinesis.tokens import decode_iterator


@dataclass
class Watchman:
    """Sees which shards are read, and which must not be; he says so at the end."""

    finished: set[str] = field(default_factory=set)
    seen: list[str] = field(default_factory=list)

    def see(
        self,
        operation: str,
        arguments: dict[str, Any],
        *,
        progress: Sequence[SplitProgress],
        stream: Stream,
    ) -> None:
        """Look at a request, and at what is committed when it is sent."""
        ended = {split.split for split in progress if isinstance(split.position, End)}
        self.finished |= ended
        if operation != "GetRecords":
            return
        number = decode_iterator(arguments["ShardIterator"]).shard
        name = shard_name(number)
        if name in self.finished:
            self.seen.append(f"{name} was read to its end, and is read again")
        known = {split.split for split in progress}
        for parent in stream.shards[number].parents:
            if parent in known - ended:
                self.seen.append(f"{name} is read before its parent {parent}")


def check_end(
    state: JobState, rows: Sequence[Any], *, stream: StreamOfWorld, catalog: Catalog
) -> None:
    """Require that everything is loaded, counted and told once all was healed."""
    stream.promise.check_at_the_end(rows)
    _check_statistics(state, stream)
    _check_progress(state, stream)
    _check_memory(state, catalog)


def _check_statistics(state: JobState, stream: StreamOfWorld) -> None:
    counted, expected = state.cumulative, stream.promise.count_by_fate
    rejected = expected[Fate.REJECTED] + expected[Fate.FOREIGN]
    assert counted.rows_loaded == expected[Fate.LOADED]
    assert counted.rows_skipped == expected[Fate.SKIPPED]
    assert counted.rows_rejected == rejected
    assert counted.rows_foreign == expected[Fate.FOREIGN]
    assert counted.rows_read == sum(expected.values())
    assert counted.records_read == sum(expected.values())
    assert counted.balanced


def _check_progress(state: JobState, stream: StreamOfWorld) -> None:
    """Require that all open shards are followed, and all closed ones are at their end."""
    ended = {s.split: isinstance(s.position, End) for s in state.progress}
    for shard in stream.core.listed():
        if shard.open:
            assert ended.get(shard.shard_id) is False, f"{shard.shard_id} is not followed"
        else:
            assert ended.get(shard.shard_id, True), f"{shard.shard_id} is not at its end"


def _check_memory(state: JobState, catalog: Catalog) -> None:
    """Require that of every unfinished shard, and of no other, no lag is remembered."""
    unfinished = {s.split for s in state.progress if not isinstance(s.position, End)}
    text = catalog.report(state.id).memory
    stored = from_text(StreamMemory, text)
    valid = remembered(text, state.progress)
    assert (valid.shards, valid.created_at) == (stored.shards, stored.created_at)
    known = [memory for memory in stored.shards if memory.lag is not None]
    assert {memory.shard for memory in known} == unfinished
    for memory in known:
        assert memory.lag == timedelta(0), memory
        assert memory.caught_up_at is not None, memory
