"""Shards that split, merge, end and vanish under a routine load, and records inside others."""

import json

import pytest

from penstock.crashpoints import CrashPoint
from tests.integration.driving import crash_at
from tests.integration.routine_loads import (
    FIRST,
    HIGH,
    LOW,
    by_key,
    create,
    ids,
    loads,
    put,
    row,
    server,
    shards,
    shown,
    statistic,
    stream,
)
from tests.node import Node
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis.stream import StaleListing
from tests.servers.kinesis.switches import ShardEnd
from tests.servers.kinesis_clients import MIDDLE, StreamUnderTest
from tests.unit.sources.kinesis.aggregates import bytes_field, number_field, packed, sealed
from tests.unit.sources.kinesis.test_records import sub

__all__ = ["loads", "server", "stream"]
pytestmark = pytest.mark.integration

SECOND, THIRD = "shardId-000000000001", "shardId-000000000002"


def put_on_both(stream: StreamUnderTest, number: int) -> None:
    """Write a record of a low key and one of a high one."""
    put(stream, number, key="a", hash_key=LOW)
    put(stream, number, key="b", hash_key=HIGH)


@pytest.mark.parametrize("shape", list(ShardEnd))
def test_t68_shards_that_end_without_rows_lead_to_their_grandchildren(
    loads: Node, server: KinesisServer, stream: StreamUnderTest, *, shape: ShardEnd
) -> None:
    server.control.switch(shard_end=shape)
    loads.sql(create(stream))
    loads.run()
    stream.split(0, MIDDLE)
    stream.split(1, MIDDLE // 2)
    put_on_both(stream, 1)

    crash_at(loads, CrashPoint.CATALOG_APPLIED)
    again = loads.restart()
    before = shards(again)["0"]
    again.run()

    assert before == ("finished", "END")
    assert by_key(again) == {"a": [1], "b": [1]}


def test_t71_a_merge_parent_that_was_read_may_be_forgotten(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    stream.split(0, MIDDLE)
    put_on_both(stream, 1)
    loads.sql(create(stream))
    loads.run()
    stream.merge(1, 2)
    loads.run()
    put(stream, 2, key="a", hash_key=LOW)
    server.control.trim(stream.name, SECOND)
    server.control.trim(stream.name, THIRD)

    loads.run()

    assert by_key(loads) == {"a": [1, 2], "b": [1]}


def test_t71_a_merge_parent_that_was_not_read_to_its_end_pauses_the_load(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    stream.split(0, MIDDLE)
    put(stream, 1, key="a", hash_key=LOW)
    (number,) = put(stream, 1, key="b", hash_key=HIGH)
    loads.sql(create(stream))
    loads.run()
    put(stream, 2, key="b", hash_key=HIGH)
    stream.merge(1, 2)
    put(stream, 3, key="a", hash_key=LOW)
    server.control.trim(stream.name, THIRD)

    loads.run()

    assert by_key(loads) == {"a": [1], "b": [1]}
    assert shown(loads)["ReasonOfStateChanged"] == (
        f"CANNOT_RESUME_ERR: shard {THIRD} is gone, and was not read to its end. "
        f"The job stands at AFTER {number}; the rest was trimmed"
    )


@pytest.mark.parametrize("kind", list(StaleListing))
def test_t72_listings_that_lag_behind_a_reshard_lose_nothing(
    loads: Node, server: KinesisServer, stream: StreamUnderTest, *, kind: StaleListing
) -> None:
    put_on_both(stream, 1)
    loads.sql(create(stream))
    server.control.switch(stale_listings=3, stale_listing=kind)
    stream.split(0, MIDDLE)
    put_on_both(stream, 2)

    loads.run()

    assert by_key(loads) == {"a": [1, 2], "b": [1, 2]}


def test_t72_a_load_is_not_caught_up_before_the_children_of_a_finished_shard_are_listed(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream))
    loads.run()
    server.control.switch(stale_listings=3, stale_listing=StaleListing.CHILDREN_MISSING)
    stream.split(0, MIDDLE)
    put_on_both(stream, 1)
    # The end of a shard need not tell its children; driver and task see the same one.
    for _ in range(2):
        server.control.inject_body("GetRecords", '{"Records": [], "MillisBehindLatest": 0}')

    loads.run()

    assert by_key(loads) == {"a": [1], "b": [1]}


def test_t72_a_shard_that_one_listing_lacks_is_read_on(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    stream.split(0, MIDDLE)
    put_on_both(stream, 1)
    loads.sql(create(stream))
    loads.run()
    put_on_both(stream, 2)
    only_first = stream.client.list_shards(StreamName=stream.name)["Shards"][:2]
    server.control.inject_body("ListShards", json.dumps({"Shards": only_first}))

    loads.run()

    assert by_key(loads) == {"a": [1, 2], "b": [1, 2]}


def test_t31_children_wait_until_their_parent_is_committed(
    loads: Node, stream: StreamUnderTest
) -> None:
    put_on_both(stream, 1)
    put_on_both(stream, 2)
    loads.sql(create(stream, properties={"max_batch_rows": "1"}))
    stream.split(0, MIDDLE)
    put_on_both(stream, 3)

    crash_at(loads, CrashPoint.RUN_FINISHED)
    again = loads.restart()
    before = shards(again)
    again.run()

    assert before == {"0": ("draining", "TRIM_HORIZON")}
    assert by_key(again) == {"a": [1, 2, 3], "b": [1, 2, 3]}


def test_t23_a_parent_that_was_forgotten_does_not_come_back_with_a_listing(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put_on_both(stream, 1)
    stream.split(0, MIDDLE)
    stream.merge(1, 2)
    loads.sql(create(stream))
    loads.run()
    with_first = json.dumps({"Shards": stream.shards()})
    server.control.trim(stream.name, FIRST)
    put_on_both(stream, 2)
    loads.run()
    before = sorted(shards(loads))
    put_on_both(stream, 3)
    server.control.inject_body("ListShards", with_first)

    loads.run()

    assert before == sorted(shards(loads)) == ["1", "2", "3"]
    assert by_key(loads) == {"a": [1, 2, 3], "b": [1, 2, 3]}


def test_t23_a_finished_shard_that_a_listing_lacks_is_remembered(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put_on_both(stream, 1)
    stream.split(0, MIDDLE)
    stream.merge(1, 2)
    loads.sql(create(stream))
    loads.run()
    server.control.inject_body("ListShards", json.dumps({"Shards": stream.shards()[-1:]}))
    put_on_both(stream, 2)
    loads.run()
    before = sorted(shards(loads))
    put_on_both(stream, 3)

    loads.run()

    assert before == sorted(shards(loads)) == ["0", "1", "2", "3"]
    assert by_key(loads) == {"a": [1, 2, 3], "b": [1, 2, 3]}


def test_shards_are_shown_as_a_tree(loads: Node, stream: StreamUnderTest) -> None:
    put_on_both(stream, 1)
    stream.split(0, MIDDLE)
    put_on_both(stream, 2)
    stream.merge(1, 2)
    loads.sql(create(stream))
    before = loads.sql("SHOW SHARDS FOR r")

    loads.run()

    assert [(one["shard"], one["state"]) for one in before] == [
        (FIRST, "open"),
        (f"└ {SECOND}", "waiting"),
        ("  └ shardId-000000000003", "waiting"),
        (f"└ {THIRD}", "waiting"),
    ]
    found = loads.sql("SHOW SHARDS FOR r")
    assert [
        (one["parents"], one["state"], one["position"], one["records"]) for one in found
    ] == [
        ("", "finished", "END", 2),
        (FIRST, "finished", "END", 1),
        (f"{SECOND}, {THIRD}", "open", "TRIM_HORIZON", 0),
        (FIRST, "finished", "END", 1),
    ]
    assert [one["lag_ms"] for one in found] == [None, None, 0, None]


def test_a_closed_shard_that_is_not_read_to_its_end_is_draining(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1, 2)
    loads.sql(create(stream, properties={"max_batch_rows": "1"}))
    stream.split(0, MIDDLE)

    crash_at(loads, CrashPoint.CATALOG_APPLIED)
    again = loads.restart()

    assert shards(again)["0"][0] == "draining"
    told = shown(again)
    assert told["DataSourceProperties"]["closedKinesisShards"] == FIRST
    assert (told["Statistic"]["openShardNum"], told["Statistic"]["closedShardNum"]) == (2, 1)
    assert told["Statistic"]["trackedShardNum"] == 3


@pytest.mark.parametrize(
    ("choice", "found", "counted"),
    [
        ("reject", [1], {"foreignRows": 1, "errorRows": 1, "skippedRows": 0}),
        ("load", [1, 2], {"foreignRows": 0, "errorRows": 0, "skippedRows": 0}),
        ("skip", [1], {"foreignRows": 0, "errorRows": 0, "skippedRows": 1}),
    ],
)
def test_t76_records_of_another_shard_inside_an_aggregate_follow_the_option(
    loads: Node,
    stream: StreamUnderTest,
    *,
    choice: str,
    found: list[int],
    counted: dict[str, int],
) -> None:
    stream.split(0, MIDDLE)
    stream.put(packed(sub(row(1), hash_key=LOW), sub(row(2), hash_key=HIGH)), hash_key=LOW)
    loads.sql(create(stream, kpl_foreign_records=choice))

    loads.run()

    assert ids(loads) == found
    assert shown(loads)["State"] == "NEED_SCHEDULE"
    told = statistic(loads)
    assert {key: told[key] for key in counted} == counted


def test_t76_what_the_default_is_at_home_in_the_whole_stream(
    loads: Node, stream: StreamUnderTest
) -> None:
    stream.put(packed(sub(row(1), hash_key=LOW), sub(row(2), hash_key=HIGH)))
    loads.sql(create(stream))

    loads.run()

    assert ids(loads) == [1, 2]
    assert statistic(loads)["foreignRows"] == 0


def test_t77_an_aggregate_with_a_wrong_sum_is_a_plain_record(
    loads: Node, stream: StreamUnderTest
) -> None:
    stream.put(packed(sub(row(1)))[:-1] + b"?")
    put(stream, 2)
    loads.sql(create(stream, properties={"max_error_number": "9"}))

    loads.run()

    assert ids(loads) == [2]
    assert statistic(loads)["receivedRecords"] == 2
    assert statistic(loads)["errorRows"] > 0


def test_t77_an_aggregate_with_a_wrong_index_is_rejected_whole(
    loads: Node, stream: StreamUnderTest
) -> None:
    inside = bytes_field(3, number_field(1, 7) + bytes_field(3, row(1)))
    good = bytes_field(3, number_field(1, 0) + bytes_field(3, row(2)))
    stream.put(sealed(bytes_field(1, b"k") + good + inside))
    put(stream, 3)
    loads.sql(create(stream, properties={"max_error_number": "1"}))

    loads.run()

    assert ids(loads) == [3]
    assert statistic(loads)["errorRows"] == 1


def test_t77_an_aggregate_of_nothing_is_passed_over_and_counted(
    loads: Node, stream: StreamUnderTest
) -> None:
    number = stream.put(sealed(bytes_field(1, b"k")))
    loads.sql(create(stream))

    loads.run()

    assert shown(loads)["Progress"] == {FIRST: f"AFTER {number}"}
    assert statistic(loads)["skippedRows"] == 1


def test_t27_records_without_content_are_passed_over_and_counted(
    loads: Node, stream: StreamUnderTest
) -> None:
    stream.put(b"")
    put(stream, 1)
    stream.put(b"{nonsense")
    loads.sql(create(stream, properties={"max_error_number": "1"}))

    loads.run()

    counted = statistic(loads)
    assert counted["receivedRecords"] == counted["totalRows"] == 3
    assert (counted["loadedRows"], counted["skippedRows"], counted["errorRows"]) == (1, 1, 1)
