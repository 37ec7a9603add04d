"""A run that is killed between any two durable effects loses and repeats no row.

Every crash point is tested without Spark, on this machine and on a bucket. Spark is tested with
some of the points. The process that continues uses Spark only on a bucket.
"""

import pytest

from penstock.crashpoints import CrashPoint
from tests.crash.harness import (
    KILLED,
    Home,
    assert_boundaries_kept,
    assert_exact,
    assert_lasting,
    crash,
    rows_of,
)
from tests.crash.points import (
    ALL_POINTS,
    BACKLOG_POINTS,
    EPOCH_POINTS,
    FAILURE_POINTS,
    RECOVERY_POINTS,
    TASK_POINTS,
)
from tests.crash.variants import Variant, without_spark
from tests.error_values import assert_names
from tests.integration.driving import crash_at

pytestmark = pytest.mark.crash

# The driver handles results of tasks in the same way without Spark. Spark is therefore tested
# only with rows written and not committed, with rows committed, and inside recovery.
EPOCH_KILLS = (
    # Without Spark a task dies with its process.
    *without_spark(TASK_POINTS),
    *without_spark(EPOCH_POINTS),
    (Variant.SPARK_FILE, CrashPoint.RUN_FINISHED),
    (Variant.SPARK_S3, CrashPoint.TABLE_COMMITTED),
)
BOUNDARY_POINTS = (CrashPoint.TABLE_COMMITTED, CrashPoint.CATALOG_APPLIED)
RECOVERY_KILLS = (
    *(
        (variant, point, count)
        for point, count in RECOVERY_POINTS
        for variant, _ in without_spark([point])
    ),
    (Variant.SPARK_FILE, CrashPoint.RECOVERY_APPLIED, 1),
)


def test_every_crash_point_has_a_test_in_this_folder() -> None:
    assert set(CrashPoint) == ALL_POINTS


@pytest.mark.parametrize(("home", "point"), EPOCH_KILLS, indirect=["home"])
def test_no_row_is_lost_or_repeated_by_a_kill_inside_an_epoch(
    home: Home, point: CrashPoint
) -> None:
    home.write(1, 2, 3, 4, 5)
    home.create()

    assert home.run(crash_at=crash(point, count=3)).code == KILLED
    assert home.finish().code == 0

    assert_lasting(home, assert_exact(home, 1, 2, 3, 4, 5))


BACKLOG_KILLS = (
    *((*kill, 1) for kill in without_spark(BACKLOG_POINTS)),
    # The last of five epochs reaches the boundary.
    *((*kill, 5) for kill in without_spark(BOUNDARY_POINTS)),
)


@pytest.mark.parametrize(("home", "point", "count"), BACKLOG_KILLS, indirect=["home"])
def test_t61_a_killed_job_keeps_its_boundary_and_finishes_it_once(
    home: Home, point: CrashPoint, count: int
) -> None:
    home.write(1, 2, 3, 4, 5)
    home.create()

    assert home.run(crash_at=crash(point, count=count)).code == KILLED
    home.write(6)
    assert home.finish().code == 0

    assert_lasting(home, assert_exact(home, 1, 2, 3, 4, 5, 6))
    assert_boundaries_kept(home.node)


@pytest.mark.parametrize(("home", "point", "count"), RECOVERY_KILLS, indirect=["home"])
def test_no_row_is_lost_or_repeated_by_a_kill_inside_recovery(
    home: Home, point: CrashPoint, count: int
) -> None:
    home.load(1)
    home.write(2, 3, 4)
    crash_at(home.node, CrashPoint.TABLE_COMMITTED)

    assert home.run(crash_at=crash(point, count=count)).code == KILLED
    assert home.finish().code == 0

    assert_lasting(home, assert_exact(home, 1, 2, 3, 4))


@pytest.mark.parametrize(("home", "point"), without_spark(FAILURE_POINTS), indirect=["home"])
def test_a_kill_during_an_automatic_pause_keeps_the_reason_and_every_row(
    home: Home, point: CrashPoint
) -> None:
    home.write(1, 2, 3)
    home.create()
    home.write_text(2, "no record\n")

    assert home.run(crash_at=crash(point)).code == KILLED
    refused = home.run()
    assert home.rows == rows_of(1)
    home.write(2)
    home.node.sql("RESUME JOB j")
    assert home.run().code == 0

    assert refused.code == 1
    assert "error TOO_MANY_FAILURE_ROWS_ERR: " in refused.output
    assert_names(refused.output, "job j", f'"{home.source(2)}"', "line 1")
    assert_lasting(home, assert_exact(home, 1, 2, 3))


@pytest.mark.parametrize("home", [Variant.SPARK_FILE], indirect=True)
@pytest.mark.parametrize("point", TASK_POINTS)
def test_rows_of_a_task_killed_after_writing_are_loaded_once(
    home: Home, point: CrashPoint
) -> None:
    home.write(1, 2, 3, 4, 5)
    home.create()

    # Each worker counts its own crash points, so each one dies in its second task.
    assert home.run(crash_at=crash(point, count=2)).code == 0

    shown = assert_exact(home, 1, 2, 3, 4, 5)
    assert len(home.written_files()) > 5
    assert {row["attempt"] for row in shown.epochs if row["kind"] == "epoch"} == {1}
