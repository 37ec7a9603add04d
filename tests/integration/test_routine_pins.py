"""The shards that a routine load reads: the pinned shards or all; each has a position."""

import json

import pytest

from penstock.errors import Code, UserError
from tests.integration.routine_loads import FIRST, HIGH, LOW, Load, create, put
from tests.integration.test_routine_shards import SECOND, THIRD, put_on_both
from tests.servers.kinesis_clients import MIDDLE, new_stream

pytestmark = pytest.mark.integration

BOTH = f"{FIRST},{SECOND}"
UNPINNED = "ALTER ROUTINE LOAD FOR r FROM KINESIS('kinesis_shards' = ''"
POSITIONS = ["OPTION_ERR", "property.kinesis_positions"]


def positions(**by_number: str) -> str:
    """Return typed positions of shards, by the last digits of their names."""
    return json.dumps(
        {f"{FIRST[:-1]}{one[1:]}": position for one, position in by_number.items()}
    )


def test_pinned_shards_are_read_and_no_others(load: Load) -> None:
    wide = new_stream(load.stream.client, shards=2)
    put_on_both(wide, 1)
    load.create(stream=wide, kinesis_shards=SECOND)

    load.run()

    assert load.by_key() == {"b": [1]}
    assert list(load.shards()) == ["1"]


def test_finished_pinned_shards_are_reported_with_the_statement_to_read_their_children(
    load: Load,
) -> None:
    load.put(1)
    load.create(kinesis_shards=FIRST)
    load.stream.split(0, MIDDLE)
    put_on_both(load.stream, 2)
    load.run()
    message = load.shown()["OtherMsg"]

    load.alter("FROM KINESIS ('kinesis_shards' = '')")
    load.run()

    assert "ALTER ROUTINE LOAD FOR r FROM KINESIS ('kinesis_shards' = '')" in message
    assert load.ids() == [1, 2, 2]
    assert load.shown()["OtherMsg"] == ""
    assert "kinesis_shards" not in load.shown()["CustomProperties"]


def test_finished_shards_of_a_load_without_pins_are_not_reported_as_pinned(load: Load) -> None:
    load.create(property__kinesis_positions=positions(_0="END"))

    assert load.shown()["Progress"] == {FIRST: "END"}
    assert load.shown()["OtherMsg"] == ""


def test_children_of_pinned_shards_are_read_after_an_alter(load: Load) -> None:
    load.put(1)
    load.create(kinesis_shards=FIRST)
    load.stream.split(0, MIDDLE)
    put_on_both(load.stream, 2)
    load.run()

    load.alter(
        f"FROM KINESIS('kinesis_shards' = '{SECOND},{THIRD}', "
        "'kinesis_shards_pos' = 'TRIM_HORIZON,TRIM_HORIZON')"
    )
    load.run()

    assert load.ids() == [1, 2, 2]


@pytest.mark.parametrize(("pinned", "other"), [(SECOND, FIRST), (FIRST, SECOND)])
def test_removing_pins_requires_positions_for_the_other_shards(
    load: Load, pinned: str, other: str
) -> None:
    wide = new_stream(load.stream.client, shards=2)
    put_on_both(wide, 1)
    load.create(stream=wide, kinesis_shards=pinned)
    load.run()
    load.sql("PAUSE ROUTINE LOAD FOR r")
    before = load.shown()["Progress"]

    with pytest.raises(UserError) as refused:
        load.sql(f"{UNPINNED})")
    added = json.dumps({other: "TRIM_HORIZON"})
    load.sql(f"{UNPINNED}, 'property.kinesis_positions' = '{added}')")

    assert refused.value.code is Code.OPTION_ERR
    assert other in refused.value.message
    assert f"'property.kinesis_positions' = '{added}'" in refused.value.hint
    assert load.shown()["Progress"] == {**before, other: "TRIM_HORIZON"}
    load.sql("RESUME ROUTINE LOAD FOR r")
    load.run()
    assert load.by_key() == {"a": [1], "b": [1]}


def test_moving_some_pinned_shards_keeps_the_other_positions(
    load: Load,
) -> None:
    wide = new_stream(load.stream.client, shards=3)
    put_on_both(wide, 1)
    put(wide, 1, key="m", hash_key=MIDDLE)
    load.create(stream=wide, kinesis_shards=BOTH)
    load.run()
    before = load.shown()["Progress"]
    moved = positions(_1="TRIM_HORIZON")

    load.alter(f"FROM KINESIS('property.kinesis_positions' = '{moved}')")

    assert load.shown()["Progress"] == {**before, SECOND: "TRIM_HORIZON"}
    assert [one["records"] for one in load.sql("SHOW SHARDS FOR r")] == [1, 1]
    load.run()
    assert load.by_key() == {"a": [1], "m": [1, 1]}


def test_another_shard_can_be_pinned_with_its_own_position(load: Load) -> None:
    wide = new_stream(load.stream.client, shards=2)
    put_on_both(wide, 1)
    load.create(stream=wide, kinesis_shards=FIRST)
    load.run()
    added = positions(_1="TRIM_HORIZON")

    load.alter(
        f"FROM KINESIS('kinesis_shards' = '{BOTH}', 'property.kinesis_positions' = '{added}')"
    )
    load.run()

    assert load.by_key() == {"a": [1], "b": [1]}


@pytest.mark.parametrize(
    ("pinned", "expected"),
    [
        (BOTH, [SECOND, "kinesis_shards"]),
        (SECOND, [FIRST, "kinesis_shards"]),
        ("", [SECOND, THIRD]),
    ],
)
def test_positions_at_create_must_name_exactly_the_shards_that_are_read(
    load: Load, pinned: str, expected: list[str]
) -> None:
    wide = new_stream(load.stream.client, shards=3)
    given = positions(_0="TRIM_HORIZON")

    found = load.refusal(create(wide, property__kinesis_positions=given, kinesis_shards=pinned))

    assert found == [*POSITIONS, *expected]


def test_the_position_of_an_unpinned_shard_cannot_be_altered(load: Load) -> None:
    wide = new_stream(load.stream.client, shards=2)
    load.create(stream=wide, kinesis_shards=FIRST)
    load.sql("PAUSE ROUTINE LOAD FOR r")
    given = positions(_1="END")

    found = load.refusal(
        f"ALTER ROUTINE LOAD FOR r FROM KINESIS('property.kinesis_positions' = '{given}')"
    )

    assert found == [*POSITIONS, SECOND, "kinesis_shards"]


def test_positions_must_include_older_shards(load: Load) -> None:
    load.put(1)
    load.stream.split(0, MIDDLE)
    statement = load.statement(
        property__kinesis_positions=positions(_1="TRIM_HORIZON", _2="TRIM_HORIZON")
    )

    assert load.refusal(statement) == [*POSITIONS, FIRST]


def test_descendants_of_shards_with_a_position_are_found(load: Load) -> None:
    load.put(1)
    load.stream.split(0, MIDDLE)
    load.put(2, hash_key=LOW)
    load.put(3, hash_key=HIGH)
    load.create(property__kinesis_positions=positions(_0="END"))

    load.run()

    assert sorted(load.ids()) == [2, 3]


def test_a_shard_that_only_a_stale_listing_contains_needs_no_position(load: Load) -> None:
    load.stream.split(0, MIDDLE)
    old = json.dumps({"Shards": load.stream.shards()})
    load.control.trim(load.stream.name, FIRST)
    load.control.inject_body("ListShards", old)
    given = positions(_1="TRIM_HORIZON", _2="TRIM_HORIZON")

    load.create(property__kinesis_positions=given)

    assert sorted(load.shards()) == ["1", "2"]


def test_t17_show_create_recreates_a_pinned_load_with_an_expired_shard(load: Load) -> None:
    wide = new_stream(load.stream.client, shards=2)
    put_on_both(wide, 1)
    load.create(stream=wide, kinesis_shards=BOTH)
    wide.split(0, MIDDLE // 2)
    load.run()
    load.control.trim(wide.name, FIRST)
    load.sql("PAUSE ROUTINE LOAD FOR r")
    text = load.create_text()
    load.sql("STOP ROUTINE LOAD FOR r")

    load.sql(text)
    put_on_both(wide, 2)
    load.run()

    assert load.by_key() == {"a": [1], "b": [1, 2]}
    assert load.shards()["0"] == ("finished", "END")
