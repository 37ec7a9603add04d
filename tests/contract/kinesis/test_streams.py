"""Streams and listings of their shards, as AWS documents them."""

import ast
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.contract.kinesis.deviations import DEVIATIONS
from tests.servers.kinesis_clients import (
    INVALID,
    MIDDLE,
    UNKNOWN,
    StreamUnderTest,
    data_of,
    new_stream,
    refusal,
    server_time,
)


def test_every_known_deviation_belongs_to_a_test() -> None:
    modules = Path(__file__).parent.glob("test_*.py")

    trees = [ast.parse(module.read_text()) for module in modules]

    tests = {n.name for tree in trees for n in tree.body if isinstance(n, ast.FunctionDef)}
    assert set(DEVIATIONS) <= tests


def test_the_description_of_a_stream_has_its_name_and_shards(stream: StreamUnderTest) -> None:
    described = stream.client.describe_stream(StreamName=stream.name)["StreamDescription"]

    assert described["StreamName"] == stream.name
    assert described["StreamARN"].endswith(f":stream/{stream.name}")
    assert described["StreamStatus"] == "ACTIVE"
    assert described["RetentionPeriodHours"] == 24
    age = server_time(stream.client) - described["StreamCreationTimestamp"]
    assert abs(age) < timedelta(minutes=1)
    assert [shard["ShardId"] for shard in described["Shards"]] == ["shardId-000000000000"]
    assert described["HasMoreShards"] is False


def test_a_summary_counts_open_shards(two_shards: StreamUnderTest) -> None:
    two_shards.split(0, at=MIDDLE // 2)

    assert two_shards.summary()["OpenShardCount"] == 3
    assert two_shards.summary()["StreamStatus"] == "ACTIVE"


def test_the_shards_cover_all_hash_keys(client: Any) -> None:
    stream = new_stream(client, shards=3)

    ranges = [shard["HashKeyRange"] for shard in stream.shards()]

    firsts = [int(one["StartingHashKey"]) for one in ranges]
    lasts = [int(one["EndingHashKey"]) for one in ranges]
    assert [last + 1 for last in lasts] == [*firsts[1:], 2**128]
    assert firsts[0] == 0


def test_an_open_shard_has_a_starting_but_no_ending_sequence_number(
    stream: StreamUnderTest,
) -> None:
    (shard,) = stream.shards()

    assert set(shard["SequenceNumberRange"]) == {"StartingSequenceNumber"}
    assert "ParentShardId" not in shard


def test_a_stream_name_cannot_be_used_twice(stream: StreamUnderTest) -> None:
    again = refusal(lambda: stream.client.create_stream(StreamName=stream.name, ShardCount=1))

    assert again == "ResourceInUseException"


@pytest.mark.parametrize(
    ("call", "more"),
    [
        ("describe_stream", {}),
        ("describe_stream_summary", {}),
        ("delete_stream", {}),
        ("list_shards", {}),
        ("put_record", {"Data": b"", "PartitionKey": "k"}),
        ("put_records", {"Records": [{"Data": b"", "PartitionKey": "k"}]}),
        (
            "get_shard_iterator",
            {"ShardId": "shardId-000000000000", "ShardIteratorType": "LATEST"},
        ),
        ("split_shard", {"ShardToSplit": "shardId-000000000000", "NewStartingHashKey": "9"}),
        ("update_shard_count", {"TargetShardCount": 2, "ScalingType": "UNIFORM_SCALING"}),
        ("increase_stream_retention_period", {"RetentionPeriodHours": 48}),
    ],
)
def test_an_unknown_stream_is_not_found(client: Any, call: str, more: dict[str, Any]) -> None:
    assert refusal(lambda: getattr(client, call)(StreamName="nowhere", **more)) == UNKNOWN


def test_streams_are_listed_in_pages(stream: StreamUnderTest) -> None:
    client = stream.client
    client.create_stream(StreamName=f"{stream.name}-b", ShardCount=1)
    client.create_stream(StreamName=f"{stream.name}-c", ShardCount=1)

    first = client.list_streams(ExclusiveStartStreamName=stream.name, Limit=1)
    second = client.list_streams(ExclusiveStartStreamName=f"{stream.name}-b", Limit=1)

    assert first["StreamNames"] == [f"{stream.name}-b"]
    assert first["HasMoreStreams"] is True
    assert second["StreamNames"] == [f"{stream.name}-c"]


def test_the_shards_of_a_description_come_in_pages(client: Any) -> None:
    stream = new_stream(client, shards=3)

    first = client.describe_stream(StreamName=stream.name, Limit=2)["StreamDescription"]
    second = client.describe_stream(
        StreamName=stream.name, ExclusiveStartShardId=first["Shards"][-1]["ShardId"]
    )["StreamDescription"]

    assert first["HasMoreShards"] is True
    assert [len(first["Shards"]), len(second["Shards"])] == [2, 1]


def test_a_page_token_lists_the_next_shards(client: Any) -> None:
    stream = new_stream(client, shards=5)

    first = client.list_shards(StreamName=stream.name, MaxResults=2)
    second = client.list_shards(NextToken=first["NextToken"], MaxResults=2)
    third = client.list_shards(NextToken=second["NextToken"], MaxResults=2)

    listed = [shard["ShardId"] for page in (first, second, third) for shard in page["Shards"]]
    assert listed == stream.shard_ids()
    assert len(listed) == 5
    assert "NextToken" not in third


def test_a_page_token_with_a_stream_name_is_refused(client: Any) -> None:
    stream = new_stream(client, shards=3)
    token = client.list_shards(StreamName=stream.name, MaxResults=2)["NextToken"]

    both = refusal(lambda: client.list_shards(StreamName=stream.name, NextToken=token))

    assert both == INVALID


def test_a_page_of_shards_has_up_to_a_thousand(
    client: Any, expected: Callable[[int], int]
) -> None:
    stream = new_stream(client, shards=120)

    page = client.list_shards(StreamName=stream.name, MaxResults=1000)

    assert len(page["Shards"]) == expected(120)


def test_a_listing_can_start_after_a_shard(client: Any) -> None:
    stream = new_stream(client, shards=3)
    first, *rest = stream.shard_ids()

    page = client.list_shards(StreamName=stream.name, ExclusiveStartShardId=first)

    assert [shard["ShardId"] for shard in page["Shards"]] == rest


def test_a_filter_shows_the_open_shards(stream: StreamUnderTest) -> None:
    stream.split(0, at=MIDDLE)

    page = stream.client.list_shards(StreamName=stream.name, ShardFilter={"Type": "AT_LATEST"})

    assert [shard["ShardId"] for shard in page["Shards"]] == stream.shard_ids()[1:]


def test_the_retention_can_be_increased_and_decreased(stream: StreamUnderTest) -> None:
    stream.client.increase_stream_retention_period(
        StreamName=stream.name, RetentionPeriodHours=48
    )
    grown = stream.summary()["RetentionPeriodHours"]
    stream.client.decrease_stream_retention_period(
        StreamName=stream.name, RetentionPeriodHours=24
    )

    assert grown == 48
    assert stream.summary()["RetentionPeriodHours"] == 24


def test_the_retention_is_between_a_day_and_a_year(stream: StreamUnderTest) -> None:
    client, name = stream.client, stream.name

    short = refusal(
        lambda: client.decrease_stream_retention_period(
            StreamName=name, RetentionPeriodHours=23
        )
    )
    long = refusal(
        lambda: client.increase_stream_retention_period(
            StreamName=name, RetentionPeriodHours=8761
        )
    )

    assert (short, long) == (INVALID, INVALID)


def test_a_stream_can_be_named_by_its_arn(stream: StreamUnderTest) -> None:
    client, arn = stream.client, stream.arn

    client.put_record(StreamARN=arn, Data=b"one", PartitionKey="k")
    (shard,) = client.list_shards(StreamARN=arn)["Shards"]
    iterator = client.get_shard_iterator(
        StreamARN=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]

    assert data_of(client.get_records(StreamARN=arn, ShardIterator=iterator)) == [b"one"]
    summary = client.describe_stream_summary(StreamARN=arn)["StreamDescriptionSummary"]
    assert summary["StreamName"] == stream.name


def test_a_deleted_stream_is_not_found(stream: StreamUnderTest) -> None:
    iterator = stream.iterator()

    stream.delete()

    assert refusal(stream.summary) == UNKNOWN
    assert refusal(lambda: stream.follow(iterator)) == UNKNOWN


def test_a_recreated_stream_is_empty(stream: StreamUnderTest) -> None:
    stream.put(b"old")
    stream.split(0, at=MIDDLE)
    before, created_at = stream.shards()[0], stream.summary()["StreamCreationTimestamp"]

    stream.recreate()

    (after,) = stream.shards()
    numbers = "SequenceNumberRange"
    assert after["ShardId"] == before["ShardId"]
    assert stream.summary()["StreamCreationTimestamp"] > created_at
    assert after[numbers]["StartingSequenceNumber"] != before[numbers]["StartingSequenceNumber"]
    assert stream.read() == []
