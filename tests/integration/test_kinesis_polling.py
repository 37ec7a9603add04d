"""Polling of shards: which shards are read next, and which gaps are found."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from penstock.engine.run import Work
from penstock.epochs.task import run_task_text
from penstock.errors import Code, UserError
from penstock.model.split import After, Horizon, SplitProgress
from penstock.sources.kinesis.client import StreamError
from penstock.sources.kinesis.source import KinesisSource
from tests.error_values import raises
from tests.integration.driving import MovedClock
from tests.integration.kinesis_load import LIMITS, PARENT, Load, load
from tests.integration.routine_loads import (
    CREATE_TABLE,
    HIGH,
    LOW,
    READ_INTERVAL,
    create,
    ids,
    put,
)
from tests.mirrored_node import OpenNode
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import MIDDLE, StreamUnderTest, new_stream

__all__ = ["load"]

pytestmark = pytest.mark.integration

ONE = replace(LIMITS, records=1)
GAP = "trimmed"


def of_shards(*positions: Horizon | After) -> tuple[SplitProgress, ...]:
    return tuple(
        SplitProgress(split=f"shardId-{number:012}", floor=Horizon(), position=position)
        for number, position in enumerate(positions)
    )


def planned(load: Load, source: KinesisSource) -> list[str]:
    """Return the shards that the next epoch would read, by the last digits of their names."""
    plan = source.plan(load.progress, limits=load.limits)
    return [] if plan is None else sorted(read.split[-1] for read in plan.reads)


@dataclass
class DuringTask:
    """A task function that calls another function once, at a given epoch."""

    call: Callable[[], object]
    at: int = 2
    calls: int = 0
    work: Work = run_task_text

    def __call__(self, task: str, try_id: str) -> str:
        self.calls += 1
        if self.calls == self.at:
            self.call()
        return self.work(task, try_id)


class ForwardClock(MovedClock):
    """A clock whose monotonic time the test can move forward."""

    def __init__(self) -> None:
        super().__init__()
        self.forward_seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.forward_seconds


def test_a_shard_with_a_long_backlog_does_not_delay_another_shard(
    open_node: OpenNode, stream: StreamUnderTest
) -> None:
    wide = new_stream(stream.client, shards=2)
    put(wide, *range(6), hash_key=LOW)
    clock = ForwardClock()

    def put_and_move_clock() -> None:
        put(wide, 100, hash_key=HIGH)
        clock.forward_seconds = 2.0

    node = open_node(
        clock=clock, read_interval=READ_INTERVAL, work=DuringTask(put_and_move_clock)
    )
    small = {"max_batch_rows": "1", "max_batch_interval": "1s"}
    node.sql(f"{CREATE_TABLE}; {create(wide, properties=small)}")

    node.run()

    assert sorted(ids(node)) == [*range(6), 100]
    assert ids(node).index(100) < ids(node).index(5)


def test_children_do_not_wait_for_the_backlog_of_other_shards(
    open_node: OpenNode, stream: StreamUnderTest
) -> None:
    wide = new_stream(stream.client, shards=2)
    put(wide, *range(6), hash_key=LOW)
    put(wide, 100, hash_key=HIGH)
    wide.split(1, MIDDLE + 2**126)
    put(wide, 101, hash_key=HIGH)
    node = open_node(clock=MovedClock(), read_interval=READ_INTERVAL)
    node.sql(f"{CREATE_TABLE}; {create(wide, properties={'max_batch_rows': '1'})}")

    node.run()

    assert sorted(ids(node)) == [*range(6), 100, 101]
    assert ids(node).index(101) < ids(node).index(5)


def test_the_shard_nearest_to_the_trim_horizon_is_read_next(
    load: Load, server: KinesisServer, stream: StreamUnderTest
) -> None:
    wide = new_stream(stream.client, shards=2)
    load.options = replace(load.options, stream=wide.name)
    load.progress, load.limits = of_shards(Horizon(), Horizon()), ONE
    put(wide, 1, 2, 3, hash_key=LOW)
    server.control.move_clock(timedelta(hours=13))
    put(wide, 4, 5, 6, hash_key=HIGH)
    server.control.move_clock(timedelta(hours=10))
    source = load.open()
    load.poll(source)
    load.commit(source)

    assert source.poll_due(timedelta(hours=1))
    load.poll(source)

    assert planned(load, source) == ["0", "1"]


def test_a_poll_does_not_follow_empty_pages_forever(
    load: Load, server: KinesisServer, stream: StreamUnderTest
) -> None:
    load.read_interval = timedelta(seconds=1)
    put(stream, 1)
    server.control.switch(empty_pages_after_iterator=1_000)

    waiting = load.poll(load.open())

    assert (waiting.items, waiting.complete) == (0, False)
    assert len(server.control.requests("GetRecords")) < 20


@pytest.mark.parametrize("dies", [False, True], ids=["committed", "dies"])
def test_t66_a_child_of_a_shard_that_was_never_read_to_its_tip_can_have_a_gap(
    load: Load, server: KinesisServer, stream: StreamUnderTest, *, dies: bool
) -> None:
    server.control.switch(retention_trims=True)
    put(stream, 1, 2)
    load.limits = ONE
    first = load.open()
    load.poll(first)
    load.commit(first)
    stream.split(0, MIDDLE)
    put(stream, 3, hash_key=0)
    server.control.move_clock(timedelta(hours=20))
    load.limits = LIMITS
    source = load.open()
    load.poll(source)
    notes = load.load(source)
    if not dies:
        source.committed(load.progress, notes)
    server.control.move_clock(timedelta(hours=10))

    with raises(UserError, Code.CANNOT_RESUME_ERR, GAP) as error:
        load.poll(load.open())

    assert error.value.code is Code.CANNOT_RESUME_ERR


def test_t66_a_child_without_expired_records_has_no_gap(
    load: Load, server: KinesisServer, stream: StreamUnderTest
) -> None:
    server.control.switch(retention_trims=True)
    put(stream, 1)
    stream.split(0, MIDDLE)
    put(stream, 2, hash_key=0)
    source = load.open()
    load.poll(source)
    load.load(source)
    server.control.move_clock(timedelta(hours=20))
    again = load.open()

    load.poll(again)

    assert planned(load, again) == ["1"]


def test_t66_a_load_from_the_trim_horizon_of_a_child_has_no_gap(
    load: Load, server: KinesisServer, stream: StreamUnderTest
) -> None:
    server.control.switch(retention_trims=True)
    stream.split(0, MIDDLE)
    put(stream, 1, hash_key=0)
    server.control.move_clock(timedelta(hours=23))
    put(stream, 2, hash_key=0)
    child = "shardId-000000000001"
    load.progress = (
        SplitProgress(split=child, floor=Horizon(), position=Horizon(), parents=(PARENT,)),
    )
    load.poll(load.open())
    server.control.move_clock(timedelta(hours=2))
    source = load.open()

    load.poll(source)

    assert planned(load, source) == ["1"]


def test_t66_records_that_expire_by_a_shorter_retention_are_a_gap(
    load: Load, server: KinesisServer, stream: StreamUnderTest
) -> None:
    server.control.switch(retention_trims=True)
    stream.client.increase_stream_retention_period(
        StreamName=stream.name, RetentionPeriodHours=48
    )
    put(stream, 1, 2, 3)
    load.limits = ONE
    source = load.open()
    load.poll(source)
    load.commit(source)
    server.control.move_clock(timedelta(hours=30))
    stream.client.decrease_stream_retention_period(
        StreamName=stream.name, RetentionPeriodHours=24
    )
    load.clock.leap(timedelta(minutes=1))

    with raises(UserError, Code.CANNOT_RESUME_ERR, GAP):
        load.poll(source)


def test_t66_a_gap_is_found_after_a_long_time_without_polls(
    load: Load, server: KinesisServer, stream: StreamUnderTest
) -> None:
    server.control.switch(retention_trims=True)
    put(stream, 1)
    source = load.open()
    load.poll(source)
    load.commit(source)
    put(stream, 2)
    server.control.move_clock(timedelta(hours=30))
    load.clock.leap(timedelta(hours=30))

    with raises(UserError, Code.CANNOT_RESUME_ERR, GAP):
        load.poll(source)


def source_with_refused_position(load: Load, server: KinesisServer) -> KinesisSource:
    """Open the source while the server refuses the sequence number of the load's position."""
    source = load.open()
    load.poll(source)
    load.commit(source)
    server.control.inject("GetShardIterator", "InvalidArgumentException", times=1)
    return load.open()


def test_t66_a_refused_sequence_number_is_no_gap_if_all_records_were_loaded(
    load: Load, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    source = source_with_refused_position(load, server)
    server.control.trim(stream.name, PARENT)
    put(stream, 2)

    load.poll(source)

    assert [note.counts.records for note in load.load(source)] == [1]


def test_t66_a_refused_sequence_number_is_a_gap_if_records_expired(
    load: Load, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    source = source_with_refused_position(load, server)
    put(stream, 2)
    server.control.move_clock(timedelta(hours=25))
    server.control.trim(stream.name, PARENT)

    with raises(UserError, Code.CANNOT_RESUME_ERR, GAP) as error:
        load.poll(source)

    assert error.value.code is Code.CANNOT_RESUME_ERR


def test_t66_a_refused_sequence_number_that_still_exists_is_an_error(
    load: Load, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    source = source_with_refused_position(load, server)

    with raises(StreamError, Code.GET_REMOTE_DATA_ERROR, "kinesis:GetShardIterator"):
        load.poll(source)


def test_t70_a_recreated_stream_is_recognised_by_its_creation_time(
    load: Load, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    stream.split(0, MIDDLE)
    source = load.open()
    load.poll(source)
    load.commit(source)
    # The stream, and therefore the load, may no longer list the parent.
    load.progress = load.progress[1:]
    stream.recreate()

    with raises(UserError, Code.STREAM_CHANGED_ERR, "stream") as error:
        load.poll(load.open())

    assert error.value.code is Code.STREAM_CHANGED_ERR


def test_t74_a_response_without_lag_is_not_the_tip(
    load: Load, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    server.control.inject_body("GetRecords", '{"Records": [], "NextShardIterator": "none"}')
    source = load.open()

    load.poll(source)

    assert planned(load, source) == ["0"]
