"""The simulated stream: records, reshards and faults."""

import base64
import hashlib
import json
from datetime import timedelta
from typing import Any, assert_never

from penstock.catalog.catalog import Catalog
from penstock.clock import Clock
from penstock.model.job import JobState
from penstock.model.split import After, End, SplitProgress
from penstock.sources.kinesis.kind import ForeignRecords
from penstock.sources.kinesis.records import SubRecord
from penstock.sources.kinesis.shards import load_memory
from tests.property.streams.expectation import FOREIGN_KEY, Expectation, Outcome
from tests.property.streams.steps import (
    Action,
    Content,
    EmptyPages,
    Expire,
    FailRequests,
    MalformedResponse,
    Merge,
    Put,
    PutAggregate,
    Setup,
    Split,
    Stale,
    Trim,
)
from tests.servers.kinesis.control import execute_command
from tests.servers.kinesis.faults import Faults
from tests.servers.kinesis.sequence import parse_sequence
from tests.servers.kinesis.service import Request, Service
from tests.servers.kinesis.shard import Shard
from tests.servers.kinesis.state import State
from tests.servers.kinesis.stream import HOUR_MS, Stream
from tests.unit.sources.kinesis.aggregates import packed

_OPEN_SHARDS_MAX = 6
_OUTCOME_OF_FOREIGN = {
    ForeignRecords.LOAD: Outcome.LOADED,
    ForeignRecords.SKIP: Outcome.SKIPPED,
    ForeignRecords.REJECT: Outcome.FOREIGN,
}
_OUTCOME_BY_CONTENT = {
    Content.ROW: Outcome.LOADED,
    Content.EMPTY: Outcome.SKIPPED,
    Content.INVALID: Outcome.REJECTED,
}


class SimulatedStream:
    """A stream on the Kinesis test server, with the expected result of its records."""

    def __init__(self, setup: Setup, clock: Clock) -> None:
        self._setup = setup
        self._clock = clock
        self.service = Service(State(clock=clock, region="us-east-1"))
        self.expectation = Expectation()
        self._switch(shard_end=setup.shard_end)
        self._send("CreateStream", StreamName="s", ShardCount=setup.shards)

    @property
    def server_stream(self) -> Stream:
        """The stream inside the server."""
        return self.service.state.stream_named("s")

    def expect_no_records(self) -> None:
        """Expect no result of the records that were sent so far."""
        sent = self.expectation.sent_by_key
        self.expectation = Expectation(sent_by_key=sent)

    def heal(self) -> None:
        """Remove failing requests and stale listings; pages can still be empty.

        A run that ends when it is caught up assumes that listings are complete.
        """
        self.service.state.faults = Faults()
        self.server_stream.stale_calls = 0

    def apply(self, step: Action, *, state: JobState | None, catalog: Catalog) -> None:
        """Execute an action."""
        match step:
            case Put():
                self._put_each(step)
            case PutAggregate():
                self._put_aggregate(step)
            case Split() | Merge():
                self._reshard(step)
            case Trim():
                self._trim(state, catalog=catalog)
            case Expire():
                execute_command(self.service, {"do": "expire_iterators"})
                execute_command(self.service, {"do": "expire_tokens"})
            case _:
                self._add_fault(step)

    def _add_fault(self, step: Action) -> None:
        match step:
            case FailRequests(operation=operation, code=code, times=times):
                self._control("inject", operation=operation, code=code, times=times)
            case MalformedResponse(body=body, times=times):
                self._control("inject", operation="GetRecords", body=body, times=times)
            case Stale(listings=listings, how=how):
                self._switch(stale_listings=listings, stale_listing=how)
            case EmptyPages(after_iterator=after, between_pages=between):
                self._switch(
                    empty_pages_after_iterator=after, empty_pages_between_pages=between
                )
            case _:
                raise AssertionError(step)

    def _put_each(self, put: Put) -> None:
        for key in put.keys:
            number = self.expectation.next_number(key)
            self.expectation.expect(key, number, _OUTCOME_BY_CONTENT[put.content])
            match put.content:
                case Content.ROW:
                    self._put(key, _row(key, number))
                case Content.EMPTY:
                    self._put(key, b"")
                case Content.INVALID:
                    self._put(key, b'{"k": invalid')
                case _:
                    assert_never(put.content)

    def _put_aggregate(self, put: PutAggregate) -> None:
        home = self.server_stream.shard_of(_hash_key(put.keys[0]))
        records: list[SubRecord] = []
        for key in put.keys:
            if home.contains(_hash_key(key)):
                number = self.expectation.next_number(key)
                self.expectation.expect(key, number, Outcome.LOADED)
                records.append(SubRecord(partition_key=key, data=_row(key, number)))
        foreign_key = _foreign_key(home)
        if put.foreign and foreign_key:
            number = self.expectation.next_number(FOREIGN_KEY)
            self.expectation.expect(
                FOREIGN_KEY, number, _OUTCOME_OF_FOREIGN[self._setup.foreign]
            )
            data = _row(FOREIGN_KEY, number)
            records.insert(1, SubRecord(partition_key=foreign_key, data=data))
        self._put(put.keys[0], packed(*records))

    def _put(self, key: str, data: bytes) -> None:
        encoded = base64.b64encode(data).decode()
        self._send("PutRecord", StreamName="s", PartitionKey=key, Data=encoded)

    def _reshard(self, step: Split | Merge) -> None:
        shards = self.server_stream.open_shards()
        if isinstance(step, Split) and len(shards) < _OPEN_SHARDS_MAX:
            shard = shards[step.number % len(shards)]
            middle = (shard.first_key + shard.last_key + 1) // 2
            self._send(
                "SplitShard",
                StreamName="s",
                ShardToSplit=shard.shard_id,
                NewStartingHashKey=str(middle),
            )
        if isinstance(step, Merge) and len(shards) > 1:
            lower = step.number % (len(shards) - 1)
            self._send(
                "MergeShards",
                StreamName="s",
                ShardToMerge=shards[lower].shard_id,
                AdjacentShardToMerge=shards[lower + 1].shard_id,
            )

    def _trim(self, state: JobState | None, *, catalog: Catalog) -> None:
        """Trim loaded records, except those that prove that no other records were lost."""
        if state is None:
            return
        oldest = self._clock.now() - timedelta(milliseconds=HOUR_MS * 24)
        safe = {
            memory.shard
            for memory in load_memory(catalog.report(state.id).memory, state.progress).shards
            if memory.caught_up_at and memory.caught_up_at > oldest
        }
        for split in state.progress:
            shard = self._shard(split.split)
            if shard is not None:
                # A closed shard without records is deleted. The load can then prove nothing.
                kept = split.split not in safe or not shard.open
                ended = isinstance(split.position, End)
                count = _loaded(split, shard) - (kept and not ended)
                if count > 0 or (ended and not shard.open):
                    self._control("trim", stream="s", shard=shard.shard_id, count=count)

    def _shard(self, name: str) -> Shard | None:
        return next((s for s in self.server_stream.listed() if s.shard_id == name), None)

    def _send(self, operation: str, **fields: Any) -> None:
        body = json.dumps(fields).encode()
        response = self.service.handle(Request(operation=operation, body=body))
        assert response.status == 200, response.body

    def _control(self, name: str, **arguments: Any) -> None:
        execute_command(self.service, {"do": name, **arguments})

    def _switch(self, **switches: Any) -> None:
        self._control("switch", switches=switches)


def _row(key: str, number: int) -> bytes:
    return json.dumps({"k": key, "n": number}).encode()


def _hash_key(key: str) -> int:
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def _foreign_key(home: Shard) -> str | None:
    """Return a partition key that does not belong to a shard."""
    keys = (f"foreign-{number}" for number in range(100))
    return next((key for key in keys if not home.contains(_hash_key(key))), None)


def _loaded(split: SplitProgress, shard: Shard) -> int:
    """Return how many records of a shard are completely loaded, but not trimmed yet."""
    match split.position:
        case End():
            return shard.end - shard.trimmed
        case After(value=value, sub=sub):
            found = parse_sequence(value)
            assert found is not None
            return found.index - shard.trimmed - (sub is not None)
        case _:
            return 0
