"""Whoever moves a load behind a gap is believed; what was heard of other shards is kept."""

import json
from dataclasses import replace
from datetime import timedelta
from threading import Event

import pytest

from penstock.model.job import DesiredState
from penstock.sources.source import Source
from tests.integration.routine_loads import (
    FIRST,
    HIGH,
    LOW,
    Load,
    put,
)
from tests.node import Node
from tests.servers.kinesis_clients import new_stream

pytestmark = pytest.mark.integration
HORIZON = "'property.kinesis_default_pos' = 'TRIM_HORIZON'"


def with_gap(load: Load) -> None:
    """Let a load that was caught up miss the record 2, of which 3 is behind."""
    load.put(1, hash_key=LOW)
    load.create()
    load.run()
    load.put(2, hash_key=LOW)
    load.control.move_clock(timedelta(hours=25))
    load.control.trim(load.stream.name, FIRST)
    load.put(3, hash_key=LOW)
    load.run()
    assert load.reason()[0] == "CANNOT_RESUME_ERR"


def test_t66_a_load_that_was_caught_up_once_goes_on_behind_a_gap(load: Load) -> None:
    with_gap(load)

    load.sql(f"ALTER ROUTINE LOAD FOR r FROM KINESIS({HORIZON})")
    load.sql("RESUME ROUTINE LOAD FOR r")
    load.run()

    assert load.ids() == [1, 3]


def test_t66_moving_one_shard_behind_its_gap_repeats_no_record_of_another(load: Load) -> None:
    load = replace(load, stream=new_stream(load.stream.client, shards=2))
    load.put(10, 11, hash_key=HIGH)
    with_gap(load)
    positions = json.dumps({**load.shown()["Progress"], FIRST: "TRIM_HORIZON"})

    load.sql(
        f"ALTER ROUTINE LOAD FOR r FROM KINESIS('property.kinesis_positions' = '{positions}')"
    )
    load.sql("RESUME ROUTINE LOAD FOR r")
    load.run()

    assert sorted(load.ids()) == [1, 3, 10, 11]


def test_t18_what_a_late_owner_has_heard_of_the_old_stream_is_not_kept(load: Load) -> None:
    load.put(1)
    load.create()
    late = source_of(load.node)
    other = new_stream(load.stream.client)
    put(other, 2)

    def meanwhile(_seen: str) -> None:
        if load.node.job("r").desired.state is DesiredState.RUN:
            load.sql("PAUSE ROUTINE LOAD FOR r")
            load.sql(
                f"ALTER ROUTINE LOAD FOR r FROM KINESIS('kinesis_stream' = '{other.name}', "
                f"{HORIZON})"
            )

    late.poll(load.node.job("r").progress, seen=meanwhile)
    load.sql("RESUME ROUTINE LOAD FOR r")
    load.run()

    assert load.ids() == [2]


def test_a_load_that_is_made_again_knows_that_a_quiet_shard_lost_nothing(load: Load) -> None:
    load.put(1)
    load.create()
    load.run()
    load.control.move_clock(timedelta(hours=20))
    load.run()
    load.control.move_clock(timedelta(hours=20))
    load.control.trim(load.stream.name, FIRST)
    load.sql("PAUSE ROUTINE LOAD FOR r")
    statement = load.create_text()
    load.sql("STOP ROUTINE LOAD FOR r")

    load.sql(statement)
    load.put(2)
    load.run()

    assert load.ids() == [1, 2]


def source_of(node: Node) -> Source:
    """Open the source of the load as its owner does."""
    return node.sources().open(node.job("r"), Event())
