"""Spark is started again after its JVM was killed; the job loses and repeats no row."""

import pytest

from penstock.crashpoints import CrashPoint
from tests.crash.harness import Home, assert_exact, crash
from tests.crash.variants import Variant

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("home", [Variant.SPARK_FILE], indirect=True)
def test_a_job_continues_with_a_new_spark_after_the_jvm_was_killed(home: Home) -> None:
    home.write(1, 2, 3, 4)
    home.create()
    process = home.start_run(crash_at=crash(CrashPoint.RUN_FINISHED, count=2, action="stop"))
    process.wait_until_frozen()

    process.kill_jvm()
    process.thaw()
    ended = process.wait()

    assert ended.code == 0
    assert "Traceback" not in ended.output
    shown = assert_exact(home, 1, 2, 3, 4)
    assert "FAILED" in [row["outcome"] for row in shown.epochs]
