"""Splits, merges, and stale listings."""

import pytest

from tests.servers.kinesis.stream import StaleListing
from tests.unit.testing.kinesis.in_process import InProcessKinesis, ResponseError


def reshard_to(kinesis: InProcessKinesis, count: int) -> None:
    kinesis.send(
        "UpdateShardCount",
        StreamName="s",
        TargetShardCount=count,
        ScalingType="UNIFORM_SCALING",
    )


def widths(kinesis: InProcessKinesis) -> list[int]:
    ranges = [
        shard["HashKeyRange"] for shard in kinesis.shards(ShardFilter={"Type": "AT_LATEST"})
    ]
    return [int(one["EndingHashKey"]) - int(one["StartingHashKey"]) + 1 for one in ranges]


def test_the_number_of_shards_can_change_from_two_to_three() -> None:
    kinesis = InProcessKinesis()
    kinesis.create(2)

    reshard_to(kinesis, 3)

    assert len(widths(kinesis)) == 3
    assert max(widths(kinesis)) - min(widths(kinesis)) < 3
    assert sum(widths(kinesis)) == 2**128


def test_the_number_of_shards_can_be_halved() -> None:
    kinesis = InProcessKinesis()
    kinesis.create(4)

    reshard_to(kinesis, 2)

    assert widths(kinesis) == [2**127, 2**127]
    assert kinesis.open_numbers() == [4, 5]


@pytest.mark.parametrize(
    ("shape", "listed", "listed_as_open"),
    [
        (StaleListing.PARENT_OPEN, [0], [0]),
        (StaleListing.CHILDREN_MISSING, [0], []),
        (StaleListing.PARENT_OPEN_BESIDE_CHILDREN, [0, 1, 2], [0, 1, 2]),
    ],
)
def test_listings_can_be_stale_after_a_reshard(
    kinesis: InProcessKinesis, shape: StaleListing, listed: list[int], listed_as_open: list[int]
) -> None:
    kinesis.switch(stale_listings=2, stale_listing=shape)

    kinesis.split()

    assert kinesis.numbers() == listed
    assert kinesis.open_numbers() == listed_as_open
    assert kinesis.numbers() == [0, 1, 2]
    assert kinesis.open_numbers() == [1, 2]


def test_the_last_page_of_a_parent_names_unlisted_children(
    kinesis: InProcessKinesis,
) -> None:
    kinesis.switch(stale_listings=1)
    kinesis.split()

    page = kinesis.page(kinesis.iterator())

    assert [child["ShardId"][-1] for child in page["ChildShards"]] == ["1", "2"]
    assert kinesis.numbers() == [0]


def test_a_reshard_takes_the_configured_time(kinesis: InProcessKinesis) -> None:
    kinesis.switch(reshard_ms=1_000)
    kinesis.split()
    during = kinesis.status()
    with pytest.raises(ResponseError, match="ResourceInUseException"):
        kinesis.split()

    kinesis.advance(seconds=1)

    assert during == "UPDATING"
    assert kinesis.status() == "ACTIVE"
    assert kinesis.numbers() == [0, 1, 2]


def test_records_go_to_the_parent_until_the_split_is_finished(
    kinesis: InProcessKinesis,
) -> None:
    kinesis.switch(reshard_ms=1_000)
    kinesis.split()

    kinesis.put("one")

    assert kinesis.numbers() == [0]
    assert kinesis.pages(1) == [["one"]]


def test_creating_a_stream_takes_the_configured_time() -> None:
    kinesis = InProcessKinesis()
    kinesis.switch(create_ms=1_000)
    kinesis.create()
    before = kinesis.status()
    with pytest.raises(ResponseError, match="ResourceInUseException"):
        kinesis.shards()

    kinesis.advance(seconds=1)

    assert before == "CREATING"
    assert kinesis.numbers() == [0]


def test_deleting_a_stream_takes_the_configured_time(kinesis: InProcessKinesis) -> None:
    kinesis.switch(delete_ms=1_000)
    kinesis.send("DeleteStream", StreamName="s")
    before = kinesis.status()

    kinesis.advance(seconds=1)

    assert before == "DELETING"
    with pytest.raises(ResponseError, match="ResourceNotFoundException"):
        kinesis.status()


def test_page_tokens_expire_on_demand() -> None:
    kinesis = InProcessKinesis()
    kinesis.create(3)
    token = kinesis.send("ListShards", StreamName="s", MaxResults=2)["NextToken"]

    kinesis.control("expire_tokens")

    with pytest.raises(ResponseError, match="ExpiredNextTokenException"):
        kinesis.send("ListShards", NextToken=token)


def test_page_tokens_expire_after_five_minutes() -> None:
    kinesis = InProcessKinesis()
    kinesis.create(3)
    token = kinesis.send("ListShards", StreamName="s", MaxResults=2)["NextToken"]

    kinesis.advance(minutes=5, milliseconds=1)

    with pytest.raises(ResponseError, match="ExpiredNextTokenException"):
        kinesis.send("ListShards", NextToken=token)


def test_a_page_token_keeps_the_filter_of_the_first_page() -> None:
    kinesis = InProcessKinesis()
    kinesis.create(3)
    kinesis.split(0, at=5)
    shard_filter = {"Type": "AT_LATEST"}

    first = kinesis.send("ListShards", StreamName="s", MaxResults=1, ShardFilter=shard_filter)
    second = kinesis.send("ListShards", NextToken=first["NextToken"])

    assert [shard["ShardId"][-1] for shard in first["Shards"]] == ["1"]
    assert [shard["ShardId"][-1] for shard in second["Shards"]] == ["2", "3", "4"]


def test_filters_find_the_shards_that_were_open_at_a_time(kinesis: InProcessKinesis) -> None:
    kinesis.advance(seconds=10)
    kinesis.split()
    kinesis.advance(seconds=10)
    at = kinesis.control("now") / 1000

    before = kinesis.shards(ShardFilter={"Type": "AT_TIMESTAMP", "Timestamp": at - 15})
    after = kinesis.shards(ShardFilter={"Type": "FROM_TIMESTAMP", "Timestamp": at})
    horizon = kinesis.shards(ShardFilter={"Type": "AT_TRIM_HORIZON"})

    assert [shard["ShardId"][-1] for shard in before] == ["0"]
    assert [shard["ShardId"][-1] for shard in after] == ["1", "2"]
    assert [shard["ShardId"][-1] for shard in horizon] == ["0"]
