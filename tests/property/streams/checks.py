"""Checks of every request, and of the state at the end of a history."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from penstock.catalog.catalog import Catalog
from penstock.model.codec import from_text
from penstock.model.job import JobState
from penstock.model.split import End, SplitProgress
from penstock.sources.kinesis.shards import StreamMemory, load_memory
from tests.property.streams.expectation import Outcome
from tests.property.streams.stream import SimulatedStream
from tests.servers.kinesis.shard import shard_name
from tests.servers.kinesis.stream import Stream
from tests.servers.kinesis.tokens import decode_iterator


@dataclass
class ReadMonitor:
    """Records requests that read a finished shard, or a child before its parent."""

    finished: set[str] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)

    def check_request(
        self,
        operation: str,
        arguments: dict[str, Any],
        *,
        progress: Sequence[SplitProgress],
        stream: Stream,
    ) -> None:
        """Compare a request with the progress that was committed before it was sent."""
        ended = {split.split for split in progress if isinstance(split.position, End)}
        self.finished |= ended
        if operation != "GetRecords":
            return
        number = decode_iterator(arguments["ShardIterator"]).shard
        name = shard_name(number)
        if name in self.finished:
            self.violations.append(f"{name} is finished, but is read again")
        known = {split.split for split in progress}
        for parent in stream.shards[number].parents:
            if parent in known - ended:
                self.violations.append(f"{name} is read before its parent {parent}")


def check_end(
    state: JobState, rows: Sequence[Any], *, stream: SimulatedStream, catalog: Catalog
) -> None:
    """Check rows, statistics, progress and memory after all faults are removed."""
    stream.expectation.check_final(rows)
    _check_statistics(state, stream)
    _check_progress(state, stream)
    _check_memory(state, catalog)


def _check_statistics(state: JobState, stream: SimulatedStream) -> None:
    actual, expected = state.cumulative, stream.expectation.count_by_outcome
    rejected = expected[Outcome.REJECTED] + expected[Outcome.FOREIGN]
    assert actual.rows_loaded == expected[Outcome.LOADED]
    assert actual.rows_skipped == expected[Outcome.SKIPPED]
    assert actual.rows_rejected == rejected
    assert actual.rows_foreign == expected[Outcome.FOREIGN]
    assert actual.rows_read == sum(expected.values())
    assert actual.records_read == sum(expected.values())
    assert actual.balanced


def _check_progress(state: JobState, stream: SimulatedStream) -> None:
    """Check that all open shards are in progress, and all closed shards are finished."""
    ended = {s.split: isinstance(s.position, End) for s in state.progress}
    for shard in stream.server_stream.listed():
        if shard.open:
            assert ended.get(shard.shard_id) is False, f"{shard.shard_id} is not in progress"
        else:
            assert ended.get(shard.shard_id, True), f"{shard.shard_id} is not finished"


def _check_memory(state: JobState, catalog: Catalog) -> None:
    """Check that exactly the unfinished shards have a stored lag, and that it is 0."""
    unfinished = {s.split for s in state.progress if not isinstance(s.position, End)}
    text = catalog.report(state.id).memory
    stored = from_text(StreamMemory, text)
    valid = load_memory(text, state.progress)
    assert (valid.shards, valid.created_at) == (stored.shards, stored.created_at)
    known = [memory for memory in stored.shards if memory.lag is not None]
    assert {memory.shard for memory in known} == unfinished
    for memory in known:
        assert memory.lag == timedelta(0), memory
        assert memory.caught_up_at is not None, memory
