"""Streams that lose, delay or refuse records: what is loaded, and what is reported."""

import re
from datetime import timedelta

import pytest

from penstock.crashpoints import CrashPoint
from penstock.errors import ExternalError
from penstock.sources.kinesis.reading import READ_INTERVAL
from tests.integration.driving import (
    Failing,
    attempts,
    crash_at,
    idle,
    rounds_until,
    supervised,
)
from tests.integration.routine_loads import FIRST, Load, put, row, times_in, values_in
from tests.mirrored_node import OpenNode
from tests.servers.kinesis_clients import new_stream
from tests.unit.sources.kinesis.aggregates import packed
from tests.unit.sources.kinesis.test_records import sub

pytestmark = pytest.mark.integration

FROM_HORIZON = "FROM KINESIS('property.kinesis_default_pos' = 'TRIM_HORIZON')"


def test_t20_the_shards_of_all_pages_are_loaded(load: Load) -> None:
    wide = new_stream(load.stream.client, shards=3)
    for number in range(3):
        put(wide, number, hash_key=number * 2**127 - number)
    load.create(stream=wide, property__aws__kinesis__max_results="1")

    load.run()

    assert sorted(load.ids()) == [0, 1, 2]
    assert len(load.shards()) == 3


def test_t20_a_listing_without_shards_creates_no_load(load: Load) -> None:
    load.control.inject_body("ListShards", '{"Shards": []}')

    with pytest.raises(ExternalError, match=f'"{load.stream.name}".* no shards'):
        load.create()

    assert load.sql("SHOW ALL ROUTINE LOAD") == []


def test_t20_a_load_waits_while_listings_have_no_shards(load: Load) -> None:
    load.put(1)
    load.create()
    load.control.inject_body("ListShards", '{"Shards": []}', times=2)

    reason = load.pause_reason()
    load.pass_time()
    load.run()

    assert values_in(reason)[:2] == ["GET_REMOTE_DATA_ERROR", load.stream.name]
    assert load.ids() == [1]


def test_t38_pause_all_keeps_a_load_paused_that_paused_itself(load: Load) -> None:
    load.put(1)
    load.create()
    load.control.inject_body("ListShards", '{"Shards": []}', times=2)
    load.pause_reason()

    load.sql("PAUSE ALL ROUTINE LOAD")
    load.pass_time()
    load.run()

    assert load.ids() == []
    assert load.reason() == ["MANUAL_PAUSE_ERR"]


def test_t24_the_newest_report_of_a_lag_is_shown(load: Load) -> None:
    load.put(1, 2)
    load.control.move_clock(timedelta(seconds=5))
    load.create()

    crash_at(load.node, CrashPoint.EPOCH_STARTED)
    again = load.restart()
    before = again.shown()
    again.run()

    assert before["Lag"][FIRST] >= 5000
    assert before["Statistic"]["maxMillisBehindLatest"] == before["Lag"][FIRST]
    assert again.shown()["Lag"] == {FIRST: 0}
    assert again.shown()["Statistic"]["maxMillisBehindLatest"] == 0


def test_t24_a_finished_shard_has_no_lag(load: Load) -> None:
    load.put_and_load(1)
    load.stream.split(0, 2**127)

    load.run()

    assert load.shown()["Lag"] == {"shardId-000000000001": 0, "shardId-000000000002": 0}


def test_t30_empty_pages_are_followed(load: Load) -> None:
    load.put(1)
    load.control.switch(empty_pages_after_iterator=3, empty_pages_between_pages=3)
    load.create()

    load.run()

    assert load.ids() == [1]


def test_t67_empty_pages_across_epochs_need_one_iterator(load: Load) -> None:
    load.put(1)
    load.control.switch(empty_pages_after_iterator=30)
    load.create(properties={"max_batch_interval": "1"})
    load.control.clear_requests()

    load.run()

    assert load.ids() == [1]
    assert len(load.control.requests("GetShardIterator")) == 1


def test_expired_iterators_are_opened_again(load: Load) -> None:
    load.put(1)
    load.create()
    with supervised(load.node) as supervisor:
        rounds_until(supervisor, idle)
        load.control.expire_iterators()
        load.put(2)
        rounds_until(supervisor, lambda reports: reports[0].state.cumulative.rows_loaded == 2)

    assert load.ids() == [1, 2]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("ProvisionedThroughputExceededException", 400),
        ("LimitExceededException", 400),
        ("KMSThrottlingException", 400),
        ("InternalFailure", 500),
    ],
)
def test_a_temporary_error_does_not_fail_an_epoch(load: Load, code: str, status: int) -> None:
    load.put(1)
    load.create()
    load.control.inject("*", code, status=status, times=4)

    load.run()

    assert load.ids() == [1]
    assert load.shown()["Statistic"]["abortedTaskNum"] == 0


def test_t66_a_loaded_record_can_be_trimmed(load: Load) -> None:
    load.put_and_load(1)
    load.control.trim(load.stream.name, FIRST)
    load.put(2)

    load.run()

    assert load.ids() == [1, 2]


def test_t66_an_idle_shard_has_no_gap(load: Load) -> None:
    load.put_and_load(1)
    load.control.trim(load.stream.name, FIRST)
    for _ in range(3):
        load.control.move_clock(timedelta(hours=20))
        load.run()
    load.put(2)

    load.run()

    assert load.ids() == [1, 2]


def test_t66_trimmed_unread_records_pause_the_load_with_both_times(
    load: Load,
) -> None:
    load.put_and_load(1)
    tip_at = load.control.now()
    load.put(2)
    load.control.move_clock(timedelta(hours=25))
    load.control.trim(load.stream.name, FIRST)
    oldest = load.control.now() - timedelta(hours=24)
    load.put(3)

    load.run()

    assert load.ids() == [1]
    assert load.reason()[:2] == ["CANNOT_RESUME_ERR", FIRST]
    loaded_until, kept_from = times_in(load.shown()["ReasonOfStateChanged"])[:2]
    assert abs(loaded_until - tip_at) < timedelta(minutes=1)
    assert abs(kept_from - oldest) < timedelta(minutes=1)


def test_t66_a_time_before_the_retention_pauses_the_load(load: Load) -> None:
    load.create(property__kinesis_default_pos="LATEST")
    load.put(1)
    load.control.move_clock(timedelta(hours=25))
    load.control.trim(load.stream.name, FIRST)
    load.put(2)

    load.run()

    assert load.ids() == []
    assert load.reason()[0] == "CANNOT_RESUME_ERR"


def test_t66_a_load_moved_past_a_gap_loads_the_remaining_records(load: Load) -> None:
    load.create()
    load.run()
    load.put(1)
    load.control.move_clock(timedelta(hours=25))
    load.control.trim(load.stream.name, FIRST)
    load.put(2)
    load.run()
    before = load.shown()["State"]

    load.sql(f"ALTER ROUTINE LOAD FOR r {FROM_HORIZON}; RESUME ROUTINE LOAD FOR r")
    load.run()

    assert (before, load.ids()) == ("PAUSED", [2])


def test_a_lag_close_to_the_retention_is_reported(load: Load) -> None:
    load.put(1, 2)
    load.create()
    load.control.move_clock(timedelta(hours=23))

    crash_at(load.node, CrashPoint.EPOCH_STARTED)

    message = load.restart().shown()["OtherMsg"]
    assert re.search(rf"{FIRST} .*\b23 h 0 min.*\b1 d 0 h\b", message)


def test_a_paused_load_reports_when_unread_records_will_expire(load: Load) -> None:
    load.put_and_load(1)
    load.sql("PAUSE ROUTINE LOAD FOR r")
    before = load.shown()["OtherMsg"]

    load.clock.move(hours=23)

    assert before == ""
    assert re.search(rf"{FIRST} .*\b23 h 0 min", load.shown()["OtherMsg"])


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        '{"Records": [], "MillisBehindLatest": 0}',
        '{"Records": [], "NextShardIterator": "x"}',
    ],
)
def test_t69_an_incomplete_response_is_retried(load: Load, body: str) -> None:
    load.put(1)
    load.create()
    load.control.inject_body("GetRecords", body, times=2)

    load.run()

    assert load.ids() == [1]
    assert load.shards()["0"][0] == "open"


def test_t69_deleting_a_stream_does_not_end_its_shards(load: Load) -> None:
    load.put_and_load(1)
    load.stream.delete()

    reason = load.pause_reason()

    assert values_in(reason)[:2] == ["GET_REMOTE_DATA_ERROR", load.stream.name]
    assert load.shards()["0"][0] == "open"


def test_t70_a_recreated_stream_pauses_the_load(load: Load) -> None:
    load.put_and_load(1)
    load.stream.recreate()
    load.put(2)

    load.run()

    assert load.ids() == [1]
    assert load.reason()[:2] == ["STREAM_CHANGED_ERR", load.stream.name]


def test_t73_a_shard_with_records_after_an_idle_time_is_not_throttled(
    open_node: OpenNode, load: Load
) -> None:
    node = open_node(read_interval=READ_INTERVAL)
    node.sql(load.statement(properties={"max_batch_interval": "1"}))
    load.control.limit_as_aws()
    with supervised(node) as supervisor:
        rounds_until(supervisor, idle)
        load.stream.put_all(*(row(number) + b" " * 300_000 for number in range(5)))
        rounds_until(supervisor, lambda reports: reports[0].state.cumulative.rows_loaded == 5)

    assert [one.code for one in load.control.requests() if one.code] == []


def test_t74_a_load_with_a_partly_read_page_is_not_caught_up(load: Load) -> None:
    load.stream.put(packed(sub(b"bad"), *(sub(row(number)) for number in range(9))))
    load.create(properties={"max_batch_rows": "3"})
    load.run()
    before = load.shown()

    load.sql("RESUME ROUTINE LOAD FOR r")
    load.run()

    assert (before["State"], before["Lag"]) == ("PAUSED", {FIRST: -1})
    assert before["Statistic"]["maxMillisBehindLatest"] == -1
    assert load.ids() == list(range(9))
    assert load.shown()["Lag"] == {FIRST: 0}


def test_t81_a_token_that_expires_during_a_task_is_renewed(load: Load) -> None:
    expiring = Failing(lambda: load.control.inject("GetRecords", "ExpiredTokenException"))
    load.node.work = expiring

    load.put_and_load(1, 2, 3)

    assert load.ids() == [1, 2, 3]
    assert expiring.calls == 1
    assert attempts(load.node, "r") == [(1, 1, "COMMITTED")]


def test_t81_expired_keys_pause_the_load_until_they_are_altered(load: Load) -> None:
    load.put(1)
    load.sql("CREATE SECRET k ('aws.access_key' = 'old', 'aws.secret_key' = 'old')")
    load.sql(load.statement().replace("= 'mine'", "= SECRET 'k'"))
    load.control.refuse("old")

    reason = load.pause_reason()
    load.sql("ALTER SECRET k ('aws.access_key' = 'new')")
    load.pass_time()
    load.run()

    assert "ExpiredTokenException" in reason
    assert load.ids() == [1]


@pytest.mark.parametrize(
    ("code", "message", "named"),
    [
        ("KMSDisabledException", "", r"KMSDisabledException \(HTTP 400\)"),
        (
            "InvalidSignatureException",
            "Signature expired: 20261116T100000Z is now earlier than 20261116T101000Z",
            "clock.* 20261116T100000Z.* 20261116T101000Z",
        ),
        ("AccessDeniedException", "", r"AccessDeniedException \(HTTP 400\)"),
    ],
)
def test_t84_a_refused_load_reports_the_reason_and_resumes_by_itself(
    load: Load, *, code: str, message: str, named: str
) -> None:
    load.put(1)
    load.create()
    load.control.inject("GetRecords", code, message=message, times=100)

    reason = load.pause_reason()
    load.control.heal()
    load.pass_time()
    load.run()

    assert values_in(reason)[:2] == ["GET_REMOTE_DATA_ERROR", load.stream.name]
    assert re.search(f"{load.server.endpoint} .*kinesis:GetRecords.*{named}", reason, re.DOTALL)
    assert load.ids() == [1]
