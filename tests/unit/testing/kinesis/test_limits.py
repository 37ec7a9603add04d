"""How much the server lets be asked when it is told to limit."""

import pytest

from tests.servers.kinesis.limits import CONTROL_CALLS_PER_SECOND, Volume
from tests.unit.testing.kinesis.asking import Asking, RefusedError

THROTTLED = "ProvisionedThroughputExceededException"
MEBIBYTE = 2**20


def test_without_a_word_nothing_is_limited(kinesis: Asking) -> None:
    assert len(kinesis.pages(50)) == 50


def test_a_shard_is_read_five_times_per_second(kinesis: Asking) -> None:
    kinesis.switch(limit_reads=True)
    kinesis.pages(5)
    iterator = kinesis.iterator()

    with pytest.raises(RefusedError, match=THROTTLED):
        kinesis.page(iterator)

    kinesis.later(seconds=1)
    assert kinesis.page(iterator)["NextShardIterator"]


def test_shards_are_limited_one_by_one(kinesis: Asking) -> None:
    kinesis.split()
    kinesis.switch(limit_reads=True)

    kinesis.pages(5, shard=1)

    assert len(kinesis.pages(5, shard=2)) == 5


def test_ten_mebibytes_block_a_shard_for_five_seconds(kinesis: Asking) -> None:
    kinesis.order("preload", stream="s", count=11, size_bytes=MEBIBYTE)
    kinesis.switch(limit_reads=True)
    page = kinesis.page(kinesis.iterator())

    kinesis.later(seconds=4.9)
    with pytest.raises(RefusedError, match=THROTTLED):
        kinesis.page(page["NextShardIterator"])

    kinesis.later(seconds=0.1)
    assert len(page["Records"]) == 10
    assert len(kinesis.page(page["NextShardIterator"])["Records"]) == 1


def test_two_mebibytes_per_second_are_free() -> None:
    volume = Volume()

    volume.take(0, MEBIBYTE)
    volume.take(100, MEBIBYTE)
    volume.take(1_100, MEBIBYTE)

    assert volume.free(1_100)


def test_a_shard_gives_five_iterators_per_second(kinesis: Asking) -> None:
    kinesis.switch(limit_iterators=True)
    made = [kinesis.iterator() for _ in range(5)]

    with pytest.raises(RefusedError, match=THROTTLED):
        kinesis.iterator()

    kinesis.later(seconds=1)
    assert kinesis.iterator()
    assert len(made) == 5


def test_control_calls_are_limited_by_operation(kinesis: Asking) -> None:
    kinesis.switch(control_calls_per_second=CONTROL_CALLS_PER_SECOND)
    described = [kinesis.ask("DescribeStream", StreamName="s") for _ in range(10)]

    with pytest.raises(RefusedError, match="LimitExceededException"):
        kinesis.ask("DescribeStream", StreamName="s")

    assert kinesis.status() == "ACTIVE"
    kinesis.later(seconds=1)
    assert kinesis.ask("DescribeStream", StreamName="s") == described[0]


def test_listings_are_limited_by_stream(kinesis: Asking) -> None:
    kinesis.ask("CreateStream", StreamName="other", ShardCount=1)
    kinesis.switch(control_calls_per_second={"ListShards": 1})
    kinesis.shards()

    with pytest.raises(RefusedError, match="LimitExceededException"):
        kinesis.shards()

    assert kinesis.ask("ListShards", StreamName="other")["Shards"]


def test_healing_removes_limits_and_what_they_counted(kinesis: Asking) -> None:
    kinesis.switch(limit_reads=True)
    kinesis.pages(5)

    kinesis.order("heal")

    assert len(kinesis.pages(6)) == 6
