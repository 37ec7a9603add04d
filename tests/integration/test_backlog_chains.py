"""A chain of a load and two streaming tables: backlog along the chain, without a deadlock."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.crashpoints import CrashPoint, handle_in_this_thread
from penstock.model.events import BacklogEntered, BacklogLeft
from penstock.model.job_kinds import POLL_INTERVAL_MAX
from penstock.spark.executor import SparkExecutor
from tests.integration.driving import (
    TIMEOUT_SECONDS,
    MovedClock,
    idle,
    pass_minute,
    rounds_until,
    supervised,
)
from tests.mirrored_node import OpenNode
from tests.node import CREATE_TABLE, Node, create_job, numbered, start_thread, write_rows

pytestmark = pytest.mark.integration

ENDLESS = "'checkpoint.interval' = '1s', 'checkpoint.interval-during-backlog' = '0'"
CHAIN = (
    f"CREATE STREAMING TABLE a WITH ({ENDLESS}) AS SELECT id FROM STREAM t; "  # noqa: S608 - Ours.
    f"CREATE STREAMING TABLE b WITH ({ENDLESS}) AS SELECT id * 10 AS id FROM STREAM a"
)
FILES = 6


@pytest.fixture
def chain(spark_node: Node, folder: Path) -> Node:
    """A load of six files, one per epoch, and two streaming tables after it."""
    for number in range(FILES):
        write_rows(folder / f"{number}.json", numbered(number))
    properties = [
        ("s3.max_batch_files", "1"),
        ("max_interval", "1s"),
        ("checkpoint.interval-during-backlog", "0"),
    ]
    spark_node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=properties)}; {CHAIN}")
    return spark_node


def ids(node: Node, table: str) -> list[int]:
    return sorted(int(row["id"]) for row in node.rows(table))


def epochs(node: Node, table: str) -> int:
    return node.job(table).epoch_committed


def causes(node: Node, table: str) -> list[str]:
    """Return the causes with which a job entered its backlog, and an empty text for the end."""
    bodies = [event.body for event in node.catalog.events(node.job(table).id)]
    return [
        body.cause if isinstance(body, BacklogEntered) else ""
        for body in bodies
        if isinstance(body, BacklogEntered | BacklogLeft)
    ]


def test_each_table_of_a_chain_commits_once_when_the_load_leaves_its_backlog(
    chain: Node,
) -> None:
    # The load waits until both tables know that it is in backlog.
    held = Held(chain.job("j").id, epoch=1)
    with supervised(chain, start_runner=held.start) as supervisor:
        rounds_until(supervisor, lambda _: causes(chain, "b")[-1:] == ["upstream a"])
        held.released.set()
        rounds_until(supervisor, lambda _: len(ids(chain, "b")) == FILES)
        rounds_until(supervisor, idle)

    assert ids(chain, "a") == list(range(FILES))
    assert ids(chain, "b") == [10 * number for number in range(FILES)]
    assert epochs(chain, "j") == FILES
    # The first epoch of a run does not wait.
    assert (epochs(chain, "a") <= 2, epochs(chain, "b") <= 2) == (True, True)
    assert causes(chain, "j") == ["boundary", ""]
    assert "upstream j" in causes(chain, "a")
    assert causes(chain, "a")[-1] == causes(chain, "b")[-1] == ""


def test_an_endless_backlog_interval_commits_when_a_limit_is_full(
    spark_node: Node, folder: Path
) -> None:
    for number in range(FILES):
        write_rows(folder / f"{number}.json", numbered(number))
    one_by_one = create_job(folder, properties=[("s3.max_batch_files", "1")])
    limited = CHAIN.replace(ENDLESS, f"{ENDLESS}, 'max_files_per_epoch' = '2'")
    spark_node.sql(f"{CREATE_TABLE}; {one_by_one}; {limited}")

    held = Held(spark_node.job("j").id, epoch=1)
    with supervised(spark_node, start_runner=held.start) as supervisor:
        rounds_until(supervisor, lambda _: causes(spark_node, "b")[-1:] == ["upstream a"])
        held.released.set()
        rounds_until(supervisor, lambda _: len(ids(spark_node, "b")) == FILES)

    ledgers = [
        spark_node.catalog.ledger(spark_node.job(table).id, newest=100) for table in "ab"
    ]
    read = [[one.statistics.files_read for one in ledger if one.epoch] for ledger in ledgers]
    assert read[0] == [2] * (FILES // 2)
    # An epoch of the first table writes one or two files.
    assert max(read[1]) == 2


def test_t64_an_epoch_that_waits_in_a_backlog_is_due_soon_after_the_backlog(
    open_node: OpenNode, spark: SparkExecutor, folder: Path
) -> None:
    clock = MovedClock()
    node = open_node(spark=spark, clock=clock)
    longer = "'checkpoint.interval' = '1s', 'checkpoint.interval-during-backlog' = '1h'"
    held = paused_load_and_table(node, folder, longer)
    supervisor = node.supervisor(until_caught_up=False, start_runner=held.start)
    supervisor.start(sole_process=True)
    try:
        rounds_until(supervisor, lambda _: ids(node, "a") == [1])
        node.sql("RESUME JOB j")
        rounds_until(supervisor, lambda _: causes(node, "a")[-1:] == ["upstream j"])
        append_id(node, 2)
        rounds_until(supervisor, lambda _: node.show("a")["next_epoch_at"] is not None)
        shown = node.show("a")["interval"]
        held.released.set()
        rounds_until(supervisor, lambda _: ids(node, "a") == [1, 2, 3])
    finally:
        held.released.set()
        supervisor.stop()

    assert shown == "3600s"
    # The end of the backlog in another process wakes no runner here, so no wait is longer.
    assert max(clock.runner_waits) <= POLL_INTERVAL_MAX


def test_a_chain_has_no_deadlock_if_the_load_is_paused_inside_its_backlog(
    chain: Node,
) -> None:
    third = Held(chain.job("j").id)
    supervisor = chain.supervisor(until_caught_up=False, start_runner=third.start)
    supervisor.start(sole_process=True)
    try:
        rounds_until(supervisor, lambda _: third.entered.is_set())
        chain.sql("PAUSE JOB j")
        third.released.set()
        rounds_until(supervisor, lambda _: len(ids(chain, "b")) == 2)
        rounds_until(supervisor, lambda _: causes(chain, "b")[-1] == "")
    finally:
        third.released.set()
        supervisor.stop()

    assert (len(ids(chain, "t")), chain.job("j").backlog.cause) == (2, "boundary")


def test_t58_an_epoch_that_was_due_is_not_started_after_the_backlog_was_entered(
    open_node: OpenNode, spark: SparkExecutor, folder: Path
) -> None:
    node = open_node(spark=spark, clock=MovedClock())
    longer = "'checkpoint.interval' = '60s', 'checkpoint.interval-during-backlog' = '0'"
    held = paused_load_and_table(node, folder, longer)
    supervisor = node.supervisor(until_caught_up=False, start_runner=held.start)
    supervisor.start(sole_process=True)
    try:
        rounds_until(supervisor, lambda _: ids(node, "a") == [1])
        append_id(node, 2)
        rounds_until(supervisor, lambda _: node.show("a")["next_epoch_at"] is not None)
        node.sql("RESUME JOB j")
        rounds_until(supervisor, lambda _: causes(node, "a")[-1:] == ["upstream j"])
        pass_minute(node, supervisor)
        due = node.show("a")
        held.released.set()
        rounds_until(supervisor, lambda _: ids(node, "a") == [1, 2, 3])
    finally:
        held.released.set()
        supervisor.stop()

    assert (due["next_epoch_at"], due["interval"]) == (None, "0s")
    # The first epoch of the run, and one after the load had left its backlog.
    assert epochs(node, "a") == 2


def paused_load_and_table(node: Node, folder: Path, options: str) -> "Held":
    """Create a paused load of row 3, and a table that streams its target, which has row 1."""
    write_rows(folder / "3.json", numbered(3))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}; PAUSE JOB j")
    node.sql(f"CREATE STREAMING TABLE a WITH ({options}) AS SELECT id FROM STREAM t")  # noqa: S608 - Ours.
    append_id(node, 1)
    return Held(node.job("j").id, epoch=1)


def append_id(node: Node, number: int) -> None:
    """Append a row to the table of the load, as another writer does."""
    record = node.catalog.table("t")
    assert record is not None
    row = pa.table({"id": pa.array([number], pa.int64()), "note": ["by hand"]})
    write_deltalake(record.location, row, mode="append")


@dataclass
class Held:
    """Starts runners; the runner of one job waits when an epoch has started."""

    job_id: str
    epoch: int = 3
    entered: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def start(self, run: Callable[[], None], name: str) -> threading.Thread:
        own = name == f"runner-{self.job_id[:8]}"
        return start_thread(partial(self._run, run) if own else run, name)

    def _run(self, run: Callable[[], None]) -> None:
        left = self.epoch

        def handle(point: CrashPoint) -> None:
            nonlocal left
            left -= point is CrashPoint.EPOCH_STARTED
            if not left:
                self.entered.set()
                assert self.released.wait(TIMEOUT_SECONDS)

        handle_in_this_thread(handle)
        run()
