"""Kinds of sources with something in them, each beside a catalog that outlives the source."""

import json
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Protocol

from penstock.catalog.catalog import Catalog
from penstock.clock import SystemClock
from penstock.engine.run import EpochTables, task_plans
from penstock.epochs.output import StrictRejects
from penstock.epochs.share import open_share
from penstock.job_source import open_files, source_opener
from penstock.model.epoch import Attachment, EpochPlan, Note
from penstock.model.formats import PayloadFormat
from penstock.model.job import JobDefinition, JobState, LoadProperties, TargetColumn
from penstock.model.job_kinds import RoutineProperties
from penstock.model.schema import Column, Primitive
from penstock.model.secrets import Sealed
from penstock.model.split import After, Horizon, SplitProgress
from penstock.secrets.vault import Vault
from penstock.sources.files.options import FileFormat, FilesOptions
from penstock.sources.kinesis.client import CLIENTS
from penstock.sources.kinesis.options import KinesisOptions
from penstock.sources.kinesis.source import ReadBudgets
from penstock.sources.source import Source
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


class World(Protocol):
    """One kind of source with something in it, and a catalog that outlives the source."""

    # Whether a plan names the last thing that it will read.
    plans_are_final: ClassVar[bool]
    # Whether records that wait are counted, and those that were changed.
    counts_records: ClassVar[bool]

    def put(self, *names: str) -> None:
        """Let records arrive; names that sort later stand later in the source."""
        ...

    def change(self, name: str) -> None:
        """Change records that may have been loaded already."""
        ...

    def open(self) -> Source:
        """Open catalog and source with nothing kept in memory."""
        ...

    def state(self) -> JobState:
        """Answer what the catalog remembers."""
        ...

    def commit(self, plan: EpochPlan, *, by: Source) -> Attachment:
        """Read what a plan says and store it as the next commit, which the source hears of."""
        ...

    def replay(self, attachment: Attachment) -> None:
        """Store a commit that was stored before."""
        ...

    def move(self, name: str) -> None:
        """Store that reading begins behind a name, as ALTER does."""
        ...

    def names(self, plan: EpochPlan | None) -> list[str]:
        """Answer what tasks read that are given a plan."""
        ...


class Remembered:
    """The job of a world in a catalog on disk."""

    def __init__(self, folder: Path, definition: JobDefinition, progress: Progress) -> None:
        self.clock = MovableClock()
        self._key_file = folder / "secret.key"
        self._store = SqliteStore(folder, self.clock)
        catalog = self._store.open()
        catalog.create_table(TABLE)
        body = created()
        opening = replace(body.opening, progress=progress)
        body = replace(body, definition=definition, generation=FIRST, opening=opening)
        catalog.create_job(JOB, body)

    def open(self) -> tuple[Catalog, Vault]:
        """Open the catalog as a process does that knows nothing of others."""
        catalog = self._store.open()
        return catalog, Vault(catalog, key_file=self._key_file)

    def state(self) -> JobState:
        """Answer what the catalog remembers."""
        state = self._store.open().job_by_id(JOB)
        assert state is not None
        return state

    def commit(self, plan: EpochPlan, notes: Sequence[Note], *, by: Source) -> Attachment:
        """Do with a source what the epoch loop does around a commit."""
        attachment = replace(
            commit(self.state().number + 1),
            progress=by.reached(plan, notes),
            files=plan.files,
        )
        self.apply(attachment)
        by.committed(notes)
        return attachment

    def apply(self, attachment: Attachment) -> None:
        """Let the catalog follow a commit."""
        self._store.open().apply_commit(JOB, attachment, table_version=1, commit_seconds=0)


class FilesWorld:
    """Files of a folder."""

    plans_are_final: ClassVar[bool] = True
    counts_records: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "in"
        self._folder.mkdir()
        uri = f"file://{self._folder}/"
        source = FilesOptions(uri=uri, format=FileFormat.JSON)
        start = SplitProgress(split="files", floor=Horizon(), position=Horizon())
        self._job = Remembered(folder, replace(DEFINITION, source=source), (start,))

    def put(self, *names: str) -> None:
        for name in names:
            (self._folder / name).write_text(f'{{"id": "{name}"}}\n')

    def change(self, name: str) -> None:
        (self._folder / name).write_text('{"id": "changed"}\n')

    def open(self) -> Source:
        catalog, vault = self._job.open()
        return open_files(self.state(), catalog=catalog, vault=vault, clock=self._job.clock)

    def state(self) -> JobState:
        return self._job.state()

    def commit(self, plan: EpochPlan, *, by: Source) -> Attachment:
        return self._job.commit(plan, (), by=by)

    def replay(self, attachment: Attachment) -> None:
        self._job.apply(attachment)

    def move(self, name: str) -> None:
        behind = After(value=str(self._folder / name))
        self._job.apply(move(self.state().number + 1, behind))

    def names(self, plan: EpochPlan | None) -> list[str]:
        return [] if plan is None else [Path(file.key).name for file in plan.files]


class KinesisWorld:
    """A stream of two shards on the project's own server, of which the second has records."""

    plans_are_final: ClassVar[bool] = False
    counts_records: ClassVar[bool] = False

    def __init__(self, folder: Path, stream: StreamUnderTest, endpoint: str) -> None:
        self._stream = stream
        self._sequence_by_name: dict[str, str] = {}
        start = tuple(
            SplitProgress(split=shard, floor=Horizon(), position=Horizon())
            for shard in stream.shard_ids()
        )
        self._job = Remembered(folder, _load_of(stream.name, endpoint), start)

    def put(self, *names: str) -> None:
        for name in sorted(names):
            data = json.dumps({"id": name}).encode()
            self._sequence_by_name[name] = self._stream.put(data, hash_key=self.key_of(name))

    def key_of(self, name: str) -> int:
        """Answer the hash key of a record."""
        del name
        return MIDDLE

    def change(self, name: str) -> None:
        raise AssertionError(f"nobody can change {name} of a stream")

    def open(self) -> Source:
        catalog, vault = self._job.open()
        budgets = ReadBudgets(SystemClock(), interval=timedelta(0))
        opener = source_opener(
            catalog=catalog, vault=vault, clock=SystemClock(), budgets=budgets
        )
        return opener(self.state(), threading.Event())

    def state(self) -> JobState:
        return self._job.state()

    def commit(self, plan: EpochPlan, *, by: Source) -> Attachment:
        notes, _ = self._read(plan)
        return self._job.commit(plan, notes, by=by)

    def replay(self, attachment: Attachment) -> None:
        self._job.apply(attachment)

    def move(self, name: str) -> None:
        quiet, split = self.state().progress
        behind = After(value=self._sequence_by_name[name])
        moved = replace(split, floor=behind, position=behind)
        attachment = move(self.state().number + 1, behind)
        self._job.apply(replace(attachment, progress=(quiet, moved)))

    def names(self, plan: EpochPlan | None) -> list[str]:
        return [] if plan is None else self._read(plan)[1]

    def _read(self, plan: EpochPlan) -> tuple[list[Note], list[str]]:
        """Read a plan as tasks do; answer their notes and what they have read."""
        draft = commit(self.state().number + 1)
        tables = EpochTables(
            columns=ID,
            partition_by=(),
            rejects_root="",
            lookups=(),
            table_access=Sealed(),
            source_access=self.open().task_access(),
        )
        notes: list[Note] = []
        names: list[str] = []
        for task in task_plans(plan, state=self.state(), draft=draft, tables=tables, count=2):
            reader = open_share(task, StrictRejects())
            for arrived in reader.blocks():
                names += map(str, arrived.batch.column("id").to_pylist())
            notes += reader.notes
        return notes, names


class SpreadKinesisWorld(KinesisWorld):
    """The same with records in both shards; there is no order between them."""

    def key_of(self, name: str) -> int:
        return ord(name) % 2 * MIDDLE

    def names(self, plan: EpochPlan | None) -> list[str]:
        return sorted(super().names(plan))


ID = (Column(name="id", type=Primitive.STRING),)


def _load_of(stream: str, endpoint: str) -> JobDefinition:
    return replace(
        DEFINITION,
        function="KINESIS",
        source=KinesisOptions(
            region=REGION,
            stream=stream,
            endpoint=endpoint,
            # A client is kept for every configuration, so this is one of its own.
            access_key=secrets.token_hex(8),
            secret_key="nobody checks it",  # noqa: S106 - As it says.
        ),
        source_columns=ID,
        targets=(TargetColumn(name="id", path=("id",)),),
        properties=RoutineProperties(format=PayloadFormat.JSON),
        load=LoadProperties(),
    )


@contextmanager
def kinesis_world(
    kind: type[KinesisWorld], folder: Path, server: KinesisServer
) -> Iterator[KinesisWorld]:
    """Answer a world with a stream of its own."""
    with kinesis_client(server.endpoint) as client:
        yield kind(folder, new_stream(client, shards=2), server.endpoint)
    CLIENTS.of_this_process().close()
