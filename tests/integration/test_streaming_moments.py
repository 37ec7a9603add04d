"""Streaming tables after a long wait, a fast upstream table, or a clock that was wrong."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from deltalake import DeltaTable

from penstock.crashpoints import CrashPoint, handle_in_this_thread
from penstock.spark.executor import SparkExecutor
from penstock.supervisor.supervisor import RunnerReport
from tests.crash.queries import INPUTS, append, at
from tests.integration.driving import (
    TIMEOUT_SECONDS,
    MovedClock,
    idle,
    rounds_until,
    supervised,
)
from tests.mirrored_node import OpenNode
from tests.node import Node, start_thread

pytestmark = pytest.mark.integration

FILES = 4
MARK = "WATERMARK ts DELAY OF INTERVAL 1 MINUTE"
FINAL = "ADVANCE WATERMARK TO FINAL"


@pytest.fixture
def node(spark_node: Node) -> Node:
    """A node with two empty tables."""
    spark_node.sql(INPUTS)
    return spark_node


# Until caught up


@dataclass
class Held:
    """Starts runners; the runner of one job waits in its first epoch."""

    job_id: str
    released: threading.Event = field(default_factory=threading.Event)

    def start(self, run: Callable[[], None], name: str) -> threading.Thread:
        own = name == f"runner-{self.job_id[:8]}"
        return start_thread(partial(self._run, run) if own else run, name)

    def _run(self, run: Callable[[], None]) -> None:
        def handle(point: CrashPoint) -> None:
            if point is CrashPoint.EPOCH_STARTED:
                assert self.released.wait(TIMEOUT_SECONDS)

        handle_in_this_thread(handle)
        run()


def test_a_table_is_caught_up_only_after_the_rows_that_its_upstream_table_wrote_meanwhile(
    node: Node,
) -> None:
    for number in range(FILES):
        append(node, "clicks", [("a", number, number)])
    node.sql(
        "CREATE STREAMING TABLE up WITH ('max_files_per_epoch' = '1', "
        "'checkpoint.interval' = '1s') AS SELECT v FROM STREAM clicks; "
        "CREATE STREAMING TABLE down AS SELECT v FROM STREAM up"
    )
    held = Held(node.job("down").id)
    supervisor = node.supervisor(start_runner=held.start)
    supervisor.start(sole_process=True)
    try:
        rounds_until(supervisor, lambda reports: caught_up(reports, "up"))
        held.released.set()
        rounds_until(supervisor, lambda reports: caught_up(reports, "down"))
    finally:
        held.released.set()
        supervisor.stop()

    assert len(node.rows("up")) == len(node.rows("down")) == FILES


def caught_up(reports: tuple[RunnerReport, ...], name: str) -> bool:
    """Return whether the run of a job has ended because the job is caught up."""
    return any(report.state.name == name and report.caught_up for report in reports)


# Time


@pytest.mark.parametrize("restarted", [False, True])
def test_the_current_time_of_a_query_is_the_time_of_its_epoch(
    open_node: OpenNode, spark: SparkExecutor, *, restarted: bool
) -> None:
    node = open_node(spark=spark, clock=MovedClock())
    node.sql(INPUTS)
    node.sql(
        "CREATE STREAMING TABLE t AS SELECT v, current_timestamp() AS at FROM STREAM clicks"
    )
    append(node, "clicks", [("a", 0, 1)])

    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda _: len(node.rows("t")) == 1)
        rounds_until(supervisor, idle)
        if not restarted:
            append_later(node)
            rounds_until(supervisor, lambda _: len(node.rows("t")) == 2)
    if restarted:
        append_later(node)
        node.run()

    assert node.rows("t")[1]["v"] == 2
    assert node.rows("t")[1]["at"] >= appended_at(node)


def append_later(node: Node) -> None:
    """Append a row when more time has passed than an open batch may wait."""
    append(node, "clicks", [("a", 0, 2)])
    assert isinstance(node.clock, MovedClock)
    node.clock.move(seconds=2)


def appended_at(node: Node) -> datetime:
    """Return the time of the newest commit to the clicks."""
    record = node.catalog.table("clicks")
    assert record is not None
    (newest, *_) = DeltaTable(record.location).history(1)
    return datetime.fromtimestamp(newest["timestamp"] / 1_000, UTC)


def test_a_row_far_in_the_future_does_not_hide_the_other_event_times_of_its_file(
    node: Node,
) -> None:
    years = int(timedelta(days=30_000).total_seconds() / 60)
    node.sql(
        "CREATE STREAMING TABLE t WITH ('max_files_per_epoch' = '1', "  # noqa: S608 - Ours.
        "'checkpoint.interval' = '1s') AS SELECT window(ts, '1 hour').start AS start, "
        f"count(*) AS n FROM STREAM clicks {MARK} GROUP BY window(ts, '1 hour')"
    )
    for number in range(3):
        append(node, "clicks", [("a", 60 * number, 1), ("a", years, 1)])

    node.run()

    assert node.rows("t") == [{"start": at(0), "n": 1}]


# Epochs without rows


def test_show_has_the_watermark_and_the_state_after_an_epoch_without_rows(node: Node) -> None:
    node.sql(
        "CREATE STREAMING TABLE pairs AS SELECT c.v, o.v AS order_v "  # noqa: S608 - Ours.
        f"FROM STREAM clicks {MARK} AS c JOIN STREAM orders {MARK} AS o "
        "ON c.k = o.k AND o.ts BETWEEN c.ts AND c.ts + INTERVAL 1 HOUR"
    )
    append(node, "clicks", [("a", 0, 1), ("b", 1, 2)])
    append(node, "orders", [("a", 0, 3), ("c", 1, 4)])
    node.run()
    (before,) = node.sql("SHOW STREAMING TABLES")

    node.sql(f"ALTER STREAMING TABLE pairs {FINAL}")
    node.run()

    (after,) = node.restart().sql("SHOW STREAMING TABLES")
    assert (before["rows"], before["state_rows"]) == (1, 4)
    assert (after["rows"], after["state_rows"], after["watermark"]) == (1, 0, "FINAL")
