"""How shards change, and how listings learn of it."""

import pytest

from tests.servers.kinesis.stream import StaleListing
from tests.unit.testing.kinesis.asking import Asking, RefusedError


def reshard_to(kinesis: Asking, count: int) -> None:
    kinesis.ask(
        "UpdateShardCount",
        StreamName="s",
        TargetShardCount=count,
        ScalingType="UNIFORM_SCALING",
    )


def widths(kinesis: Asking) -> list[int]:
    ranges = [
        shard["HashKeyRange"] for shard in kinesis.shards(ShardFilter={"Type": "AT_LATEST"})
    ]
    return [int(one["EndingHashKey"]) - int(one["StartingHashKey"]) + 1 for one in ranges]


def test_a_number_of_shards_that_is_no_double_takes_several_generations() -> None:
    kinesis = Asking()
    kinesis.create(2)

    reshard_to(kinesis, 3)

    assert len(widths(kinesis)) == 3
    assert max(widths(kinesis)) - min(widths(kinesis)) < 3
    assert sum(widths(kinesis)) == 2**128


def test_the_number_of_shards_can_be_halved() -> None:
    kinesis = Asking()
    kinesis.create(4)

    reshard_to(kinesis, 2)

    assert widths(kinesis) == [2**127, 2**127]
    assert kinesis.open_numbers() == [4, 5]


@pytest.mark.parametrize(
    ("shape", "listed", "open_ones"),
    [
        (StaleListing.PARENT_OPEN, [0], [0]),
        (StaleListing.CHILDREN_MISSING, [0], []),
        (StaleListing.PARENT_OPEN_BESIDE_CHILDREN, [0, 1, 2], [0, 1, 2]),
    ],
)
def test_listings_lag_behind_a_reshard(
    kinesis: Asking, shape: StaleListing, listed: list[int], open_ones: list[int]
) -> None:
    kinesis.switch(stale_listings=2, stale_listing=shape)

    kinesis.split()

    assert kinesis.numbers() == listed
    assert kinesis.open_numbers() == open_ones
    assert kinesis.numbers() == [0, 1, 2]
    assert kinesis.open_numbers() == [1, 2]


def test_the_end_of_the_parent_names_children_that_no_listing_shows(kinesis: Asking) -> None:
    kinesis.switch(stale_listings=1)
    kinesis.split()

    page = kinesis.page(kinesis.iterator())

    assert [child["ShardId"][-1] for child in page["ChildShards"]] == ["1", "2"]
    assert kinesis.numbers() == [0]


def test_changes_take_the_time_they_are_told_to(kinesis: Asking) -> None:
    kinesis.switch(reshard_ms=1_000)
    kinesis.split()
    during = kinesis.status()
    with pytest.raises(RefusedError, match="ResourceInUseException"):
        kinesis.split()

    kinesis.later(seconds=1)

    assert during == "UPDATING"
    assert kinesis.status() == "ACTIVE"
    assert kinesis.numbers() == [0, 1, 2]


def test_records_go_to_the_parent_until_a_split_is_done(kinesis: Asking) -> None:
    kinesis.switch(reshard_ms=1_000)
    kinesis.split()

    kinesis.put("one")

    assert kinesis.numbers() == [0]
    assert kinesis.pages(1) == [["one"]]


def test_a_stream_takes_its_time_to_come() -> None:
    kinesis = Asking()
    kinesis.switch(create_ms=1_000)
    kinesis.create()
    before = kinesis.status()
    with pytest.raises(RefusedError, match="ResourceInUseException"):
        kinesis.shards()

    kinesis.later(seconds=1)

    assert before == "CREATING"
    assert kinesis.numbers() == [0]


def test_a_stream_takes_its_time_to_go(kinesis: Asking) -> None:
    kinesis.switch(delete_ms=1_000)
    kinesis.ask("DeleteStream", StreamName="s")
    before = kinesis.status()

    kinesis.later(seconds=1)

    assert before == "DELETING"
    with pytest.raises(RefusedError, match="ResourceNotFoundException"):
        kinesis.status()


def test_page_tokens_expire_on_demand() -> None:
    kinesis = Asking()
    kinesis.create(3)
    token = kinesis.ask("ListShards", StreamName="s", MaxResults=2)["NextToken"]

    kinesis.order("expire_tokens")

    with pytest.raises(RefusedError, match="ExpiredNextTokenException"):
        kinesis.ask("ListShards", NextToken=token)


def test_page_tokens_expire_after_five_minutes() -> None:
    kinesis = Asking()
    kinesis.create(3)
    token = kinesis.ask("ListShards", StreamName="s", MaxResults=2)["NextToken"]

    kinesis.later(minutes=5, milliseconds=1)

    with pytest.raises(RefusedError, match="ExpiredNextTokenException"):
        kinesis.ask("ListShards", NextToken=token)


def test_a_token_remembers_the_filter() -> None:
    kinesis = Asking()
    kinesis.create(3)
    kinesis.split(0, at=5)
    wish = {"Type": "AT_LATEST"}

    first = kinesis.ask("ListShards", StreamName="s", MaxResults=1, ShardFilter=wish)
    second = kinesis.ask("ListShards", NextToken=first["NextToken"])

    assert [shard["ShardId"][-1] for shard in first["Shards"]] == ["1"]
    assert [shard["ShardId"][-1] for shard in second["Shards"]] == ["2", "3", "4"]


def test_filters_look_into_the_past(kinesis: Asking) -> None:
    kinesis.later(seconds=10)
    kinesis.split()
    kinesis.later(seconds=10)
    at = kinesis.order("now") / 1000

    before = kinesis.shards(ShardFilter={"Type": "AT_TIMESTAMP", "Timestamp": at - 15})
    after = kinesis.shards(ShardFilter={"Type": "FROM_TIMESTAMP", "Timestamp": at})
    horizon = kinesis.shards(ShardFilter={"Type": "AT_TRIM_HORIZON"})

    assert [shard["ShardId"][-1] for shard in before] == ["0"]
    assert [shard["ShardId"][-1] for shard in after] == ["1", "2"]
    assert [shard["ShardId"][-1] for shard in horizon] == ["0"]
