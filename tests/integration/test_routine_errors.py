"""Bad rows: good rows are committed, then the error window decides."""

import re

import pytest

from penstock.crashpoints import CrashPoint
from penstock.errors import Code
from tests.integration.driving import crash_at, paused, rounds_until, supervised
from tests.integration.routine_loads import FIRST, Load, row
from tests.node import Node
from tests.servers.kinesis_clients import MIDDLE
from tests.unit.sources.kinesis.aggregates import packed
from tests.unit.sources.kinesis.test_records import sub

pytestmark = pytest.mark.integration

BAD = b"nonsense"


def rejects(node: Node, name: str = "r") -> list[dict[str, object]]:
    """Return the rejected rows."""
    assert node.tables is not None
    return node.read(node.tables.rejects_location(node.job(name).id))


def test_good_rows_are_committed_before_the_load_pauses(load: Load) -> None:
    load.put(1)
    number = load.stream.put(BAD)
    load.put(2)
    load.create()

    load.run()

    assert load.ids() == [1, 2]
    shown = load.shown()
    assert load.reason() == ["TOO_MANY_FAILURE_ROWS_ERR", "1", "3", "0"]
    assert re.search(rf"{FIRST}, .*\b{number}: .*nonsense", shown["FirstErrorMsg"])
    assert load.restart().shown()["FirstErrorMsg"] == shown["FirstErrorMsg"]
    assert shown["ErrorLogUrls"] == "SELECT * FROM rejects('job' = 'r')"


def test_rejected_rows_are_stored_with_shard_and_sequence_number(load: Load) -> None:
    number = load.stream.put(BAD)
    load.create()

    load.run()

    (reject,) = rejects(load.node)
    assert (reject["shard"], reject["sequence"], reject["raw"]) == (FIRST, number, BAD)
    assert '"nonsense"' in str(reject["error"])


def test_a_row_that_does_not_fit_the_table_counts_as_an_error(load: Load) -> None:
    load.stream.put(b'{"note": "without a number"}')
    load.create(properties={"max_error_number": "1"})

    load.run()

    assert load.ids() == []
    assert load.statistic()["errorRows"] == 1
    assert load.shown()["State"] == "NEED_SCHEDULE"
    assert len(rejects(load.node)) == 1


def test_a_resumed_load_continues_after_the_bad_rows_with_a_new_window(load: Load) -> None:
    load.stream.put(BAD)
    load.create()
    load.run()
    before = load.statistic()["errorRowsAfterResumed"]
    load.put(1)

    load.sql("RESUME ROUTINE LOAD FOR r")
    load.run()

    assert load.ids() == [1]
    shown = load.shown()
    assert (shown["State"], shown["FirstErrorMsg"], shown["ErrorLogUrls"]) == (
        "NEED_SCHEDULE",
        "",
        "",
    )
    assert (before, load.statistic()["errorRowsAfterResumed"]) == (1, 0)
    assert load.statistic()["errorRows"] == 1


def test_errors_are_counted_since_the_last_manual_resume(
    load: Load,
) -> None:
    load.stream.put(BAD)
    load.create(properties={"max_error_number": "9"})
    load.run()
    load.control.inject_body("ListShards", '{"Shards": []}', times=2)
    load.pause_reason()
    load.pass_time()
    load.run()
    healed = load.statistic()["errorRowsAfterResumed"]

    load.sql("PAUSE ROUTINE LOAD FOR r; RESUME ROUTINE LOAD FOR r")
    resumed = load.statistic()["errorRowsAfterResumed"]
    load.stream.put_all(BAD, BAD)
    load.run()
    load.sql("PAUSE ROUTINE LOAD FOR r")

    assert (healed, resumed, load.statistic()["errorRowsAfterResumed"]) == (1, 0, 2)


def test_errors_since_a_resume_survive_the_deletion_of_old_events(load: Load) -> None:
    load.create(properties={"max_error_number": "9"})
    load.stream.put(BAD)
    load.run()
    load.sql("PAUSE ROUTINE LOAD FOR r; RESUME ROUTINE LOAD FOR r")
    load.stream.put_all(BAD, BAD)
    load.run()

    load.node.catalog.truncate_events(load.node.job("r").id, keep=0)

    assert load.statistic()["errorRowsAfterResumed"] == 2
    assert load.restart().statistic()["errorRowsAfterResumed"] == 2


def test_errors_of_several_epochs_add_up_until_the_window_is_full(load: Load) -> None:
    load.create(properties={"max_error_number": "1"})
    load.stream.put(BAD)
    load.put(1)
    load.run()
    before = load.shown()["State"]
    load.stream.put(BAD)

    load.run()

    assert (before, load.shown()["State"]) == ("NEED_SCHEDULE", "PAUSED")
    assert load.reason() == ["TOO_MANY_FAILURE_ROWS_ERR", "2", "3", "1"]


def test_t40_a_new_window_starts_before_errors_are_added(load: Load) -> None:
    load.create(properties={"max_error_number": "1", "max_batch_rows": "1"})
    load.stream.put(BAD)
    # A window is ten times the rows of an epoch.
    load.put(*range(10))
    load.run()
    again = load.restart()
    before = again.node.job("r").window
    load.stream.put(BAD)

    again.run()

    assert (before.errors, again.node.job("r").window.errors) == (0, 1)
    assert again.shown()["State"] == "NEED_SCHEDULE"
    assert again.statistic()["errorRows"] == 2


def test_a_ratio_of_bad_rows_pauses_the_load(load: Load) -> None:
    limits = {"max_error_number": "9", "max_filter_ratio": "0.3"}
    load.create(properties=limits)
    load.stream.put(BAD)
    load.put(1, 2)

    load.run()

    assert load.reason() == ["TOO_MANY_FAILURE_ROWS_ERR", "1", "3", "0.3"]
    assert "max_filter_ratio" in load.shown()["ReasonOfStateChanged"]


def test_t76_foreign_records_do_not_count_towards_the_window(load: Load) -> None:
    load.stream.split(0, MIDDLE)
    foreign = sub(row(2), hash_key=2**128 - 1)
    load.stream.put(packed(sub(row(1), hash_key=0), foreign), hash_key=0)
    load.create()

    load.run()

    assert load.shown()["State"] == "NEED_SCHEDULE"
    assert load.statistic()["foreignRows"] == 1
    (reject,) = rejects(load.node)
    assert '"k"' in str(reject["error"])


@pytest.mark.parametrize("point", [CrashPoint.TABLE_COMMITTED, CrashPoint.CATALOG_APPLIED])
def test_t36_the_window_pauses_the_load_even_if_the_node_crashes_after_the_commit(
    load: Load, point: CrashPoint
) -> None:
    load.put(1)
    load.stream.put(BAD)
    load.create()

    crash_at(load.node, point)
    again = load.restart()
    load.put(2)
    with supervised(again.node) as supervisor:
        rounds_until(supervisor, paused)

    assert again.ids() == [1]
    reason = again.node.job("r").desired.reason
    assert reason is not None
    assert reason.code is Code.TOO_MANY_FAILURE_ROWS_ERR
    assert len(rejects(again.node)) == 1


def test_the_epoch_that_fills_the_window_has_only_a_committed_event(load: Load) -> None:
    load.stream.put(BAD)
    load.create()

    load.run()

    events = load.sql("SHOW EVENTS FOR r")[-5:]
    assert [row["event"] for row in events] == [
        "EpochStarted",
        "EpochCommitted",
        "BacklogFinished",
        "BacklogLeft",
        "JobPaused",
    ]
    assert "commit 3, epoch 1, generation 2, 0 rows, position " in str(events[1]["detail"])
