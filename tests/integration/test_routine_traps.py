"""Traps that files know as well, shown with streams: what is altered, stored and overtaken."""

from datetime import timedelta

import pytest

from penstock.model.epoch import CommitKind
from tests.integration.driving import (
    Gate,
    MovedClock,
    attempts,
    idle,
    looks_until,
    rounds_until,
    stopped,
    supervised,
)
from tests.integration.routine_loads import (
    BLINK,
    CREATE_TABLE,
    FIRST,
    HIGH,
    LOW,
    altered,
    create,
    ids,
    loads,
    put,
    server,
    shards,
    shown,
    stream,
)
from tests.mirrored_node import OpenNode
from tests.node import Node
from tests.servers.kinesis_clients import MIDDLE, StreamUnderTest, new_stream

__all__ = ["loads", "server", "stream"]
pytestmark = pytest.mark.integration

SECOND, THIRD = "shardId-000000000001", "shardId-000000000002"


def test_t33_shards_that_are_named_replace_those_that_were_read(
    loads: Node, stream: StreamUnderTest
) -> None:
    wide = new_stream(stream.client, shards=3)
    for number, key in enumerate((LOW, MIDDLE, HIGH)):
        put(wide, number, hash_key=key)
    loads.sql(create(wide, kinesis_shards=f"{FIRST},{SECOND}"))
    loads.run()
    before = (sorted(ids(loads)), list(shards(loads)))

    altered(
        loads,
        f"FROM KINESIS('kinesis_shards' = '{SECOND},{THIRD}', "
        "'kinesis_shards_pos' = 'TRIM_HORIZON,TRIM_HORIZON')",
    )
    for number, key in enumerate((LOW, MIDDLE, HIGH)):
        put(wide, number + 10, hash_key=key)
    loads.run()

    assert before == ([0, 1], ["0", "1"])
    assert list(shards(loads)) == ["1", "2"]
    assert sorted(ids(loads)[2:]) == [1, 2, 11, 12]


def test_t33_another_stream_has_nothing_of_the_one_before(
    loads: Node, stream: StreamUnderTest
) -> None:
    stream.split(0, MIDDLE)
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    other = new_stream(stream.client)
    put(other, 2)

    altered(
        loads,
        f"FROM KINESIS('kinesis_stream' = '{other.name}', "
        "'property.kinesis_default_pos' = 'TRIM_HORIZON')",
    )
    again = loads.restart()
    told = shown(again)
    again.run()

    assert told["DataSourceProperties"]["stream"] == other.name
    assert told["Progress"] == {FIRST: "TRIM_HORIZON"}
    assert list(shards(again)) == ["0"]
    assert ids(again) == [1, 2]


@pytest.mark.parametrize("where", ["number", "default", "typed"])
def test_t37_positions_given_at_create_are_not_executed_again(
    loads: Node, stream: StreamUnderTest, *, where: str
) -> None:
    numbers = put(stream, 1, 2, 3)
    text = {
        "number": create(stream, kinesis_shards=FIRST, kinesis_shards_pos=numbers[1]),
        "default": create(stream, property__kinesis_default_pos=numbers[1]),
        "typed": create(
            stream, property__kinesis_positions=f'{{"{FIRST}": "AT {numbers[1]}"}}'
        ),
    }[where]
    loads.sql(text)
    loads.run()
    loads.sql("PAUSE ROUTINE LOAD FOR r")
    before = shown(loads)["Progress"]

    again = loads.restart()
    restored = shown(again)["Progress"]
    put(stream, 4)
    again.sql("RESUME ROUTINE LOAD FOR r")
    again.run()

    assert restored == before == {FIRST: f"AFTER {numbers[2]}"}
    assert ids(again) == [2, 3, 4]


def test_t39_a_late_commit_of_an_attempt_that_was_replaced_is_refused(
    open_node: OpenNode, stream: StreamUnderTest
) -> None:
    gate = Gate()
    old = open_node(clock=MovedClock(), read_interval=BLINK, work=gate)
    new = open_node(clock=MovedClock(), read_interval=BLINK, node_id="node-2")
    put(stream, 1)
    old.sql(f"{CREATE_TABLE}; {create(stream)}")
    with supervised(old) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        overtaken = old.job("r").generation
        numbers = put(stream, 2)
        new.run()

        gate.opened.set()
        looks_until(supervisor, stopped)
        (look,) = supervisor.round()

    assert look.last_words is not None
    assert look.last_words.ending == "lost"
    assert ids(new) == [1, 2]
    assert attempts(new, "r") == [(1, 1, "CANCELLED"), (2, 1, "COMMITTED")]
    assert shown(new)["Progress"] == {FIRST: f"AFTER {numbers[0]}"}
    assert [one > overtaken.number for one in generations(new)] == [True]


def generations(node: Node) -> list[int]:
    """Answer under which generations epochs were committed to the table."""
    state = node.job("r")
    assert node.tables is not None
    chain = node.tables.open(state.definition.table.location).chain_after(state.id, 0)
    return [
        one.attachment.generation.number
        for one in chain
        if one.attachment.kind is CommitKind.EPOCH
    ]


def test_t40_an_altered_interval_rules_the_next_look_after_a_restart(
    open_node: OpenNode, stream: StreamUnderTest
) -> None:
    clock = MovedClock()
    node = open_node(clock=clock, read_interval=BLINK)
    put(stream, 1)
    interval = {"max_batch_interval": "5"}
    node.sql(f"{CREATE_TABLE}; {create(stream, properties=interval)}")
    altered(node, "PROPERTIES('max_batch_interval' = '3')")
    again = node.restart()

    with supervised(again) as supervisor:
        rounds_until(supervisor, lambda looks: idle(looks) and bool(clock.runner_waits))

    assert clock.runner_waits == {timedelta(seconds=3)}
    assert again.job("r").definition.properties.limits.duration == timedelta(seconds=3)
    assert ids(again) == [1]
