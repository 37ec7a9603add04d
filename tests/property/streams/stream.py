"""The stream of a world: what arrives in it, how it changes, and what goes wrong with it."""

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
from penstock.sources.kinesis.shards import remembered
from tests.property.streams.promise import STRANGERS, Fate, Promise
from tests.property.streams.steps import (
    Expire,
    Gaps,
    Garble,
    Happening,
    Merge,
    Put,
    PutTogether,
    Refuse,
    Setup,
    Split,
    Stale,
    Trim,
    What,
)
from tests.servers.kinesis.control import obey
from tests.servers.kinesis.faults import Faults
from tests.servers.kinesis.sequence import parse_sequence
from tests.servers.kinesis.service import Request, Service
from tests.servers.kinesis.shard import Shard
from tests.servers.kinesis.state import State
from tests.servers.kinesis.stream import HOUR_MS, Stream
from tests.unit.sources.kinesis.aggregates import packed

_OPEN_SHARDS_MAX = 6
_FATE_OF_STRANGERS = {
    ForeignRecords.LOAD: Fate.LOADED,
    ForeignRecords.SKIP: Fate.SKIPPED,
    ForeignRecords.REJECT: Fate.FOREIGN,
}
_FATE_BY_WHAT = {
    What.ROW: Fate.LOADED,
    What.NOTHING: Fate.SKIPPED,
    What.NONSENSE: Fate.REJECTED,
}


class StreamOfWorld:
    """A stream on the project's own server, and what was promised for what it was sent."""

    def __init__(self, setup: Setup, clock: Clock) -> None:
        self._setup = setup
        self._clock = clock
        self.service = Service(State(clock=clock, region="us-east-1"))
        self.promise = Promise()
        self._switch(shard_end=setup.shard_end)
        self._ask("CreateStream", StreamName="s", ShardCount=setup.shards)

    @property
    def core(self) -> Stream:
        """The stream as the server has it."""
        return self.service.state.stream_named("s")

    def forget_promises(self) -> None:
        """Let everything that was sent so far be nobody's."""
        sent = self.promise.sent_by_key
        self.promise = Promise(sent_by_key=sent)

    def heal(self) -> None:
        """Let no request fail and no listing be late any more; pages may still be empty.

        Whoever runs until caught up believes a listing that it is whole.
        """
        self.service.state.faults = Faults()
        self.core.stale_calls = 0

    def take(self, step: Happening, *, state: JobState | None, catalog: Catalog) -> None:
        """Let something happen."""
        match step:
            case Put():
                self._put_each(step)
            case PutTogether():
                self._put_together(step)
            case Split() | Merge():
                self._reshard(step)
            case Trim():
                self._trim(state, catalog=catalog)
            case Expire():
                obey(self.service, {"do": "expire_iterators"})
                obey(self.service, {"do": "expire_tokens"})
            case _:
                self._disturb(step)

    def _disturb(self, step: Happening) -> None:
        match step:
            case Refuse(operation=operation, code=code, times=times):
                self._order("inject", operation=operation, code=code, times=times)
            case Garble(body=body, times=times):
                self._order("inject", operation="GetRecords", body=body, times=times)
            case Stale(listings=listings, how=how):
                self._switch(stale_listings=listings, stale_listing=how)
            case Gaps(after_iterator=after, while_behind=behind):
                self._switch(empty_pages_after_iterator=after, empty_pages_while_behind=behind)
            case _:
                raise AssertionError(step)

    def _put_each(self, put: Put) -> None:
        for key in put.keys:
            number = self.promise.next_number(key)
            self.promise.expect(key, number, _FATE_BY_WHAT[put.what])
            match put.what:
                case What.ROW:
                    self._put(key, _row(key, number))
                case What.NOTHING:
                    self._put(key, b"")
                case What.NONSENSE:
                    self._put(key, b'{"k": nonsense')
                case _:
                    assert_never(put.what)

    def _put_together(self, put: PutTogether) -> None:
        home = self.core.shard_of(_hash_key(put.keys[0]))
        records: list[SubRecord] = []
        for key in put.keys:
            if home.holds(_hash_key(key)):
                number = self.promise.next_number(key)
                self.promise.expect(key, number, Fate.LOADED)
                records.append(SubRecord(partition_key=key, data=_row(key, number)))
        stranger = _stranger(home)
        if put.stranger and stranger:
            number = self.promise.next_number(STRANGERS)
            self.promise.expect(STRANGERS, number, _FATE_OF_STRANGERS[self._setup.foreign])
            data = _row(STRANGERS, number)
            records.insert(1, SubRecord(partition_key=stranger, data=data))
        self._put(put.keys[0], packed(*records))

    def _put(self, key: str, data: bytes) -> None:
        encoded = base64.b64encode(data).decode()
        self._ask("PutRecord", StreamName="s", PartitionKey=key, Data=encoded)

    def _reshard(self, step: Split | Merge) -> None:
        shards = self.core.open_shards()
        if isinstance(step, Split) and len(shards) < _OPEN_SHARDS_MAX:
            shard = shards[step.number % len(shards)]
            middle = (shard.first_key + shard.last_key + 1) // 2
            self._ask(
                "SplitShard",
                StreamName="s",
                ShardToSplit=shard.shard_id,
                NewStartingHashKey=str(middle),
            )
        if isinstance(step, Merge) and len(shards) > 1:
            lower = step.number % (len(shards) - 1)
            self._ask(
                "MergeShards",
                StreamName="s",
                ShardToMerge=shards[lower].shard_id,
                AdjacentShardToMerge=shards[lower + 1].shard_id,
            )

    def _trim(self, state: JobState | None, *, catalog: Catalog) -> None:
        """Forget what is loaded; but not what alone can show that nothing else was lost."""
        if state is None:
            return
        oldest = self._clock.now() - timedelta(milliseconds=HOUR_MS * 24)
        safe = {
            memory.shard
            for memory in remembered(catalog.report(state.id).memory, state.progress).shards
            if memory.caught_up_at and memory.caught_up_at > oldest
        }
        for split in state.progress:
            shard = self._shard(split.split)
            if shard is not None:
                # A closed shard of which nothing is left is gone, and then nobody can tell.
                kept = split.split not in safe or not shard.open
                ended = isinstance(split.position, End)
                count = _loaded(split, shard) - (kept and not ended)
                if count > 0 or (ended and not shard.open):
                    self._order("trim", stream="s", shard=shard.shard_id, count=count)

    def _shard(self, name: str) -> Shard | None:
        return next((s for s in self.core.listed() if s.shard_id == name), None)

    def _ask(self, operation: str, **fields: Any) -> None:
        body = json.dumps(fields).encode()
        answer = self.service.answer(Request(operation=operation, body=body))
        assert answer.status == 200, answer.body

    def _order(self, name: str, **arguments: Any) -> None:
        obey(self.service, {"do": name, **arguments})

    def _switch(self, **switches: Any) -> None:
        self._order("switch", switches=switches)


def _row(key: str, number: int) -> bytes:
    return json.dumps({"k": key, "n": number}).encode()


def _hash_key(key: str) -> int:
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def _stranger(home: Shard) -> str | None:
    """Answer a key that does not belong to a shard."""
    keys = (f"stranger-{number}" for number in range(100))
    return next((key for key in keys if not home.holds(_hash_key(key))), None)


def _loaded(split: SplitProgress, shard: Shard) -> int:
    """Count the records of a shard that are loaded whole and not trimmed yet."""
    match split.position:
        case End():
            return shard.end - shard.trimmed
        case After(value=value, sub=sub):
            found = parse_sequence(value)
            assert found is not None
            return found.index - shard.trimmed - (sub is not None)
        case _:
            return 0
