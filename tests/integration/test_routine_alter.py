"""ALTER ROUTINE LOAD, pauses and secrets: all or nothing, without side effects."""

import pytest

from tests.integration.driving import idle, rounds_until, supervised
from tests.integration.routine_loads import FIRST, HIGH, LOW, Load, put
from tests.servers.kinesis_clients import MIDDLE, REGION, new_stream

pytestmark = pytest.mark.integration

SECOND, THIRD = "shardId-000000000001", "shardId-000000000002"


def definition(load: Load) -> tuple[str, dict[str, object]]:
    """Return the definition and the progress of a load as SHOW prints them."""
    shown = load.shown()
    keys = ("JobProperties", "CustomProperties", "Progress")
    return load.create_text(), {key: shown[key] for key in keys}


def test_t33_the_named_shards_replace_the_shards_that_were_read(load: Load) -> None:
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


def test_t18_t33_a_new_stream_inherits_nothing_from_the_old_stream(load: Load) -> None:
    load.stream.split(0, MIDDLE)
    load.put_and_load(1, kinesis_shards=SECOND)
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


def test_t18_a_report_of_the_old_stream_is_not_used_for_the_new_stream(load: Load) -> None:
    load.put_and_load(1)
    other = new_stream(load.stream.client)
    put(other, 2)

    load.alter(f"FROM KINESIS('kinesis_stream' = '{other.name}')")

    assert load.shown()["Lag"] == {FIRST: -1}
    assert load.shown()["Progress"][FIRST].startswith("TIME ")


def test_t32_an_alter_with_one_bad_key_changes_nothing(load: Load) -> None:
    load.put_and_load(1)
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


def test_t34_alter_keeps_options_and_clauses_that_it_does_not_name(load: Load) -> None:
    numbers = load.put(1)
    load.create(properties={"max_error_number": "5"}, kpl_foreign_records="skip")
    load.run()

    load.alter("PROPERTIES('max_batch_rows' = '7')")

    shown = load.shown()
    assert shown["JobProperties"]["max_batch_rows"] == "7"
    assert shown["JobProperties"]["max_error_number"] == "5"
    assert shown["CustomProperties"]["kpl_foreign_records"] == "skip"
    assert shown["Progress"] == {FIRST: f"AFTER {numbers[0]}"}


def test_t34_new_shards_after_an_alter_are_read_from_their_start(load: Load) -> None:
    load.put_and_load(1)
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


def test_t41_altered_keys_are_used_by_the_next_task(load: Load) -> None:
    load.create()
    load.run()
    load.alter("FROM KINESIS('aws.access_key' = 'newer', 'aws.secret_key' = 'newer')")
    load.put(1)
    load.control.clear_requests()

    load.run()

    assert load.ids() == [1]
    assert {one.access_key_id for one in load.control.requests("GetRecords")} == {"newer"}


def test_t41_a_running_load_uses_an_altered_secret(load: Load) -> None:
    load.sql("CREATE SECRET k ('aws.access_key' = 'old', 'aws.secret_key' = 'old')")
    load.sql(load.statement().replace("= 'mine'", "= SECRET 'k'"))
    with supervised(load.node) as supervisor:
        rounds_until(supervisor, idle)
        load.sql("ALTER SECRET k ('aws.access_key' = 'newer')")
        load.put(1)
        rounds_until(supervisor, lambda reports: reports[0].state.cumulative.rows_loaded == 1)
        load.control.clear_requests()
        load.put(2)
        rounds_until(supervisor, lambda reports: reports[0].state.cumulative.rows_loaded == 2)

    assert {one.access_key_id for one in load.control.requests("GetRecords")} == {"newer"}


@pytest.mark.parametrize(
    ("clauses", "expected"),
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
def test_t41_an_alter_that_is_not_allowed_or_changes_nothing_is_refused(
    load: Load, clauses: str, expected: list[str]
) -> None:
    load.create()
    load.sql("PAUSE ROUTINE LOAD FOR r")

    assert load.refusal(f"ALTER ROUTINE LOAD FOR r {clauses}") == expected


def test_positions_can_be_moved_shard_by_shard(load: Load) -> None:
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


def test_t43_an_epoch_without_rows_does_not_count_as_the_tip(load: Load) -> None:
    load.stream.put(b"")
    load.put(1)
    load.control.switch(empty_pages_between_pages=2)
    load.create(properties={"max_batch_rows": "1"})

    load.run()

    assert load.ids() == [1]


def test_moving_some_shards_keeps_the_other_positions_and_all_counts(
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


def test_an_alter_keeps_the_position_of_a_load_with_a_region_of_the_environment(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGION_OF_TEST", REGION)
    load.put_and_load(1, aws__region="env:REGION_OF_TEST")
    load.sql("PAUSE ROUTINE LOAD FOR r")
    load.put(2)

    load.sql("ALTER ROUTINE LOAD FOR r PROPERTIES('max_error_number' = '10')")
    load.sql("RESUME ROUTINE LOAD FOR r")
    load.run()

    assert load.ids() == [1, 2]


def test_a_recreated_stream_is_loaded_after_an_alter_with_new_counts(load: Load) -> None:
    load.put_and_load(1, 2)
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
