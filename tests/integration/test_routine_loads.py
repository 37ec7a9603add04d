"""Routine loads on both servers: every record once, and in order per key."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from penstock.crashpoints import CrashPoint
from penstock.epochs.task import run_task_text
from penstock.errors import Code, ExternalError
from tests.integration.driving import (
    Gate,
    MovedClock,
    attempts,
    crash_at,
    rounds_until,
    supervised,
)
from tests.integration.routine_loads import (
    BLINK,
    CREATE_TABLE,
    FIRST,
    HIGH,
    LOW,
    by_key,
    close_clients,
    create,
    ids,
    loads,
    put,
    row,
    shards,
)
from tests.mirrored_node import OpenNode
from tests.node import Node
from tests.servers.kinesis_clients import (
    MIDDLE,
    StreamUnderTest,
    kinesis_client,
    new_stream,
    pause,
)
from tests.unit.sources.kinesis.aggregates import packed
from tests.unit.sources.kinesis.test_records import sub

__all__ = ["loads"]
pytestmark = pytest.mark.integration

TRIES_PER_ATTEMPT = 4


@pytest.fixture(params=["own_kinesis", "kinesis_local"])
def stream(request: pytest.FixtureRequest) -> Iterator[StreamUnderTest]:
    """A stream of one shard on each of the servers."""
    with kinesis_client(request.getfixturevalue(request.param).endpoint) as client:
        yield new_stream(client)
    close_clients()


def test_a_stream_is_loaded_from_its_beginning(loads: Node, stream: StreamUnderTest) -> None:
    put(stream, 1, 2)
    loads.sql(create(stream))
    loads.run()
    put(stream, 3)

    loads.run()

    assert ids(loads) == [1, 2, 3]


def test_latest_is_what_arrives_from_the_statement_on(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    # The service tells its time in whole seconds.
    pause(timedelta(milliseconds=1100))
    loads.sql(create(stream, property__kinesis_default_pos="LATEST"))
    put(stream, 2)

    loads.run()

    assert ids(loads) == [2]


def test_t15_a_time_is_where_reading_begins(loads: Node, stream: StreamUnderTest) -> None:
    arrivals = stream.put_apart(*(row(number) for number in (1, 2, 3)))
    loads.sql(create(stream, property__kinesis_default_pos=arrivals[1].isoformat()))

    loads.run()

    assert ids(loads) == [2, 3]


def test_t22_the_record_of_the_number_where_reading_begins_is_loaded(
    loads: Node, stream: StreamUnderTest
) -> None:
    numbers = put(stream, 1, 2, 3)
    loads.sql(create(stream, kinesis_shards=FIRST, kinesis_shards_pos=numbers[1]))

    loads.run()

    assert ids(loads) == [2, 3]


def test_t31_keys_stay_in_order_over_splits_and_merges(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1, key="a", hash_key=LOW)
    put(stream, 1, key="b", hash_key=HIGH)
    loads.sql(create(stream))
    stream.split(0, MIDDLE)
    put(stream, 2, 3, key="a", hash_key=LOW)
    put(stream, 2, 3, key="b", hash_key=HIGH)
    stream.merge(1, 2)
    put(stream, 4, key="a", hash_key=LOW)
    put(stream, 4, key="b", hash_key=HIGH)

    loads.run()

    assert by_key(loads) == {"a": [1, 2, 3, 4], "b": [1, 2, 3, 4]}
    assert {shard: state for shard, (state, _) in shards(loads).items()} == {
        "0": "finished",
        "1": "finished",
        "2": "finished",
        "3": "open",
    }


def test_t29_children_of_a_shard_that_was_drained_begin_at_their_beginning(
    loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream, property__kinesis_default_pos="LATEST"))
    put(stream, 1)
    loads.run()
    stream.split(0, MIDDLE)
    put(stream, 2, hash_key=LOW)
    put(stream, 3, hash_key=HIGH)

    loads.run()

    assert sorted(ids(loads)) == [1, 2, 3]


def test_t23_a_parent_is_never_read_again(loads: Node, stream: StreamUnderTest) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    stream.split(0, MIDDLE)
    put(stream, 2, hash_key=LOW)
    loads.run()
    put(stream, 3, hash_key=HIGH)

    again = loads.restart()
    again.run()

    assert ids(again) == [1, 2, 3]
    assert shards(again)["0"] == ("finished", "END")


def test_a_paused_load_goes_on_where_it_was(loads: Node, stream: StreamUnderTest) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    loads.sql("PAUSE ROUTINE LOAD FOR r")
    put(stream, 2)
    loads.run()
    before = ids(loads)

    loads.sql("RESUME ROUTINE LOAD FOR r")
    loads.run()

    assert (before, ids(loads)) == ([1], [1, 2])


def test_t44_an_epoch_that_a_pause_has_met_is_read_again_after_a_restart(
    open_node: OpenNode, stream: StreamUnderTest
) -> None:
    gate = Gate()
    node = open_node(clock=MovedClock(), read_interval=BLINK, work=gate)
    put(stream, 1, 2)
    node.sql(f"{CREATE_TABLE}; {create(stream)}")
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        node.sql("PAUSE ROUTINE LOAD FOR r")
        gate.opened.set()
    before = ids(node)

    again = node.restart()
    again.sql("RESUME ROUTINE LOAD FOR r")
    again.run()

    assert (before, ids(again)) == ([], [1, 2])


def test_t77_an_aggregate_is_taken_apart_over_epochs_and_a_restart(
    loads: Node, stream: StreamUnderTest
) -> None:
    number = stream.put(packed(*(sub(row(one)) for one in range(5))))
    put(stream, 5)
    loads.sql(create(stream, properties={"max_batch_rows": "3"}))

    crash_at(loads, CrashPoint.CATALOG_APPLIED)
    again = loads.restart()
    before = shards(again)["0"]
    again.run()

    assert before == ("open", f"AFTER {number}/2")
    assert ids(again) == [0, 1, 2, 3, 4, 5]


def test_t83_a_listed_end_is_not_where_a_shard_ends(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1, 2, 3)
    stream.split(0, MIDDLE)
    loads.sql(create(stream, properties={"max_batch_rows": "1"}))

    loads.run()

    assert ids(loads) == [1, 2, 3]
    assert shards(loads)["0"] == ("finished", "END")


@dataclass
class FailingBehindTheRead:
    """A task's work that is done and then lost, the first times it is asked."""

    times: int

    def __call__(self, task: str, try_id: str) -> str:
        answer = run_task_text(task, try_id)
        if self.times:
            self.times -= 1
            raise ExternalError("the task was lost", code=Code.STORAGE_ERR)
        return answer


def test_t12_a_failed_attempt_leaves_no_trace(
    open_node: OpenNode, stream: StreamUnderTest
) -> None:
    failing = FailingBehindTheRead(times=TRIES_PER_ATTEMPT)
    node = open_node(clock=MovedClock(), read_interval=BLINK, work=failing)
    put(stream, 1, 2)
    node.sql(f"{CREATE_TABLE}; {create(stream)}")

    node.run()

    assert ids(node) == [1, 2]
    assert attempts(node, "r") == [(1, 1, "FAILED"), (1, 2, "COMMITTED")]
