"""Backlogs of sources that change: late files, equal file times, new and trimmed shards."""

import os
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.control.result import Cell
from penstock.crashpoints import CrashPoint
from penstock.epochs.task import run_task_text
from penstock.model.events import BacklogEntered, BacklogFinished, BacklogLeft
from penstock.sources.files import source as files
from penstock.sources.files.source import FilesSource
from tests.integration.bucket_jobs import access, bucket_job, put_rows
from tests.integration.driving import TIMEOUT_SECONDS, crash_at
from tests.integration.routine_loads import FIRST, HIGH, LOW, READ_INTERVAL, Load
from tests.integration.test_backlog_statements import SteppedClock, held
from tests.mirrored_node import OpenNode
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows
from tests.servers.buckets import Bucket
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import MIDDLE, StreamUnderTest, new_stream

pytestmark = pytest.mark.integration

ON_BUCKETS_TOO = True

LOADED = ["BacklogEntered", "BacklogFinished", "BacklogLeft"]
# Seconds since 1970.
PAST, FUTURE = 1_000_000_000, 4_000_000_000
ONE_FILE = [("s3.max_batch_files", "1")]


@dataclass
class Arriving:
    """A task function that first calls another function with the number of the task."""

    arrive: Callable[[int], None]
    tasks: int = 0

    def __call__(self, task: str, try_id: str) -> str:
        self.arrive(self.tasks)
        self.tasks += 1
        return run_task_text(task, try_id)


def names(node: Node, name: str = "j") -> list[str]:
    """Return the events about the backlog of a job, without those about a reset."""
    kinds = (BacklogEntered, BacklogFinished, BacklogLeft)
    bodies = [event.body for event in node.catalog.events(node.job(name).id)]
    return [type(body).__name__ for body in bodies if isinstance(body, kinds)]


def splits(node: Node, name: str = "j") -> list[dict[str, Cell]]:
    """Return the rows of SHOW BACKLOG FOR a job."""
    return node.sql(f"SHOW BACKLOG FOR {name}")


def finished_epoch(node: Node, name: str = "j") -> Cell:
    """Return the epoch that reached the boundary of the first split."""
    return splits(node, name)[0]["finished_epoch"]


def in_backlog(node: Node, name: str = "j") -> bool:
    return next(
        bool(row["in_backlog"]) for row in node.sql("SHOW BACKLOG") if row["job"] == name
    )


def write(folder: Path, *keys: str) -> None:
    """Write a file with one row for each key."""
    for key in keys:
        write_rows(folder / f"{key}.json", numbered(len(key)))


def start(node: Node, folder: Path, **options: str) -> None:
    """Create a table, and the job j that loads one file in each epoch."""
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=ONE_FILE, **options)}")


def rows(node: Node) -> int:
    return len(node.rows("t"))


def set_times(folder: Path, seconds: int) -> None:
    """Set the same time for all files; a bucket has its own times, in whole seconds."""
    for path in folder.iterdir():
        os.utime(path, (seconds, seconds))


@pytest.mark.of_local_files
def test_late_files_during_a_backlog_do_not_hold_it(node: Node, folder: Path) -> None:
    write(folder, "b", "c", "d")
    start(node, folder)
    crash_at(node, CrashPoint.CATALOG_APPLIED)
    during = in_backlog(node)
    write(folder, "a", "z")

    again = node.restart()
    again.run()

    assert (during, in_backlog(again)) == (True, False)
    # The keys are loaded in order: b, a, c, d, z.
    assert (names(again), finished_epoch(again), rows(again)) == (LOADED, 4, 5)


@pytest.mark.of_local_files
def test_a_late_file_with_an_old_time_does_not_hold_the_backlog(
    open_node: OpenNode, folder: Path
) -> None:
    def arrive(task: int) -> None:
        if not task:
            write(folder, "a")
            os.utime(folder / "a.json", (PAST, PAST))

    node = open_node(work=Arriving(arrive))
    write(folder, "b", "c", "d")
    start(node, folder)

    node.run()
    node.run()

    assert (names(node), finished_epoch(node), rows(node)) == (LOADED, 3, 4)


@pytest.mark.of_local_files
def test_a_boundary_is_reached_by_the_last_of_several_files_of_the_same_time(
    node: Node, folder: Path
) -> None:
    write(folder, "a", "b", "c")
    set_times(folder, PAST)
    start(node, folder)
    crash_at(node, CrashPoint.CATALOG_APPLIED)
    during = in_backlog(node)

    again = node.restart()
    again.run()

    assert during
    assert (names(again), finished_epoch(again)) == (LOADED, 3)
    assert splits(again)[0]["boundary"] == "TIME 2001-09-09T01:46:40.000000+00:00"


def test_files_that_arrive_in_the_second_of_the_boundary_are_loaded(
    node: Node, folder: Path
) -> None:
    write(folder, "b", "c")
    set_times(folder, PAST)
    start(node, folder)
    crash_at(node, CrashPoint.CATALOG_APPLIED)
    write(folder, "a", "d")
    set_times(folder, PAST)

    again = node.restart()
    again.run()

    assert (names(again), in_backlog(again), rows(again)) == (LOADED, False, 4)


@pytest.mark.of_local_files
def test_files_from_the_future_do_not_hold_the_backlog(
    open_node: OpenNode, folder: Path
) -> None:
    def arrive(task: int) -> None:
        write(folder, f"a{task}")

    node = open_node(work=Arriving(arrive))
    write(folder, "b", "c")
    set_times(folder, FUTURE)
    start(node, folder)

    node.run()

    assert names(node) == LOADED


@pytest.mark.of_local_files
def test_t60_a_poll_that_holds_only_some_files_finishes_no_backlog(
    node: Node, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WINDOW_FILES", 1)
    write(folder, "a", "b", "c")
    start(node, folder)

    node.run()

    assert (names(node), finished_epoch(node), rows(node)) == (LOADED, 3, 3)


@pytest.mark.of_local_files
def test_reset_backlog_inside_a_listing_includes_the_files_before_its_place(
    open_node: OpenNode, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WINDOW_FILES", 2)
    node = open_node(clock=SteppedClock())
    write(folder, "b", "c", "d", "e", "f")
    start(node, folder)

    with held(node, epoch=3) as run:
        write(folder, "a")
        node.sql("ALTER JOB j RESET BACKLOG")
        run.finish()

    assert names(node) == ["BacklogEntered", *LOADED]
    assert (finished_epoch(node), rows(node)) == (6, 6)


def test_t62_deleted_files_leave_the_backlog(node: Node, folder: Path) -> None:
    write(folder, "a", "b", "c")
    start(node, folder)
    crash_at(node, CrashPoint.CATALOG_APPLIED)
    (folder / "b.json").unlink()
    (folder / "c.json").unlink()

    again = node.restart()
    again.run()

    assert (names(again), in_backlog(again), rows(again)) == (LOADED, False, 1)
    # No epoch was needed.
    assert finished_epoch(again) is None


@pytest.mark.of_local_files
def test_the_next_files_of_a_backlog_are_listed_while_the_tasks_run(
    open_node: OpenNode, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WINDOW_FILES", 1)
    listed, prepare = threading.Event(), FilesSource.prepare

    def preparing(*given: Any, **named: Any) -> None:
        prepare(*given, **named)
        listed.set()

    def arrive(task: int) -> None:
        # The last task runs after the backlog.
        assert task == 3 or listed.wait(TIMEOUT_SECONDS)
        listed.clear()

    monkeypatch.setattr(FilesSource, "prepare", preparing)
    node = open_node(work=Arriving(arrive))
    write(folder, "a", "b", "c")
    start(node, folder)

    node.run()
    write(folder, "d")
    node.run()

    assert (names(node), finished_epoch(node), rows(node)) == (LOADED, 3, 4)
    assert not listed.is_set()


@pytest.mark.of_local_files
@pytest.mark.parametrize("seed", range(3))
def test_keys_that_keep_arriving_in_any_order_do_not_hold_the_backlog(
    open_node: OpenNode, folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(files, "WINDOW_FILES", 2)
    keys = random.Random(seed)  # noqa: S311 - Not for secrets.

    def arrive(_task: int) -> None:
        write(folder, f"{keys.random()}")

    node = open_node(work=Arriving(arrive))
    write(folder, *(f"{keys.random()}" for _ in range(8)))
    properties = [("s3.max_batch_files", "2")]
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=properties)}")

    node.run()

    assert (names(node), in_backlog(node)) == (LOADED, False)


@pytest.mark.of_local_files
def test_keys_that_keep_arriving_in_a_bucket_do_not_hold_the_backlog(
    open_node: OpenNode, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WINDOW_FILES", 2)
    keys = random.Random(0)  # noqa: S311 - Not for secrets.

    def arrive(task: int) -> None:
        put_rows(bucket, f"in/{keys.random()}.json", task)

    node = open_node(work=Arriving(arrive))
    for number in range(6):
        put_rows(bucket, f"in/{keys.random()}.json", number)
    job = bucket_job(bucket, options=access(bucket), properties=[("s3.max_batch_files", "2")])
    node.sql(f"{CREATE_TABLE}; {job}")

    node.run()

    assert (names(node), in_backlog(node)) == (LOADED, False)


ONE_RECORD = {"max_batch_rows": "1"}
FROM_HORIZON = "FROM KINESIS('property.kinesis_default_pos' = 'TRIM_HORIZON')"


@pytest.fixture
def stepped(open_node: OpenNode, server: KinesisServer, stream: StreamUnderTest) -> Load:
    """A node with a table whose clock the test moves, and a stream of one shard."""
    node = open_node(clock=SteppedClock(), read_interval=READ_INTERVAL)
    node.sql(CREATE_TABLE)
    return Load(node=node, stream=stream, server=server)


def half_loaded(load: Load) -> Load:
    """Load the first of three records, and kill the run inside its backlog."""
    load.put(1, 2, 3)
    load.create(properties=ONE_RECORD)
    with held(load.node, epoch=2):
        assert in_backlog(load.node, "r")
    return load.restart()


@pytest.mark.of_local_files
def test_t62_a_new_shard_during_a_backlog_gets_no_boundary(stepped: Load) -> None:
    load = half_loaded(stepped)
    load.stream.split(0, MIDDLE)
    load.put(4, hash_key=LOW)
    load.put(5, hash_key=HIGH)

    load.run()

    boundaries = [row["boundary"] for row in splits(load.node, "r")]
    assert sorted(load.ids()) == [1, 2, 3, 4, 5]
    assert [boundary is None for boundary in boundaries] == [False, True, True]
    assert (names(load.node, "r"), in_backlog(load.node, "r")) == (LOADED, False)
    # The records of the new shards are loaded after the backlog.
    assert load.node.job("r").epoch_committed > int(str(finished_epoch(load.node, "r")))


@pytest.mark.of_local_files
def test_t62_a_new_shard_enters_a_backlog_by_its_lag(stepped: Load) -> None:
    stepped.create(
        properties={**ONE_RECORD, "backlog.lag-high": "5m", "backlog.lag-low": "10s"}
    )
    stepped.run()
    stepped.stream.split(0, MIDDLE)
    stepped.put(1, 2, 3, hash_key=LOW)
    stepped.control.move_clock(timedelta(minutes=10))

    stepped.run()

    found = [row["lagging"] for row in splits(stepped.node, "r")]
    assert (stepped.ids(), found) == ([1, 2, 3], [False, False, False])
    assert names(stepped.node, "r") == ["BacklogLeft", "BacklogEntered", "BacklogLeft"]
    assert stepped.node.job("r").backlog.armed == 1


@pytest.mark.of_local_files
def test_reset_backlog_of_a_running_load_includes_the_newest_records(stepped: Load) -> None:
    stepped.put(1)
    stepped.create(properties=ONE_RECORD)

    with held(stepped.node) as run:
        before = splits(stepped.node, "r")[0]["boundary"]
        stepped.put(2, 3)
        stepped.control.move_clock(timedelta(seconds=20))
        stepped.sql("ALTER ROUTINE LOAD FOR r RESET BACKLOG")
        run.step()
        after = splits(stepped.node, "r")[0]["boundary"]
        run.finish()

    assert str(before) < str(after)
    assert (stepped.node.job("r").backlog.armed, in_backlog(stepped.node, "r")) == (2, False)


@pytest.mark.of_local_files
def test_t60_a_short_shard_is_finished_before_a_long_one(stepped: Load) -> None:
    load = replace(stepped, stream=new_stream(stepped.stream.client, shards=2))
    load.put(1, hash_key=LOW)
    load.put(2, 3, 4, hash_key=HIGH)
    load.create(properties={"max_batch_rows": "2"})
    with held(load.node, epoch=2):
        during = [row["finished_epoch"] for row in splits(load.node, "r")]
    again = load.restart()

    again.run()

    after = [row["finished_epoch"] for row in splits(again.node, "r")]
    assert (during, after[0]) == ([1, None], 1)
    assert names(again.node, "r").count("BacklogFinished") == 2
    assert int(str(after[1])) > 1


@pytest.mark.of_local_files
def test_t66_loaded_records_can_be_trimmed_during_a_backlog(stepped: Load) -> None:
    load = half_loaded(stepped)
    load.control.trim(load.stream.name, FIRST, count=1)

    load.run()

    assert load.ids() == [1, 2, 3]
    assert (names(load.node, "r"), in_backlog(load.node, "r")) == (LOADED, False)


@pytest.mark.of_local_files
def test_t66_a_stream_trimmed_below_the_boundary_pauses_the_load_in_its_backlog(
    stepped: Load,
) -> None:
    load = half_loaded(stepped)
    load.control.move_clock(timedelta(hours=25))
    load.control.trim(load.stream.name, FIRST)

    load.run()

    assert load.reason()[:2] == ["CANNOT_RESUME_ERR", FIRST]
    assert (names(load.node, "r"), in_backlog(load.node, "r")) == (["BacklogEntered"], True)


@pytest.mark.of_local_files
def test_t66_a_load_moved_past_trimmed_records_gets_new_boundaries(stepped: Load) -> None:
    load = half_loaded(stepped)
    load.control.move_clock(timedelta(hours=25))
    load.control.trim(load.stream.name, FIRST)
    load.put(4, 5)
    load.run()

    load.sql(f"ALTER ROUTINE LOAD FOR r {FROM_HORIZON}; RESUME ROUTINE LOAD FOR r")
    load.run()

    assert load.ids() == [1, 4, 5]
    assert (load.node.job("r").backlog.armed, in_backlog(load.node, "r")) == (2, False)
    assert names(load.node, "r") == ["BacklogEntered", *LOADED]


@pytest.mark.of_local_files
def test_t62_a_load_moved_past_all_trimmed_records_leaves_its_backlog(stepped: Load) -> None:
    load = half_loaded(stepped)
    load.control.move_clock(timedelta(hours=25))
    load.control.trim(load.stream.name, FIRST)
    load.run()

    load.sql(f"ALTER ROUTINE LOAD FOR r {FROM_HORIZON}; RESUME ROUTINE LOAD FOR r")
    load.run()

    assert load.ids() == [1]
    assert names(load.node, "r") == ["BacklogEntered", "BacklogLeft"]
    assert (splits(load.node, "r")[0]["boundary"], in_backlog(load.node, "r")) == (None, False)
