"""ALTER ROUTINE LOAD, pauses and secrets: all or nothing, and nothing that nobody asked for."""

import json

import pytest

from penstock.crashpoints import CrashPoint
from tests.integration.driving import (
    crash_inside,
    idle,
    rounds_until,
    supervised,
)
from tests.integration.routine_loads import (
    FIRST,
    altered,
    create,
    ids,
    loaded,
    loads,
    put,
    refusal,
    server,
    shards,
    shown,
    stream,
)
from tests.integration.test_routine_faults import pass_time
from tests.node import Node
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import MIDDLE, REGION, StreamUnderTest, new_stream

__all__ = ["loads", "server", "stream"]
pytestmark = pytest.mark.integration

SECOND = "shardId-000000000001"
AGAIN = "FROM KINESIS('property.kinesis_default_pos' = 'TRIM_HORIZON')"


def definition(node: Node) -> tuple[str, dict[str, object]]:
    """Answer all that is told of a load's definition and its place."""
    text = str(node.sql("SHOW CREATE ROUTINE LOAD FOR r")[0]["CreateStmt"])
    told = shown(node)
    return text, {key: told[key] for key in ("JobProperties", "CustomProperties", "Progress")}


def test_t18_another_stream_forgets_pins_positions_shards_and_lag(
    loads: Node, stream: StreamUnderTest
) -> None:
    stream.split(0, MIDDLE)
    put(stream, 1)
    loads.sql(create(stream, kinesis_shards=SECOND))
    loads.run()
    other = new_stream(stream.client)
    put(other, 2)

    altered(
        loads,
        f"FROM KINESIS('kinesis_stream' = '{other.name}', "
        "'property.kinesis_default_pos' = 'TRIM_HORIZON')",
    )
    before = shown(loads)
    loads.run()

    assert before["Progress"] == {FIRST: "TRIM_HORIZON"}
    assert before["Lag"] == {FIRST: -1}
    assert "kinesis_shards" not in before["CustomProperties"]
    assert ids(loads)[-1] == 2
    assert list(shards(loads)) == ["0"]


def test_t18_a_report_of_the_old_stream_is_none_of_the_new_one(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    other = new_stream(stream.client)
    put(other, 2)

    altered(loads, f"FROM KINESIS('kinesis_stream' = '{other.name}')")

    assert shown(loads)["Lag"] == {FIRST: -1}
    assert shown(loads)["Progress"][FIRST].startswith("TIME ")


def test_t32_one_bad_key_beside_a_good_one_changes_nothing(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    loads.sql("PAUSE ROUTINE LOAD FOR r")
    before = definition(loads)

    refusal(
        loads,
        "ALTER ROUTINE LOAD FOR r COLUMNS(id) "
        "PROPERTIES('max_batch_rows' = '7', 'max_error_number' = '-1')",
    )
    refusal(
        loads,
        "ALTER ROUTINE LOAD FOR r PROPERTIES('max_batch_rows' = '7') "
        "FROM KINESIS('aws.access_key' = 'new', 'kinesis_stream' = 'nowhere')",
    )

    assert definition(loads) == before
    assert definition(loads.restart()) == before


def test_t34_what_a_statement_does_not_mention_stays(
    loads: Node, stream: StreamUnderTest
) -> None:
    numbers = put(stream, 1)
    loads.sql(create(stream, properties={"max_error_number": "5"}, kpl_foreign_records="skip"))
    loads.run()

    altered(loads, "PROPERTIES('max_batch_rows' = '7')")

    told = shown(loads)
    assert told["JobProperties"]["max_batch_rows"] == "7"
    assert told["JobProperties"]["max_error_number"] == "5"
    assert told["CustomProperties"]["kpl_foreign_records"] == "skip"
    assert told["Progress"] == {FIRST: f"AFTER {numbers[0]}"}


def test_t34_shards_that_come_after_an_alteration_begin_at_their_beginning(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    altered(loads, "FROM KINESIS('kpl_foreign_records' = 'skip')")
    stream.split(0, MIDDLE)
    put(stream, 2)

    loads.run()

    assert ids(loads) == [1, 2]


def test_t35_altered_columns_survive_a_restart(loads: Node, stream: StreamUnderTest) -> None:
    stream.put(b"1,a")
    loads.sql(
        create(
            stream,
            clauses="COLUMNS TERMINATED BY ',', COLUMNS(id, note)",
            properties={"format": "csv"},
        )
    )
    loads.run()
    altered(loads, "COLUMNS TERMINATED BY '|', COLUMNS(note, id)")
    before = definition(loads)
    stream.put(b"b|2")

    again = loads.restart()
    restored = definition(again)
    again.run()

    assert restored == before
    assert loaded(again) == [{"id": 1, "note": "a"}, {"id": 2, "note": "b"}]


@pytest.mark.parametrize(
    "point", [CrashPoint.STATEMENT_COMMITTED, CrashPoint.STATEMENT_APPLIED]
)
def test_t38_a_load_that_somebody_paused_stays_paused(
    loads: Node, stream: StreamUnderTest, *, point: CrashPoint
) -> None:
    put(stream, 1)
    loads.sql(create(stream))

    crash_inside(loads, "PAUSE ROUTINE LOAD FOR r", point)
    again = loads.restart()
    pass_time(again)
    again.run()

    assert ids(again) == []
    assert (shown(again)["State"], shown(again)["ReasonOfStateChanged"]) == (
        "PAUSED",
        "MANUAL_PAUSE_ERR: paused by PAUSE ROUTINE LOAD",
    )


def test_t41_keys_that_are_altered_are_used_by_the_next_task(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream))
    loads.run()
    altered(loads, "FROM KINESIS('aws.access_key' = 'newer', 'aws.secret_key' = 'newer')")
    put(stream, 1)
    server.control.forget_requests()

    loads.run()

    assert ids(loads) == [1]
    assert {one.access_key_id for one in server.control.requests("GetRecords")} == {"newer"}


def test_t41_a_secret_that_is_altered_reaches_a_running_load(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    loads.sql("CREATE SECRET k ('aws.access_key' = 'old', 'aws.secret_key' = 'old')")
    loads.sql(create(stream).replace("= 'mine'", "= SECRET 'k'"))
    with supervised(loads) as supervisor:
        rounds_until(supervisor, idle)
        loads.sql("ALTER SECRET k ('aws.access_key' = 'newer')")
        put(stream, 1)
        rounds_until(supervisor, lambda looks: looks[0].state.cumulative.rows_loaded == 1)
        server.control.forget_requests()
        put(stream, 2)
        rounds_until(supervisor, lambda looks: looks[0].state.cumulative.rows_loaded == 2)

    assert {one.access_key_id for one in server.control.requests("GetRecords")} == {"newer"}


@pytest.mark.parametrize(
    ("clauses", "told"),
    [
        (
            "PROPERTIES('max_error_number' = '0')",
            'OPTION_ERR: ALTER changes nothing: routine load "r" is the same already',
        ),
        (
            "PROPERTIES('no_such' = '0')",
            'OPTION_ERR: a routine load does not know the option "no_such"',
        ),
        (
            "PROPERTIES('format' = 'csv')",
            'OPTION_ERR: option "format" of a routine load cannot be altered',
        ),
        ("FROM KAFKA('a' = 'b')", "NOT_SUPPORTED_ERR: FROM KAFKA is not supported yet"),
        (
            "FROM KINESIS('kinesis_shards' = 'shardId-000000000009')",
            'META_NOT_FOUND_ERR: option "kinesis_shards" names shard "shardId-000000000009", '
            "which this routine load does not read",
        ),
        (
            "FROM KINESIS('kinesis_stream' = 'nowhere')",
            'META_NOT_FOUND_ERR: option "kinesis_stream" names stream "nowhere", which does '
            "not exist in us-east-1",
        ),
    ],
)
def test_t41_what_cannot_be_altered_or_changes_nothing_is_refused(
    loads: Node, stream: StreamUnderTest, *, clauses: str, told: str
) -> None:
    loads.sql(create(stream))
    loads.sql("PAUSE ROUTINE LOAD FOR r")

    assert refusal(loads, f"ALTER ROUTINE LOAD FOR r {clauses}") == told


def test_a_load_that_runs_is_not_altered(loads: Node, stream: StreamUnderTest) -> None:
    loads.sql(create(stream))

    assert refusal(loads, f"ALTER ROUTINE LOAD FOR r {AGAIN}") == (
        'STATE_ERR: routine load "r" must be paused before it is altered'
    )


def test_positions_that_are_moved_back_load_again_as_asked(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1, 2)
    loads.sql(create(stream))
    loads.run()

    altered(loads, AGAIN)
    loads.run()

    assert ids(loads) == [1, 2, 1, 2]


def test_positions_may_be_moved_shard_by_shard(loads: Node, stream: StreamUnderTest) -> None:
    numbers = put(stream, 1, 2, 3)
    loads.sql(create(stream))
    loads.run()

    altered(
        loads,
        f"FROM KINESIS('kinesis_shards' = '{FIRST}', 'kinesis_shards_pos' = '{numbers[2]}')",
    )
    loads.run()

    assert ids(loads) == [1, 2, 3, 3]


def test_typed_positions_may_be_given_as_they_are_shown(
    loads: Node, stream: StreamUnderTest
) -> None:
    numbers = put(stream, 1, 2, 3)
    loads.sql(create(stream))
    loads.run()

    told = json.dumps({FIRST: f"AFTER {numbers[1]}"})
    altered(loads, f"FROM KINESIS('property.kinesis_positions' = '{told}')")
    loads.run()

    assert ids(loads) == [1, 2, 3, 3]


def test_t43_a_lag_is_never_negative(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    server.control.switch(arrival_shift_ms=60_000)
    put(stream, 1, 2)
    loads.sql(create(stream))

    loads.run()

    assert ids(loads) == [1, 2]
    assert shown(loads)["Lag"] == {FIRST: 0}


def test_t43_an_epoch_without_rows_is_not_taken_for_the_tip(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    stream.put(b"")
    put(stream, 1)
    server.control.switch(empty_pages_while_behind=2)
    loads.sql(create(stream, properties={"max_batch_rows": "1"}))

    loads.run()

    assert ids(loads) == [1]


def test_positions_of_some_shards_leave_the_others_and_all_counts_as_they_are(
    loads: Node, stream: StreamUnderTest
) -> None:
    stream.split(0, at=MIDDLE)
    put(stream, 1, hash_key=0)
    put(stream, 2, hash_key=MIDDLE)
    loads.sql(create(stream))
    loads.run()
    before = shards(loads)
    loads.sql("PAUSE ROUTINE LOAD FOR r")
    moved = '{"shardId-000000000001": "TRIM_HORIZON"}'

    loads.sql(
        f"ALTER ROUTINE LOAD FOR r FROM KINESIS('property.kinesis_positions' = '{moved}');"
        "RESUME ROUTINE LOAD FOR r"
    )

    assert shards(loads) == {**before, "1": ("open", "TRIM_HORIZON")}
    assert [one["records"] for one in loads.sql("SHOW SHARDS FOR r")] == [0, 1, 1]
    loads.run()
    assert sorted(ids(loads)) == [1, 1, 2]


def test_a_load_whose_region_stands_in_the_environment_stays_where_it_is(
    loads: Node, stream: StreamUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGION_OF_TEST", REGION)
    put(stream, 1)
    loads.sql(create(stream, aws__region="env:REGION_OF_TEST"))
    loads.run()
    loads.sql("PAUSE ROUTINE LOAD FOR r")
    put(stream, 2)

    loads.sql("ALTER ROUTINE LOAD FOR r PROPERTIES('max_error_number' = '10')")
    loads.sql("RESUME ROUTINE LOAD FOR r")
    loads.run()

    assert ids(loads) == [1, 2]


def test_a_stream_that_was_made_again_is_loaded_on_request_and_counted_anew(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1, 2)
    loads.sql(create(stream))
    loads.run()
    stream.recreate()
    put(stream, 3)
    loads.run()
    way_on = shown(loads)["OtherMsg"]

    loads.sql(
        "ALTER ROUTINE LOAD FOR r FROM KINESIS('property.kinesis_default_pos' = 'TRIM_HORIZON')"
    )
    loads.sql("RESUME ROUTINE LOAD FOR r")
    loads.run()

    assert "ALTER ROUTINE LOAD with 'property.kinesis_default_pos'" in way_on
    assert ids(loads) == [1, 2, 3]
    assert [one["records"] for one in loads.sql("SHOW SHARDS FOR r")] == [1]
