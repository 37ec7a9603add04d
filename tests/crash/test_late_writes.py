"""A write that is delayed on its way never makes a row appear after PAUSE returned."""

import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.errors import UserError
from penstock.model.epoch import Attachment, CommitKind, DataFile
from penstock.model.job import TableRef
from penstock.model.schema import Column
from penstock.supervisor.supervisor import Supervisor
from penstock.tables.delta import DeltaHandle, DeltaTables
from penstock.tables.log import LOG_FOLDER, log_entry
from penstock.tables.outcomes import outcome_unknown
from penstock.tables.table import RejectsLog, TableHandle
from tests.crash.harness import until
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

pytestmark = pytest.mark.crash


@dataclass
class LateWrite:
    """A log entry of a Delta table that has been sent and has not arrived."""

    content: bytes
    target: Path

    def arrive(self) -> bool:
        """Let the entry arrive, as storage does: only where that version is still free."""
        try:
            with self.target.open("xb") as entry:
                entry.write(self.content)
        except FileExistsError:
            return False
        return True


@dataclass
class SlowNetwork:
    """Holds back the first commit of rows, and its answer, as long as the test wants."""

    scratch: Path
    held: list[LateWrite] = field(default_factory=list)
    given_up: threading.Event = field(default_factory=threading.Event)

    def send(self, attachment: Attachment, files: Sequence[DataFile], *, root: Path) -> None:
        """Write the commit into a copy of the log, so that its entry is the real one."""
        copy = self.scratch / "copy"
        shutil.copytree(root / LOG_FOLDER, copy / LOG_FOLDER)
        version = DeltaHandle(copy).commit(attachment, files)
        content = log_entry(copy, version).read_bytes()
        self.held.append(LateWrite(content=content, target=log_entry(root, version)))
        assert self.given_up.wait(60)
        raise outcome_unknown(attachment, "No answer came")


class SlowHandle(DeltaHandle):
    """A Delta table whose storage answers through the slow network."""

    def __init__(self, root: Path, network: SlowNetwork) -> None:
        super().__init__(root)
        self._network = network

    def commit(self, attachment: Attachment, files: Sequence[DataFile]) -> int:
        if attachment.kind is CommitKind.EPOCH and not self._network.held:
            self._network.send(attachment, files, root=self._root)
        return super().commit(attachment, files)


@dataclass(frozen=True)
class SlowTables:
    """Delta tables behind the slow network."""

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
        return SlowHandle(Path(location), self.network)

    def normal_location(self, location: str) -> str:
        return self.real.normal_location(location)

    def delete(self, location: str) -> None:
        self.real.delete(location)

    def rejects_location(self, job_id: str) -> str:
        return self.real.rejects_location(job_id)

    def open_rejects(self, job_id: str) -> RejectsLog:
        return self.real.open_rejects(job_id)

    def delete_rejects(self, job_id: str) -> None:
        self.real.delete_rejects(job_id)

    def missing_files(self, location: str, paths: Sequence[str]) -> tuple[str, ...]:
        return self.real.missing_files(location, paths)


@dataclass(frozen=True)
class Sending:
    """A node whose runner has sent a commit that did not arrive yet."""

    node: Node
    network: SlowNetwork
    supervisor: Supervisor

    @property
    def write(self) -> LateWrite:
        return self.network.held[0]

    def give_up(self) -> None:
        """Let the runner believe that its commit failed, and come to its end."""
        self.network.given_up.set()
        self.supervisor.stop()


@pytest.fixture
def sending(tmp_path: Path, folder: Path) -> Iterator[Sending]:
    network = SlowNetwork(scratch=tmp_path)
    tables = SlowTables(DeltaTables(tmp_path / "home" / "warehouse"), network)
    node = Node(tmp_path / "home", tables=tables)
    write_rows(folder / "a.json", numbered(1, 2))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    supervisor = node.supervisor()
    supervisor.start(sole_process=True)
    supervisor.round()
    until(lambda: bool(network.held))
    opened = Sending(node=node, network=network, supervisor=supervisor)
    yield opened
    opened.give_up()
    node.catalog.close()


def test_a_write_that_nobody_outran_makes_its_rows_appear_once(sending: Sending) -> None:
    arrived = sending.write.arrive()

    sending.give_up()
    sending.node.run()

    assert arrived
    assert sending.node.rows("t") == numbered(1, 2)
    assert sending.node.show("j")["rows_loaded"] == 2


def test_a_write_that_arrives_after_pause_returned_makes_no_row_appear(
    sending: Sending,
) -> None:
    sending.node.sql("PAUSE JOB j")

    arrived = sending.write.arrive()

    assert not arrived
    assert sending.node.rows("t") == []
    assert sending.node.show("j")["rows_loaded"] == 0


def test_a_write_that_arrives_after_its_runner_gave_up_makes_no_row_appear_twice(
    sending: Sending,
) -> None:
    sending.node.sql("PAUSE JOB j")
    sending.give_up()

    sending.node.sql("RESUME JOB j")
    sending.node.run()
    arrived = sending.write.arrive()

    assert not arrived
    assert sending.node.rows("t") == numbered(1, 2)
    assert sending.node.show("j")["rows_loaded"] == 2


def test_a_write_that_arrives_after_alter_returned_makes_no_row_appear(
    sending: Sending, folder: Path
) -> None:
    write_rows(folder / "b.json", numbered(3))
    behind_a = f"""{{"fileName": "{folder / "a.json"}"}}"""
    sending.node.sql(f"PAUSE JOB j; ALTER JOB j PROPERTIES('offset' = '{behind_a}')")

    arrived = sending.write.arrive()
    sending.give_up()
    sending.node.sql("RESUME JOB j")
    sending.node.run()

    assert not arrived
    assert sending.node.rows("t") == numbered(3)


def test_a_write_that_arrives_after_drop_returned_makes_no_row_appear(sending: Sending) -> None:
    sending.node.sql("DROP JOB j")

    arrived = sending.write.arrive()

    assert not arrived
    assert sending.node.rows("t") == []
    with pytest.raises(UserError, match="does not exist"):
        sending.node.sql("SHOW EPOCHS FOR j")
