"""A stream as a source: what is told and believed of its shards between epochs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest

from penstock.clock import SystemClock
from penstock.errors import Code, StoppedError, UserError
from penstock.model.epoch import EpochLimits, Note
from penstock.model.kinesis import KinesisOptions
from penstock.model.position import End, Horizon, SplitProgress
from penstock.model.sealed import Sealed
from penstock.model.shards import ShardPart, ShardRead, StreamReport
from penstock.sources.kinesis.access import stream_access
from penstock.sources.kinesis.budgets import ReadBudgets
from penstock.sources.kinesis.client import StreamClient
from penstock.sources.kinesis.pages import ShardPages
from penstock.sources.kinesis.patience import GIVE_UP_AFTER, Patience
from penstock.sources.kinesis.reading import ShardReading
from penstock.sources.kinesis.source import KinesisSource, StreamParts
from penstock.testing.kinesis.server import KinesisServer
from penstock.testing.kinesis.stream import StaleListing
from tests.integration.kinesis_streams import server, stream
from tests.servers.kinesis_clients import MIDDLE, REGION, StreamUnderTest

__all__ = ["server", "stream"]

pytestmark = pytest.mark.integration

LIMITS = EpochLimits(records=10**6, size_bytes=10**6, duration=timedelta(seconds=60))
PARENT = "shardId-000000000000"


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

    def open(self, stop: Event | None = None) -> KinesisSource:
        """Open the source with nothing in memory."""
        parts = StreamParts(
            stop=stop or Event(),
            clock=SystemClock(),
            reports=self.reports,
            budgets=ReadBudgets(SystemClock(), interval=timedelta(0)),
            reveal=lambda _key, text: text,
            seal=_unsealed,
        )
        return KinesisSource(self.options, parts=parts)

    def look(self, source: KinesisSource) -> None:
        """Look at the stream."""
        source.discover(self.progress, listed=lambda _seen: None)

    def load(self, source: KinesisSource) -> list[Note]:
        """Commit one epoch; the source does not hear of it."""
        plan = source.plan(self.progress, limits=LIMITS)
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


def shards_told_of(load: Load) -> list[str]:
    return [report.shard for report in load.reports.report.shards]


def test_t24_the_lag_of_a_shard_is_not_told_once_its_end_is_committed(
    load: Load, stream: StreamUnderTest
) -> None:
    stream.put_all(b"1")
    stream.split(0, MIDDLE)
    died = load.open()
    load.look(died)
    load.load(died)

    load.look(load.open())

    assert isinstance(load.progress[0].position, End)
    assert shards_told_of(load) == ["shardId-000000000001", "shardId-000000000002"]


def test_t66_records_of_a_child_that_were_trimmed_before_they_were_read_are_missed(
    load: Load, server: KinesisServer, stream: StreamUnderTest
) -> None:
    server.control.switch(retention_trims=True)
    load.look(load.open())
    stream.split(0, MIDDLE)
    stream.put(hash_key=0)
    server.control.move_clock(timedelta(hours=20))
    source = load.open()
    load.look(source)
    source.committed(load.load(source))
    server.control.move_clock(timedelta(hours=10))

    with pytest.raises(UserError, match="may have been trimmed before they were read") as error:
        load.look(load.open())

    assert error.value.code is Code.CANNOT_RESUME_ERR


def test_t76_the_keys_of_a_shard_are_known_before_it_is_read_however_late_listings_are(
    load: Load, server: KinesisServer, stream: StreamUnderTest
) -> None:
    server.control.switch(stale_listings=2, stale_listing=StaleListing.CHILDREN_MISSING)
    stream.split(0, MIDDLE)
    stream.put(hash_key=0)
    died = load.open()
    load.look(died)
    load.load(died)
    source = load.open()
    load.look(source)

    plan = source.plan(load.progress, limits=LIMITS)

    assert plan is not None
    assert [read.shard.hash_keys for read in plan.shards] == [(0, MIDDLE - 1)]


def test_whoever_is_told_to_stop_does_not_wait_for_a_stream_that_fails(
    load: Load, server: KinesisServer
) -> None:
    stop = Event()
    source = load.open(stop)
    server.control.inject("ListShards", "InternalFailureException", status=500, times=1000)
    stop.set()

    with pytest.raises(StoppedError):
        load.look(source)

    assert len(server.control.requests("ListShards")) == 1
