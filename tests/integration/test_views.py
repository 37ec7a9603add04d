"""The views jobs(…) and tasks(…) of real histories: loaded, failed, paused, killed, moved."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.result import Cell
from penstock.crashpoints import CrashPoint
from penstock.epochs.task import run_task_text
from penstock.model.job import Status, StatusCode
from tests.integration.command import Shell
from tests.integration.driving import (
    Gate,
    crash_at,
    reports_until,
    rounds_until,
    stopped,
    supervised,
)
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

JOBS = """SELECT * FROM jobs("type" = "insert")"""
TASKS = """SELECT * FROM tasks("type" = "insert")"""


class History:
    """A node with one job, and operations on the job; it is paused between them."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "in"
        self.files = 0
        self.node = Node(folder / "home")
        self.add_file()
        self.node.sql(f"{CREATE_TABLE}; {create_job(self.source)}; PAUSE JOB j")

    def add_file(self) -> None:
        """Write the next file."""
        self.files += 1
        write_rows(self.source / f"{self.files:03}.json", numbered(self.files))

    def load(self) -> None:
        """Load all files."""
        self.node.sql("RESUME JOB j")
        self.node.run()
        self.node.sql("PAUSE JOB j")

    def fail(self) -> None:
        """Load an unreadable file, and delete it afterwards."""
        self.add_file()
        broken = self.source / "broken.json"
        broken.write_text("{oops\n")
        self.node.sql("RESUME JOB j")
        self.node.run()
        broken.unlink()

    def pause(self) -> None:
        """Pause the job while a task runs."""
        self.add_file()
        gate = self.node.work = Gate()
        self.node.sql("RESUME JOB j")
        with supervised(self.node) as supervisor:
            rounds_until(supervisor, lambda _: gate.entered.is_set())
            self.node.sql("PAUSE JOB j")
            gate.opened.set()
            reports_until(supervisor, stopped)
        self.node.work = run_task_text

    def kill(self) -> None:
        """Crash the runner while a task runs."""
        self.add_file()
        self.node.sql("RESUME JOB j")
        crash_at(self.node, CrashPoint.EPOCH_STARTED)
        self.node.sql("PAUSE JOB j")

    def restart(self) -> None:
        """Open a new node, so that no state in memory remains."""
        self.node = self.node.restart()

    def move(self) -> None:
        """Move the offset back to the first file with ALTER."""
        first = json.dumps({"fileName": str(self.source / "001.json")})
        self.node.sql(f"ALTER JOB j PROPERTIES('offset' = '{first}')")


STEPS = (
    History.load,
    History.fail,
    History.pause,
    History.kill,
    History.restart,
    History.move,
)


def one_job(node: Node) -> dict[str, Cell]:
    """Return the only row of jobs."""
    (row,) = node.sql(JOBS)
    return row


def tasks_counted(row: dict[str, Cell]) -> int:
    """Return the sum of the job's three task counts."""
    names = ("SucceedTaskCount", "FailedTaskCount", "CanceledTaskCount")
    return sum(int(str(row[name])) for name in names)


@settings(max_examples=12, deadline=None)
@given(steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=6))
def test_the_number_of_tasks_equals_the_counts_of_a_paused_job(
    steps: list[Callable[[History], None]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder))

        for step in steps:
            step(history)

        job, tasks = one_job(history.node), history.node.sql(TASKS)
        history.node.catalog.close()
    assert job["Status"] == "PAUSED"
    assert len(tasks) == tasks_counted(job)
    read = sum(json.loads(str(task["LoadStatistic"]))["ScannedRows"] for task in tasks)
    assert read == json.loads(str(job["LoadStatistic"]))["scannedRows"]


def test_t43_the_end_offset_stays_when_a_user_moves_the_offset_back(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.add_file()
    history.load()

    history.move()

    row = one_job(history.node)
    assert json.loads(str(row["CurrentOffset"])) == {"fileName": f"{history.source}/001.json"}
    assert json.loads(str(row["EndOffset"])) == {"fileName": f"{history.source}/002.json"}


def test_failed_and_cancelled_tasks_are_listed_after_a_restart(
    tmp_path: Path,
) -> None:
    history = History(tmp_path)
    history.load()
    history.fail()
    history.pause()
    before = history.node.sql(TASKS)

    history.restart()

    assert [task["Status"] for task in before] == ["CANCELED", "FAILED", "SUCCESS"]
    assert history.node.sql(TASKS) == before


def test_the_command_can_query_a_view(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    write_rows(tmp_path / "in" / "a.json", numbered(1))
    shell.sql(f"{CREATE_TABLE}; {create_job(tmp_path / 'in')}")

    result = shell.sql(
        """SELECT Name, Status FROM jobs("type"="insert") WHERE Name = "j";"""
        """SELECT count(*) AS tasks FROM tasks("type"="insert")""",
        "--format",
        "json",
    )

    assert (result.code, result.error) == (0, "")
    assert result.json == [[{"Name": "j", "Status": "PENDING"}], [{"tasks": 0}]]


@pytest.mark.parametrize("select", [JOBS, TASKS])
def test_a_view_needs_no_heavy_library(tmp_path: Path, select: str) -> None:
    # Importing a broken module would fail the statement.
    for library in ("pyspark", "pyarrow", "deltalake", "alembic", "pandas", "numpy"):
        (tmp_path / "broken" / library).mkdir(parents=True)
        (tmp_path / "broken" / library / "__init__.py").write_text("raise ImportError")
    shell = Shell(tmp_path)
    write_rows(tmp_path / "in" / "a.json", numbered(1))
    shell.sql(f"{CREATE_TABLE}; {create_job(tmp_path / 'in')}")

    paths = [str(tmp_path / "broken"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    shell.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    result = shell.sql(select)

    assert (result.code, result.error) == (0, "")


def test_the_status_of_an_earlier_runner_is_replaced_when_an_epoch_starts(
    tmp_path: Path,
) -> None:
    node, folder = Node(tmp_path / "home"), tmp_path / "in"
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    idle = Status(code=StatusCode.IDLE, fields=(("until", "2026-01-31T10:00:00+00:00"),))
    node.catalog.set_status(node.job("j").id, idle)
    seen = []

    def work(task: str, try_id: str) -> str:
        seen.append(node.catalog.report(node.job("j").id).status)
        return run_task_text(task, try_id)

    node.work = work
    node.run()

    assert [status and status.code for status in seen] == [StatusCode.LOADING]
