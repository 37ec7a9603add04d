"""ALTER ROUTINE LOAD, pauses and secrets: all or nothing, and nothing that nobody asked for."""

import pytest

from tests.integration.driving import idle, rounds_until, supervised
from tests.integration.routine_loads import FIRST, HIGH, LOW, Load, put
from tests.servers.kinesis_clients import MIDDLE, REGION, new_stream

pytestmark = pytest.mark.integration

SECOND, THIRD = "shardId-000000000001", "shardId-000000000002"


def definition(load: Load) -> tuple[str, dict[str, object]]:
    """Return all that is told of a load's definition and its place."""
    told = load.shown()
    keys = ("JobProperties", "CustomProperties", "Progress")
    return load.create_text(), {key: told[key] for key in keys}


def test_t33_shards_that_are_named_replace_those_that_were_read(load: Load) -> None:
    wide = new_stream(load.stream.client, shards=3)
    for number, key in enumerate((LOW, MIDDLE, HIGH)):
        put(wide, number, hash_key=key)
    load.create(stream=wide, kinesis_shards=f"{FIRST},{SECOND}")
    load.run()
    before = (sorted(load.ids()), list(load.shards()))

    load.alter(
        f"FROM KINESIS('kinesis_shards' = '{SECOND},{THIRD}', "
        "'kinesis_shards_pos' = 'TRIM_HORIZON,TRIM_HORIZON')"
    )
    for number, key in enumerate((LOW, MIDDLE, HIGH)):
        put(wide, number + 10, hash_key=key)
    load.run()

    assert before == ([0, 1], ["0", "1"])
    assert list(load.shards()) == ["1", "2"]
    assert sorted(load.ids()[2:]) == [1, 2, 11, 12]


def test_t18_t33_another_stream_has_nothing_of_the_one_before(load: Load) -> None:
    load.stream.split(0, MIDDLE)
    load.begin(1, kinesis_shards=SECOND)
    other = new_stream(load.stream.client)
    put(other, 2)

    load.alter(
        f"FROM KINESIS('kinesis_stream' = '{other.name}', "
        "'property.kinesis_default_pos' = 'TRIM_HORIZON')"
    )
    again = load.restart()
    before = again.shown()
    again.run()

    assert before["DataSourceProperties"]["stream"] == other.name
    assert before["Progress"] == {FIRST: "TRIM_HORIZON"}
    assert before["Lag"] == {FIRST: -1}
    assert "kinesis_shards" not in before["CustomProperties"]
    assert list(again.shards()) == ["0"]
    assert again.ids()[-1] == 2


def test_t18_a_report_of_the_old_stream_is_none_of_the_new_one(load: Load) -> None:
    load.begin(1)
    other = new_stream(load.stream.client)
    put(other, 2)

    load.alter(f"FROM KINESIS('kinesis_stream' = '{other.name}')")

    assert load.shown()["Lag"] == {FIRST: -1}
    assert load.shown()["Progress"][FIRST].startswith("TIME ")


def test_t32_one_bad_key_beside_a_good_one_changes_nothing(load: Load) -> None:
    load.begin(1)
    load.sql("PAUSE ROUTINE LOAD FOR r")
    before = definition(load)

    load.refusal(
        "ALTER ROUTINE LOAD FOR r COLUMNS(id) "
        "PROPERTIES('max_batch_rows' = '7', 'max_error_number' = '-1')"
    )
    load.refusal(
        "ALTER ROUTINE LOAD FOR r PROPERTIES('max_batch_rows' = '7') "
        "FROM KINESIS('aws.access_key' = 'new', 'kinesis_stream' = 'nowhere')"
    )

    assert definition(load) == before
    assert definition(load.restart()) == before


def test_t34_what_a_statement_does_not_mention_stays(load: Load) -> None:
    numbers = load.put(1)
    load.create(properties={"max_error_number": "5"}, kpl_foreign_records="skip")
    load.run()

    load.alter("PROPERTIES('max_batch_rows' = '7')")

    told = load.shown()
    assert told["JobProperties"]["max_batch_rows"] == "7"
    assert told["JobProperties"]["max_error_number"] == "5"
    assert told["CustomProperties"]["kpl_foreign_records"] == "skip"
    assert told["Progress"] == {FIRST: f"AFTER {numbers[0]}"}


def test_t34_shards_that_come_after_an_alteration_begin_at_their_beginning(load: Load) -> None:
    load.begin(1)
    load.alter("FROM KINESIS('kpl_foreign_records' = 'skip')")
    load.stream.split(0, MIDDLE)
    load.put(2)

    load.run()

    assert load.ids() == [1, 2]


def test_t35_altered_columns_survive_a_restart(load: Load) -> None:
    load.stream.put(b"1,a")
    load.create(
        clauses="COLUMNS TERMINATED BY ',', COLUMNS(id, note)", properties={"format": "csv"}
    )
    load.run()
    load.alter("COLUMNS TERMINATED BY '|', COLUMNS(note, id)")
    before = definition(load)
    load.stream.put(b"b|2")

    again = load.restart()
    restored = definition(again)
    again.run()

    assert restored == before
    assert again.loaded() == [{"id": 1, "note": "a"}, {"id": 2, "note": "b"}]


def test_t41_keys_that_are_altered_are_used_by_the_next_task(load: Load) -> None:
    load.create()
    load.run()
    load.alter("FROM KINESIS('aws.access_key' = 'newer', 'aws.secret_key' = 'newer')")
    load.put(1)
    load.control.forget_requests()

    load.run()

    assert load.ids() == [1]
    assert {one.access_key_id for one in load.control.requests("GetRecords")} == {"newer"}


def test_t41_a_secret_that_is_altered_reaches_a_running_load(load: Load) -> None:
    load.sql("CREATE SECRET k ('aws.access_key' = 'old', 'aws.secret_key' = 'old')")
    load.sql(load.statement().replace("= 'mine'", "= SECRET 'k'"))
    with supervised(load.node) as supervisor:
        rounds_until(supervisor, idle)
        load.sql("ALTER SECRET k ('aws.access_key' = 'newer')")
        load.put(1)
        rounds_until(supervisor, lambda looks: looks[0].state.cumulative.rows_loaded == 1)
        load.control.forget_requests()
        load.put(2)
        rounds_until(supervisor, lambda looks: looks[0].state.cumulative.rows_loaded == 2)

    assert {one.access_key_id for one in load.control.requests("GetRecords")} == {"newer"}


@pytest.mark.parametrize(
    ("clauses", "told"),
    [
        ("PROPERTIES('format' = 'csv')", ["OPTION_ERR", "format"]),
        ("FROM KAFKA('a' = 'b')", ["NOT_SUPPORTED_ERR"]),
        (
            "FROM KINESIS('kinesis_shards' = 'shardId-000000000009')",
            ["META_NOT_FOUND_ERR", "kinesis_shards", "shardId-000000000009"],
        ),
        (
            "FROM KINESIS('kinesis_stream' = 'nowhere')",
            ["META_NOT_FOUND_ERR", "kinesis_stream", "nowhere"],
        ),
    ],
)
def test_t41_what_cannot_be_altered_or_changes_nothing_is_refused(
    load: Load, clauses: str, told: list[str]
) -> None:
    load.create()
    load.sql("PAUSE ROUTINE LOAD FOR r")

    assert load.refusal(f"ALTER ROUTINE LOAD FOR r {clauses}") == told


def test_positions_may_be_moved_shard_by_shard(load: Load) -> None:
    numbers = load.put(1, 2, 3)
    load.create()
    load.run()

    load.alter(
        f"FROM KINESIS('kinesis_shards' = '{FIRST}', 'kinesis_shards_pos' = '{numbers[2]}')"
    )
    load.run()

    assert load.ids() == [1, 2, 3, 3]


def test_t43_a_lag_is_never_negative(load: Load) -> None:
    load.control.switch(arrival_shift_ms=60_000)
    load.put(1, 2)
    load.create()

    load.run()

    assert load.ids() == [1, 2]
    assert load.shown()["Lag"] == {FIRST: 0}


def test_t43_an_epoch_without_rows_is_not_taken_for_the_tip(load: Load) -> None:
    load.stream.put(b"")
    load.put(1)
    load.control.switch(empty_pages_while_behind=2)
    load.create(properties={"max_batch_rows": "1"})

    load.run()

    assert load.ids() == [1]


def test_positions_of_some_shards_leave_the_others_and_all_counts_as_they_are(
    load: Load,
) -> None:
    load.stream.split(0, at=MIDDLE)
    load.put(1, hash_key=0)
    load.put(2, hash_key=MIDDLE)
    load.create()
    load.run()
    before = load.shards()
    load.sql("PAUSE ROUTINE LOAD FOR r")
    moved = '{"shardId-000000000001": "TRIM_HORIZON"}'

    load.sql(
        f"ALTER ROUTINE LOAD FOR r FROM KINESIS('property.kinesis_positions' = '{moved}');"
        "RESUME ROUTINE LOAD FOR r"
    )

    assert load.shards() == {**before, "1": ("open", "TRIM_HORIZON")}
    assert [one["records"] for one in load.sql("SHOW SHARDS FOR r")] == [0, 1, 1]
    load.run()
    assert sorted(load.ids()) == [1, 1, 2]


def test_a_load_whose_region_stands_in_the_environment_stays_where_it_is(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGION_OF_TEST", REGION)
    load.begin(1, aws__region="env:REGION_OF_TEST")
    load.sql("PAUSE ROUTINE LOAD FOR r")
    load.put(2)

    load.sql("ALTER ROUTINE LOAD FOR r PROPERTIES('max_error_number' = '10')")
    load.sql("RESUME ROUTINE LOAD FOR r")
    load.run()

    assert load.ids() == [1, 2]


def test_a_stream_that_was_made_again_is_loaded_on_request_and_counted_anew(load: Load) -> None:
    load.begin(1, 2)
    load.stream.recreate()
    load.put(3)
    load.run()
    way_on = load.shown()["OtherMsg"]

    load.sql(
        "ALTER ROUTINE LOAD FOR r FROM KINESIS('property.kinesis_default_pos' = 'TRIM_HORIZON')"
    )
    load.sql("RESUME ROUTINE LOAD FOR r")
    load.run()

    assert "ALTER ROUTINE LOAD with 'property.kinesis_default_pos'" in way_on
    assert load.ids() == [1, 2, 3]
    assert [one["records"] for one in load.sql("SHOW SHARDS FOR r")] == [1]
