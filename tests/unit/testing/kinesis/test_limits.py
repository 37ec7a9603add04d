"""Limits of reads, iterators and control calls."""

import pytest

from tests.servers.kinesis.limits import CONTROL_CALLS_PER_SECOND, Volume
from tests.unit.testing.kinesis.in_process import InProcessKinesis, ResponseError

THROTTLED = "ProvisionedThroughputExceededException"
MEBIBYTE = 2**20


def test_there_are_no_limits_by_default(kinesis: InProcessKinesis) -> None:
    assert len(kinesis.pages(50)) == 50


def test_a_shard_allows_five_reads_per_second(kinesis: InProcessKinesis) -> None:
    kinesis.switch(limit_reads=True)
    kinesis.pages(5)
    iterator = kinesis.iterator()

    with pytest.raises(ResponseError, match=THROTTLED):
        kinesis.page(iterator)

    kinesis.advance(seconds=1)
    assert kinesis.page(iterator)["NextShardIterator"]


def test_every_shard_has_its_own_limit(kinesis: InProcessKinesis) -> None:
    kinesis.split()
    kinesis.switch(limit_reads=True)

    kinesis.pages(5, shard=1)

    assert len(kinesis.pages(5, shard=2)) == 5


def test_ten_mebibytes_block_a_shard_for_five_seconds(kinesis: InProcessKinesis) -> None:
    kinesis.control("preload", stream="s", count=11, size_bytes=MEBIBYTE)
    kinesis.switch(limit_reads=True)
    page = kinesis.page(kinesis.iterator())

    kinesis.advance(seconds=4.9)
    with pytest.raises(ResponseError, match=THROTTLED):
        kinesis.page(page["NextShardIterator"])

    kinesis.advance(seconds=0.1)
    assert len(page["Records"]) == 10
    assert len(kinesis.page(page["NextShardIterator"])["Records"]) == 1


def test_two_mebibytes_per_second_are_allowed() -> None:
    volume = Volume()

    volume.count(0, MEBIBYTE)
    volume.count(100, MEBIBYTE)
    volume.count(1_100, MEBIBYTE)

    assert volume.available(1_100)


def test_a_shard_allows_five_iterators_per_second(kinesis: InProcessKinesis) -> None:
    kinesis.switch(limit_iterators=True)
    iterators = [kinesis.iterator() for _ in range(5)]

    with pytest.raises(ResponseError, match=THROTTLED):
        kinesis.iterator()

    kinesis.advance(seconds=1)
    assert kinesis.iterator()
    assert len(iterators) == 5


def test_control_calls_are_limited_by_operation(kinesis: InProcessKinesis) -> None:
    kinesis.switch(control_calls_per_second=CONTROL_CALLS_PER_SECOND)
    described = [kinesis.send("DescribeStream", StreamName="s") for _ in range(10)]

    with pytest.raises(ResponseError, match="LimitExceededException"):
        kinesis.send("DescribeStream", StreamName="s")

    assert kinesis.status() == "ACTIVE"
    kinesis.advance(seconds=1)
    assert kinesis.send("DescribeStream", StreamName="s") == described[0]


def test_listings_are_limited_by_stream(kinesis: InProcessKinesis) -> None:
    kinesis.send("CreateStream", StreamName="other", ShardCount=1)
    kinesis.switch(control_calls_per_second={"ListShards": 1})
    kinesis.shards()

    with pytest.raises(ResponseError, match="LimitExceededException"):
        kinesis.shards()

    assert kinesis.send("ListShards", StreamName="other")["Shards"]


def test_healing_removes_limits_and_counters(kinesis: InProcessKinesis) -> None:
    kinesis.switch(limit_reads=True)
    kinesis.pages(5)

    kinesis.control("heal")

    assert len(kinesis.pages(6)) == 6
