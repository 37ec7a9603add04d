"""A run that is killed between any two durable effects loses nothing and repeats nothing."""

import pytest

from penstock.crashpoints import CrashPoint
from tests.crash.harness import (
    KILLED,
    Home,
    assert_exact,
    assert_lasting,
    crash,
)
from tests.crash.points import EPOCH_POINTS, RECOVERY_POINTS

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("point", EPOCH_POINTS)
def test_no_row_is_lost_or_repeated_by_a_kill_inside_an_epoch(
    home: Home, point: CrashPoint
) -> None:
    home.write(1, 2, 3, 4, 5)
    home.create()

    assert home.run(crash_at=crash(point, count=3)).code == KILLED
    assert home.run().code == 0

    assert_lasting(home, assert_exact(home, 1, 2, 3, 4, 5))


@pytest.mark.parametrize(("point", "count"), RECOVERY_POINTS)
def test_no_row_is_lost_or_repeated_by_a_kill_inside_recovery(
    home: Home, point: CrashPoint, count: int
) -> None:
    home.write(1, 2, 3, 4)
    home.create()
    assert home.run(crash_at=crash(CrashPoint.TABLE_COMMITTED, count=2)).code == KILLED

    assert home.run(crash_at=crash(point, count=count)).code == KILLED
    assert home.run().code == 0

    assert_lasting(home, assert_exact(home, 1, 2, 3, 4))
