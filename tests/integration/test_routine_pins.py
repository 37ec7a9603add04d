"""Which shards a routine load reads: those that are pinned, or all; each has a position."""

import json

import pytest

from penstock.errors import UserError
from tests.integration.routine_loads import (
    FIRST,
    HIGH,
    LOW,
    altered,
    by_key,
    create,
    ids,
    loads,
    put,
    refusal,
    server,
    shards,
    shown,
    stream,
)
from tests.integration.test_routine_shards import SECOND, THIRD, put_on_both
from tests.node import Node
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import MIDDLE, StreamUnderTest, new_stream

__all__ = ["loads", "server", "stream"]
pytestmark = pytest.mark.integration

BOTH = f"{FIRST},{SECOND}"
UNPINNED = "ALTER ROUTINE LOAD FOR r FROM KINESIS('kinesis_shards' = ''"
POSITIONS = 'OPTION_ERR: option "property.kinesis_positions"'


def positions(**by_number: str) -> str:
    """Answer typed positions of shards that are named by the ends of their names."""
    return json.dumps({f"{FIRST[:-1]}{one[1:]}": told for one, told in by_number.items()})


def test_pinned_shards_are_read_and_no_others(loads: Node, stream: StreamUnderTest) -> None:
    wide = new_stream(stream.client, shards=2)
    put_on_both(wide, 1)
    loads.sql(create(wide, kinesis_shards=SECOND))

    loads.run()

    assert by_key(loads) == {"b": [1]}
    assert list(shards(loads)) == ["1"]


def test_pinned_shards_that_are_finished_are_told_with_the_way_to_their_children(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream, kinesis_shards=FIRST))
    stream.split(0, MIDDLE)
    put_on_both(stream, 2)
    loads.run()
    told = shown(loads)["OtherMsg"]

    altered(loads, "FROM KINESIS ('kinesis_shards' = '')")
    loads.run()

    assert told == (
        "all pinned shards finished; to go on with their children PAUSE the load, write ALTER "
        "ROUTINE LOAD FOR r FROM KINESIS ('kinesis_shards' = ''), and RESUME it"
    )
    assert ids(loads) == [1, 2, 2]
    assert shown(loads)["OtherMsg"] == ""
    assert "kinesis_shards" not in shown(loads)["CustomProperties"]


def test_finished_shards_of_a_load_that_pins_none_are_not_told_as_pinned(
    loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream, property__kinesis_positions=positions(_0="END")))

    assert shown(loads)["Progress"] == {FIRST: "END"}
    assert shown(loads)["OtherMsg"] == ""


def test_children_of_pinned_shards_are_read_on_request(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream, kinesis_shards=FIRST))
    stream.split(0, MIDDLE)
    put_on_both(stream, 2)
    loads.run()

    altered(
        loads,
        f"FROM KINESIS('kinesis_shards' = '{SECOND},{THIRD}', "
        "'kinesis_shards_pos' = 'TRIM_HORIZON,TRIM_HORIZON')",
    )
    loads.run()

    assert ids(loads) == [1, 2, 2]


@pytest.mark.parametrize(("pinned", "other"), [(SECOND, FIRST), (FIRST, SECOND)])
def test_pins_are_not_taken_away_without_a_position_for_the_others(
    loads: Node, stream: StreamUnderTest, *, pinned: str, other: str
) -> None:
    wide = new_stream(stream.client, shards=2)
    put_on_both(wide, 1)
    loads.sql(create(wide, kinesis_shards=pinned))
    loads.run()
    loads.sql("PAUSE ROUTINE LOAD FOR r")
    before = shown(loads)["Progress"]

    with pytest.raises(UserError) as told:
        loads.sql(f"{UNPINNED})")
    added = json.dumps({other: "TRIM_HORIZON"})
    loads.sql(f"{UNPINNED}, 'property.kinesis_positions' = '{added}')")

    assert f"OPTION_ERR: {told.value.message}" == (
        f"{POSITIONS} lacks shard {other}: every shard needs a position"
    )
    assert f"'property.kinesis_positions' = '{added}'" in told.value.hint
    assert shown(loads)["Progress"] == {**before, other: "TRIM_HORIZON"}
    loads.sql("RESUME ROUTINE LOAD FOR r")
    loads.run()
    assert by_key(loads) == {"a": [1], "b": [1]}


def test_positions_of_some_pinned_shards_leave_the_other_ones_where_they_are(
    loads: Node, stream: StreamUnderTest
) -> None:
    wide = new_stream(stream.client, shards=3)
    put_on_both(wide, 1)
    put(wide, 1, key="m", hash_key=MIDDLE)
    loads.sql(create(wide, kinesis_shards=BOTH))
    loads.run()
    before = shown(loads)["Progress"]
    moved = positions(_1="TRIM_HORIZON")

    altered(loads, f"FROM KINESIS('property.kinesis_positions' = '{moved}')")

    assert shown(loads)["Progress"] == {**before, SECOND: "TRIM_HORIZON"}
    assert [one["records"] for one in loads.sql("SHOW SHARDS FOR r")] == [1, 1]
    loads.run()
    assert by_key(loads) == {"a": [1], "m": [1, 1]}


def test_a_shard_is_pinned_beside_others_with_a_position_of_its_own(
    loads: Node, stream: StreamUnderTest
) -> None:
    wide = new_stream(stream.client, shards=2)
    put_on_both(wide, 1)
    loads.sql(create(wide, kinesis_shards=FIRST))
    loads.run()
    added = positions(_1="TRIM_HORIZON")

    altered(
        loads,
        f"FROM KINESIS('kinesis_shards' = '{BOTH}', 'property.kinesis_positions' = '{added}')",
    )
    loads.run()

    assert by_key(loads) == {"a": [1], "b": [1]}


@pytest.mark.parametrize(
    ("pinned", "told"),
    [
        (BOTH, f'lacks shard {SECOND}, which "kinesis_shards" names'),
        (SECOND, f'names shard {FIRST}, which "kinesis_shards" does not name'),
        ("", f"lacks shard {SECOND}, {THIRD}: every shard needs a position"),
    ],
)
def test_positions_at_create_name_every_shard_that_is_read_and_no_other(
    loads: Node, stream: StreamUnderTest, *, pinned: str, told: str
) -> None:
    wide = new_stream(stream.client, shards=3)
    given = positions(_0="TRIM_HORIZON")

    found = refusal(
        loads, create(wide, property__kinesis_positions=given, kinesis_shards=pinned)
    )

    assert found == f"{POSITIONS} {told}"


def test_a_position_of_a_shard_that_is_not_pinned_cannot_be_altered(
    loads: Node, stream: StreamUnderTest
) -> None:
    wide = new_stream(stream.client, shards=2)
    loads.sql(create(wide, kinesis_shards=FIRST))
    loads.sql("PAUSE ROUTINE LOAD FOR r")
    given = positions(_1="END")

    found = refusal(
        loads,
        f"ALTER ROUTINE LOAD FOR r FROM KINESIS('property.kinesis_positions' = '{given}')",
    )

    assert found == f'{POSITIONS} names shard {SECOND}, which "kinesis_shards" does not name'


def test_an_older_shard_without_a_position_is_not_passed_over(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    stream.split(0, MIDDLE)
    statement = create(
        stream, property__kinesis_positions=positions(_1="TRIM_HORIZON", _2="TRIM_HORIZON")
    )

    assert refusal(loads, statement) == (
        f"{POSITIONS} lacks shard {FIRST}: every shard needs a position"
    )


def test_descendants_of_shards_with_a_position_are_found(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    stream.split(0, MIDDLE)
    put(stream, 2, hash_key=LOW)
    put(stream, 3, hash_key=HIGH)
    loads.sql(create(stream, property__kinesis_positions=positions(_0="END")))

    loads.run()

    assert sorted(ids(loads)) == [2, 3]


def test_a_shard_that_only_an_old_listing_shows_needs_no_position(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    stream.split(0, MIDDLE)
    old = json.dumps({"Shards": stream.shards()})
    server.control.trim(stream.name, FIRST)
    server.control.inject_body("ListShards", old)
    given = positions(_1="TRIM_HORIZON", _2="TRIM_HORIZON")

    loads.sql(create(stream, property__kinesis_positions=given))

    assert sorted(shards(loads)) == ["1", "2"]


def test_t17_a_pinned_load_whose_finished_shard_is_forgotten_is_made_again(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    wide = new_stream(stream.client, shards=2)
    put_on_both(wide, 1)
    loads.sql(create(wide, kinesis_shards=BOTH))
    wide.split(0, MIDDLE // 2)
    loads.run()
    server.control.trim(wide.name, FIRST)
    loads.sql("PAUSE ROUTINE LOAD FOR r")
    text = str(loads.sql("SHOW CREATE ROUTINE LOAD FOR r")[0]["CreateStmt"])
    loads.sql("STOP ROUTINE LOAD FOR r")

    loads.sql(text)
    put_on_both(wide, 2)
    loads.run()

    assert by_key(loads) == {"a": [1], "b": [1, 2]}
    assert shards(loads)["0"] == ("finished", "END")
