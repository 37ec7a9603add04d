"""Shards that split, merge, end and expire during a routine load, and aggregated records."""

import json

import pytest

from penstock.crashpoints import CrashPoint
from tests.integration.driving import crash_at
from tests.integration.routine_loads import FIRST, HIGH, LOW, Load, put, row
from tests.servers.kinesis.stream import StaleListing
from tests.servers.kinesis.switches import ShardEnd
from tests.servers.kinesis_clients import MIDDLE, StreamUnderTest
from tests.unit.sources.kinesis.aggregates import bytes_field, number_field, packed, with_digest
from tests.unit.sources.kinesis.test_records import sub

pytestmark = pytest.mark.integration

SECOND, THIRD = "shardId-000000000001", "shardId-000000000002"


def put_on_both(stream: StreamUnderTest, number: int) -> None:
    """Write a record with a low hash key and a record with a high hash key."""
    put(stream, number, key="a", hash_key=LOW)
    put(stream, number, key="b", hash_key=HIGH)


@pytest.mark.parametrize("shape", list(ShardEnd))
def test_t68_grandchildren_of_shards_that_end_without_rows_are_read(
    load: Load, shape: ShardEnd
) -> None:
    load.control.switch(shard_end=shape)
    load.create()
    load.run()
    load.stream.split(0, MIDDLE)
    load.stream.split(1, MIDDLE // 2)
    put_on_both(load.stream, 1)

    crash_at(load.node, CrashPoint.CATALOG_APPLIED)
    again = load.restart()
    before = again.shards()["0"]
    again.run()

    assert before == ("finished", "END")
    assert again.by_key() == {"a": [1], "b": [1]}


def test_t71_a_merge_parent_that_was_read_can_expire(load: Load) -> None:
    load.stream.split(0, MIDDLE)
    put_on_both(load.stream, 1)
    load.create()
    load.run()
    load.stream.merge(1, 2)
    load.run()
    load.put(2, key="a", hash_key=LOW)
    load.control.trim(load.stream.name, SECOND)
    load.control.trim(load.stream.name, THIRD)

    load.run()

    assert load.by_key() == {"a": [1, 2], "b": [1]}


def test_t71_a_merge_parent_that_was_not_read_to_its_end_pauses_the_load(load: Load) -> None:
    load.stream.split(0, MIDDLE)
    load.put(1, key="a", hash_key=LOW)
    (number,) = load.put(1, key="b", hash_key=HIGH)
    load.create()
    load.run()
    load.put(2, key="b", hash_key=HIGH)
    load.stream.merge(1, 2)
    load.put(3, key="a", hash_key=LOW)
    load.control.trim(load.stream.name, THIRD)

    load.run()

    assert load.by_key() == {"a": [1], "b": [1]}
    assert load.reason() == ["CANNOT_RESUME_ERR", THIRD, number]


@pytest.mark.parametrize("kind", list(StaleListing))
def test_t72_stale_listings_after_a_reshard_lose_nothing(
    load: Load, kind: StaleListing
) -> None:
    put_on_both(load.stream, 1)
    load.create()
    load.control.switch(stale_listings=3, stale_listing=kind)
    load.stream.split(0, MIDDLE)
    put_on_both(load.stream, 2)

    load.run()

    assert load.by_key() == {"a": [1, 2], "b": [1, 2]}


def test_t72_a_load_is_not_caught_up_before_the_children_of_a_finished_shard_are_listed(
    load: Load,
) -> None:
    load.create()
    load.run()
    load.control.switch(stale_listings=3, stale_listing=StaleListing.CHILDREN_MISSING)
    load.stream.split(0, MIDDLE)
    put_on_both(load.stream, 1)
    # The end of a shard need not list its children; driver and task read the same page.
    for _ in range(2):
        load.control.inject_body("GetRecords", '{"Records": [], "MillisBehindLatest": 0}')

    load.run()

    assert load.by_key() == {"a": [1], "b": [1]}


def test_t72_a_shard_that_is_missing_in_one_listing_is_still_read(load: Load) -> None:
    load.stream.split(0, MIDDLE)
    put_on_both(load.stream, 1)
    load.create()
    load.run()
    put_on_both(load.stream, 2)
    only_first = load.stream.client.list_shards(StreamName=load.stream.name)["Shards"][:2]
    load.control.inject_body("ListShards", json.dumps({"Shards": only_first}))

    load.run()

    assert load.by_key() == {"a": [1, 2], "b": [1, 2]}


def test_t31_children_wait_until_their_parent_is_committed(load: Load) -> None:
    put_on_both(load.stream, 1)
    put_on_both(load.stream, 2)
    load.create(properties={"max_batch_rows": "1"})
    load.stream.split(0, MIDDLE)
    put_on_both(load.stream, 3)

    crash_at(load.node, CrashPoint.RUN_FINISHED)
    again = load.restart()
    before = again.shards()
    again.run()

    assert before == {"0": ("draining", "TRIM_HORIZON")}
    assert again.by_key() == {"a": [1, 2, 3], "b": [1, 2, 3]}


def test_t23_a_deleted_parent_is_not_restored_by_a_listing(load: Load) -> None:
    put_on_both(load.stream, 1)
    load.stream.split(0, MIDDLE)
    load.stream.merge(1, 2)
    load.create()
    load.run()
    with_first = json.dumps({"Shards": load.stream.shards()})
    load.control.trim(load.stream.name, FIRST)
    put_on_both(load.stream, 2)
    load.run()
    before = sorted(load.shards())
    put_on_both(load.stream, 3)
    load.control.inject_body("ListShards", with_first)

    load.run()

    assert before == sorted(load.shards()) == ["1", "2", "3"]
    assert load.by_key() == {"a": [1, 2, 3], "b": [1, 2, 3]}


def test_t23_a_finished_shard_that_is_missing_in_a_listing_stays_stored(load: Load) -> None:
    put_on_both(load.stream, 1)
    load.stream.split(0, MIDDLE)
    load.stream.merge(1, 2)
    load.create()
    load.run()
    load.control.inject_body("ListShards", json.dumps({"Shards": load.stream.shards()[-1:]}))
    put_on_both(load.stream, 2)
    load.run()
    before = sorted(load.shards())
    put_on_both(load.stream, 3)

    load.run()

    assert before == sorted(load.shards()) == ["0", "1", "2", "3"]
    assert load.by_key() == {"a": [1, 2, 3], "b": [1, 2, 3]}


def test_shards_are_shown_as_a_tree(load: Load) -> None:
    put_on_both(load.stream, 1)
    load.stream.split(0, MIDDLE)
    put_on_both(load.stream, 2)
    load.stream.merge(1, 2)
    load.create()
    before = load.sql("SHOW SHARDS FOR r")

    load.run()

    assert [(one["shard"], one["state"]) for one in before] == [
        (FIRST, "open"),
        (f"└ {SECOND}", "waiting"),
        ("  └ shardId-000000000003", "waiting"),
        (f"└ {THIRD}", "waiting"),
    ]
    found = load.sql("SHOW SHARDS FOR r")
    assert [
        (one["parents"], one["state"], one["position"], one["records"]) for one in found
    ] == [
        ("", "finished", "END", 2),
        (FIRST, "finished", "END", 1),
        (f"{SECOND}, {THIRD}", "open", "TRIM_HORIZON", 0),
        (FIRST, "finished", "END", 1),
    ]
    assert [one["lag_ms"] for one in found] == [None, None, 0, None]


def test_a_closed_shard_with_unread_records_is_draining(load: Load) -> None:
    load.put(1, 2)
    load.create(properties={"max_batch_rows": "1"})
    load.stream.split(0, MIDDLE)

    crash_at(load.node, CrashPoint.CATALOG_APPLIED)
    again = load.restart()

    assert again.shards()["0"][0] == "draining"
    shown = again.shown()
    assert shown["DataSourceProperties"]["closedKinesisShards"] == FIRST
    assert (shown["Statistic"]["openShardNum"], shown["Statistic"]["closedShardNum"]) == (2, 1)
    assert shown["Statistic"]["trackedShardNum"] == 3


@pytest.mark.parametrize(
    ("choice", "found", "counted"),
    [
        ("reject", [1], {"foreignRows": 1, "errorRows": 1, "skippedRows": 0}),
        ("load", [1, 2], {"foreignRows": 0, "errorRows": 0, "skippedRows": 0}),
        ("skip", [1], {"foreignRows": 0, "errorRows": 0, "skippedRows": 1}),
    ],
)
def test_t76_records_of_another_shard_inside_an_aggregate_follow_the_option(
    load: Load, *, choice: str, found: list[int], counted: dict[str, int]
) -> None:
    load.stream.split(0, MIDDLE)
    load.stream.put(packed(sub(row(1), hash_key=LOW), sub(row(2), hash_key=HIGH)), hash_key=LOW)
    load.create(kpl_foreign_records=choice)

    load.run()

    assert load.ids() == found
    assert load.shown()["State"] == "NEED_SCHEDULE"
    statistic = load.statistic()
    assert {key: statistic[key] for key in counted} == counted


def test_t76_by_default_records_of_any_shard_of_the_stream_are_loaded(load: Load) -> None:
    load.stream.put(packed(sub(row(1), hash_key=LOW), sub(row(2), hash_key=HIGH)))
    load.create()

    load.run()

    assert load.ids() == [1, 2]
    assert load.statistic()["foreignRows"] == 0


def test_t77_an_aggregate_with_a_wrong_checksum_is_a_plain_record(load: Load) -> None:
    load.stream.put(packed(sub(row(1)))[:-1] + b"?")
    load.put(2)
    load.create(properties={"max_error_number": "9"})

    load.run()

    assert load.ids() == [2]
    assert load.statistic()["receivedRecords"] == 2
    assert load.statistic()["errorRows"] > 0


def test_t77_an_aggregate_with_a_wrong_index_is_rejected_completely(load: Load) -> None:
    inside = bytes_field(3, number_field(1, 7) + bytes_field(3, row(1)))
    good = bytes_field(3, number_field(1, 0) + bytes_field(3, row(2)))
    load.stream.put(with_digest(bytes_field(1, b"k") + good + inside))
    load.put(3)
    load.create(properties={"max_error_number": "1"})

    load.run()

    assert load.ids() == [3]
    assert load.statistic()["errorRows"] == 1


def test_t77_an_empty_aggregate_is_skipped_and_counted(load: Load) -> None:
    number = load.stream.put(with_digest(bytes_field(1, b"k")))
    load.create()

    load.run()

    assert load.shown()["Progress"] == {FIRST: f"AFTER {number}"}
    assert load.statistic()["skippedRows"] == 1


def test_t27_empty_records_are_skipped_and_counted(load: Load) -> None:
    load.stream.put(b"")
    load.put(1)
    load.stream.put(b"{nonsense")
    load.create(properties={"max_error_number": "1"})

    load.run()

    counted = load.statistic()
    assert counted["receivedRecords"] == counted["totalRows"] == 3
    assert (counted["loadedRows"], counted["skippedRows"], counted["errorRows"]) == (1, 1, 1)
