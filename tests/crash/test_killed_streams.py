"""A routine load that is killed anywhere, while records arrive and shards are split.

A producer puts records all the time. In the first process's second epoch a shard is split or
two are merged, and the process is killed; another one goes on, the producer ends, and whatever
was sent is in the table, once.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.clock import SystemClock
from penstock.crashpoints import CrashPoint
from penstock.testing.kinesis.server import KinesisServer
from tests.crash.harness import KILLED, Home, assert_chain, committed, crash
from tests.crash.places import LocalPlace
from tests.crash.points import (
    CREATE_POINTS,
    DROP_POINTS,
    EPOCH_POINTS,
    FENCE_POINTS,
    RECOVERY_POINTS,
    RESUME_POINTS,
    TASK_POINTS,
)
from tests.crash.processes import IN_PROCESS, SPARK
from tests.crash.variants import opened
from tests.integration.driving import crash_at
from tests.servers.kinesis_clients import (
    MIDDLE,
    StreamUnderTest,
    kinesis_client,
    new_stream,
)

pytestmark = pytest.mark.crash

KEYS = 5
PAUSE = timedelta(milliseconds=100)
BAD = b"no record"


class Producer:
    """Puts records into a stream, one behind the other, until it is told to end."""

    def __init__(self, stream: StreamUnderTest) -> None:
        self._stream = stream
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self.sent: list[int] = []
        self.bad = 0

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        self._thread.join()

    def put(self, *, count: int) -> None:
        """Put some records at once."""
        for _ in range(count):
            number = len(self.sent)
            record = json.dumps({"id": number, "note": f"row {number}"})
            self._stream.put(record.encode(), key=f"k{number % KEYS}")
            self.sent.append(number)

    def put_bad(self) -> None:
        self._stream.put(BAD, key="k0")
        self.bad += 1

    def _produce(self) -> None:
        clock = SystemClock()
        while not clock.wait(self._end, PAUSE):
            self.put(count=1)


@pytest.fixture
def stream(own_kinesis: KinesisServer) -> Iterator[StreamUnderTest]:
    with kinesis_client(own_kinesis.endpoint) as client:
        yield new_stream(client, shards=2)


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    command = getattr(request, "param", IN_PROCESS)
    with opened(tmp_path, LocalPlace(tmp_path / "in"), command=command) as found:
        yield found


def create(home: Home, server: KinesisServer, stream: StreamUnderTest) -> None:
    """Create the table, and a load that takes few records in an epoch."""
    home.node.sql("CREATE TABLE t (id BIGINT, note STRING)")
    home.node.sql(create_load(server, stream))


def create_load(server: KinesisServer, stream: StreamUnderTest) -> str:
    """Answer the statement that creates the load."""
    return (
        "CREATE ROUTINE LOAD j ON t PROPERTIES('format' = 'json', 'max_batch_rows' = '40', "
        "'max_error_number' = '100', 'max_batch_interval' = '1s') FROM KINESIS("
        f"'aws.region' = 'us-east-1', 'kinesis_stream' = '{stream.name}', "
        f"'aws.endpoint' = '{server.endpoint}', 'aws.access_key' = 'a', "
        "'aws.secret_key' = 'b', 'property.kinesis_default_pos' = 'TRIM_HORIZON')"
    )


@contextmanager
def producing(stream: StreamUnderTest) -> Iterator[Producer]:
    """Give a producer that has put enough for some epochs, and goes on."""
    producer = Producer(stream)
    producer.put(count=100)
    producer.start()
    try:
        yield producer
    finally:
        producer.end()


def assert_all_once(home: Home, producer: Producer) -> None:
    """Require that everything sent is in the table, once, and that all figures say so."""
    shown = home.shown()
    assert sorted(row["id"] for row in home.rows) == producer.sent
    assert shown.job["rows_loaded"] == len(producer.sent)
    assert shown.job["rows_rejected"] == producer.bad
    assert sum(int(str(row["rows"])) for row in committed(shown)) == len(producer.sent)
    assert_chain(home, numbers=len(committed(shown)))


@pytest.mark.parametrize("point", [*TASK_POINTS, *EPOCH_POINTS, CrashPoint.REJECTS_COMMITTED])
def test_no_record_is_lost_or_doubled_by_a_kill_while_a_shard_is_split(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest, point: CrashPoint
) -> None:
    create(home, own_kinesis, stream)
    with producing(stream) as producer:
        producer.put_bad()
        # Rejects are committed in the first epoch alone.
        count = 1 if point is CrashPoint.REJECTS_COMMITTED else 2
        first = home.start_run(crash_at=crash(point, count=count))
        stream.split(0, at=MIDDLE // 2)

        assert first.wait().code == KILLED
        assert home.finish().code == 0
        stream.merge(1, 3)
    assert home.finish().code == 0

    assert_all_once(home, producer)


@pytest.mark.parametrize(("point", "count"), RECOVERY_POINTS)
def test_no_record_is_lost_or_doubled_by_a_kill_inside_recovery(
    home: Home,
    own_kinesis: KinesisServer,
    stream: StreamUnderTest,
    point: CrashPoint,
    count: int,
) -> None:
    create(home, own_kinesis, stream)
    with producing(stream) as producer:
        crash_at(home.node, CrashPoint.TABLE_COMMITTED)
        stream.split(0, at=MIDDLE // 2)

        assert home.run(crash_at=crash(point, count=count)).code == KILLED
    assert home.finish().code == 0

    assert_all_once(home, producer)


@pytest.mark.parametrize("home", [SPARK], indirect=True)
def test_no_record_is_lost_or_doubled_by_a_kill_with_spark(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest
) -> None:
    create(home, own_kinesis, stream)
    with producing(stream) as producer:
        first = home.start_run(crash_at=crash(CrashPoint.TABLE_COMMITTED, count=2))
        stream.split(0, at=MIDDLE // 2)

        assert first.wait().code == KILLED
    assert home.finish().code == 0

    assert_all_once(home, producer)


@pytest.mark.parametrize(
    ("statement", "point"),
    [
        *(("PAUSE ROUTINE LOAD FOR j", point) for point in FENCE_POINTS),
        *(("STOP ROUTINE LOAD FOR j", point) for point in DROP_POINTS),
    ],
)
def test_nothing_appears_behind_a_killed_pause_or_stop(
    home: Home,
    own_kinesis: KinesisServer,
    stream: StreamUnderTest,
    *,
    statement: str,
    point: CrashPoint,
) -> None:
    create(home, own_kinesis, stream)
    producer = Producer(stream)
    producer.put(count=3)
    home.node.run()
    stream.put(b'{"id": 99}', key="k0")

    assert home.sql(statement, crash_at=crash(point)).code == KILLED
    home.node.run()

    assert sorted(row["id"] for row in home.rows) == producer.sent


@pytest.mark.parametrize("point", RESUME_POINTS)
def test_a_killed_resume_lets_the_load_go_on(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest, point: CrashPoint
) -> None:
    create(home, own_kinesis, stream)
    producer = Producer(stream)
    producer.put(count=3)
    home.node.sql("PAUSE ROUTINE LOAD FOR j")

    assert home.sql("RESUME ROUTINE LOAD FOR j", crash_at=crash(point)).code == KILLED
    home.node.run()

    assert_all_once(home, producer)


@pytest.mark.parametrize("point", CREATE_POINTS)
def test_a_killed_create_can_be_repeated(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest, point: CrashPoint
) -> None:
    home.node.sql("CREATE TABLE t (id BIGINT, note STRING)")
    producer = Producer(stream)
    producer.put(count=3)
    statement = create_load(own_kinesis, stream)

    assert home.sql(statement, crash_at=crash(point)).code == KILLED
    home.node.sql(statement)
    home.node.run()

    assert_all_once(home, producer)


def test_a_load_that_was_killed_when_its_errors_were_too_many_stays_paused(
    home: Home, own_kinesis: KinesisServer, stream: StreamUnderTest
) -> None:
    create(home, own_kinesis, stream)
    home.node.sql("PAUSE ROUTINE LOAD FOR j")
    home.node.sql("ALTER ROUTINE LOAD FOR j PROPERTIES('max_error_number' = '0')")
    home.node.sql("RESUME ROUTINE LOAD FOR j")
    producer = Producer(stream)
    producer.put_bad()
    producer.put(count=1)

    # The commit that finds the window too full is in the table; nobody has said so yet.
    assert home.run(crash_at=crash(CrashPoint.CATALOG_APPLIED)).code == KILLED
    refused = home.run()

    assert refused.code == 1
    assert "TOO_MANY_FAILURE_ROWS_ERR" in refused.output
    assert home.state == "PAUSED"
    assert_all_once(home, producer)
