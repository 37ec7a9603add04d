"""Routine loads on two Kinesis servers: every record once, and in order per key."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from penstock.crashpoints import CrashPoint
from tests.integration.driving import crash_at
from tests.integration.routine_loads import FIRST, HIGH, LOW, Load, close_clients, row
from tests.node import Node
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import (
    MIDDLE,
    StreamUnderTest,
    kinesis_client,
    new_stream,
    pause,
)
from tests.unit.sources.kinesis.aggregates import packed
from tests.unit.sources.kinesis.test_records import sub

pytestmark = pytest.mark.integration


@pytest.fixture(params=["own_kinesis", "kinesis_local"])
def stream(request: pytest.FixtureRequest) -> Iterator[StreamUnderTest]:
    """A stream of one shard on each of the two servers."""
    with kinesis_client(request.getfixturevalue(request.param).endpoint) as client:
        yield new_stream(client)
    close_clients()


@pytest.fixture
def load(loads: Node, stream: StreamUnderTest, own_kinesis: KinesisServer) -> Load:
    """A load of the stream; tests here do not change the server's behaviour."""
    return Load(node=loads, stream=stream, server=own_kinesis)


def test_latest_loads_records_that_arrive_after_the_statement(load: Load) -> None:
    load.put(1)
    # The service returns its time in whole seconds.
    pause(timedelta(milliseconds=1100))
    load.create(property__kinesis_default_pos="LATEST")
    load.put(2)

    load.run()

    assert load.ids() == [2]


def test_t15_reading_starts_at_a_time(load: Load) -> None:
    arrivals = load.stream.put_apart(*(row(number) for number in (1, 2, 3)))
    load.create(property__kinesis_default_pos=arrivals[1].isoformat())

    load.run()

    assert load.ids() == [2, 3]


def test_t22_the_record_at_the_start_sequence_number_is_loaded(load: Load) -> None:
    numbers = load.put(1, 2, 3)
    load.create(kinesis_shards=FIRST, kinesis_shards_pos=numbers[1])

    load.run()

    assert load.ids() == [2, 3]


def test_t31_records_of_a_key_stay_in_order_across_splits_and_merges(load: Load) -> None:
    load.put(1, key="a", hash_key=LOW)
    load.put(1, key="b", hash_key=HIGH)
    load.create()
    load.stream.split(0, MIDDLE)
    load.put(2, 3, key="a", hash_key=LOW)
    load.put(2, 3, key="b", hash_key=HIGH)
    load.stream.merge(1, 2)
    load.put(4, key="a", hash_key=LOW)
    load.put(4, key="b", hash_key=HIGH)

    load.run()

    assert load.by_key() == {"a": [1, 2, 3, 4], "b": [1, 2, 3, 4]}
    assert {shard: state for shard, (state, _) in load.shards().items()} == {
        "0": "finished",
        "1": "finished",
        "2": "finished",
        "3": "open",
    }


def test_t29_children_of_a_finished_shard_are_read_from_their_start(load: Load) -> None:
    load.create(property__kinesis_default_pos="LATEST")
    load.put(1)
    load.run()
    load.stream.split(0, MIDDLE)
    load.put(2, hash_key=LOW)
    load.put(3, hash_key=HIGH)

    load.run()

    assert sorted(load.ids()) == [1, 2, 3]


def test_t23_a_parent_is_never_read_again(load: Load) -> None:
    load.put(1)
    load.create()
    load.stream.split(0, MIDDLE)
    load.put(2, hash_key=LOW)
    load.run()
    load.put(3, hash_key=HIGH)

    again = load.restart()
    again.run()

    assert again.ids() == [1, 2, 3]
    assert again.shards()["0"] == ("finished", "END")


def test_t77_an_aggregate_is_read_across_epochs_and_a_restart(load: Load) -> None:
    number = load.stream.put(packed(*(sub(row(one)) for one in range(5))))
    load.put(5)
    load.create(properties={"max_batch_rows": "3"})

    crash_at(load.node, CrashPoint.CATALOG_APPLIED)
    again = load.restart()
    before = again.shards()["0"]
    again.run()

    assert before == ("open", f"AFTER {number}/2")
    assert again.ids() == [0, 1, 2, 3, 4, 5]


def test_t83_the_end_of_a_shard_is_not_taken_from_the_listing(load: Load) -> None:
    load.put(1, 2, 3)
    load.stream.split(0, MIDDLE)
    load.create(properties={"max_batch_rows": "1"})

    load.run()

    assert load.ids() == [1, 2, 3]
    assert load.shards()["0"] == ("finished", "END")
