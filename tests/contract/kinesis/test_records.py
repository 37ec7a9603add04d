"""What AWS documents of writing records and of the pages in which they come back."""

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


def test_records_come_back_in_order(stream: StreamUnderTest) -> None:
    numbers = stream.put_all(b"one", b"", b"three")

    records = stream.page()["Records"]

    assert [record["Data"] for record in records] == [b"one", b"", b"three"]
    assert [record["SequenceNumber"] for record in records] == numbers
    assert {record["PartitionKey"] for record in records} == {"k"}
    assert all(record["ApproximateArrivalTimestamp"].tzinfo for record in records)


def test_sequence_numbers_grow_as_integers(stream: StreamUnderTest) -> None:
    (shard,) = stream.shards()

    numbers = [int(number) for number in stream.put_all(*[b"x"] * 12)]

    first = int(shard["SequenceNumberRange"]["StartingSequenceNumber"])
    assert all(one < other for one, other in pairwise([first, *numbers]))
    assert min(numbers) > 2**180


def test_put_records_answers_for_every_record(two_shards: StreamUnderTest) -> None:
    entries = [
        {"Data": b"low", "PartitionKey": "k", "ExplicitHashKey": "0"},
        {"Data": b"high", "PartitionKey": "k", "ExplicitHashKey": str(2**128 - 1)},
    ]

    answer = two_shards.client.put_records(StreamName=two_shards.name, Records=entries)

    assert answer["FailedRecordCount"] == 0
    assert [one["ShardId"] for one in answer["Records"]] == two_shards.shard_ids()
    assert two_shards.read(shard=0) == [b"low"]
    assert two_shards.read(shard=1) == [b"high"]


def test_the_partition_key_chooses_the_shard(two_shards: StreamUnderTest) -> None:
    # The MD5 of "a" is below the middle of all keys, that of "b" above it.
    two_shards.put(b"low", key="a")
    two_shards.put(b"high", key="b")

    assert two_shards.read(shard=0) == [b"low"]
    assert two_shards.read(shard=1) == [b"high"]


def test_put_records_takes_five_hundred(
    stream: StreamUnderTest, expected: Callable[[str], str]
) -> None:
    entry = {"Data": b"x", "PartitionKey": "k"}

    stream.client.put_records(StreamName=stream.name, Records=[entry] * 500)
    more = refusal(
        lambda: stream.client.put_records(StreamName=stream.name, Records=[entry] * 501)
    )

    assert more == expected(INVALID)


def test_a_record_takes_one_mebibyte(stream: StreamUnderTest) -> None:
    stream.put(MEGABYTE)

    assert refusal(lambda: stream.put(MEGABYTE + b"x")) == INVALID


def test_a_page_holds_no_more_than_its_limit(stream: StreamUnderTest) -> None:
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


def test_a_page_holds_ten_mebibytes(stream: StreamUnderTest) -> None:
    stream.put_all(*[MEGABYTE[:-4096]] * 11)

    first = stream.page()
    second = stream.follow(first["NextShardIterator"])

    assert len(first["Records"]) == 10
    assert first["MillisBehindLatest"] > 0
    assert len(second["Records"]) == 1


def test_a_reader_at_the_tip_is_not_behind(stream: StreamUnderTest) -> None:
    assert stream.page()["MillisBehindLatest"] == 0

    stream.put_apart(b"one", b"two")

    assert stream.follow(stream.iterator(), Limit=1)["MillisBehindLatest"] > 0
    assert stream.page()["MillisBehindLatest"] == 0


def test_a_reader_is_behind_the_present(
    stream: StreamUnderTest, expected: Callable[[str], str]
) -> None:
    stream.put_all(b"one", b"two")
    pause(timedelta(seconds=2))

    behind = stream.follow(stream.iterator(), Limit=1)["MillisBehindLatest"]

    seen = "behind the present" if behind >= 2000 else "behind the newest record"
    assert seen == expected("behind the present")
