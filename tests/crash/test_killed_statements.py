"""A statement that is killed between two durable effects can be repeated; rows stay exact.

Statements need no Spark, so all tests run without Spark.
"""

import pytest

from penstock.crashpoints import CrashPoint
from penstock.errors import Code, UserError
from tests.crash.harness import (
    KILLED,
    ROWS_PER_FILE,
    Home,
    assert_exact,
    assert_lasting,
    crash,
    rows_of,
)
from tests.crash.points import (
    CREATE_POINTS,
    CREATE_TABLE_POINTS,
    DROP_POINTS,
    DROP_TABLE_POINTS,
    FENCE_POINTS,
    RESUME_POINTS,
)
from tests.crash.variants import without_spark
from tests.error_values import raises
from tests.node import CREATE_TABLE

UNFINISHED_POINTS = FENCE_POINTS[:-1]

pytestmark = pytest.mark.crash


@pytest.mark.parametrize(("home", "point"), without_spark(FENCE_POINTS), indirect=["home"])
def test_a_killed_pause_holds_and_resume_continues_at_the_same_position(
    home: Home, point: CrashPoint
) -> None:
    home.load(1, 2)
    home.write(3, 4)

    assert home.sql("PAUSE JOB j", crash_at=crash(point)).code == KILLED
    held = home.run()
    assert home.rows == rows_of(1, 2)
    home.node.sql("RESUME JOB j")
    home.node.run()

    assert held.code == 0
    assert "job j is paused by a user and was skipped" in held.output
    assert_lasting(home, assert_exact(home, 1, 2, 3, 4))


@pytest.mark.parametrize(("home", "point"), without_spark(UNFINISHED_POINTS), indirect=["home"])
def test_repeating_a_killed_pause_completes_it(home: Home, point: CrashPoint) -> None:
    home.load(1)
    home.sql("PAUSE JOB j", crash_at=crash(point))

    repeated = home.sql("PAUSE JOB j")

    assert repeated.code == 0
    assert_exact(home, 1)
    assert home.state == "PAUSED"


def test_a_pause_killed_after_its_last_step_has_paused_the_job(home: Home) -> None:
    home.load(1)
    home.sql("PAUSE JOB j", crash_at=crash(CrashPoint.STATEMENT_APPLIED))

    with raises(UserError, Code.STATE_ERR, '"j"') as caught:
        home.node.sql("PAUSE JOB j")

    assert caught.value.code is Code.STATE_ERR
    assert home.state == "PAUSED"


def test_a_repeated_pause_applies_the_commit_of_a_killed_owner(home: Home) -> None:
    home.write(1, 2)
    home.create()
    assert home.run(crash_at=crash(CrashPoint.TABLE_COMMITTED)).code == KILLED
    home.sql("PAUSE JOB j", crash_at=crash(CrashPoint.STATEMENT_COMMITTED))

    home.node.sql("PAUSE JOB j")

    assert_exact(home, 1)
    assert home.state == "PAUSED"


@pytest.mark.parametrize(("home", "point"), without_spark(RESUME_POINTS), indirect=["home"])
def test_a_killed_resume_has_resumed_the_job(home: Home, point: CrashPoint) -> None:
    home.load(1, 2)
    home.node.sql("PAUSE JOB j")
    home.write(3)

    assert home.sql("RESUME JOB j", crash_at=crash(point)).code == KILLED
    home.node.run()

    assert_lasting(home, assert_exact(home, 1, 2, 3))


@pytest.mark.parametrize(("home", "point"), without_spark(FENCE_POINTS), indirect=["home"])
def test_repeating_a_killed_alter_applies_it_once(home: Home, point: CrashPoint) -> None:
    home.load(1, 2, 3)
    home.node.sql("PAUSE JOB j")
    home.write(4, 5)
    alter = f"""ALTER JOB j PROPERTIES('s3.max_batch_files' = '2',
                'offset' = '{{"fileName": "{home.source(1)}"}}')"""

    assert home.sql(alter, crash_at=crash(point)).code == KILLED
    home.node.sql(f"{alter}; RESUME JOB j")
    home.node.run()

    shown = assert_exact(home, 1, 2, 3, 2, 3, 4, 5)
    assert [row["files"] for row in shown.epochs if row["kind"] == "epoch"] == [1, 1, 1, 2, 2]
    assert_lasting(home, shown)


@pytest.mark.parametrize(("home", "point"), without_spark(FENCE_POINTS), indirect=["home"])
def test_a_killed_alter_has_moved_the_job_completely_or_not_at_all(
    home: Home, point: CrashPoint
) -> None:
    home.load(1, 2)
    home.node.sql("PAUSE JOB j")
    alter = f"""ALTER JOB j PROPERTIES('offset' = '{{"fileName": "{home.source(1)}"}}')"""

    home.sql(alter, crash_at=crash(point))
    home.node.sql("RESUME JOB j")
    home.node.run()

    assert_exact(home, 1, 2, *([] if point is CrashPoint.DESIRED_STATE_STORED else [2]))


@pytest.mark.parametrize(("home", "point"), without_spark(DROP_POINTS), indirect=["home"])
def test_a_killed_drop_holds_and_repeating_it_completes_it(
    home: Home, point: CrashPoint
) -> None:
    home.load(1, 2)
    home.write(3)

    assert home.sql("DROP JOB j", crash_at=crash(point)).code == KILLED
    home.node.run()
    assert home.state in ("DROPPING", "CLOSED")
    assert home.rows == rows_of(1, 2)
    repeated = home.sql("DROP JOB j")

    assert repeated.code == 0
    assert home.node.sql("SHOW JOBS") == []
    assert home.rows == rows_of(1, 2)


@pytest.mark.parametrize(("home", "point"), without_spark(DROP_POINTS), indirect=["home"])
def test_a_job_of_the_same_name_can_be_created_after_a_killed_drop(
    home: Home, point: CrashPoint
) -> None:
    home.load(1, 2)
    home.write(3, 4)
    after_two = f'{{"fileName": "{home.source(2)}"}}'

    assert home.sql("DROP JOB j", crash_at=crash(point)).code == KILLED
    home.node.sql(home.create_job(offset=after_two))
    home.node.run()

    assert home.rows == rows_of(1, 2, 3, 4)
    assert home.shown().job["files_loaded"] == 2
    assert home.shown().job["rows_loaded"] == 2 * ROWS_PER_FILE


@pytest.mark.parametrize(("home", "point"), without_spark(CREATE_POINTS), indirect=["home"])
def test_a_killed_create_leaves_no_job_and_can_be_repeated(
    home: Home, point: CrashPoint
) -> None:
    home.write(1, 2)
    home.node.sql(CREATE_TABLE)

    assert home.sql(home.create_job(), crash_at=crash(point)).code == KILLED
    left = home.node.sql("SHOW JOBS")
    home.node.sql(home.create_job())
    home.node.run()

    assert left == []
    assert_lasting(home, assert_exact(home, 1, 2))


@pytest.mark.parametrize(
    ("home", "point"), without_spark(CREATE_TABLE_POINTS), indirect=["home"]
)
def test_a_killed_create_table_leaves_no_table_and_can_be_repeated(
    home: Home, point: CrashPoint
) -> None:
    assert home.sql(CREATE_TABLE, crash_at=crash(point)).code == KILLED
    left = home.node.sql("SHOW TABLES")

    home.load(1)

    assert left == []
    assert_exact(home, 1)


@pytest.mark.parametrize(("home", "point"), without_spark(DROP_TABLE_POINTS), indirect=["home"])
def test_a_killed_drop_table_has_deleted_the_table_and_its_rows(
    home: Home, point: CrashPoint
) -> None:
    home.load(1)
    home.node.sql("DROP JOB j")

    assert home.sql("DROP TABLE t", crash_at=crash(point)).code == KILLED
    left = home.node.sql("SHOW TABLES")
    home.create()
    home.node.run()

    assert left == []
    assert_exact(home, 1)
