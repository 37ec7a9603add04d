"""Writing records and reading pages, as AWS documents them."""

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

from tests.servers.kinesis_clients import (
    INVALID,
    StreamUnderTest,
    data_of,
    pause,
    refusal,
)

MEGABYTE = bytes(2**20)


def test_records_are_returned_in_order(stream: StreamUnderTest) -> None:
    numbers = stream.put_all(b"one", b"", b"three")

    records = stream.page()["Records"]

    assert [record["Data"] for record in records] == [b"one", b"", b"three"]
    assert [record["SequenceNumber"] for record in records] == numbers
    assert {record["PartitionKey"] for record in records} == {"k"}
    assert all(record["ApproximateArrivalTimestamp"].tzinfo for record in records)


def test_sequence_numbers_increase_as_integers(stream: StreamUnderTest) -> None:
    (shard,) = stream.shards()

    numbers = [int(number) for number in stream.put_all(*[b"x"] * 12)]

    first = int(shard["SequenceNumberRange"]["StartingSequenceNumber"])
    assert all(one < other for one, other in pairwise([first, *numbers]))
    assert min(numbers) > 2**180


def test_put_records_returns_a_result_for_every_record(two_shards: StreamUnderTest) -> None:
    entries = [
        {"Data": b"low", "PartitionKey": "k", "ExplicitHashKey": "0"},
        {"Data": b"high", "PartitionKey": "k", "ExplicitHashKey": str(2**128 - 1)},
    ]

    response = two_shards.client.put_records(StreamName=two_shards.name, Records=entries)

    assert response["FailedRecordCount"] == 0
    assert [one["ShardId"] for one in response["Records"]] == two_shards.shard_ids()
    assert two_shards.read(shard=0) == [b"low"]
    assert two_shards.read(shard=1) == [b"high"]


def test_the_partition_key_determines_the_shard(two_shards: StreamUnderTest) -> None:
    # The MD5 of "a" is in the lower half of all keys, the MD5 of "b" in the upper half.
    two_shards.put(b"low", key="a")
    two_shards.put(b"high", key="b")

    assert two_shards.read(shard=0) == [b"low"]
    assert two_shards.read(shard=1) == [b"high"]


def test_put_records_accepts_at_most_five_hundred_records(
    stream: StreamUnderTest, expected: Callable[[str], str]
) -> None:
    entry = {"Data": b"x", "PartitionKey": "k"}

    stream.client.put_records(StreamName=stream.name, Records=[entry] * 500)
    more = refusal(
        lambda: stream.client.put_records(StreamName=stream.name, Records=[entry] * 501)
    )

    assert more == expected(INVALID)


def test_a_record_can_have_one_mebibyte(stream: StreamUnderTest) -> None:
    stream.put(MEGABYTE)

    assert refusal(lambda: stream.put(MEGABYTE + b"x")) == INVALID


def test_a_page_has_at_most_limit_records(stream: StreamUnderTest) -> None:
    stream.put_all(b"1", b"2", b"3", b"4", b"5")

    first = stream.follow(stream.iterator(), Limit=3)
    second = stream.follow(first["NextShardIterator"], Limit=3)

    assert data_of(first) == [b"1", b"2", b"3"]
    assert data_of(second) == [b"4", b"5"]
    assert second["NextShardIterator"]


def test_a_limit_is_at_most_ten_thousand(stream: StreamUnderTest) -> None:
    iterator = stream.iterator()

    assert refusal(lambda: stream.follow(iterator, Limit=10_000)) == ""
    assert refusal(lambda: stream.follow(iterator, Limit=10_001)) == INVALID


def test_a_page_has_at_most_ten_mebibytes(stream: StreamUnderTest) -> None:
    stream.put_all(*[MEGABYTE[:-4096]] * 11)

    first = stream.page()
    second = stream.follow(first["NextShardIterator"])

    assert len(first["Records"]) == 10
    assert first["MillisBehindLatest"] > 0
    assert len(second["Records"]) == 1


def test_a_reader_at_the_tip_has_no_lag(stream: StreamUnderTest) -> None:
    assert stream.page()["MillisBehindLatest"] == 0

    stream.put_apart(b"one", b"two")

    assert stream.follow(stream.iterator(), Limit=1)["MillisBehindLatest"] > 0
    assert stream.page()["MillisBehindLatest"] == 0


def test_the_lag_is_the_distance_to_the_current_time(
    stream: StreamUnderTest, expected: Callable[[str], str]
) -> None:
    stream.put_all(b"one", b"two")
    pause(timedelta(seconds=2))

    lag_ms = stream.follow(stream.iterator(), Limit=1)["MillisBehindLatest"]

    found = (
        "distance to the current time" if lag_ms >= 2000 else "distance to the newest record"
    )
    assert found == expected("distance to the current time")
