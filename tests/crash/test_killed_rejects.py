"""Rejects, and rows of a SELECT in Spark, survive a kill between any two durable effects."""

from pathlib import PurePath

import pytest

from penstock.crashpoints import CrashPoint
from penstock.spark.executor import SparkExecutor
from tests.crash.harness import KILLED, Home, crash, lines_of, rows_of
from tests.crash.points import REJECT_POINTS
from tests.crash.variants import Variant, without_spark
from tests.node import CREATE_TABLE

pytestmark = pytest.mark.crash

LENIENT = {"session.enable_insert_strict": "false"}


def rejected(home: Home) -> list[tuple[str, int]]:
    """Return file and line of every rejected row."""
    assert home.node.tables is not None
    location = home.node.tables.rejects_location(home.node.job("j").id)
    return sorted((PurePath(row["file"]).name, row["line"]) for row in home.rows_at(location))


@pytest.mark.parametrize(
    ("home", "point"),
    [
        *without_spark(REJECT_POINTS),
        (Variant.SPARK_FILE, CrashPoint.TABLE_COMMITTED),
    ],
    indirect=["home"],
)
def test_no_reject_is_lost_or_repeated_by_a_kill(home: Home, point: CrashPoint) -> None:
    for file in (1, 2, 3):
        home.write_text(file, f"{lines_of(file)}no record\n")
    home.create(**LENIENT)

    # Kill at the last epoch: no further epoch of this run can commit its rejects.
    assert home.run(crash_at=crash(point, count=3)).code == KILLED
    assert home.finish().code == 0

    assert home.rows == rows_of(1, 2, 3)
    assert rejected(home) == [("1.json", 4), ("2.json", 4), ("3.json", 4)]
    assert home.node.job("j").cumulative.rows_rejected == 3


@pytest.mark.parametrize(
    ("home", "point"),
    [
        (Variant.SPARK_FILE, CrashPoint.TASK_WRITTEN),
        (Variant.SPARK_S3, CrashPoint.RUN_FINISHED),
    ],
    indirect=["home"],
)
def test_no_row_of_a_select_in_spark_is_lost_or_repeated_by_a_kill(
    home: Home, spark: SparkExecutor, point: CrashPoint
) -> None:
    home.write(1, 2, 3)
    home.node.spark = spark
    home.node.sql(CREATE_TABLE)
    home.node.sql(home.create_job(select="id, concat(note, '')") + " WHERE id >= 0")

    killed = home.run(crash_at=crash(point, count=2))
    home.node.run()

    # Spark replaces a killed worker, and the run continues. A killed driver is not replaced.
    assert killed.code == (0 if point is CrashPoint.TASK_WRITTEN else KILLED)
    assert home.rows == rows_of(1, 2, 3)
