"""Rows that cannot be loaded: good ones are committed, then the window of errors decides."""

import pytest

from penstock.crashpoints import CrashPoint
from penstock.errors import Code
from tests.integration.driving import crash_at, paused, rounds_until, supervised
from tests.integration.routine_loads import (
    FIRST,
    create,
    ids,
    loads,
    put,
    row,
    server,
    shown,
    statistic,
    stream,
)
from tests.integration.test_routine_faults import pass_time, pause_reason
from tests.node import Node
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import MIDDLE, StreamUnderTest
from tests.unit.sources.kinesis.aggregates import packed
from tests.unit.sources.kinesis.test_records import sub

__all__ = ["loads", "server", "stream"]
pytestmark = pytest.mark.integration

BAD = b"nonsense"


def rejects(node: Node, name: str = "r") -> list[dict[str, object]]:
    """Answer the rows that were kept because they could not be loaded."""
    assert node.tables is not None
    return node.read(node.tables.rejects_location(node.job(name).id))


def test_good_rows_are_committed_before_the_load_pauses(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    number = stream.put(BAD)
    put(stream, 2)
    loads.sql(create(stream))

    loads.run()

    assert ids(loads) == [1, 2]
    told = shown(loads)
    assert (told["State"], told["ReasonOfStateChanged"]) == (
        "PAUSED",
        "TOO_MANY_FAILURE_ROWS_ERR: 1 of 3 rows could not be loaded; max_error_number is 0. "
        "Good rows are in the table, the others in its rejects",
    )
    assert told["FirstErrorMsg"] == (
        f'shard {FIRST}, record {number}: a record must begin with "{{", found "nonsense"'
    )
    assert told["ErrorLogUrls"] == "SELECT * FROM rejects('job' = 'r')"


def test_rows_that_could_not_be_loaded_are_kept_with_shard_and_number(
    loads: Node, stream: StreamUnderTest
) -> None:
    number = stream.put(BAD)
    loads.sql(create(stream))

    loads.run()

    (kept,) = rejects(loads)
    assert (kept["shard"], kept["sequence"], kept["raw"]) == (FIRST, number, BAD)
    assert kept["error"] == 'a record must begin with "{", found "nonsense"'


def test_a_row_that_does_not_fit_the_table_counts_as_an_error(
    loads: Node, stream: StreamUnderTest
) -> None:
    stream.put(b'{"note": "without a number"}')
    loads.sql(create(stream, properties={"max_error_number": "1"}))

    loads.run()

    assert ids(loads) == []
    assert statistic(loads)["errorRows"] == 1
    assert shown(loads)["State"] == "NEED_SCHEDULE"
    assert len(rejects(loads)) == 1


def test_a_resumed_load_goes_on_behind_the_bad_rows_with_a_new_window(
    loads: Node, stream: StreamUnderTest
) -> None:
    stream.put(BAD)
    loads.sql(create(stream))
    loads.run()
    before = statistic(loads)["errorRowsAfterResumed"]
    put(stream, 1)

    loads.sql("RESUME ROUTINE LOAD FOR r")
    loads.run()

    assert ids(loads) == [1]
    told = shown(loads)
    assert (told["State"], told["FirstErrorMsg"], told["ErrorLogUrls"]) == (
        "NEED_SCHEDULE",
        "",
        "",
    )
    assert (before, statistic(loads)["errorRowsAfterResumed"]) == (1, 0)
    assert statistic(loads)["errorRows"] == 1


def test_errors_are_counted_since_somebody_resumed_the_load_and_not_since_it_did_so_itself(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    stream.put(BAD)
    loads.sql(create(stream, properties={"max_error_number": "9"}))
    loads.run()
    server.control.inject_body("ListShards", '{"Shards": []}', times=2)
    pause_reason(loads)
    pass_time(loads)
    loads.run()
    healed = statistic(loads)["errorRowsAfterResumed"]

    loads.sql("PAUSE ROUTINE LOAD FOR r; RESUME ROUTINE LOAD FOR r")
    resumed = statistic(loads)["errorRowsAfterResumed"]
    stream.put_all(BAD, BAD)
    loads.run()
    loads.sql("PAUSE ROUTINE LOAD FOR r")

    assert (healed, resumed, statistic(loads)["errorRowsAfterResumed"]) == (1, 0, 2)


def test_errors_since_a_resume_do_not_vanish_with_old_events(
    loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream, properties={"max_error_number": "9"}))
    stream.put(BAD)
    loads.run()
    loads.sql("PAUSE ROUTINE LOAD FOR r; RESUME ROUTINE LOAD FOR r")
    stream.put_all(BAD, BAD)
    loads.run()

    loads.catalog.truncate_events(loads.job("r").id, keep=0)

    assert statistic(loads)["errorRowsAfterResumed"] == 2
    assert statistic(loads.restart())["errorRowsAfterResumed"] == 2


def test_errors_add_up_over_epochs_until_the_window_is_full(
    loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream, properties={"max_error_number": "1"}))
    stream.put(BAD)
    put(stream, 1)
    loads.run()
    before = shown(loads)["State"]
    stream.put(BAD)

    loads.run()

    assert (before, shown(loads)["State"]) == ("NEED_SCHEDULE", "PAUSED")
    assert "2 of 3 rows could not be loaded" in shown(loads)["ReasonOfStateChanged"]


def test_t40_a_window_that_is_full_is_opened_anew_before_errors_are_added(
    loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream, properties={"max_error_number": "1", "max_batch_rows": "1"}))
    stream.put(BAD)
    # A window holds ten times the rows of an epoch.
    put(stream, *range(10))
    loads.run()
    again = loads.restart()
    before = again.job("r").window
    stream.put(BAD)

    again.run()

    assert (before.errors, again.job("r").window.errors) == (0, 1)
    assert shown(again)["State"] == "NEED_SCHEDULE"
    assert statistic(again)["errorRows"] == 2


def test_a_share_of_bad_rows_pauses_the_load(loads: Node, stream: StreamUnderTest) -> None:
    limits = {"max_error_number": "9", "max_filter_ratio": "0.3"}
    loads.sql(create(stream, properties=limits))
    stream.put(BAD)
    put(stream, 1, 2)

    loads.run()

    assert shown(loads)["ReasonOfStateChanged"].startswith(
        "TOO_MANY_FAILURE_ROWS_ERR: 1 of 3 rows could not be loaded; max_filter_ratio is 0.3"
    )


def test_t76_foreign_records_do_not_count_towards_the_window(
    loads: Node, stream: StreamUnderTest
) -> None:
    stream.split(0, MIDDLE)
    foreign = sub(row(2), hash_key=2**128 - 1)
    stream.put(packed(sub(row(1), hash_key=0), foreign), hash_key=0)
    loads.sql(create(stream))

    loads.run()

    assert shown(loads)["State"] == "NEED_SCHEDULE"
    assert statistic(loads)["foreignRows"] == 1
    (kept,) = rejects(loads)
    assert kept["error"] == 'the key "k" belongs to another shard'


def test_t36_a_load_that_paused_for_its_rows_stays_paused_and_says_why_after_a_restart(
    loads: Node, stream: StreamUnderTest
) -> None:
    stream.put(BAD)
    loads.sql(create(stream))
    loads.run()
    before = shown(loads)

    again = loads.restart()
    pass_time(again)
    again.run()

    after = shown(again)
    assert after["ReasonOfStateChanged"] == before["ReasonOfStateChanged"]
    assert (after["State"], after["FirstErrorMsg"]) == ("PAUSED", before["FirstErrorMsg"])


@pytest.mark.parametrize("point", [CrashPoint.TABLE_COMMITTED, CrashPoint.CATALOG_APPLIED])
def test_t36_the_window_trips_also_if_the_node_dies_behind_the_commit(
    loads: Node, stream: StreamUnderTest, *, point: CrashPoint
) -> None:
    put(stream, 1)
    stream.put(BAD)
    loads.sql(create(stream))

    crash_at(loads, point)
    again = loads.restart()
    put(stream, 2)
    with supervised(again) as supervisor:
        rounds_until(supervisor, paused)

    assert ids(again) == [1]
    reason = again.job("r").desired.reason
    assert reason is not None
    assert reason.code is Code.TOO_MANY_FAILURE_ROWS_ERR
    assert len(rejects(again)) == 1


def test_t2_the_statistics_of_streams_survive_a_cut_journal_and_a_restart(
    loads: Node, stream: StreamUnderTest
) -> None:
    stream.put(BAD)
    put(stream, 1, 2)
    loads.sql(create(stream))
    loads.run()
    before = loads.job("r").cumulative
    loads.catalog.truncate_events(loads.job("r").id, keep=0)

    after = loads.restart().job("r").cumulative

    assert after == before
    assert (after.records_read, after.rows_loaded, after.rows_rejected) == (3, 2, 1)


def test_the_epoch_that_fills_the_window_is_told_as_committed_alone(
    loads: Node, stream: StreamUnderTest
) -> None:
    stream.put(BAD)
    loads.sql(create(stream))

    loads.run()

    told = [row["event"] for row in loads.sql("SHOW EVENTS FOR r")]
    assert told[-3:] == ["EpochStarted", "EpochCommitted", "JobPaused"]
