"""Delta tables that a job reads as streams, for tests of the table log."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from penstock.arrow.types import arrow_schema
from penstock.model.epoch import EpochLimits, EpochPlan
from penstock.model.job_kinds import JobProperties
from penstock.model.schema import Column, Primitive
from penstock.model.secrets import Sealed
from penstock.model.split import At, Note, Progress, SplitRead
from penstock.sources.registry import source_ref
from penstock.sources.source import ReadTask, Source, StartRequest
from penstock.sources.table_log.kind import (
    TABLE_LOG,
    Rewrites,
    TableLogOptions,
    TableStream,
    streams_text,
)
from penstock.sources.table_log.reader import TableLogReader
from penstock.tables.chain import log_entry
from penstock.tables.delta import DeltaTables
from tests.contract.catalog.building import DEFINITION, MovableClock
from tests.contract.source_worlds import StoredJob

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
COLUMNS = (
    Column(name="id", type=Primitive.BIGINT),
    Column(name="at", type=Primitive.TIMESTAMP),
)
NO_LIMIT = EpochLimits(size_bytes=2**40)
Row = dict[str, Any]


class Table:
    """A Delta table in a folder."""

    def __init__(
        self,
        folder: Path,
        name: str = "events",
        *,
        columns: tuple[Column, ...] = COLUMNS,
        partition_by: tuple[str, ...] = (),
    ) -> None:
        self.tables = DeltaTables(str(folder / "warehouse"))
        location = str(folder / name)
        self.ref = self.tables.create(
            name, columns, location=location, comment="", partition_by=partition_by
        )
        self.path = Path(location)
        self._columns = columns

    @property
    def delta(self) -> DeltaTable:
        """The newest version."""
        return DeltaTable(self.ref.location)

    def append(self, *rows: Row) -> None:
        """Commit rows; each partition has one file. Later columns are NULL."""
        data = pa.Table.from_pylist(list(rows), schema=arrow_schema(self._columns))
        write_deltalake(self.ref.location, data, mode="append", schema_mode="merge")

    def append_at(self, *seconds: int) -> None:
        """Commit rows whose ids are the seconds of their event time."""
        rows = ({"id": one, "at": NOON + timedelta(seconds=one)} for one in seconds)
        self.append(*rows)

    def append_each(self, *seconds: int) -> None:
        """Commit each row on its own."""
        for one in seconds:
            self.append_at(one)

    def write_entry(self, *actions: Row) -> None:
        """Write the next log entry."""
        entry = self.path / log_entry(self.delta.version() + 1)
        entry.write_text("\n".join(json.dumps(action) for action in actions))

    def clean_log(self, version: int) -> None:
        """Create a checkpoint, and delete the log entries up to a version."""
        self.delta.create_checkpoint()
        for old in range(version + 1):
            (self.path / log_entry(old)).unlink()

    def stream(self, split: str = "s1", *, event_time: str | None = "at") -> TableStream:
        """Return the table as a stream."""
        return TableStream(
            split=split,
            table=self.ref.name,
            id=self.ref.id,
            location=self.ref.location,
            columns=self._columns,
            event_time=event_time,
        )


class StreamingJob:
    """A job that reads tables as streams, with its catalog on disk."""

    def __init__(
        self,
        folder: Path,
        *streams: TableStream,
        starting: str = "earliest",
        rewrites: Rewrites = Rewrites.FAIL,
    ) -> None:
        tables = DeltaTables(str(folder / "warehouse"))
        options = TableLogOptions(streams=streams_text(streams), rewrites=rewrites)
        self._source = source_ref(TABLE_LOG, options)
        self.clock = MovableClock()
        definition = replace(DEFINITION, source=self._source)
        progress = started(tables, *streams, starting=starting)
        self._job = StoredJob(folder, definition, progress, clock=self.clock)
        self._job.tables = tables

    def open(self) -> Source:
        """Open the source, as after a restart."""
        return self._job.open()

    @property
    def progress(self) -> Progress:
        """The committed progress."""
        return self._job.state().progress

    def polled(self) -> Source:
        """Open the source and poll."""
        source = self.open()
        self.poll(source)
        return source

    def poll(self, source: Source) -> None:
        """Poll from the committed progress."""
        source.poll(self.progress, report=lambda _: None)

    def plan(self, source: Source, limits: EpochLimits = NO_LIMIT) -> EpochPlan:
        """Return the plan of the next epoch."""
        planned = source.plan(self.progress, limits=limits)
        assert planned is not None
        return planned

    def load(self, source: Source) -> None:
        """Poll, and move the job to the end of the next plan."""
        self.poll(source)
        moved = self.plan(source).progress
        for split in moved:
            self._job.move(split.split, split.position)
        source.committed(self.progress, ())

    def read(
        self, reads: Sequence[SplitRead], *needed: str
    ) -> tuple[tuple[Note, ...], list[Row]]:
        """Read in one task; return the notes and the rows."""
        task = ReadTask(
            source=self._source,
            access=Sealed(),
            payload=None,
            columns=(),
            needed=needed or ("id",),
            reads=tuple(reads),
        )
        reader = TableLogReader(task)
        rows = [row for block in reader.blocks() for row in block.batch.to_pylist()]
        return tuple(reader.notes), rows

    def ids(self, plan: EpochPlan) -> list[int]:
        """Return the ids of a plan's rows, in the order of the plan."""
        return [row["id"] for row in self.read(plan.reads)[1]]


def started(tables: DeltaTables, *streams: TableStream, starting: str) -> Progress:
    """Return the start positions of a new job."""
    options = TableLogOptions(streams=streams_text(streams))
    request = StartRequest(
        options=options,
        values=options,
        given={"starting": starting},
        properties=JobProperties(),
        clock=MovableClock(),
        reveal=lambda _, text: text,
        tables=tables,
    )
    progress = TABLE_LOG.start(request)
    assert progress is not None
    return progress


def positions(progress: Progress) -> list[str]:
    """Return the texts of the positions."""
    return [split.position.value for split in progress if isinstance(split.position, At)]
