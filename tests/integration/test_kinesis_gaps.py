"""Moving a load past a gap, and the stored status of the other shards."""

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
    """Cause a gap: trim record 2 before a load that was caught up reads it."""
    load.put(1, hash_key=LOW)
    load.create()
    load.run()
    load.put(2, hash_key=LOW)
    load.control.move_clock(timedelta(hours=25))
    load.control.trim(load.stream.name, FIRST)
    load.put(3, hash_key=LOW)
    load.run()
    assert load.reason()[0] == "CANNOT_RESUME_ERR"


def test_t66_a_load_can_be_moved_past_a_gap(load: Load) -> None:
    with_gap(load)

    load.sql(f"ALTER ROUTINE LOAD FOR r FROM KINESIS({HORIZON})")
    load.sql("RESUME ROUTINE LOAD FOR r")
    load.run()

    assert load.ids() == [1, 3]


def test_t66_moving_one_shard_past_its_gap_repeats_no_record_of_another_shard(
    load: Load,
) -> None:
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


def test_t18_the_shard_status_of_the_old_stream_from_a_stale_owner_is_not_stored(
    load: Load,
) -> None:
    load.put(1)
    load.create()
    stale_owner = source_of(load.node)
    other = new_stream(load.stream.client)
    put(other, 2)

    def alter_during_poll(_seen: str) -> None:
        if load.node.job("r").desired.state is DesiredState.RUN:
            load.sql("PAUSE ROUTINE LOAD FOR r")
            load.sql(
                f"ALTER ROUTINE LOAD FOR r FROM KINESIS('kinesis_stream' = '{other.name}', "
                f"{HORIZON})"
            )

    stale_owner.poll(load.node.job("r").progress, report=alter_during_poll)
    load.sql("RESUME ROUTINE LOAD FOR r")
    load.run()

    assert load.ids() == [2]


def test_a_load_created_from_show_create_reports_no_gap_for_an_idle_shard(load: Load) -> None:
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
