"""A stream as a source: the stored status of its shards between epochs."""

from datetime import timedelta
from threading import Event

import pytest

from penstock.errors import Code, StoppedError, UserError
from penstock.model.codec import from_text
from penstock.model.split import End
from penstock.sources.kinesis.shards import ShardWork
from tests.error_values import raises
from tests.integration.kinesis_load import LIMITS, Load, load
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis.stream import StaleListing
from tests.servers.kinesis_clients import MIDDLE, StreamUnderTest

__all__ = ["load"]

pytestmark = pytest.mark.integration


def shards_with_lag(load: Load) -> list[str]:
    return [one.shard for one in load.memory.stream.shards if one.lag is not None]


def test_t24_a_shard_has_no_lag_once_its_end_is_committed(
    load: Load, stream: StreamUnderTest
) -> None:
    stream.put_all(b"1")
    stream.split(0, MIDDLE)
    died = load.open()
    load.poll(died)
    load.load(died)

    load.poll(load.open())

    assert isinstance(load.progress[0].position, End)
    assert shards_with_lag(load) == ["shardId-000000000001", "shardId-000000000002"]


def test_t66_unread_records_of_a_child_that_were_trimmed_are_a_gap(
    load: Load, server: KinesisServer, stream: StreamUnderTest
) -> None:
    server.control.switch(retention_trims=True)
    load.poll(load.open())
    stream.split(0, MIDDLE)
    stream.put(hash_key=0)
    server.control.move_clock(timedelta(hours=20))
    source = load.open()
    load.poll(source)
    load.commit(source)
    server.control.move_clock(timedelta(hours=10))

    with raises(UserError, Code.CANNOT_RESUME_ERR, "trimmed") as error:
        load.poll(load.open())

    assert error.value.code is Code.CANNOT_RESUME_ERR


def test_t76_the_hash_keys_of_a_shard_are_known_before_it_is_read(
    load: Load, server: KinesisServer, stream: StreamUnderTest
) -> None:
    server.control.switch(stale_listings=2, stale_listing=StaleListing.CHILDREN_MISSING)
    stream.split(0, MIDDLE)
    stream.put(hash_key=0)
    died = load.open()
    load.poll(died)
    load.load(died)
    source = load.open()
    load.poll(source)

    plan = source.plan(load.progress, limits=LIMITS)

    assert plan is not None
    assert [from_text(ShardWork, read.work).shard.hash_keys for read in plan.reads] == [
        (0, MIDDLE - 1)
    ]


def test_a_stopped_source_does_not_retry_a_failing_stream(
    load: Load, server: KinesisServer
) -> None:
    stop = Event()
    source = load.open(stop)
    server.control.inject("ListShards", "InternalFailureException", status=500, times=1000)
    stop.set()

    with pytest.raises(StoppedError):
        load.poll(source)

    assert len(server.control.requests("ListShards")) == 1
