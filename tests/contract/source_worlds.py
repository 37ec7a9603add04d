"""Test environments of the source kinds, each with records and a catalog on disk.

A new kind needs one class here, listed in ``WORLDS``, to run the contract suite.
"""

import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Protocol, Self

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.clock import Clock, SystemClock
from penstock.engine.run import EpochTables, task_plans
from penstock.epochs.task import open_reader
from penstock.model.epoch import Attachment, EpochPlan
from penstock.model.formats import PayloadFormat
from penstock.model.job import JobDefinition, JobState, LoadProperties, TargetColumn
from penstock.model.job_kinds import RoutineProperties
from penstock.model.schema import Column, Primitive
from penstock.model.secrets import Sealed
from penstock.model.split import (
    After,
    At,
    AtTime,
    Horizon,
    Note,
    Position,
    SplitProgress,
    mark_moved,
)
from penstock.secrets.vault import Vault
from penstock.sources.datagen.kind import DATAGEN, DatagenOptions
from penstock.sources.files.kind import FILES, FileFormat, FilesOptions
from penstock.sources.kinesis.client import CLIENTS
from penstock.sources.kinesis.kind import KINESIS, KinesisOptions
from penstock.sources.kinesis.source import ReadBudgets
from penstock.sources.registry import Sources, source_ref
from penstock.sources.source import Source, SourceKind, TableOpener
from penstock.sources.table_log.kind import (
    TABLE_LOG,
    TableLogOptions,
    TableStream,
    log_position,
    streams_text,
)
from penstock.tables.chain import log_entry
from penstock.tables.delta import DeltaTables
from tests.contract.catalog.building import (
    DEFINITION,
    FIRST,
    JOB,
    TABLE,
    MovableClock,
    SqliteStore,
    commit,
    created,
    move,
)
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import (
    MIDDLE,
    REGION,
    StreamUnderTest,
    new_stream,
)

Progress = tuple[SplitProgress, ...]
TASKS = 2
ID = (Column(name="id", type=Primitive.STRING),)


class StoredJob:
    """A job in a catalog on disk; reads and commits plans like the epoch loop."""

    def __init__(
        self,
        folder: Path,
        definition: JobDefinition,
        progress: Progress,
        *,
        clock: Clock | None = None,
        shared: Mapping[str, object] | None = None,
        name: Callable[[object], str] = str,
    ) -> None:
        # The names of the committed rows.
        self.names: list[str] = []
        # Only the table log reads tables.
        self.tables: TableOpener | None = None
        self._name = name
        self.clock = clock or SystemClock()
        self._shared = shared or {}
        self._key_file = folder / "secret.key"
        self._store = SqliteStore(folder, MovableClock())
        catalog = self._store.open()
        catalog.create_table(TABLE)
        body = created()
        opening = replace(body.opening, progress=progress)
        body = replace(body, definition=definition, generation=FIRST, opening=opening)
        catalog.create_job(JOB, body)

    def open(self) -> Source:
        """Open the catalog and the source again, as after a restart."""
        catalog = self._store.open()
        vault = Vault(catalog, key_file=self._key_file)
        tables = self.tables
        sources = Sources(
            catalog=catalog,
            vault=vault,
            clock=self.clock,
            shared=dict(self._shared),
            open_tables=None if tables is None else lambda: tables,
        )
        return sources.open(self.state(), threading.Event())

    def state(self) -> JobState:
        """Return the stored state of the job."""
        state = self._store.open().job_by_id(JOB)
        assert state is not None
        return state

    def read(self, plan: EpochPlan) -> tuple[list[Note], list[str]]:
        """Read a plan in tasks; return the notes and the names of the rows."""
        source = self.open()
        tables = EpochTables(
            columns=ID,
            partition_by=(),
            rejects_root="",
            lookups=(),
            table_access=Sealed(),
            source_access=source.task_access(),
        )
        notes: list[Note] = []
        names: list[str] = []
        state = self.state()
        shares = source.distribute(plan, tasks=TASKS, needed=state.definition.needed)
        draft = commit(state.number + 1)
        for task in task_plans(shares, definition=state.definition, draft=draft, tables=tables):
            reader = open_reader(task)
            for block in reader.blocks():
                assert not block.bad
                names += map(self._name, block.batch.column("id").to_pylist())
            reader.close()
            notes += reader.notes
        source.close()
        return notes, names

    def commit(self, plan: EpochPlan, *, by: Source) -> Attachment:
        """Read a plan, store it as the next commit, and report the commit to the source."""
        notes, names = self.read(plan)
        self.names += names
        attachment = replace(
            commit(self.state().number + 1),
            progress=by.advance(plan, notes),
            items=plan.items,
        )
        self.apply(attachment)
        by.committed(attachment.progress, notes)
        return attachment

    def apply(self, attachment: Attachment) -> None:
        """Apply a new or an earlier commit to the catalog."""
        self._store.open().apply_commit(JOB, attachment, table_version=1, commit_seconds=0)

    def move(self, split: str, position: Position) -> None:
        """Move a split to a position, like ALTER."""
        before, number = self.state().progress, self.state().number + 1
        moved = tuple(
            # A floor that is a time is the time of the first row, and does not change.
            replace(
                one,
                floor=one.floor if isinstance(one.floor, AtTime) else position,
                position=position,
            )
            if one.split == split
            else one
            for one in before
        )
        progress = mark_moved(number, before=before, after=moved)
        self.apply(replace(move(number, position), progress=progress))


class Change(StrEnum):
    """A change of the splits of a source, or a fault."""

    SECOND_SPLIT = "second_split"
    END = "end"
    NEW_SPLIT = "new_split"
    FAILURE = "failure"


def _without(excluded: Mapping[Change, str], possible: Change) -> dict[Change, str]:
    return {change: reason for change, reason in excluded.items() if change is not possible}


class World(Protocol):
    """One source kind with test records."""

    kind: ClassVar[SourceKind]
    # The changes that cannot happen to this kind, each with the reason.
    excluded: ClassVar[Mapping[Change, str]]
    # Whether a plan contains the end position of each read.
    plans_are_final: ClassVar[bool]
    # Whether a poll counts waiting records, and records that changed after loading.
    counts_records: ClassVar[bool]
    # Whether all records are read in the order of their names.
    ordered: ClassVar[bool]
    # Whether a second thread can read ahead while an epoch runs.
    reads_ahead: ClassVar[bool] = False
    job: StoredJob

    @classmethod
    def opened(cls, folder: Path, request: pytest.FixtureRequest) -> "Iterator[Self]":
        """Yield a new world; the request provides fixtures such as servers."""
        ...

    def put(self, *names: str) -> None:
        """Add records to the source, in the order of their names."""
        ...

    def change(self, name: str) -> None:
        """Change a record that may already be loaded."""
        ...

    def after(self, name: str) -> tuple[str, Position]:
        """Return the split of a record, and the position after the record."""
        ...

    def put_unevenly(self) -> tuple[str, str]:
        """Add one unread record to a split, and several to another split; return the splits."""
        raise AssertionError(self.excluded[Change.SECOND_SPLIT])

    def end_split(self) -> str:
        """End a split after its records; return the split."""
        raise AssertionError(self.excluded[Change.END])

    def put_into_new_split(self) -> str:
        """Add a split with a record; return the split."""
        raise AssertionError(self.excluded[Change.NEW_SPLIT])

    def failing(self) -> AbstractContextManager[None]:
        """Return a context in which the next poll fails in at least one split."""
        raise AssertionError(self.excluded[Change.FAILURE])

    def pass_time(self) -> None:
        """Move the clock of the source by a few seconds, if it has its own clock."""
        return

    def turn_clock_back(self) -> None:
        """Set the clock of the node to a time before the records."""
        self.job.clock = MovableClock()


class FilesWorld(World):
    """Files in a folder."""

    kind: ClassVar[SourceKind] = FILES
    excluded: ClassVar[Mapping[Change, str]] = {
        Change.SECOND_SPLIT: "all files of a job are one split",
        Change.END: "a folder can always get another file",
        Change.NEW_SPLIT: "all files of a job are one split",
    }
    plans_are_final: ClassVar[bool] = True
    counts_records: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    reads_ahead: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "in"
        self._folder.mkdir()
        self._uri = f"file://{self._folder}/"
        options = FilesOptions(uri=self._uri, format=FileFormat.JSON)
        start = SplitProgress(split=self._uri, floor=Horizon(), position=Horizon())
        definition = replace(
            DEFINITION,
            source=source_ref(FILES, options),
            source_columns=ID,
            targets=(TargetColumn(name="id", path=("id",)),),
        )
        self.job = StoredJob(folder, definition, (start,))

    @classmethod
    def opened(cls, folder: Path, request: pytest.FixtureRequest) -> Iterator[Self]:
        del request
        yield cls(folder)

    def put(self, *names: str) -> None:
        for name in names:
            (self._folder / name).write_text(f'{{"id": "{name}"}}\n')

    def change(self, name: str) -> None:
        (self._folder / name).write_text('{"id": "changed"}\n')

    def after(self, name: str) -> tuple[str, Position]:
        return self._uri, After(value=str(self._folder / name))

    @contextmanager
    def failing(self) -> Iterator[None]:
        moved = self._folder.rename(self._folder.with_name("moved"))
        yield
        moved.rename(self._folder)


class KinesisWorld(World):
    """A stream of two shards on the project's own server; the second shard has records."""

    kind: ClassVar[SourceKind] = KINESIS
    excluded: ClassVar[Mapping[Change, str]] = {
        Change.SECOND_SPLIT: "only one shard has records; see SpreadKinesisWorld"
    }
    plans_are_final: ClassVar[bool] = False
    counts_records: ClassVar[bool] = False
    ordered: ClassVar[bool] = True

    def __init__(self, folder: Path, stream: StreamUnderTest, server: KinesisServer) -> None:
        self._stream = stream
        self._control = server.control
        self._sequence_by_name: dict[str, str] = {}
        start = tuple(
            SplitProgress(split=shard, floor=Horizon(), position=Horizon())
            for shard in stream.shard_ids()
        )
        budgets = ReadBudgets(SystemClock(), interval=timedelta(0))
        definition = _load_of(stream.name, server.endpoint)
        self.job = StoredJob(folder, definition, start, shared={KINESIS.name: budgets})

    @classmethod
    def opened(cls, folder: Path, request: pytest.FixtureRequest) -> Iterator[Self]:
        server: KinesisServer = request.getfixturevalue("changed_kinesis")
        server.control.reset()
        client = request.getfixturevalue("changed_client")
        yield cls(folder, new_stream(client, shards=2), server)
        CLIENTS.close()

    def put(self, *names: str) -> None:
        for name in sorted(names):
            data = json.dumps({"id": name}).encode()
            self._sequence_by_name[name] = self._stream.put(data, hash_key=self.key_of(name))

    def key_of(self, name: str) -> int:
        """Return the hash key of a record."""
        del name
        return MIDDLE

    def change(self, name: str) -> None:
        raise AssertionError(f"record {name} of a stream cannot be changed")

    def after(self, name: str) -> tuple[str, Position]:
        return self._stream.shard_ids()[1], After(value=self._sequence_by_name[name])

    def end_split(self) -> str:
        self._stream.split(1, MIDDLE + MIDDLE // 2)
        return self._stream.shard_ids()[1]

    def put_into_new_split(self) -> str:
        self.end_split()
        self.put("new")
        return self._stream.shard_ids()[2]

    @contextmanager
    def failing(self) -> Iterator[None]:
        self._control.inject("GetRecords", "AccessDeniedException")
        yield
        self._control.heal()

    def pass_time(self) -> None:
        self._control.move_clock(timedelta(seconds=3))


class SpreadKinesisWorld(KinesisWorld):
    """A stream with records in both shards, which have no common order."""

    excluded: ClassVar[Mapping[Change, str]] = {}
    ordered: ClassVar[bool] = False

    def key_of(self, name: str) -> int:
        return ord(name[-1]) % 2 * MIDDLE

    def put_unevenly(self) -> tuple[str, str]:
        self.put("a", "b", "c")
        first, second, *_ = self._stream.shard_ids()
        return first, second


class DatagenWorld(World):
    """One split of generated rows; a row is due every second."""

    kind: ClassVar[SourceKind] = DATAGEN
    excluded: ClassVar[Mapping[Change, str]] = {
        Change.SECOND_SPLIT: "this world has one split; see SplitDatagenWorld",
        Change.NEW_SPLIT: "the number of splits cannot be changed",
        Change.FAILURE: "a poll computes the number of rows from the time",
    }
    # The number of splits and of rows.
    splits: ClassVar[int] = 1
    rows: ClassVar[int] = 8
    plans_are_final: ClassVar[bool] = True
    counts_records: ClassVar[bool] = False
    ordered: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self._clock = MovableClock()
        fields = (("id.kind", "sequence"), ("id.start", "0"))
        options = DatagenOptions(
            rows_per_second=1, rows_total=self.rows, splits=self.splits, fields=fields
        )
        floor = AtTime(at=self._clock.now())
        start = tuple(
            SplitProgress(
                split=str(split), floor=floor, position=At(value="0"), identity=str(split)
            )
            for split in range(self.splits)
        )
        definition = replace(
            DEFINITION,
            function="DATAGEN",
            job_kind="ROUTINE_LOAD",
            source=source_ref(DATAGEN, options),
            place_columns=DATAGEN.place_columns,
            source_columns=ID,
            targets=(TargetColumn(name="id", path=("id",)),),
            properties=RoutineProperties(),
            load=LoadProperties(),
        )
        self.job = StoredJob(folder, definition, start, clock=self._clock, name=_letter)

    @classmethod
    def opened(cls, folder: Path, request: pytest.FixtureRequest) -> Iterator[Self]:
        del request
        yield cls(folder)

    def put(self, *names: str) -> None:
        self._clock.move(seconds=len(names))

    def change(self, name: str) -> None:
        raise AssertionError(f"row {name} cannot be changed")

    def after(self, name: str) -> tuple[str, Position]:
        return "0", At(value=str(ord(name) - ord("a") + 1))

    def end_split(self) -> str:
        self._clock.move(seconds=self.rows)
        return "0"

    def turn_clock_back(self) -> None:
        self._clock.move(hours=-1)


class SplitDatagenWorld(DatagenWorld):
    """Two splits of generated rows; the first split has every other row."""

    excluded: ClassVar[Mapping[Change, str]] = _without(
        DatagenWorld.excluded, Change.SECOND_SPLIT
    )
    ordered: ClassVar[bool] = False
    splits: ClassVar[int] = 2

    def put_unevenly(self) -> tuple[str, str]:
        self.put("a", "b", "c", "d", "e", "f")
        self.job.move("1", At(value="2"))
        return "1", "0"


class TableLogWorld(World):
    """Delta tables; every commit adds one file with one row to the first table.

    Tasks read the files in parallel, so the rows of a plan have no order.
    """

    kind: ClassVar[SourceKind] = TABLE_LOG
    excluded: ClassVar[Mapping[Change, str]] = {
        Change.SECOND_SPLIT: "only one table has rows; see SpreadTableLogWorld",
        Change.END: "a table can always get another commit",
        Change.NEW_SPLIT: "the tables of a query cannot be changed",
    }
    plans_are_final: ClassVar[bool] = True
    counts_records: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    reads_ahead: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        tables = DeltaTables(str(folder / "warehouse"))
        created = [tables.create(one, ID, location=None, comment="") for one in ("x", "y")]
        self._locations = [table.location for table in created]
        self._version_by_name: dict[str, int] = {}
        streams = [
            TableStream(
                split=f"s{number}",
                table=table.name,
                id=table.id,
                location=table.location,
                columns=ID,
            )
            for number, table in enumerate(created)
        ]
        start = log_position(1).stored
        definition = replace(
            DEFINITION,
            function=TABLE_LOG.functions[0],
            source=source_ref(TABLE_LOG, TableLogOptions(streams=streams_text(streams))),
            place_columns=TABLE_LOG.place_columns,
            source_columns=ID,
            targets=(TargetColumn(name="id", path=("id",)),),
        )
        progress = tuple(
            SplitProgress(split=one.split, floor=start, position=start, identity=one.id)
            for one in streams
        )
        self.job = StoredJob(folder, definition, progress)
        self.job.tables = tables

    @classmethod
    def opened(cls, folder: Path, request: pytest.FixtureRequest) -> Iterator[Self]:
        del request
        yield cls(folder)

    def put(self, *names: str) -> None:
        for name in sorted(names):
            location = self._locations[self.number_of(name)]
            write_deltalake(location, pa.table({"id": [name]}), mode="append")
            self._version_by_name[name] = DeltaTable(location).version()

    def number_of(self, name: str) -> int:
        """Return the number of the table that gets a record."""
        del name
        return 0

    def change(self, name: str) -> None:
        raise AssertionError(f"row {name} of a table cannot be changed")

    def after(self, name: str) -> tuple[str, Position]:
        return "s0", log_position(self._version_by_name[name] + 1).stored

    @contextmanager
    def failing(self) -> Iterator[None]:
        location = self._locations[1]
        entry = Path(location) / log_entry(DeltaTable(location).version() + 1)
        entry.write_text("not an entry")
        yield
        entry.unlink()


class SpreadTableLogWorld(TableLogWorld):
    """Two Delta tables with rows."""

    excluded: ClassVar[Mapping[Change, str]] = _without(
        TableLogWorld.excluded, Change.SECOND_SPLIT
    )

    def number_of(self, name: str) -> int:
        return ord(name) % 2

    def put_unevenly(self) -> tuple[str, str]:
        self.put("a", "b", "c", "d", "e", "f")
        self.job.move("s0", log_position(self._version_by_name["f"]).stored)
        return "s0", "s1"


def _letter(value: object) -> str:
    """Return the name of a generated row: its number as a letter."""
    return chr(ord("a") + int(str(value)))


def _load_of(stream: str, endpoint: str) -> JobDefinition:
    options = KinesisOptions(
        region=REGION,
        stream=stream,
        endpoint=endpoint,
        # Clients are cached by configuration. A random key leads to a new client.
        access_key=secrets.token_hex(8),
        secret_key="not checked",  # noqa: S106 - The server ignores it.
    )
    return replace(
        DEFINITION,
        function="KINESIS",
        job_kind="ROUTINE_LOAD",
        source=source_ref(KINESIS, options),
        place_columns=KINESIS.place_columns,
        source_columns=ID,
        targets=(TargetColumn(name="id", path=("id",)),),
        properties=RoutineProperties(format=PayloadFormat.JSON),
        load=LoadProperties(),
    )


# Worlds in which all records have one order, and worlds without such an order.
WORLDS: tuple[type[World], ...] = (FilesWorld, KinesisWorld, DatagenWorld, TableLogWorld)
SPREAD_WORLDS: tuple[type[World], ...] = (
    SpreadKinesisWorld,
    SplitDatagenWorld,
    SpreadTableLogWorld,
)
