"""Test environments of the source kinds, each with records and a catalog on disk.

A new kind needs one class here, listed in ``WORLDS``, to run the contract suite.
"""

import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
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
    kinesis_client,
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
        notes, _ = self.read(plan)
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


class World(Protocol):
    """One source kind with test records."""

    kind: ClassVar[SourceKind]
    # Whether a plan contains the end position of each read.
    plans_are_final: ClassVar[bool]
    # Whether a poll counts waiting records, and records that changed after loading.
    counts_records: ClassVar[bool]
    # Whether all records are read in the order of their names.
    ordered: ClassVar[bool]
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


class FilesWorld:
    """Files in a folder."""

    kind: ClassVar[SourceKind] = FILES
    plans_are_final: ClassVar[bool] = True
    counts_records: ClassVar[bool] = True
    ordered: ClassVar[bool] = True

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


class KinesisWorld:
    """A stream of two shards on the project's own server; the second shard has records."""

    kind: ClassVar[SourceKind] = KINESIS
    plans_are_final: ClassVar[bool] = False
    counts_records: ClassVar[bool] = False
    ordered: ClassVar[bool] = True

    def __init__(self, folder: Path, stream: StreamUnderTest, endpoint: str) -> None:
        self._stream = stream
        self._sequence_by_name: dict[str, str] = {}
        start = tuple(
            SplitProgress(split=shard, floor=Horizon(), position=Horizon())
            for shard in stream.shard_ids()
        )
        budgets = ReadBudgets(SystemClock(), interval=timedelta(0))
        definition = _load_of(stream.name, endpoint)
        self.job = StoredJob(folder, definition, start, shared={KINESIS.name: budgets})

    @classmethod
    def opened(cls, folder: Path, request: pytest.FixtureRequest) -> Iterator[Self]:
        server: KinesisServer = request.getfixturevalue("own_kinesis")
        with kinesis_client(server.endpoint) as client:
            yield cls(folder, new_stream(client, shards=2), server.endpoint)
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


class SpreadKinesisWorld(KinesisWorld):
    """A stream with records in both shards, which have no common order."""

    ordered: ClassVar[bool] = False

    def key_of(self, name: str) -> int:
        return ord(name) % 2 * MIDDLE


class DatagenWorld:
    """One split of generated rows; a row is due every second."""

    kind: ClassVar[SourceKind] = DATAGEN
    plans_are_final: ClassVar[bool] = True
    counts_records: ClassVar[bool] = False
    ordered: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self._clock = MovableClock()
        fields = (("id.kind", "sequence"), ("id.start", "0"))
        options = DatagenOptions(rows_per_second=1, fields=fields)
        start = SplitProgress(
            split="0", floor=AtTime(at=self._clock.now()), position=At(value="0"), identity="0"
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
        self.job = StoredJob(folder, definition, (start,), clock=self._clock, name=_letter)

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


class TableLogWorld:
    """A Delta table; every commit adds one file with one row.

    Tasks read the files in parallel, so the rows of a plan have no order.
    """

    kind: ClassVar[SourceKind] = TABLE_LOG
    plans_are_final: ClassVar[bool] = True
    counts_records: ClassVar[bool] = False
    ordered: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        tables = DeltaTables(str(folder / "warehouse"))
        table = tables.create("events", ID, location=None, comment="")
        self._location = table.location
        self._version_by_name: dict[str, int] = {}
        stream = TableStream(
            split="s1", table=table.name, id=table.id, location=table.location, columns=ID
        )
        start = log_position(1).stored
        definition = replace(
            DEFINITION,
            function=TABLE_LOG.functions[0],
            source=source_ref(TABLE_LOG, TableLogOptions(streams=streams_text([stream]))),
            place_columns=TABLE_LOG.place_columns,
            source_columns=ID,
            targets=(TargetColumn(name="id", path=("id",)),),
        )
        progress = (SplitProgress(split="s1", floor=start, position=start, identity=table.id),)
        self.job = StoredJob(folder, definition, progress)
        self.job.tables = tables

    @classmethod
    def opened(cls, folder: Path, request: pytest.FixtureRequest) -> Iterator[Self]:
        del request
        yield cls(folder)

    def put(self, *names: str) -> None:
        for name in sorted(names):
            write_deltalake(self._location, pa.table({"id": [name]}), mode="append")
            self._version_by_name[name] = DeltaTable(self._location).version()

    def change(self, name: str) -> None:
        raise AssertionError(f"row {name} of a table cannot be changed")

    def after(self, name: str) -> tuple[str, Position]:
        return "s1", log_position(self._version_by_name[name] + 1).stored


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
SPREAD_WORLDS: tuple[type[World], ...] = (SpreadKinesisWorld,)
