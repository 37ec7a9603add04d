"""A delayed write adds no row after PAUSE has returned."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from penstock.errors import Code, UserError
from penstock.model.epoch import Attachment, CommitKind, DataFile
from penstock.model.job import TableRef
from penstock.model.schema import Column
from penstock.model.secrets import Sealed
from penstock.supervisor.supervisor import Supervisor
from penstock.tables.chain import log_entry
from penstock.tables.delta import DeltaHandle, DeltaTables
from penstock.tables.folder import LOG_FOLDER
from penstock.tables.table import RejectsLog, TableHandle, outcome_unknown
from tests.crash.harness import Home, assert_exact, rows_of, until
from tests.error_values import raises

pytestmark = pytest.mark.crash


@dataclass(frozen=True)
class LateWrite:
    """A log entry of a Delta table that has been sent and has not arrived."""

    home: Home
    entry: str
    content: bytes

    def arrive(self) -> bool:
        """Write the entry as storage would; return False if that version exists."""
        return self.home.place.write_new(self.home.location, self.entry, self.content)


@dataclass
class SlowNetwork:
    """Delays the first commit of rows and its response until the test continues."""

    home: Home
    held: list[LateWrite] = field(default_factory=list)
    given_up: threading.Event = field(default_factory=threading.Event)

    def send(self, attachment: Attachment, files: Sequence[DataFile]) -> None:
        """Write the commit to a copy of the log, which creates the real log entry."""
        place, location = self.home.place, self.home.location
        copy = self.home.root / "copy"
        (copy / LOG_FOLDER).mkdir(parents=True)
        for name in place.names(location):
            if name.startswith(f"{LOG_FOLDER}/"):
                (copy / name).write_bytes(place.read(location, name))
        handle = DeltaTables(str(self.home.root)).open(str(copy))
        entry = log_entry(handle.commit(attachment, files))
        content = (copy / entry).read_bytes()
        self.held.append(LateWrite(home=self.home, entry=entry, content=content))
        assert self.given_up.wait(60)
        raise outcome_unknown(attachment, "There was no response")


class SlowHandle(DeltaHandle):
    """A Delta table whose storage uses the slow network."""

    def __init__(self, tables: DeltaTables, location: str, network: SlowNetwork) -> None:
        super().__init__(partial(tables.folder, location))
        self._network = network

    def commit(self, attachment: Attachment, files: Sequence[DataFile]) -> int:
        if attachment.kind is CommitKind.EPOCH and not self._network.held:
            self._network.send(attachment, files)
        return super().commit(attachment, files)


@dataclass(frozen=True)
class SlowTables:
    """Delta tables on the slow network."""

    real: DeltaTables
    network: SlowNetwork

    def create(
        self,
        name: str,
        columns: tuple[Column, ...],
        *,
        location: str | None,
        comment: str,
        partition_by: tuple[str, ...] = (),
    ) -> TableRef:
        return self.real.create(
            name, columns, location=location, comment=comment, partition_by=partition_by
        )

    def open(self, location: str) -> TableHandle:
        return SlowHandle(self.real, location, self.network)

    def normal_location(self, location: str) -> str:
        return self.real.normal_location(location)

    def delete(self, location: str) -> None:
        self.real.delete(location)

    def rejects_location(self, job_id: str) -> str:
        return self.real.rejects_location(job_id)

    def open_rejects(self, job_id: str, columns: tuple[Column, ...]) -> RejectsLog:
        return self.real.open_rejects(job_id, columns)

    def delete_rejects(self, job_id: str) -> None:
        self.real.delete_rejects(job_id)

    def delete_staged(self, location: str, job_id: str) -> None:
        self.real.delete_staged(location, job_id)

    def missing_files(self, location: str, paths: Sequence[str]) -> tuple[str, ...]:
        return self.real.missing_files(location, paths)

    def task_access(self, location: str) -> Sealed:
        return self.real.task_access(location)


@dataclass(frozen=True)
class Sending:
    """A home whose runner has sent a commit that has not arrived."""

    home: Home
    network: SlowNetwork
    supervisor: Supervisor

    @property
    def write(self) -> LateWrite:
        return self.network.held[0]

    def give_up(self) -> None:
        """Return an error to the runner for its commit, and stop the supervisor."""
        self.network.given_up.set()
        self.supervisor.stop()


@pytest.fixture
def sending(home: Home) -> Iterator[Sending]:
    network = SlowNetwork(home)
    assert isinstance(home.node.tables, DeltaTables)
    home.node.tables = SlowTables(home.node.tables, network)
    home.write(1)
    home.create()
    supervisor = home.node.supervisor()
    supervisor.start(sole_process=True)
    supervisor.round()
    until(lambda: bool(network.held))
    opened = Sending(home=home, network=network, supervisor=supervisor)
    yield opened
    opened.give_up()


def test_a_late_write_without_a_fence_adds_its_rows_once(sending: Sending) -> None:
    arrived = sending.write.arrive()

    sending.give_up()
    sending.home.node.run()

    assert arrived
    assert_exact(sending.home, 1)


def test_a_write_that_arrives_after_pause_adds_no_row(
    sending: Sending,
) -> None:
    sending.home.node.sql("PAUSE JOB j")

    arrived = sending.write.arrive()

    assert not arrived
    assert sending.home.rows == []
    assert sending.home.shown().job["rows_loaded"] == 0


def test_a_write_that_arrives_after_its_runner_gave_up_duplicates_no_row(
    sending: Sending,
) -> None:
    sending.home.node.sql("PAUSE JOB j")
    sending.give_up()

    sending.home.node.sql("RESUME JOB j")
    sending.home.node.run()
    arrived = sending.write.arrive()

    assert not arrived
    assert_exact(sending.home, 1)


def test_a_write_that_arrives_after_alter_adds_no_row(
    sending: Sending,
) -> None:
    home = sending.home
    home.write(2)
    after_one = f"""{{"fileName": "{home.source(1)}"}}"""
    home.node.sql(f"PAUSE JOB j; ALTER JOB j PROPERTIES('offset' = '{after_one}')")

    arrived = sending.write.arrive()
    sending.give_up()
    home.node.sql("RESUME JOB j")
    home.node.run()

    assert not arrived
    assert home.rows == rows_of(2)


def test_a_write_that_arrives_after_drop_adds_no_row(sending: Sending) -> None:
    sending.home.node.sql("DROP JOB j")

    arrived = sending.write.arrive()

    assert not arrived
    assert sending.home.rows == []
    with raises(UserError, Code.META_NOT_FOUND_ERR, '"j"'):
        sending.home.node.sql("SHOW EPOCHS FOR j")
