"""A routine load is killed at any point while records arrive and shards are split.

A producer puts records all the time. A shard is split before the killed process starts. The
first epoch of that process therefore reads the parent to its end. The second epoch is the
first of the children. Then another process continues and the producer ends. Each record must be
in the table once, in order.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.crashpoints import CrashPoint
from tests.crash.harness import KILLED, Home, assert_boundaries_kept, crash
from tests.crash.places import LocalPlace
from tests.crash.points import (
    ALL_POINTS,
    BACKLOG_POINTS,
    CREATE_POINTS,
    CREATE_TABLE_POINTS,
    DROP_POINTS,
    DROP_TABLE_POINTS,
    EPOCH_POINTS,
    FENCE_POINTS,
    QUERY_POINTS,
    RECOVERY_POINTS,
    RESUME_POINTS,
    TASK_POINTS,
)
from tests.crash.processes import IN_PROCESS, SPARK
from tests.crash.streams import (
    assert_all_once,
    create,
    create_load,
    ends_parent,
    epochs,
    producing,
    reads_children,
    split,
)
from tests.crash.variants import opened
from tests.integration.driving import crash_at
from tests.integration.routine_loads import close_clients, ids
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import StreamUnderTest, kinesis_client, new_stream

pytestmark = pytest.mark.crash

# The crash points of an epoch that loads rows and rejects some.
LOADING_POINTS = (*TASK_POINTS, *EPOCH_POINTS, CrashPoint.REJECTS_COMMITTED)
AFTER_THE_COMMIT = EPOCH_POINTS[EPOCH_POINTS.index(CrashPoint.TABLE_COMMITTED) :]
# An epoch that fails because of the service; an epoch that pauses its load by bad records.
FAILURE_POINTS = (CrashPoint.ATTEMPT_ENDED,)
TRIPPED_POINTS = (CrashPoint.CATALOG_APPLIED, CrashPoint.PAUSE_STORED)

STREAM_POINTS = frozenset(
    {
        *LOADING_POINTS,
        *BACKLOG_POINTS,
        *(point for point, _ in RECOVERY_POINTS),
        *FAILURE_POINTS,
        *TRIPPED_POINTS,
        *FENCE_POINTS,
        *RESUME_POINTS,
        *DROP_POINTS,
        *CREATE_POINTS,
    }
)
RELOAD_ALL = (
    "ALTER ROUTINE LOAD FOR j FROM KINESIS('property.kinesis_default_pos' = 'TRIM_HORIZON')"
)


@pytest.fixture
def stream(own_kinesis: KinesisServer) -> Iterator[StreamUnderTest]:
    with kinesis_client(own_kinesis.endpoint) as client:
        yield new_stream(client, shards=2)
    own_kinesis.control.heal()
    close_clients()


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    command = getattr(request, "param", IN_PROCESS)
    with opened(tmp_path, LocalPlace(tmp_path / "in"), command=command) as found:
        yield found


def test_every_crash_point_of_a_stream_has_a_test_in_this_module() -> None:
    of_others = {*CREATE_TABLE_POINTS, *DROP_TABLE_POINTS, *QUERY_POINTS}

    assert set(CrashPoint) - of_others == STREAM_POINTS == ALL_POINTS - of_others


@pytest.mark.parametrize("point", [*BACKLOG_POINTS, *LOADING_POINTS])
def test_no_record_is_lost_or_duplicated_by_a_kill_in_the_epoch_that_ends_a_parent(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest, point: CrashPoint
) -> None:
    create(home, own_kinesis, stream)
    with producing(stream) as producer:
        producer.put_bad()
        split(stream, producer)

        assert home.run(crash_at=crash(point)).code == KILLED
        before = epochs(home)
        stream.merge(1, 3)
    assert home.finish().code == 0

    assert len(before) == (point in (*AFTER_THE_COMMIT, CrashPoint.REJECTS_COMMITTED))
    assert ends_parent(epochs(home)[0])
    assert_all_once(home, producer)
    assert_boundaries_kept(home.node)


@pytest.mark.parametrize("point", LOADING_POINTS)
def test_no_record_is_lost_or_duplicated_by_a_kill_in_the_first_epoch_of_children(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest, point: CrashPoint
) -> None:
    create(home, own_kinesis, stream)
    with producing(stream) as producer:
        producer.put_bad()
        split(stream, producer)
        producer.put_bad()
        # The first epoch has a task for each of the two shards.
        count = 3 if point in TASK_POINTS else 2

        assert home.run(crash_at=crash(point, count=count)).code == KILLED
        before = epochs(home)
    home.node.run()

    assert len(before) == 1 + (point in (*AFTER_THE_COMMIT, CrashPoint.REJECTS_COMMITTED))
    assert ends_parent(epochs(home)[0])
    assert reads_children(epochs(home)[1])
    assert_all_once(home, producer)


@pytest.mark.parametrize(("point", "count"), RECOVERY_POINTS)
def test_no_record_is_lost_or_duplicated_by_a_kill_inside_recovery(
    home: Home,
    own_kinesis: KinesisServer,
    stream: StreamUnderTest,
    point: CrashPoint,
    count: int,
) -> None:
    create(home, own_kinesis, stream)
    with producing(stream) as producer:
        split(stream, producer)
        # The end of the parent is committed to the table and not to the catalog.
        crash_at(home.node, CrashPoint.TABLE_COMMITTED)

        assert home.run(crash_at=crash(point, count=count)).code == KILLED
    home.node.run()

    assert ends_parent(epochs(home)[0])
    assert_all_once(home, producer)


@pytest.mark.parametrize("home", [SPARK], indirect=True)
def test_no_record_is_lost_or_duplicated_by_a_kill_with_spark(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest
) -> None:
    create(home, own_kinesis, stream)
    with producing(stream) as producer:
        split(stream, producer)

        assert home.run(crash_at=crash(CrashPoint.TABLE_COMMITTED, count=2)).code == KILLED
    assert home.finish().code == 0

    assert_all_once(home, producer)


@pytest.mark.parametrize("point", FAILURE_POINTS)
def test_no_record_is_lost_or_duplicated_by_a_kill_after_a_failed_attempt(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest, point: CrashPoint
) -> None:
    create(home, own_kinesis, stream)
    with producing(stream) as producer:
        split(stream, producer)
        own_kinesis.control.clear_requests()
        crash_at(home.node, CrashPoint.EPOCH_STARTED)
        keys = [request.access_key_id for request in own_kinesis.control.requests()]
        # The next runner sends the same requests, and its tasks send more than one.
        own_kinesis.control.refuse(stream.name, after_calls=keys.count(stream.name) + 1)

        assert home.run(crash_at=crash(point)).code == KILLED
        own_kinesis.control.heal()
    assert home.finish().code == 0

    assert [row["outcome"] for row in home.shown().epochs].count("FAILED") == 1
    assert ends_parent(epochs(home)[0])
    assert_all_once(home, producer)


@pytest.mark.parametrize("point", TRIPPED_POINTS)
def test_a_load_with_too_many_errors_stays_paused_after_a_kill(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest, point: CrashPoint
) -> None:
    create(home, own_kinesis, stream, max_error_number="0")
    with producing(stream) as producer:
        producer.put_bad()
        split(stream, producer)

        # The commit that exceeds the error limit is in the table.
        assert home.run(crash_at=crash(point)).code == KILLED
        refused = home.run()
    assert home.state == "PAUSED"
    home.node.sql("RESUME ROUTINE LOAD FOR j")
    home.node.run()

    assert refused.code == 1
    assert "TOO_MANY_FAILURE_ROWS_ERR" in refused.output
    assert_all_once(home, producer)


@pytest.mark.parametrize("point", FENCE_POINTS)
def test_no_record_appears_after_a_killed_pause_until_the_load_is_resumed(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest, point: CrashPoint
) -> None:
    create(home, own_kinesis, stream)
    with producing(stream) as producer:
        home.node.run()
        before = ids(home.node)
        split(stream, producer)

        assert home.sql("PAUSE ROUTINE LOAD FOR j", crash_at=crash(point)).code == KILLED
        home.node.run()
    assert ids(home.node) == before
    home.node.sql("RESUME ROUTINE LOAD FOR j")
    home.node.run()

    assert_all_once(home, producer)


@pytest.mark.parametrize("point", DROP_POINTS)
def test_no_record_appears_after_a_killed_stop(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest, point: CrashPoint
) -> None:
    create(home, own_kinesis, stream)
    with producing(stream) as producer:
        home.node.run()
        before = ids(home.node)
        split(stream, producer)

        assert home.sql("STOP ROUTINE LOAD FOR j", crash_at=crash(point)).code == KILLED
        home.node.run()

    assert ids(home.node) == before
    assert home.node.sql("SHOW ROUTINE LOAD") == []


@pytest.mark.parametrize("point", RESUME_POINTS)
def test_a_killed_resume_has_resumed_the_load(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest, point: CrashPoint
) -> None:
    create(home, own_kinesis, stream)
    with producing(stream) as producer:
        home.node.run()
        home.node.sql("PAUSE ROUTINE LOAD FOR j")
        split(stream, producer)

        assert home.sql("RESUME ROUTINE LOAD FOR j", crash_at=crash(point)).code == KILLED
    home.node.run()

    assert_all_once(home, producer)


@pytest.mark.parametrize("point", FENCE_POINTS)
def test_repeating_a_killed_alter_applies_it_once(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest, point: CrashPoint
) -> None:
    create(home, own_kinesis, stream)
    with producing(stream) as producer:
        home.node.run()
        home.node.sql("PAUSE ROUTINE LOAD FOR j")
        before = ids(home.node)
        split(stream, producer)

        assert home.sql(RELOAD_ALL, crash_at=crash(point)).code == KILLED
        home.node.sql(f"{RELOAD_ALL}; RESUME ROUTINE LOAD FOR j")
    home.node.run()

    assert Counter(ids(home.node)) == Counter([*before, *producer.sent])


# Before and after the commit of the statement to the table.
@pytest.mark.parametrize(
    "point", [CrashPoint.DESIRED_STATE_STORED, CrashPoint.STATEMENT_COMMITTED]
)
def test_a_killed_alter_has_moved_the_load_completely_or_not_at_all(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest, point: CrashPoint
) -> None:
    create(home, own_kinesis, stream)
    with producing(stream) as producer:
        home.node.run()
        home.node.sql("PAUSE ROUTINE LOAD FOR j")
        before = ids(home.node)
        split(stream, producer)

        assert home.sql(RELOAD_ALL, crash_at=crash(point)).code == KILLED
        home.node.sql("RESUME ROUTINE LOAD FOR j")
    home.node.run()

    moved = [] if point is CrashPoint.DESIRED_STATE_STORED else before
    assert Counter(ids(home.node)) == Counter([*moved, *producer.sent])


@pytest.mark.parametrize("point", CREATE_POINTS)
def test_a_killed_create_can_be_repeated(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest, point: CrashPoint
) -> None:
    home.node.sql("CREATE TABLE t (id BIGINT, note STRING)")
    statement = create_load(own_kinesis, stream)
    with producing(stream) as producer:
        split(stream, producer)

        assert home.sql(statement, crash_at=crash(point)).code == KILLED
        home.node.sql(statement)
    home.node.run()

    assert_all_once(home, producer)
