"""Splitting and merging shards, as AWS documents them."""

from collections.abc import Callable
from typing import Any

from tests.servers.kinesis_clients import (
    INVALID,
    MIDDLE,
    StreamUnderTest,
    data_of,
    new_stream,
    refusal,
)


def test_a_split_closes_the_parent_and_creates_two_children(stream: StreamUnderTest) -> None:
    stream.split(0, at=MIDDLE)

    parent, low, high = stream.shards()
    assert "EndingSequenceNumber" in parent["SequenceNumberRange"]
    assert {low["ParentShardId"], high["ParentShardId"]} == {parent["ShardId"]}
    assert "AdjacentParentShardId" not in low
    assert low["HashKeyRange"] == {"StartingHashKey": "0", "EndingHashKey": str(MIDDLE - 1)}
    assert high["HashKeyRange"]["StartingHashKey"] == str(MIDDLE)
    assert "EndingSequenceNumber" not in low["SequenceNumberRange"]


def test_a_merge_creates_a_child_of_two_parents(two_shards: StreamUnderTest) -> None:
    two_shards.merge(0, 1)

    low, high, child = two_shards.shards()
    assert child["ParentShardId"] == low["ShardId"]
    assert child["AdjacentParentShardId"] == high["ShardId"]
    assert child["HashKeyRange"] == {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)}
    assert "EndingSequenceNumber" in low["SequenceNumberRange"]
    assert "EndingSequenceNumber" in high["SequenceNumberRange"]


def test_the_last_page_of_a_closed_shard_names_its_children(
    stream: StreamUnderTest,
) -> None:
    stream.put_all(b"one", b"two")
    stream.split(0, at=MIDDLE)

    found, last = stream.to_the_end(shard=0)

    assert found == [b"one", b"two"]
    assert last["MillisBehindLatest"] == 0
    assert [child["ShardId"] for child in last["ChildShards"]] == stream.shard_ids()[1:]
    assert {child["ParentShards"][0] for child in last["ChildShards"]} == {
        stream.shard_ids()[0]
    }
    assert last["ChildShards"][1]["HashKeyRange"]["StartingHashKey"] == str(MIDDLE)


def test_an_empty_closed_shard_has_an_end(two_shards: StreamUnderTest) -> None:
    two_shards.merge(0, 1)

    found, last = two_shards.to_the_end(shard=1)

    assert found == []
    (child,) = last["ChildShards"]
    assert sorted(child["ParentShards"]) == two_shards.shard_ids()[:2]


def test_an_iterator_from_before_the_split_reaches_the_end(stream: StreamUnderTest) -> None:
    iterator = stream.iterator("LATEST")
    stream.put(b"one")
    stream.split(0, at=MIDDLE)

    page = stream.follow(iterator)

    assert data_of(page) == [b"one"]


def test_records_after_a_split_go_to_the_children(stream: StreamUnderTest) -> None:
    stream.split(0, at=MIDDLE)

    stream.put(b"low", hash_key=0)
    stream.put(b"high", hash_key=MIDDLE)

    assert stream.read(shard=0) == []
    assert stream.read(shard=1) == [b"low"]
    assert stream.read(shard=2) == [b"high"]


def test_the_ending_number_of_a_closed_shard_is_above_its_records(
    stream: StreamUnderTest, expected: Callable[[str], str]
) -> None:
    record = int(stream.put())
    stream.split(0, at=MIDDLE)

    last = int(stream.shards()[0]["SequenceNumberRange"]["EndingSequenceNumber"])

    assert ("above" if last > record else "below") == expected("above")


def test_a_split_outside_of_the_shard_is_refused(two_shards: StreamUnderTest) -> None:
    assert refusal(lambda: two_shards.split(0, at=2**128 - 1)) == INVALID


def test_shards_that_are_not_adjacent_cannot_be_merged(client: Any) -> None:
    stream = new_stream(client, shards=3)

    assert refusal(lambda: stream.merge(0, 2)) == INVALID


def test_the_number_of_shards_can_be_doubled(two_shards: StreamUnderTest) -> None:
    two_shards.client.update_shard_count(
        StreamName=two_shards.name, TargetShardCount=4, ScalingType="UNIFORM_SCALING"
    )
    two_shards.wait_until_active()

    assert two_shards.summary()["OpenShardCount"] == 4


def test_the_number_of_shards_cannot_be_multiplied_by_ten(two_shards: StreamUnderTest) -> None:
    refused = refusal(
        lambda: two_shards.client.update_shard_count(
            StreamName=two_shards.name, TargetShardCount=20, ScalingType="UNIFORM_SCALING"
        )
    )

    assert refused in (INVALID, "LimitExceededException")
