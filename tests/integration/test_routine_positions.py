"""Where reading of a stream starts and continues: typed, and stored before the first read."""

import json
from datetime import timedelta, timezone
from pathlib import Path

import pytest

from penstock.crashpoints import CrashPoint
from penstock.epochs.task import run_task_text
from penstock.errors import InvariantError
from tests.integration.driving import Failing, attempts, crash_at
from tests.integration.routine_loads import FIRST, Load, row, values_in
from tests.node import Node, create_job, write_rows
from tests.servers.kinesis_clients import MIDDLE
from tests.unit.sources.kinesis.aggregates import packed
from tests.unit.sources.kinesis.test_records import sub

pytestmark = pytest.mark.integration

THREE = {"max_batch_rows": "3"}


def epoch_rows(node: Node) -> list[object]:
    """Return the number of rows of every epoch."""
    return [one["rows"] for one in node.sql("SHOW EPOCHS FOR r") if one["kind"] == "epoch"]


def test_t15_a_time_is_in_the_time_zone_of_the_load(load: Load) -> None:
    load.put(1)
    load.control.move_clock(timedelta(hours=1))
    start = load.control.now()
    load.put(2)
    local = start.astimezone(timezone(timedelta(hours=5, minutes=30)))

    load.create(
        properties={"timezone": "+05:30"},
        property__kinesis_default_pos=f"{local:%Y-%m-%d %H:%M:%S}",
    )
    load.run()

    assert load.ids() == [2]


def test_t15_times_per_shard_and_in_alter_are_in_the_time_zone_of_the_load(load: Load) -> None:
    load.put(1)
    load.control.move_clock(timedelta(hours=1))
    local = load.control.now().astimezone(timezone(-timedelta(hours=8)))
    start = f"{local:%Y-%m-%d %H:%M:%S}"
    load.put(2)
    load.create(
        properties={"timezone": "-08:00"}, kinesis_shards=FIRST, kinesis_shards_pos=start
    )
    load.run()
    first = load.ids()

    typed = json.dumps({FIRST: f"TIME {start}"})
    load.alter(f"FROM KINESIS('property.kinesis_default_pos' = '{start}')")
    load.run()
    load.alter(f"FROM KINESIS('property.kinesis_positions' = '{typed}')")
    load.run()

    assert (first, load.ids()) == ([2], [2, 2, 2])


def test_t19_a_start_sequence_number_stays_until_its_record_is_loaded(load: Load) -> None:
    numbers = load.put(1, 2)
    load.control.switch(empty_pages_after_iterator=3)
    load.create(kinesis_shards=FIRST, kinesis_shards_pos=numbers[0])
    before = load.shown()["Progress"]

    load.run()

    assert before == {FIRST: f"AT {numbers[0]}"}
    assert load.shown()["Progress"] == {FIRST: f"AFTER {numbers[1]}"}
    assert load.ids() == [1, 2]


def test_t19_an_epoch_without_records_does_not_move_the_sequence_number(
    load: Load,
) -> None:
    numbers = load.put(1, 2)

    def return_empty_pages() -> None:
        load.control.switch(empty_pages_after_iterator=10**6)
        load.control.expire_iterators()

    load.node.work = Failing(return_empty_pages)
    load.create(
        properties={"max_batch_interval": "1"},
        kinesis_shards=FIRST,
        kinesis_shards_pos=numbers[0],
    )

    crash_at(load.node, CrashPoint.COPY_WRITTEN)
    load.control.heal()
    load.control.expire_iterators()
    again = load.restart()
    before = (again.shown()["Progress"], epoch_rows(again.node))
    again.run()

    assert before == ({FIRST: f"AT {numbers[0]}"}, [0])
    assert again.ids() == [1, 2]


def test_t19_a_failed_first_epoch_does_not_move_the_sequence_number(load: Load) -> None:
    numbers = load.put(1, 2)
    load.create(kinesis_shards=FIRST, kinesis_shards_pos=numbers[0])

    crash_at(load.node, CrashPoint.RUN_FINISHED)
    again = load.restart()
    before = again.shown()["Progress"]
    again.run()

    assert before == {FIRST: f"AT {numbers[0]}"}
    assert again.ids() == [1, 2]


def test_t21_the_next_epoch_continues_after_a_full_epoch(load: Load) -> None:
    load.put(*range(10))
    load.create(properties=THREE)

    load.run()

    assert load.ids() == list(range(10))
    assert epoch_rows(load.node) == [3, 3, 3, 1]


def test_an_epoch_ends_with_the_record_that_reaches_the_byte_limit(load: Load) -> None:
    load.put(*range(5))
    limit = {"max_batch_size": str(len(row(0)) * 2)}
    load.create(properties=limit)

    load.run()

    assert load.ids() == list(range(5))
    assert epoch_rows(load.node) == [2, 2, 1]


def test_t28_latest_is_stored_as_a_time_before_anything_is_read(load: Load) -> None:
    load.put(1)
    load.control.move_clock(timedelta(seconds=10))
    load.create(property__kinesis_default_pos="")
    before = load.shown()["Progress"]
    load.put(2)

    crash_at(load.node, CrashPoint.RUN_FINISHED)
    load.control.move_clock(timedelta(seconds=10))
    again = load.restart()
    unmoved = again.shown()["Progress"]
    load.put(3)
    again.run()

    assert before[FIRST].startswith("TIME 20")
    assert unmoved == before
    assert again.ids() == [2, 3]


def test_t28_latest_applies_to_closed_shards_too(load: Load) -> None:
    load.put(1)
    load.stream.split(0, MIDDLE)
    load.put(2)
    load.control.move_clock(timedelta(seconds=10))
    load.create(property__kinesis_default_pos="LATEST")
    load.put(3)

    load.run()

    assert load.ids() == [3]


def test_shards_closed_before_the_statement_are_read_from_the_trim_horizon(
    load: Load,
) -> None:
    load.put(1)
    load.stream.split(0, MIDDLE)
    load.put(2)
    load.create()

    load.run()

    assert load.ids() == [1, 2]


def test_t78_a_record_that_exceeds_a_limit_is_loaded_completely(load: Load) -> None:
    load.stream.put(b"[" + b",".join(row(number) for number in range(5)) + b"]")
    load.put(5)
    limits = {"max_batch_rows": "1", "strip_outer_array": "true"}
    load.stream.put(b"[" + row(6) + b"]")
    load.create(properties=limits | {"max_error_number": "9"})

    load.run()

    assert load.ids() == [0, 1, 2, 3, 4, 6]
    assert epoch_rows(load.node) == [5, 0, 1]


def test_t17_show_create_creates_the_same_load(load: Load) -> None:
    load.put(1)
    load.sql(
        load.statement(
            clauses="COLUMNS(id, note), COLUMNS TERMINATED BY ','",
            properties={"format": "csv", "max_batch_interval": "5", "max_error_number": "3"},
            kpl_foreign_records="load",
        )
        + " COMMENT 'it''s mine'"
    )
    before = load.create_text()
    load.sql("STOP ROUTINE LOAD FOR r")

    load.sql(before)

    assert load.create_text().replace("r_credentials_2", "r_credentials") == before


def test_t17_a_load_created_from_show_create_repeats_nothing(load: Load) -> None:
    load.stream.put(packed(*(sub(row(one)) for one in range(5))))
    load.put(5, 6)
    load.stream.split(0, MIDDLE)
    load.create(properties=THREE)
    crash_at(load.node, CrashPoint.CATALOG_APPLIED)
    again = load.restart()
    copied = again.create_text()
    again.sql("STOP ROUTINE LOAD FOR r")
    load.put(7)

    again.sql(copied)
    again.run()

    assert again.ids() == list(range(8))
    assert again.shards()["0"] == ("finished", "END")


def test_t17_a_load_created_after_a_reshard_reads_no_parent_again(load: Load) -> None:
    load.put(1)
    load.stream.split(0, MIDDLE)
    load.put_and_load(2)
    copied = load.create_text()
    load.sql("STOP ROUTINE LOAD FOR r")
    load.put(3)
    load.stream.split(2, MIDDLE + MIDDLE // 2)
    load.put(4)

    load.sql(copied)
    load.run()

    assert load.ids() == [1, 2, 3, 4]
    assert load.statistic()["receivedRecords"] == 2


def test_t13_positions_of_streams_and_of_files_both_survive(load: Load, folder: Path) -> None:
    load.put(1)
    write_rows(folder / "a.json", [{"id": 2, "note": "file"}])
    load.sql(f"{load.statement()}; {create_job(folder)}")
    load.run()
    before = [load.node.job(name).progress for name in ("r", "j")]
    load.put(3)
    write_rows(folder / "b.json", [{"id": 4, "note": "file"}])

    again = load.restart()
    restored = [again.node.job(name).progress for name in ("r", "j")]
    again.run()

    assert restored == before
    assert sorted(again.ids()) == [1, 2, 3, 4]
    assert len(attempts(again.node, "r")) == len(attempts(again.node, "j")) == 2


def test_t13_a_commit_with_a_position_of_an_unknown_kind_pauses_the_load(
    load: Load,
) -> None:
    load.put(1)
    load.create()
    crash_at(load.node, CrashPoint.TABLE_COMMITTED)
    again = load.restart()
    record = again.node.catalog.table("t")
    assert record is not None
    newest = max((Path(record.location) / "_delta_log").glob("*.json"))
    newest.write_text(newest.read_text().replace('\\"After\\"', '\\"Pulsar\\"'))

    reason = again.pause_reason()

    assert values_in(reason) == ["INTERNAL_ERR", "Pulsar"]


def test_t13_a_task_whose_source_is_of_an_unknown_kind_is_refused(load: Load) -> None:
    messages: list[str] = []

    def refused(task: str, try_id: str) -> str:
        with pytest.raises(InvariantError, match="PULSAR") as error:
            run_task_text(task.replace('"KINESIS"', '"PULSAR"'), try_id)
        messages.append(error.value.message)
        return run_task_text(task, try_id)

    load.node.work = refused

    load.put_and_load(1)

    assert len(messages) == 1
    assert load.ids() == [1]
