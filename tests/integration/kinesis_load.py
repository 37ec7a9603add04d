"""What a load does with its stream, epoch by epoch, without tables and Spark."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest

from penstock.clock import SystemClock
from penstock.model.epoch import EpochLimits, Note
from penstock.model.secrets import Sealed
from penstock.model.split import Horizon, ShardPart, ShardRead, SplitProgress, StreamReport
from penstock.sources.kinesis.access import stream_access
from penstock.sources.kinesis.client import GIVE_UP_AFTER, Patience, StreamClient
from penstock.sources.kinesis.options import KinesisOptions
from penstock.sources.kinesis.pages import ShardPages
from penstock.sources.kinesis.reading import ShardReading
from penstock.sources.kinesis.source import KinesisSource, ReadBudgets, StreamParts
from penstock.sources.source import Backlog
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import REGION, StreamUnderTest

LIMITS = EpochLimits(records=10**6, size_bytes=10**6, duration=timedelta(seconds=60))
PARENT = "shardId-000000000000"


class LeapingClock(SystemClock):
    """A clock that stands still but for leaps; whoever waits leaps to the end of the wait."""

    def __init__(self) -> None:
        self._passed = timedelta(0)

    def monotonic(self) -> float:
        return self._passed.total_seconds()

    def wait(self, event: Event, timeout: timedelta) -> bool:
        self.leap(timeout)
        return event.is_set()

    def leap(self, by: timedelta) -> None:
        self._passed += by


@dataclass
class KeptReports:
    """Reports in memory."""

    report: StreamReport = field(default_factory=StreamReport)

    def load(self) -> StreamReport:
        return self.report

    def store(self, report: StreamReport) -> None:
        self.report = report


@dataclass
class Load:
    """What a job does with its stream; ``progress`` is what is committed."""

    options: KinesisOptions
    reports: KeptReports = field(default_factory=KeptReports)
    progress: tuple[SplitProgress, ...] = (
        SplitProgress(split=PARENT, floor=Horizon(), position=Horizon()),
    )
    limits: EpochLimits = LIMITS
    clock: LeapingClock = field(default_factory=LeapingClock)
    read_interval: timedelta = timedelta(0)

    def open(self, stop: Event | None = None) -> KinesisSource:
        """Open the source with nothing in memory."""
        parts = StreamParts(
            job_id="job",
            stop=stop or Event(),
            clock=self.clock,
            reports=self.reports,
            budgets=ReadBudgets(self.clock, interval=self.read_interval),
            reveal=lambda _key, text: text,
            seal=_unsealed,
        )
        return KinesisSource(self.options, parts=parts)

    def look(self, source: KinesisSource) -> Backlog:
        """Look at the stream."""
        return source.discover(self.progress, listed=lambda _seen: None)

    def load(self, source: KinesisSource) -> list[Note]:
        """Commit one epoch; the source does not hear of it."""
        plan = source.plan(self.progress, limits=self.limits)
        assert plan is not None
        notes = [self._read(read) for read in plan.shards]
        self.progress = source.reached(plan, notes)
        return notes

    def _read(self, read: ShardRead) -> Note:
        access = stream_access(self.options)
        pages = ShardPages(
            StreamClient(access),
            access,
            read.shard.id,
            read.begin,
            patience=Patience(clock=SystemClock(), give_up_after=GIVE_UP_AFTER),
            is_closed=lambda: read.shard.closed,
            iterator=read.iterator,
        )
        reading = ShardReading(pages, begun=read.begin, limits=read.limits, clock=SystemClock())
        rows = len(list(reading.items()))
        part = ShardPart(shard=read.shard.id, begin=read.begin, outcome=reading.outcome)
        return Note(part=part, rows_read=rows, rows_parsed=rows, records=rows)


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
            secret_key="mine",  # noqa: S106 - Nobody checks it.
        )
    )
