"""Run Penstock as real processes on one home: kill, freeze and thaw them, then check the home.

The processes are the installed command with real Spark, or the same command without Spark. The
test's own process checks the result, with SQL statements and with deltalake.
"""

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from penstock.clock import Clock, SystemClock
from penstock.control.result import Cell
from penstock.crashpoints import CrashPoint
from penstock.engine.run import Work
from penstock.model.events import BacklogEntered, BacklogFinished
from tests.crash.places import Place
from tests.crash.processes import IN_PROCESS, TIMEOUT_SECONDS, kill, start
from tests.node import CREATE_TABLE, Node, numbered

KILLED = -signal.SIGKILL
ROWS_PER_FILE = 3

_POLL_PERIOD = timedelta(milliseconds=20)

_SETTINGS = """
warehouse = {warehouse}
warehouse_secret = {secret}

[spark]
master = "local[2,4]"

[spark.conf]
"spark.driver.memory" = "512m"
"""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Exit code and output of a process."""

    code: int
    output: str


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The output of SHOW for the job."""

    job: dict[str, Cell]
    epochs: list[dict[str, Cell]]


class Process:
    """One running penstock."""

    def __init__(self, command: list[str], *, output_path: Path, crash_at: str) -> None:
        self._output_path = output_path
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        if crash_at:
            environment["PENSTOCK_CRASH_AT"] = crash_at
        self._child = start(command, output_path=output_path, environment=environment)

    def wait(self) -> Ended:
        """Wait until the process has ended."""
        return Ended(
            code=self._child.wait(TIMEOUT_SECONDS), output=self._output_path.read_text()
        )

    def wait_until_frozen(self) -> None:
        """Wait until the process has stopped at its crash point."""
        observed = psutil.Process(self._child.pid)
        until(lambda: observed.status() == psutil.STATUS_STOPPED)

    def thaw(self) -> None:
        """Continue a frozen process."""
        os.kill(self._child.pid, signal.SIGCONT)

    def kill_jvm(self) -> None:
        """Kill the process's JVM."""
        children = psutil.Process(self._child.pid).children()
        (jvm,) = (child for child in children if child.name() == "java")
        jvm.kill()

    def kill(self) -> None:
        """Kill the process if it still runs; its JVM then ends by itself."""
        kill(self._child)


_RUN = ("run", "--until-caught-up", "--timeout", "3m")


@dataclass
class Home:
    """One home, a place with source files and tables, and one job that loads file by file."""

    root: Path
    place: Place
    command: tuple[str, ...] = IN_PROCESS
    # The process that continues after a kill. It behaves the same without Spark, and is faster.
    successor: tuple[str, ...] = IN_PROCESS
    processes: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path = self.root / "home"
        self.path.mkdir(parents=True)
        warehouse = self.place.warehouse or str(self.path / "warehouse")
        settings = _SETTINGS.format(
            warehouse=json.dumps(warehouse), secret=json.dumps(self.place.secret)
        )
        (self.path / "penstock.toml").write_text(settings)
        self.node = self._open_node()
        if self.place.preparation:
            self.node.sql(self.place.preparation)

    def _open_node(self, **parts: Any) -> Node:
        return Node(
            self.path,
            warehouse=self.place.warehouse,
            warehouse_secret=self.place.secret,
            **parts,
        )

    def reopen(self, *, clock: Clock, work: Work) -> Node:
        """Return the node of the test's own process, opened again with these parts."""
        self.node.catalog.close()
        self.node = self._open_node(clock=clock, work=work)
        return self.node

    def close(self) -> None:
        """Kill the processes that still run."""
        for process in self.processes:
            process.kill()
        self.node.catalog.close()

    def start(self, *arguments: str, crash_at: str = "", successor: bool = False) -> Process:
        """Start penstock with these arguments."""
        output_path = self.root / f"output-{len(self.processes)}.txt"
        command = [
            *(self.successor if successor else self.command),
            "--home",
            str(self.path),
            *arguments,
        ]
        self.processes.append(Process(command, output_path=output_path, crash_at=crash_at))
        return self.processes[-1]

    def sql(self, text: str, *, crash_at: str = "") -> Ended:
        """Run statements in a process of their own."""
        return self.start("sql", "-e", text, crash_at=crash_at).wait()

    def run(self, *, crash_at: str = "") -> Ended:
        """Run the job in a process of its own until it is caught up."""
        return self.start_run(crash_at=crash_at).wait()

    def finish(self) -> Ended:
        """Start another process after a kill, and wait until the job is caught up."""
        return self.start(*_RUN, successor=True).wait()

    def start_run(self, *, crash_at: str = "") -> Process:
        """Start a process that runs the job until it is caught up."""
        return self.start(*_RUN, crash_at=crash_at)

    def write(self, *files: int) -> None:
        """Write source files."""
        for file in files:
            self.write_text(file, lines_of(file))

    def write_text(self, file: int, text: str) -> None:
        """Write a source file with the given content."""
        self.place.write_source(f"{file}.json", text)

    def source(self, file: int) -> str:
        """Return the name of a source file in Penstock."""
        return self.place.source(f"{file}.json")

    def create(self, **properties: str) -> None:
        """Create the table and a job that loads one file per epoch."""
        self.node.sql(CREATE_TABLE)
        self.node.sql(self.create_job(**properties))

    def create_job(self, *, select: str = "id, note", **properties: str) -> str:
        """Return the statement that creates the job."""
        given = {"s3.max_batch_files": "1", "max_interval": "1s", **properties}
        clause = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
        return (
            f"CREATE JOB j PROPERTIES({clause}) ON STREAMING DO "  # noqa: S608 - Our own SQL.
            f"INSERT INTO t SELECT {select} FROM FILES({self.place.arguments})"
        )

    def load(self, *files: int) -> None:
        """Create the job on these files and load them, without any process."""
        self.write(*files)
        self.create()
        self.node.run()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table."""
        return self.rows_at(self.location)

    def rows_at(self, location: str) -> list[dict[str, Any]]:
        """Return the rows of a table, sorted by their text."""
        contents = (self.place.read(location, name) for name in self.files_at(location))
        tables = [pq.read_table(BytesIO(content)) for content in contents]
        rows = [row for table in tables for row in table.to_pylist()]
        return sorted(rows, key=lambda row: json.dumps(row, default=str))

    def files_at(self, location: str) -> set[str]:
        """Return the data files of a table, as deltalake reports them."""
        table = DeltaTable(location, storage_options=self.place.storage_options)
        return {str(path) for path in pa.table(table.get_add_actions())["path"].to_pylist()}

    @property
    def state(self) -> Cell:
        """The job's state in SHOW JOBS."""
        return self.node.show("j")["state"]

    def shown(self) -> Shown:
        """Return the output of SHOW for the job."""
        job = self.node.show("j")
        # The number of requests to a bucket grows with every poll.
        del job["requests_per_hour"]
        return Shown(job=job, epochs=self.node.sql("SHOW EPOCHS FOR j"))

    @property
    def location(self) -> str:
        """The location of the table."""
        record = self.node.catalog.table("t")
        assert record is not None
        return record.location

    def written_files(self) -> set[str]:
        """Return the data files that tasks have written, whether or not they are committed."""
        names = self.place.names(self.location)
        return {name for name in names if name.endswith(".parquet") and "/" not in name}


def crash(point: CrashPoint, *, count: int = 1, action: str = "kill") -> str:
    """Return the setting that kills or freezes a process at a crash point."""
    return f"{point}:{action}:{count}"


def lines_of(file: int) -> str:
    """Return the content of a source file."""
    return "".join(f"{json.dumps(row)}\n" for row in rows_of(file))


def rows_of(*files: int) -> list[dict[str, Any]]:
    """Return the rows of source files, in the order of ``Home.rows``."""
    numbers = [10 * file + row for file in files for row in range(ROWS_PER_FILE)]
    return sorted(numbered(*numbers), key=lambda row: json.dumps(row, default=str))


def assert_exact(home: Home, *files: int) -> Shown:
    """Require that table, catalog, ledger and copies contain each row of these files once.

    A file that is named twice was loaded twice, because the user requested it.
    """
    shown = home.shown()
    assert home.rows == rows_of(*files)
    assert shown.job["files_loaded"] == len(files)
    assert shown.job["rows_loaded"] == len(files) * ROWS_PER_FILE
    assert shown.job["rows_rejected"] == 0
    assert shown.job["position"] == home.source(max(files))
    assert_ledger(shown, files=len(files))
    assert_chain(home, numbers=len(committed(shown)))
    return shown


def assert_ledger(shown: Shown, *, files: int) -> None:
    """Require that the ledger is contiguous, adds up, and leaves no attempt open."""
    chain = committed(shown)
    versions = [int(str(row["table_version"])) for row in chain]
    epochs = Counter(row["epoch"] for row in chain if row["kind"] == "epoch")
    assert [row["number"] for row in chain] == list(range(1, len(chain) + 1))
    assert versions == sorted(set(versions))
    assert set(epochs.values()) == {1}
    assert sum(int(str(row["files"])) for row in chain) == files
    assert sum(int(str(row["rows"])) for row in chain) == files * ROWS_PER_FILE
    assert {row["outcome"] for row in shown.epochs} <= {"COMMITTED", "CANCELLED", "FAILED"}


def assert_chain(home: Home, *, numbers: int) -> None:
    """Require that catalog, table and copies agree on the job's commits."""
    job = home.node.job("j")
    assert home.node.tables is not None
    handle = home.node.tables.open(home.location)
    copies = f"_penstock/{job.id}/"
    assert job.number == numbers
    assert handle.newest_number(job.id) == numbers
    assert {name for name in home.place.names(home.location) if name.startswith(copies)} == {
        f"{copies}{number}.json" for number in range(1, numbers + 1)
    }


def assert_lasting(home: Home, before: Shown) -> None:
    """Require that another run, which finds no new file, changes nothing but its fence."""
    # The run does not start Spark, so it needs no process of its own.
    home.node.run()
    after = home.shown()
    assert after.job == before.job
    assert after.epochs[: len(before.epochs)] == before.epochs
    assert [row["kind"] for row in after.epochs[len(before.epochs) :]] == ["fence"]


def committed(shown: Shown) -> list[dict[str, Cell]]:
    """Return the rows of SHOW EPOCHS that are commits."""
    return [row for row in shown.epochs if row["outcome"] == "COMMITTED"]


def until(done: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    clock, never = SystemClock(), threading.Event()
    deadline = clock.monotonic() + TIMEOUT_SECONDS
    while not done():
        assert clock.monotonic() < deadline
        clock.wait(never, _POLL_PERIOD)


def assert_boundaries_kept(node: Node, job: str = "j") -> None:
    """Require one fixing of boundaries, and at most one finish of each."""
    bodies = [event.body for event in node.catalog.events(node.job(job).id)]
    fixed = {body.record.armed for body in bodies if isinstance(body, BacklogEntered)}
    entered = next(body for body in bodies if isinstance(body, BacklogEntered))
    boundaries = {split.split: split.boundary for split in entered.record.splits}
    finished = [body.split for body in bodies if isinstance(body, BacklogFinished)]
    assert fixed == {1}
    assert {split.split: split.boundary for split in finished} == boundaries
    assert len(finished) == len(boundaries)
