"""Where the reading of a stream begins and goes on: typed, stored before the first read."""

import json
from datetime import timedelta, timezone
from pathlib import Path

import pytest

from penstock.crashpoints import CrashPoint
from penstock.epochs.task import run_task_text
from penstock.errors import InvariantError
from tests.integration.driving import Failing, MovedClock, attempts, crash_at
from tests.integration.routine_loads import (
    BLINK,
    CREATE_TABLE,
    FIRST,
    altered,
    create,
    ids,
    loads,
    put,
    row,
    server,
    shards,
    shown,
    statistic,
    stream,
)
from tests.integration.test_routine_faults import pause_reason
from tests.mirrored_node import OpenNode
from tests.node import Node, create_job, write_rows
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import MIDDLE, StreamUnderTest
from tests.unit.sources.kinesis.aggregates import packed
from tests.unit.sources.kinesis.test_records import sub

__all__ = ["loads", "server", "stream"]
pytestmark = pytest.mark.integration

THREE = {"max_batch_rows": "3"}


def statement(node: Node, name: str = "r") -> str:
    """Answer what SHOW CREATE tells of a load."""
    return str(node.sql(f"SHOW CREATE ROUTINE LOAD FOR {name}")[0]["CreateStmt"])


def epoch_rows(node: Node) -> list[object]:
    """Answer how many rows every epoch has loaded."""
    return [one["rows"] for one in node.sql("SHOW EPOCHS FOR r") if one["kind"] == "epoch"]


def test_t15_a_time_is_one_of_the_zone_of_the_load(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    server.control.move_clock(timedelta(hours=1))
    begun = server.control.now()
    put(stream, 2)
    local = begun.astimezone(timezone(timedelta(hours=5, minutes=30)))

    loads.sql(
        create(
            stream,
            properties={"timezone": "+05:30"},
            property__kinesis_default_pos=f"{local:%Y-%m-%d %H:%M:%S}",
        )
    )
    loads.run()

    assert ids(loads) == [2]


def test_t15_a_time_is_one_of_the_zone_also_by_shard_and_at_an_alteration(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    server.control.move_clock(timedelta(hours=1))
    local = server.control.now().astimezone(timezone(-timedelta(hours=8)))
    begun = f"{local:%Y-%m-%d %H:%M:%S}"
    put(stream, 2)
    loads.sql(
        create(
            stream,
            properties={"timezone": "-08:00"},
            kinesis_shards=FIRST,
            kinesis_shards_pos=begun,
        )
    )
    loads.run()
    first = ids(loads)

    typed = json.dumps({FIRST: f"TIME {begun}"})
    altered(loads, f"FROM KINESIS('property.kinesis_default_pos' = '{begun}')")
    loads.run()
    altered(loads, f"FROM KINESIS('property.kinesis_positions' = '{typed}')")
    loads.run()

    assert (first, ids(loads)) == ([2], [2, 2, 2])


def test_t19_a_number_stays_where_reading_begins_until_its_record_is_loaded(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    numbers = put(stream, 1, 2)
    server.control.switch(empty_pages_after_iterator=3)
    loads.sql(create(stream, kinesis_shards=FIRST, kinesis_shards_pos=numbers[0]))
    before = shown(loads)["Progress"]

    loads.run()

    assert before == {FIRST: f"AT {numbers[0]}"}
    assert shown(loads)["Progress"] == {FIRST: f"AFTER {numbers[1]}"}
    assert ids(loads) == [1, 2]


def test_t19_an_epoch_that_is_committed_without_a_record_does_not_move_the_number(
    open_node: OpenNode, server: KinesisServer, stream: StreamUnderTest
) -> None:
    numbers = put(stream, 1, 2)

    def give_nothing() -> None:
        server.control.switch(empty_pages_after_iterator=10**6)
        server.control.expire_iterators()

    node = open_node(clock=MovedClock(), read_interval=BLINK, work=Failing(give_nothing))
    node.sql(CREATE_TABLE)
    node.sql(
        create(
            stream,
            properties={"max_batch_interval": "1"},
            kinesis_shards=FIRST,
            kinesis_shards_pos=numbers[0],
        )
    )

    crash_at(node, CrashPoint.COPY_WRITTEN)
    server.control.heal()
    server.control.expire_iterators()
    again = node.restart()
    before = (shown(again)["Progress"], epoch_rows(again))
    again.run()

    assert before == ({FIRST: f"AT {numbers[0]}"}, [0])
    assert ids(again) == [1, 2]


def test_t19_a_failed_first_epoch_does_not_move_the_number(
    loads: Node, stream: StreamUnderTest
) -> None:
    numbers = put(stream, 1, 2)
    loads.sql(create(stream, kinesis_shards=FIRST, kinesis_shards_pos=numbers[0]))

    crash_at(loads, CrashPoint.RUN_FINISHED)
    again = loads.restart()
    before = shown(again)["Progress"]
    again.run()

    assert before == {FIRST: f"AT {numbers[0]}"}
    assert ids(again) == [1, 2]


def test_t21_an_epoch_that_is_full_leaves_the_rest_to_the_next(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, *range(10))
    loads.sql(create(stream, properties=THREE))

    loads.run()

    assert ids(loads) == list(range(10))
    assert epoch_rows(loads) == [3, 3, 3, 1]


def test_an_epoch_ends_with_the_record_that_reaches_its_bytes(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, *range(5))
    limit = {"max_batch_size": str(len(row(0)) * 2)}
    loads.sql(create(stream, properties=limit))

    loads.run()

    assert ids(loads) == list(range(5))
    assert epoch_rows(loads) == [2, 2, 1]


def test_t28_latest_is_stored_as_a_time_before_anything_is_read(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    server.control.move_clock(timedelta(seconds=10))
    loads.sql(create(stream, property__kinesis_default_pos=""))
    before = shown(loads)["Progress"]
    put(stream, 2)

    crash_at(loads, CrashPoint.RUN_FINISHED)
    server.control.move_clock(timedelta(seconds=10))
    again = loads.restart()
    unmoved = shown(again)["Progress"]
    put(stream, 3)
    again.run()

    assert before[FIRST].startswith("TIME 20")
    assert unmoved == before
    assert ids(again) == [2, 3]


def test_t28_latest_holds_for_closed_shards_too(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    stream.split(0, MIDDLE)
    put(stream, 2)
    server.control.move_clock(timedelta(seconds=10))
    loads.sql(create(stream, property__kinesis_default_pos="LATEST"))
    put(stream, 3)

    loads.run()

    assert ids(loads) == [3]


def test_shards_that_were_closed_before_the_statement_are_read_from_the_horizon(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    stream.split(0, MIDDLE)
    put(stream, 2)
    loads.sql(create(stream))

    loads.run()

    assert ids(loads) == [1, 2]


def test_t78_the_record_that_crosses_a_limit_is_loaded_whole(
    loads: Node, stream: StreamUnderTest
) -> None:
    stream.put(b"[" + b",".join(row(number) for number in range(5)) + b"]")
    put(stream, 5)
    limits = {"max_batch_rows": "1", "strip_outer_array": "true"}
    stream.put(b"[" + row(6) + b"]")
    loads.sql(create(stream, properties=limits | {"max_error_number": "9"}))

    loads.run()

    assert ids(loads) == [0, 1, 2, 3, 4, 6]
    assert epoch_rows(loads) == [5, 0, 1]


def test_t17_the_statement_that_is_shown_makes_the_same_load(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(
        create(
            stream,
            clauses="COLUMNS(id, note), COLUMNS TERMINATED BY ','",
            properties={"format": "csv", "max_batch_interval": "5", "max_error_number": "3"},
            kpl_foreign_records="load",
        )
        + " COMMENT 'it''s mine'"
    )
    before = statement(loads)
    loads.sql("STOP ROUTINE LOAD FOR r")

    loads.sql(before)

    assert statement(loads).replace("r_credentials_2", "r_credentials") == before


def test_t17_a_load_made_from_the_shown_statement_repeats_nothing(
    loads: Node, stream: StreamUnderTest
) -> None:
    stream.put(packed(*(sub(row(one)) for one in range(5))))
    put(stream, 5, 6)
    stream.split(0, MIDDLE)
    loads.sql(create(stream, properties=THREE))
    crash_at(loads, CrashPoint.CATALOG_APPLIED)
    again = loads.restart()
    copied = statement(again)
    again.sql("STOP ROUTINE LOAD FOR r")
    put(stream, 7)

    again.sql(copied)
    again.run()

    assert ids(again) == list(range(8))
    assert shards(again)["0"] == ("finished", "END")


def test_t17_a_load_made_behind_a_reshard_reads_no_parent_again(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    stream.split(0, MIDDLE)
    put(stream, 2)
    loads.sql(create(stream))
    loads.run()
    copied = statement(loads)
    loads.sql("STOP ROUTINE LOAD FOR r")
    put(stream, 3)
    stream.split(2, MIDDLE + MIDDLE // 2)
    put(stream, 4)

    loads.sql(copied)
    loads.run()

    assert ids(loads) == [1, 2, 3, 4]
    assert statistic(loads)["receivedRecords"] == 2


def test_t13_positions_of_streams_and_of_files_survive_side_by_side(
    loads: Node, stream: StreamUnderTest, folder: Path
) -> None:
    put(stream, 1)
    write_rows(folder / "a.json", [{"id": 2, "note": "file"}])
    loads.sql(f"{create(stream)}; {create_job(folder)}")
    loads.run()
    before = [loads.job(name).progress for name in ("r", "j")]
    put(stream, 3)
    write_rows(folder / "b.json", [{"id": 4, "note": "file"}])

    again = loads.restart()
    restored = [again.job(name).progress for name in ("r", "j")]
    again.run()

    assert restored == before
    assert sorted(ids(again)) == [1, 2, 3, 4]
    assert len(attempts(again, "r")) == len(attempts(again, "j")) == 2


def test_t13_a_commit_with_a_position_of_an_unknown_kind_pauses_the_load_that_it_stops(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    crash_at(loads, CrashPoint.TABLE_COMMITTED)
    again = loads.restart()
    record = again.catalog.table("t")
    assert record is not None
    newest = max((Path(record.location) / "_delta_log").glob("*.json"))
    newest.write_text(newest.read_text().replace('\\"After\\"', '\\"Pulsar\\"'))

    reason = pause_reason(again)

    assert reason == 'INTERNAL_ERR: stored value has the unknown kind "Pulsar"'


def test_t13_a_task_whose_source_is_of_an_unknown_kind_is_refused(
    open_node: OpenNode, stream: StreamUnderTest
) -> None:
    told: list[str] = []

    def refused(task: str, try_id: str) -> str:
        with pytest.raises(InvariantError, match="PULSAR") as error:
            run_task_text(task.replace('"KINESIS"', '"PULSAR"'), try_id)
        told.append(error.value.message)
        return run_task_text(task, try_id)

    put(stream, 1)
    node = open_node(clock=MovedClock(), read_interval=BLINK, work=refused)
    node.sql(f"{CREATE_TABLE}; {create(stream)}")

    node.run()

    assert told == ['source kind "PULSAR" is unknown to this version']
    assert ids(node) == [1]
