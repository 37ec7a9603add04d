"""Two nodes with the real protocol, statements and faults, on fake tables in memory.

All decisions are product code: runners, supervisor rounds, statements, chain and catalog. The
world only chooses the next actor and the faults of commits.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, cast

from penstock.catalog.catalog import Catalog, JobMemory, TableRecord, open_catalog
from penstock.control.changes import ConcurrentChangeError
from penstock.control.execute import Services
from penstock.control.jobs import alter_job, drop_job, open_job, pause_job, resume_job
from penstock.engine.loop import LoadParts, open_load_loop
from penstock.epochs.output import TaskPlan
from penstock.epochs.runner import LoopParts
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import Ack, Attachment, DataFile
from penstock.model.job import JobDefinition, JobState, TableRef
from penstock.model.job_kinds import JobProperties
from penstock.model.schema import Column, Primitive
from penstock.model.split import Horizon, Note, ReadCounts, SplitProgress, SplitRead
from penstock.secrets.vault import Vault
from penstock.sources.files.kind import FILES, FileFormat, FilesOptions
from penstock.sources.files.source import FilesSource
from penstock.sources.registry import Sources, source_options, source_ref
from penstock.sources.source import SourceServices
from penstock.sql.statements import AlterJob, DropJob, PauseJob, ResumeJob
from penstock.storage.options import StoreOptions
from penstock.storage.store import ObjectMeta, Selection, Store
from penstock.storage.uris import Uri
from penstock.supervisor.loop import RunnerKind
from penstock.supervisor.runner import SupervisorParts
from penstock.supervisor.supervisor import Supervisor
from penstock.testing.executor import InProcessExecutor
from penstock.testing.memory_tables import Fault, MemoryTables
from tests.property.protocol.actors import Actor, Stepping, halt_here

NAME = "j"
URI = "file:///in/*.json"
START = datetime(2026, 1, 1, tzinfo=UTC)
# The tests use no secrets.
_NO_KEY = Path("/nowhere/secret.key")


class SteppedClock:
    """A clock that only the test advances; a wait is one step of an actor."""

    def __init__(self) -> None:
        self._now = START

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - START).total_seconds()

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:
        del timeout
        halt_here("clock.wait")
        return event.is_set()

    def advance(self, duration: timedelta) -> None:
        self._now += duration


class MemoryFiles:
    """Source files in memory; each file has one row, its key."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def add(self) -> None:
        self.keys.append(f"/in/{len(self.keys):04d}.json")

    requests = 0

    def list(
        self, prefix: str, *, selection: Selection, after: str = ""
    ) -> Iterator[ObjectMeta]:
        assert prefix == "/in/"
        for key in filter(selection.matches, list(self.keys)):
            if key <= after:
                continue
            yield ObjectMeta(key=key, etag=key, size_bytes=1, modified_at=START)


class NodeOfWorld:
    """A node whose runners are actors."""

    def __init__(self, world: "World", name: str) -> None:
        self.runners: list[Actor] = []
        self.name = name
        catalog = cast("Catalog", Stepping(world.catalog, name="catalog"))
        parts = LoadParts(
            loop=LoopParts(
                catalog=catalog,
                tables=cast("Any", Stepping(world.tables, name="tables")),
                clock=world.clock,
                open_source=world.open_source,
                node_id=name,
            ),
            executor=InProcessExecutor(parallelism=1),
            work=world.work,
        )
        runner = RunnerKind(
            open_loop=lambda job_id, reporter: open_load_loop(
                job_id, parts=parts, reporter=reporter
            ),
            caught_up=_unexpected_poll,
        )
        self.supervisor = Supervisor(
            parts=SupervisorParts(
                catalog=catalog,
                clock=world.clock,
                node_id=name,
                start_thread=self._start_runner,
                runners={"load": runner},
            )
        )

    def crash(self) -> None:
        for actor in self.runners:
            actor.crash()

    def _start_runner(self, run: Callable[[], None], name: str) -> threading.Thread:
        del name
        actor = Actor(f"{self.name}-{len(self.runners)}", run)
        self.runners.append(actor)
        return actor.thread


class World:
    """The shared state, and all actors that change it."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.files = MemoryFiles()
        self.next_fault = Fault.NONE
        self.tables = MemoryTables(self._fault)
        self.catalog = open_catalog("sqlite://", clock=self.clock)
        self.vault = Vault(self.catalog, key_file=_NO_KEY)
        self.table = self.tables.create("t", COLUMNS, location="memory://t", comment="")
        record = TableRecord(
            name="t",
            id=self.table.id,
            location=self.table.location,
            managed=True,
            comment="",
            created_at=START,
        )
        self.catalog.create_table(record)
        self.job_ids: list[str] = []
        self.nodes_created = 0
        self.nodes = [self.new_node(), self.new_node()]
        self.statements: list[Actor] = []
        self.restored = False
        self._seen: tuple[int, JobState | None] | None = None

    def close(self) -> None:
        """End every actor and close the catalog."""
        for actor in [*self.runners(), *self.open_statements()]:
            actor.crash()
        self.catalog.close()

    def new_node(self) -> NodeOfWorld:
        self.nodes_created += 1
        return NodeOfWorld(self, f"n{self.nodes_created}")

    def runners(self) -> list[Actor]:
        every = [runner for node in self.nodes for runner in node.runners]
        return [runner for runner in every if not runner.ended]

    def open_statements(self) -> list[Actor]:
        return [statement for statement in self.statements if not statement.ended]

    def state(self) -> JobState | None:
        """Return the job; read it again only after a write to the catalog."""
        changes = self._connection.total_changes
        if self._seen is None or self._seen[0] != changes:
            self._seen = (changes, self.catalog.job(NAME))
        return self._seen[1]

    def chain(self, job_id: str) -> list[Attachment]:
        handle = self.tables.open(self.table.location)
        return [commit.attachment for commit in handle.chain_after(job_id, 0)]

    def services(self) -> Services:
        return Services(
            catalog=cast("Catalog", Stepping(self.catalog, name="catalog")),
            open_tables=lambda: cast("Any", Stepping(self.tables, name="tables")),
            clock=self.clock,
            open_analyzer=_no_spark,
            vault=self.vault,
            sources=Sources(catalog=self.catalog, vault=self.vault, clock=self.clock),
        )

    def create(self) -> JobState:
        job = definition(self.table)
        start = SplitProgress(split=URI, floor=Horizon(), position=Horizon())
        state = open_job(job, progress=(start,), services=self.services())
        self.job_ids.append(state.id)
        return state

    def pause(self) -> None:
        pause_job(PauseJob(name=NAME), services=self.services())

    def resume(self) -> None:
        resume_job(ResumeJob(name=NAME), services=self.services())

    def alter(self, key: str) -> None:
        properties = (("offset", f'{{"fileName": "{key}"}}'),)
        alter_job(AlterJob(name=NAME, properties=properties), services=self.services())

    def drop(self) -> None:
        drop_job(DropJob(name=NAME), services=self.services())

    def start_statement(self, name: str, statement: Callable[[], Any]) -> Actor:
        """Start a statement as an actor; retry it after a concurrent change."""

        def run() -> Any:
            while True:
                try:
                    return statement()
                except ConcurrentChangeError:
                    continue

        actor = Actor(name, run)
        self.statements.append(actor)
        return actor

    def backup(self) -> bytes:
        return bytes(self._connection.serialize())

    def restore(self, backup: bytes) -> None:
        """Restore the catalog from a backup; crash the statements in progress."""
        for actor in self.statements:
            actor.crash()
        self._connection.deserialize(backup)
        self._seen = None
        self.restored = True

    def open_source(self, state: JobState, stop: threading.Event) -> FilesSource:
        def open_store(uri: Uri, options: StoreOptions) -> tuple[Store, str]:
            assert options == StoreOptions()
            return cast("Store", self.files), uri.key

        services = SourceServices(
            state=state,
            clock=self.clock,
            stop=stop,
            reveal=lambda key, text: self.vault.reveal(text, option=key),
            seal=self.vault.sealed_for_tasks,
            items=self.catalog.files_of(state.id),
            memory=JobMemory(self.catalog, state.id, state.generation),
            shared=None,
        )
        options = source_options(state.definition.source)
        return FilesSource(options, services=services, open_store=open_store)

    def work(self, text: str, try_id: str) -> str:
        """Run a task with rows in memory."""
        plan = from_text(TaskPlan, text)
        path = f"part-{plan.attempt_id}-{plan.task}-{try_id}.parquet"
        reads = plan.read.reads
        self.tables.register_rows(path, [{"key": read.shown} for read in reads])
        written = DataFile(
            path=path,
            size_bytes=1,
            rows=len(reads),
            modified_at=self.clock.now(),
            statistics_json="{}",
        )
        self.tables.register_rows(f"rejects-{path}", [])
        ack = Ack(
            task=plan.task,
            files=(written,),
            notes=tuple(map(_note, reads)),
            rows_produced=len(reads),
            reject_files=(replace(written, path=f"rejects-{path}"),),
            first_reject="the second row of a file",
        )
        return to_text(ack)

    def _fault(self, job_id: str, attachment: Attachment) -> Fault:
        del job_id, attachment
        fault, self.next_fault = self.next_fault, Fault.NONE
        return fault

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        """The only connection to a database in memory."""
        engine = self.catalog._database._reader
        return cast("sqlite3.Connection", engine.raw_connection().driver_connection)


def _unexpected_poll(state: JobState) -> NoReturn:
    raise AssertionError(f"no run waits for {state.name}")


def _no_spark() -> NoReturn:
    raise AssertionError("no statement of these tests needs Spark")


COLUMNS = (Column(name="key", type=Primitive.STRING),)


def _note(read: SplitRead) -> Note:
    """Return the note of a file with one valid row and one bad row."""
    assert read.end is not None
    counts = ReadCounts(rows_read=2, rows_parsed=1, rows_rejected=1)
    return Note(read=read.id, end=read.end, counts=counts, result=read.work)


def definition(table: TableRef) -> JobDefinition:
    """Return a job that loads at most two files per epoch."""
    return JobDefinition(
        name=NAME,
        comment="",
        revision=1,
        job_kind="STREAMING",
        table=table,
        columns=None,
        select="SELECT key FROM FILES()",
        select_source_start=16,
        select_source_end=23,
        function="FILES",
        source=source_ref(FILES, FilesOptions(uri=URI, format=FileFormat.JSON)),
        place_columns=FILES.place_columns,
        source_columns=COLUMNS,
        targets=(),
        properties=JobProperties(batch_files_max=2, strict=False),
    )
