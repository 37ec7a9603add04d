"""A load of generated rows loses and repeats no row when it is killed at any point."""

from typing import Any

import pytest

from penstock.crashpoints import CrashPoint
from tests.crash.harness import KILLED, Home, crash
from tests.crash.points import EPOCH_POINTS, TASK_POINTS
from tests.crash.variants import Variant

pytestmark = pytest.mark.crash

ROWS = 50
CREATE_TABLE = "CREATE TABLE t (id BIGINT NOT NULL, name STRING, price DOUBLE, at TIMESTAMP)"
# An epoch has ten rows of each split.
CREATE_LOAD = f"""
CREATE ROUTINE LOAD j ON t PROPERTIES("max_batch_rows" = "20")
FROM DATAGEN ("rows_per_second" = "unlimited", "rows_total" = "{ROWS}", "splits" = "2",
              "fields.id.kind" = "sequence", "fields.at.kind" = "now", "seed" = "5")
"""


@pytest.mark.parametrize(
    ("home", "point"),
    [(Variant.FILE, point) for point in (*TASK_POINTS, *EPOCH_POINTS)],
    indirect=["home"],
)
def test_no_generated_row_is_lost_or_repeated_by_a_kill(home: Home, point: CrashPoint) -> None:
    home.node.sql(CREATE_TABLE)
    home.node.sql(CREATE_LOAD)

    assert home.run(crash_at=crash(point, count=2)).code == KILLED
    assert home.finish().code == 0

    assert sorted(row["id"] for row in home.rows) == list(range(1, ROWS + 1))
    assert home.node.show("j")["rows_loaded"] == ROWS


@pytest.mark.parametrize("home", [Variant.FILE], indirect=True)
def test_a_killed_load_has_the_same_rows_as_a_load_without_a_kill(home: Home) -> None:
    home.node.sql(CREATE_TABLE)
    home.node.sql(CREATE_LOAD)
    home.run(crash_at=crash(CrashPoint.TABLE_COMMITTED))
    home.finish()

    home.node.sql("CREATE TABLE u (id BIGINT, name STRING, price DOUBLE)")
    same = CREATE_LOAD.replace("LOAD j ON t", "LOAD k ON u")
    home.node.sql(same.replace('"fields.at.kind" = "now", ', ""))
    home.node.run()

    assert without_times(home.rows) == without_times(home.node.rows("u"))


def without_times(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the values that do not depend on the creation time of the load."""
    return sorted((row["id"], row["name"], row["price"]) for row in rows)
