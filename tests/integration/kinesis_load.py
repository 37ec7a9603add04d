"""The source of a routine load, epoch by epoch, without tables and Spark."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event

import pytest

from penstock.clock import SystemClock
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import EpochLimits
from penstock.model.events import Event as JobEvent
from penstock.model.events import apply
from penstock.model.secrets import Sealed
from penstock.model.split import Amount, Horizon, Note, ReadCounts, SplitProgress, SplitRead
from penstock.sources.kinesis.client import StreamClient, stream_access
from penstock.sources.kinesis.kind import KinesisOptions
from penstock.sources.kinesis.reading import ShardPages, ShardReading
from penstock.sources.kinesis.shards import ShardWork, StreamMemory
from penstock.sources.kinesis.source import KinesisSource, ReadBudgets
from penstock.sources.source import SourceServices
from tests.contract.catalog.building import JOB, START, created
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import REGION, StreamUnderTest

LIMITS = EpochLimits(records=10**6, size_bytes=10**6, duration=timedelta(seconds=60))
PARENT = "shardId-000000000000"


class SteppingClock(SystemClock):
    """A clock that stops; a wait moves it to the end of the wait."""

    def __init__(self) -> None:
        self._passed = timedelta(0)

    def monotonic(self) -> float:
        return self._passed.total_seconds()

    def wait(self, event: Event, timeout: timedelta) -> bool:
        self.leap(timeout)
        return event.is_set()

    def leap(self, by: timedelta) -> None:
        self._passed += by


CREATED = apply(None, JobEvent(job_id=JOB, number=1, at=START, body=created()))


class NoItems:
    """The item index of a source that loads no items."""

    pruned_before = None

    def known(self, keys: Sequence[str]) -> Mapping[str, str]:
        raise AssertionError(f"a stream has no items such as {keys}")

    def newest(self, prefix: str) -> str:
        raise AssertionError(f"a stream has no items such as {prefix}")

    def prune(self, before: datetime, *, prefixes: Sequence[str]) -> None:
        raise AssertionError(f"a stream has no items from before {before} in {prefixes}")


@dataclass
class FakeMemory:
    """The stored state of a source, in memory."""

    text: str = ""

    def load(self) -> str:
        return self.text

    def store(self, text: str) -> None:
        self.text = text

    @property
    def stream(self) -> StreamMemory:
        """The state, parsed."""
        return from_text(StreamMemory, self.text)


@dataclass
class Load:
    """The reading part of a job; ``progress`` is the committed progress."""

    options: KinesisOptions
    memory: FakeMemory = field(default_factory=FakeMemory)
    progress: tuple[SplitProgress, ...] = (
        SplitProgress(split=PARENT, floor=Horizon(), position=Horizon(), placed=1),
    )
    limits: EpochLimits = LIMITS
    clock: SteppingClock = field(default_factory=SteppingClock)
    read_interval: timedelta = timedelta(0)

    def open(self, stop: Event | None = None) -> KinesisSource:
        """Open the source without any state in memory."""
        services = SourceServices(
            state=replace(CREATED, progress=self.progress),
            clock=self.clock,
            stop=stop or Event(),
            reveal=lambda _key, text: text,
            seal=_unsealed,
            items=NoItems(),
            memory=self.memory,
            shared=ReadBudgets(self.clock, interval=self.read_interval),
        )
        return KinesisSource(self.options, services=services)

    def poll(self, source: KinesisSource) -> Amount:
        """Poll the stream."""
        return source.poll(self.progress, report=lambda _seen: None).waiting

    def commit(self, source: KinesisSource) -> None:
        """Commit one epoch and report the commit to the source."""
        notes = self.load(source)
        source.committed(self.progress, notes)

    def load(self, source: KinesisSource) -> list[Note]:
        """Commit one epoch without reporting the commit to the source."""
        plan = source.plan(self.progress, limits=self.limits)
        assert plan is not None
        notes = [self._read(read) for read in plan.reads]
        self.progress = source.advance(plan, notes)
        return notes

    def _read(self, read: SplitRead) -> Note:
        work = from_text(ShardWork, read.work)
        assert read.limits is not None
        pages = ShardPages(
            client=StreamClient(stream_access(self.options)),
            shard=read.split,
            position=read.begin,
            is_closed=lambda: work.shard.closed,
            iterator=work.iterator,
        )
        reading = ShardReading(pages, limits=read.limits, options=self.options, hash_keys=None)
        rows = len(list(reading.items()))
        outcome = reading.outcome
        return Note(
            read=read.id,
            end=outcome.position,
            counts=ReadCounts(rows_read=rows, rows_parsed=rows, records=rows),
            result=to_text(outcome),
        )


def _unsealed(values: Mapping[str, str]) -> Sealed:
    return Sealed(text=json.dumps(dict(values)), key_file=str(Path("/nowhere")))


@pytest.fixture
def load(server: KinesisServer, stream: StreamUnderTest) -> Load:
    return Load(
        KinesisOptions(
            region=REGION,
            stream=stream.name,
            endpoint=server.endpoint,
            access_key="mine",
            secret_key="mine",  # noqa: S106 - The fake server does not check it.
        )
    )
