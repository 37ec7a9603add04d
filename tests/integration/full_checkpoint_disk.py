"""Run streaming tables on a disk that becomes full; a separate program.

The disk is that of ``small_disk``. One streaming table has its checkpoint on the disk, another
one has its rows there. Both use one Spark, which starts slowly. The findings of all scenarios
are written to standard output as JSON.
"""

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from penstock.crashpoints import CrashPoint, handle_in_this_thread
from penstock.spark.executor import SparkExecutor
from penstock.spark.session import SparkOptions
from penstock.supervisor.supervisor import RunnerReport
from tests.crash.queries import (
    COUNTS,
    INPUTS,
    TOTALS,
    append_rounds,
    create,
    expected,
)
from tests.integration.driving import MovedClock, rounds_until
from tests.integration.small_disk import SmallDisk
from tests.node import Node

ROUNDS_FIRST = 3


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A streaming table, and the point at which its disk becomes full."""

    table: str
    point: CrashPoint


SCENARIOS = {
    "plan": Scenario(table=COUNTS, point=CrashPoint.BATCH_OPENED),
    "state": Scenario(table=COUNTS, point=CrashPoint.EPOCH_STARTED),
    "commit of Spark": Scenario(table=COUNTS, point=CrashPoint.COPY_WRITTEN),
    "rows": Scenario(table=TOTALS, point=CrashPoint.EPOCH_STARTED),
    "commit of the table": Scenario(table=TOTALS, point=CrashPoint.COMMIT_CHECKED),
}


def fill_at(node: Node, disk: SmallDisk, point: CrashPoint) -> str:
    """Run until the streaming table is paused, because its disk is full; return the reason."""

    def fill(reached: CrashPoint) -> None:
        if reached is point:
            disk.fill()

    def run_handled(run: Callable[[], None]) -> None:
        handle_in_this_thread(fill)
        run()

    def start(run: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=partial(run_handled, run), name=name, daemon=True)
        thread.start()
        return thread

    supervisor = node.supervisor(start_runner=start)
    supervisor.start(sole_process=True)
    try:
        (report,) = rounds_until(supervisor, _paused)
    finally:
        supervisor.stop()
    reason = report.state.desired.reason
    assert reason is not None
    return f"{reason.code}: {reason.message}"


def _paused(reports: tuple[RunnerReport, ...]) -> bool:
    return reports[0].state.desired.reason is not None


def opened_node(table: str, folder: Path, *, small: Path, spark: SparkExecutor) -> Node:
    """Create a streaming table, with its checkpoint or its rows on the small disk."""
    node = Node(folder / table, clock=MovedClock(), spark=spark)
    node.sql(INPUTS)
    statement = create(table)
    if table == TOTALS:
        statement = statement.replace(" WITH ", f" LOCATION '{small / table}' WITH ", 1)
    node.sql(statement)
    if table == COUNTS:
        (small / table).mkdir()
        node.checkpoints.mkdir()
        (node.checkpoints / node.job(table).id).symlink_to(small / table)
    append_rounds(node, *range(ROUNDS_FIRST))
    node.run()
    return node


def main(folder: Path) -> dict[str, Any]:
    """Run all scenarios, each with one more round; free the disk after each of them."""
    small = folder / "small"
    small.mkdir()
    disk = SmallDisk(small)
    options = SparkOptions(
        master="local[2,4]", scratch=folder / "tmp", log_file=folder / "spark.log"
    )
    spark = SparkExecutor(options)
    nodes = {
        table: opened_node(table, folder, small=small, spark=spark)
        for table in (COUNTS, TOTALS)
    }
    rounds = dict.fromkeys(nodes, ROUNDS_FIRST)
    found: dict[str, Any] = {}
    for name, scenario in SCENARIOS.items():
        node, table = nodes[scenario.table], scenario.table
        append_rounds(node, rounds[table])
        rounds[table] += 1
        reason = fill_at(node, disk, scenario.point)
        disk.free()
        if node.show(table)["state"] == "PAUSED":
            node.sql(f"RESUME STREAMING TABLE {table}")
        node.run()
        exact = node.rows(table) == expected(rounds=rounds[table])[table]
        found[name] = {"reason": reason, "exact": exact}
    spark.stop()
    return found


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(Path(sys.argv[1]))) + "\n")
