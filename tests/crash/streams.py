"""Routine loads of active streams: records arrive and shards are split during the load."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from penstock.clock import SystemClock
from penstock.model.epoch import Attachment, CommitKind
from penstock.model.split import End, Horizon
from tests.crash.harness import Home, assert_chain, committed, until
from tests.integration.routine_loads import ids
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import MIDDLE, StreamUnderTest

# The keys are in all quarters of the hash range, so that both halves of a shard get records.
KEYS = 4
QUARTER = MIDDLE // 2
PARENT, CHILDREN = "shardId-000000000000", ("shardId-000000000002", "shardId-000000000003")

_PAUSE = timedelta(milliseconds=30)
_BAD = b"no record"


class Producer:
    """Puts records into a stream, one after the other, until ``end`` is called."""

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
        """Put records at once; not allowed after ``start``."""
        for _ in range(count):
            number = len(self.sent)
            record = json.dumps({"id": number, "note": f"row {number}"})
            self._stream.put(record.encode(), hash_key=number % KEYS * QUARTER)
            self.sent.append(number)

    def put_bad(self) -> None:
        """Put a record that cannot be loaded."""
        self._stream.put(_BAD, hash_key=0)
        self.bad += 1

    def wait_for_all_keys(self) -> None:
        """Wait until every key has got another record."""
        before = len(self.sent)
        until(lambda: len(self.sent) > before + KEYS)

    def _produce(self) -> None:
        clock = SystemClock()
        while not clock.wait(self._end, _PAUSE):
            self.put(count=1)


@contextmanager
def producing(stream: StreamUnderTest) -> Iterator[Producer]:
    """Yield a producer that has put a record under every key and keeps producing."""
    producer = Producer(stream)
    producer.put(count=40)
    producer.start()
    try:
        yield producer
    finally:
        producer.end()


def split(stream: StreamUnderTest, producer: Producer) -> None:
    """Split the first of two shards; the producer has put records into both halves."""
    stream.split(0, at=QUARTER)
    producer.wait_for_all_keys()


def create_load(server: KinesisServer, stream: StreamUnderTest, **properties: str) -> str:
    """Return the statement that creates the load; the access key is the stream's name."""
    given = {
        "format": "json",
        "max_error_number": "100",
        "max_batch_interval": "1s",
        **properties,
    }
    clause = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    return (
        f"CREATE ROUTINE LOAD j ON t PROPERTIES({clause}) FROM KINESIS("
        f"'aws.region' = 'us-east-1', 'kinesis_stream' = '{stream.name}', "
        f"'aws.endpoint' = '{server.endpoint}', 'aws.access_key' = '{stream.name}', "
        "'aws.secret_key' = 'b', 'property.kinesis_default_pos' = 'TRIM_HORIZON')"
    )


def create(
    home: Home, server: KinesisServer, stream: StreamUnderTest, **properties: str
) -> None:
    """Create the table and the load."""
    home.node.sql("CREATE TABLE t (id BIGINT, note STRING)")
    home.node.sql(create_load(server, stream, **properties))


def epochs(home: Home) -> list[Attachment]:
    """Return the epochs in the table."""
    state = home.node.job("j")
    assert home.node.tables is not None
    chain = home.node.tables.open(home.location).chain_after(state.id, 0)
    found = [one.attachment for one in chain]
    return [one for one in found if one.kind is CommitKind.EPOCH]


def ends_parent(epoch: Attachment) -> bool:
    """Return whether the parent is at its end after an epoch, and its children are unread."""
    position_by_shard = {split.split: split.position for split in epoch.progress}
    unread = [position_by_shard.get(child, Horizon()) == Horizon() for child in CHILDREN]
    return position_by_shard[PARENT] == End() and all(unread)


def reads_children(epoch: Attachment) -> bool:
    """Return whether both children were read in an epoch or before."""
    position_by_shard = {split.split: split.position for split in epoch.progress}
    return all(position_by_shard[child] != Horizon() for child in CHILDREN)


def assert_all_once(home: Home, producer: Producer) -> None:
    """Require that each sent record is in the table once, in order, and in all counts."""
    shown = home.shown()
    loaded = ids(home.node)
    assert sorted(loaded) == producer.sent
    assert [number for key in range(KEYS) for number in loaded if number % KEYS == key] == [
        number for key in range(KEYS) for number in producer.sent if number % KEYS == key
    ]
    assert shown.job["rows_loaded"] == len(producer.sent)
    assert shown.job["rows_rejected"] == producer.bad
    assert sum(int(str(row["rows"])) for row in committed(shown)) == len(producer.sent)
    assert_chain(home, numbers=len(committed(shown)))
