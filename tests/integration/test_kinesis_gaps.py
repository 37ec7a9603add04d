"""Whoever moves a load behind a gap is believed; what was heard of other shards is kept."""

import json
from datetime import timedelta
from threading import Event

import pytest

from penstock.errors import Code, UserError
from penstock.model.job import DesiredState
from penstock.sources.source import Source
from tests.integration.routine_loads import (
    FIRST,
    HIGH,
    LOW,
    create,
    ids,
    loads,
    put,
    server,
    shown,
    stream,
)
from tests.node import Node
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import StreamUnderTest, new_stream

# Fixtures that are made elsewhere.
__all__ = ["loads", "server", "stream"]

pytestmark = pytest.mark.integration
HORIZON = "'property.kinesis_default_pos' = 'TRIM_HORIZON'"


def with_gap(node: Node, server: KinesisServer, stream: StreamUnderTest) -> None:
    """Let a load that was caught up miss the record 2, of which 3 is behind."""
    put(stream, 1, hash_key=LOW)
    node.sql(create(stream))
    node.run()
    put(stream, 2, hash_key=LOW)
    server.control.move_clock(timedelta(hours=25))
    server.control.trim(stream.name, FIRST)
    put(stream, 3, hash_key=LOW)
    node.run()
    assert shown(node)["ReasonOfStateChanged"].startswith("CANNOT_RESUME_ERR")


def test_t66_a_load_that_was_caught_up_once_goes_on_behind_a_gap(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    with_gap(loads, server, stream)

    loads.sql(f"ALTER ROUTINE LOAD FOR r FROM KINESIS({HORIZON})")
    loads.sql("RESUME ROUTINE LOAD FOR r")
    loads.run()

    assert ids(loads) == [1, 3]


def test_t66_moving_one_shard_behind_its_gap_repeats_no_record_of_another(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    wide = new_stream(stream.client, shards=2)
    put(wide, 10, 11, hash_key=HIGH)
    with_gap(loads, server, wide)
    positions = json.dumps({**shown(loads)["Progress"], FIRST: "TRIM_HORIZON"})

    loads.sql(
        f"ALTER ROUTINE LOAD FOR r FROM KINESIS('property.kinesis_positions' = '{positions}')"
    )
    loads.sql("RESUME ROUTINE LOAD FOR r")
    loads.run()

    assert sorted(ids(loads)) == [1, 3, 10, 11]


def test_t18_what_was_heard_of_a_stream_is_forgotten_with_it(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    other = new_stream(stream.client)

    loads.sql("PAUSE ROUTINE LOAD FOR r")
    loads.sql(f"ALTER ROUTINE LOAD FOR r FROM KINESIS('kinesis_stream' = '{other.name}')")

    assert shown(loads)["Lag"] == {FIRST: -1}


def test_t18_what_a_late_owner_has_heard_of_the_old_stream_is_not_kept(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    late = source_of(loads)
    other = new_stream(stream.client)
    put(other, 2)

    def meanwhile(_seen: str) -> None:
        if loads.job("r").desired.state is DesiredState.RUN:
            loads.sql("PAUSE ROUTINE LOAD FOR r")
            loads.sql(
                f"ALTER ROUTINE LOAD FOR r FROM KINESIS('kinesis_stream' = '{other.name}', "
                f"{HORIZON})"
            )

    late.poll(loads.job("r").progress, seen=meanwhile)
    loads.sql("RESUME ROUTINE LOAD FOR r")
    loads.run()

    assert ids(loads) == [2]


def test_a_load_that_is_made_again_knows_that_a_quiet_shard_lost_nothing(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    server.control.move_clock(timedelta(hours=20))
    loads.run()
    server.control.move_clock(timedelta(hours=20))
    server.control.trim(stream.name, FIRST)
    loads.sql("PAUSE ROUTINE LOAD FOR r")
    ((statement,),) = [
        [one["CreateStmt"]] for one in loads.sql("SHOW CREATE ROUTINE LOAD FOR r")
    ]
    loads.sql("STOP ROUTINE LOAD FOR r")

    loads.sql(str(statement))
    put(stream, 2)
    loads.run()

    assert ids(loads) == [1, 2]


def source_of(node: Node) -> Source:
    """Open the source of the load as its owner does."""
    return node.sources().open(node.job("r"), Event())


@pytest.mark.parametrize("statement", ["EXPLAIN JOB r", "SHOW CREATE JOB r", "DROP JOB r"])
def test_statements_of_streaming_jobs_name_those_of_routine_loads(
    statement: str, loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream))

    with pytest.raises(UserError, match='"r" is a routine load') as refusal:
        loads.sql(statement)

    assert refusal.value.code is Code.STATE_ERR
