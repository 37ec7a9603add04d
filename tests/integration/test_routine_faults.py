"""Streams that lose, delay or refuse: what is loaded all the same, and what is said."""

from datetime import timedelta

import pytest

from penstock.crashpoints import CrashPoint
from penstock.errors import ExternalError
from penstock.sources.kinesis.reading import READ_INTERVAL
from tests.integration.driving import (
    Failing,
    MovedClock,
    attempts,
    crash_at,
    idle,
    paused,
    rounds_until,
    supervised,
)
from tests.integration.routine_loads import (
    BLINK,
    CREATE_TABLE,
    FIRST,
    create,
    ids,
    loads,
    put,
    row,
    server,
    shards,
    shown,
    stream,
    times_in,
)
from tests.mirrored_node import OpenNode
from tests.node import Node
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import StreamUnderTest, new_stream
from tests.unit.sources.kinesis.aggregates import packed
from tests.unit.sources.kinesis.test_records import sub

__all__ = ["loads", "server", "stream"]
pytestmark = pytest.mark.integration


def pause_reason(node: Node) -> str:
    """Run the load until it has used up its immediate resume; answer why it is paused."""
    assert isinstance(node.clock, MovedClock)
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda looks: looks[0].state.desired.auto_resumes == 1)
        node.clock.move(seconds=2)
        rounds_until(supervisor, paused)
    assert shown(node)["State"] == "PAUSED"
    return str(shown(node)["ReasonOfStateChanged"])


def pass_time(node: Node) -> None:
    """Let so much time pass that whatever resumes by itself does."""
    assert isinstance(node.clock, MovedClock)
    node.clock.move(minutes=10)


def test_t20_the_shards_of_all_pages_are_loaded(loads: Node, stream: StreamUnderTest) -> None:
    wide = new_stream(stream.client, shards=3)
    for number in range(3):
        put(wide, number, hash_key=number * 2**127 - number)
    loads.sql(create(wide, property__aws__kinesis__max_results="1"))

    loads.run()

    assert sorted(ids(loads)) == [0, 1, 2]
    assert len(shards(loads)) == 3


def test_t20_a_listing_without_shards_makes_no_load(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    server.control.inject_body("ListShards", '{"Shards": []}')

    with pytest.raises(ExternalError, match=f'stream "{stream.name}" listed no shards'):
        loads.sql(create(stream))

    assert loads.sql("SHOW ALL ROUTINE LOAD") == []


def test_t20_a_load_waits_while_listings_have_no_shards(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    server.control.inject_body("ListShards", '{"Shards": []}', times=2)

    reason = pause_reason(loads)
    pass_time(loads)
    loads.run()

    assert reason.startswith(f'GET_REMOTE_DATA_ERROR: stream "{stream.name}" listed no shards')
    assert ids(loads) == [1]


def test_t38_a_load_that_paused_itself_stays_paused_when_all_are_paused(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    server.control.inject_body("ListShards", '{"Shards": []}', times=2)
    pause_reason(loads)

    loads.sql("PAUSE ALL ROUTINE LOAD")
    pass_time(loads)
    loads.run()

    assert ids(loads) == []
    assert shown(loads)["ReasonOfStateChanged"] == (
        "MANUAL_PAUSE_ERR: paused by PAUSE ALL ROUTINE LOAD"
    )


def test_t24_the_newest_report_of_a_lag_is_shown(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1, 2)
    server.control.move_clock(timedelta(seconds=5))
    loads.sql(create(stream))

    crash_at(loads, CrashPoint.EPOCH_STARTED)
    again = loads.restart()
    before = shown(again)
    again.run()

    assert before["Lag"][FIRST] >= 5000
    assert before["Statistic"]["maxMillisBehindLatest"] == before["Lag"][FIRST]
    assert shown(again)["Lag"] == {FIRST: 0}
    assert shown(again)["Statistic"]["maxMillisBehindLatest"] == 0


def test_t24_a_shard_that_has_ended_has_no_lag(loads: Node, stream: StreamUnderTest) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    stream.split(0, 2**127)

    loads.run()

    assert shown(loads)["Lag"] == {"shardId-000000000001": 0, "shardId-000000000002": 0}


def test_t30_empty_pages_are_followed(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    server.control.switch(empty_pages_after_iterator=3, empty_pages_while_behind=3)
    loads.sql(create(stream))

    loads.run()

    assert ids(loads) == [1]


def test_t67_more_empty_pages_than_an_epoch_reads_are_passed_once(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    server.control.switch(empty_pages_after_iterator=30)
    loads.sql(create(stream, properties={"max_batch_interval": "1"}))
    server.control.forget_requests()

    loads.run()

    assert ids(loads) == [1]
    assert len(server.control.requests("GetShardIterator")) == 1


def test_expired_iterators_are_opened_again(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    with supervised(loads) as supervisor:
        rounds_until(supervisor, idle)
        server.control.expire_iterators()
        put(stream, 2)
        rounds_until(supervisor, lambda looks: looks[0].state.cumulative.rows_loaded == 2)

    assert ids(loads) == [1, 2]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("ProvisionedThroughputExceededException", 400),
        ("LimitExceededException", 400),
        ("KMSThrottlingException", 400),
        ("InternalFailure", 500),
    ],
)
def test_what_heals_does_not_fail_an_epoch(
    loads: Node, server: KinesisServer, stream: StreamUnderTest, *, code: str, status: int
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    server.control.inject("*", code, status=status, times=4)

    loads.run()

    assert ids(loads) == [1]
    assert shown(loads)["Statistic"]["abortedTaskNum"] == 0


def test_t66_a_record_that_was_loaded_may_be_trimmed(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    server.control.trim(stream.name, FIRST)
    put(stream, 2)

    loads.run()

    assert ids(loads) == [1, 2]


def test_t66_a_quiet_shard_is_no_gap(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    server.control.trim(stream.name, FIRST)
    for _ in range(3):
        server.control.move_clock(timedelta(hours=20))
        loads.run()
    put(stream, 2)

    loads.run()

    assert ids(loads) == [1, 2]


def test_t66_records_that_were_trimmed_unread_pause_the_load_with_both_times(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    tip_at = server.control.now()
    put(stream, 2)
    server.control.move_clock(timedelta(hours=25))
    server.control.trim(stream.name, FIRST)
    oldest = server.control.now() - timedelta(hours=24)
    put(stream, 3)

    loads.run()

    assert ids(loads) == [1]
    reason = shown(loads)["ReasonOfStateChanged"]
    assert reason.startswith(
        f"CANNOT_RESUME_ERR: records of shard {FIRST} may have been trimmed before they were "
        "read: all that arrived until "
    )
    assert "the stream keeps nothing from before " in reason
    loaded_until, kept_from = times_in(reason)[:2]
    assert abs(loaded_until - tip_at) < timedelta(minutes=1)
    assert abs(kept_from - oldest) < timedelta(minutes=1)


def test_t66_a_time_that_lies_before_what_is_kept_pauses_the_load(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream, property__kinesis_default_pos="LATEST"))
    put(stream, 1)
    server.control.move_clock(timedelta(hours=25))
    server.control.trim(stream.name, FIRST)
    put(stream, 2)

    loads.run()

    assert ids(loads) == []
    assert shown(loads)["ReasonOfStateChanged"].startswith("CANNOT_RESUME_ERR")


def test_t66_whoever_says_so_goes_on_with_what_the_stream_holds(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream))
    loads.run()
    put(stream, 1)
    server.control.move_clock(timedelta(hours=25))
    server.control.trim(stream.name, FIRST)
    put(stream, 2)
    loads.run()
    before = shown(loads)["State"]

    loads.sql(
        "ALTER ROUTINE LOAD FOR r FROM KINESIS('property.kinesis_default_pos'='TRIM_HORIZON')"
    )
    loads.sql("RESUME ROUTINE LOAD FOR r")
    loads.run()

    assert (before, ids(loads)) == ("PAUSED", [2])


def test_a_lag_that_nears_what_is_kept_is_told(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1, 2)
    loads.sql(create(stream))
    server.control.move_clock(timedelta(hours=23))

    crash_at(loads, CrashPoint.EPOCH_STARTED)

    assert shown(loads.restart())["OtherMsg"] == (
        f"shard {FIRST} lags 23 h 0 min; retention is 1 d 0 h: unread records will expire"
    )


def test_a_paused_load_tells_when_what_comes_may_soon_be_lost(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    loads.sql("PAUSE ROUTINE LOAD FOR r")
    before = shown(loads)["OtherMsg"]

    assert isinstance(loads.clock, MovedClock)
    loads.clock.move(hours=23)

    assert before == ""
    assert shown(loads)["OtherMsg"].startswith(f"shard {FIRST} may lag 23 h 0 min")


@pytest.mark.parametrize(
    "answer",
    [
        "{}",
        '{"Records": [], "MillisBehindLatest": 0}',
        '{"Records": [], "NextShardIterator": "x"}',
    ],
)
def test_t69_an_answer_that_lacks_something_is_asked_for_again(
    loads: Node, server: KinesisServer, stream: StreamUnderTest, *, answer: str
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    server.control.inject_body("GetRecords", answer, times=2)

    loads.run()

    assert ids(loads) == [1]
    assert shards(loads)["0"][0] == "open"


def test_t69_a_stream_that_is_deleted_ends_no_shard(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    stream.delete()

    reason = pause_reason(loads)

    assert reason.startswith(f'GET_REMOTE_DATA_ERROR: stream "{stream.name}" at http://')
    assert shards(loads)["0"][0] == "open"


def test_t70_a_stream_that_was_made_again_pauses_the_load(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    stream.recreate()
    put(stream, 2)

    loads.run()

    assert ids(loads) == [1]
    assert shown(loads)["State"] == "PAUSED"
    assert shown(loads)["ReasonOfStateChanged"].startswith(
        f'STREAM_CHANGED_ERR: stream "{stream.name}" was made at '
    )


def test_t73_a_shard_that_wakes_up_is_not_throttled(
    open_node: OpenNode, server: KinesisServer, stream: StreamUnderTest
) -> None:
    node = open_node(read_interval=READ_INTERVAL)
    node.sql(f"{CREATE_TABLE}; {create(stream, properties={'max_batch_interval': '1'})}")
    server.control.limit_as_aws()
    with supervised(node) as supervisor:
        rounds_until(supervisor, idle)
        for number in range(5):
            stream.put(row(number) + b" " * 300_000)
        rounds_until(supervisor, lambda looks: looks[0].state.cumulative.rows_loaded == 5)

    assert [one.code for one in server.control.requests() if one.code] == []


def test_t74_a_page_that_was_not_taken_whole_is_not_caught_up(
    loads: Node, stream: StreamUnderTest
) -> None:
    stream.put(packed(sub(b"bad"), *(sub(row(number)) for number in range(9))))
    loads.sql(create(stream, properties={"max_batch_rows": "3"}))
    loads.run()
    before = shown(loads)

    loads.sql("RESUME ROUTINE LOAD FOR r")
    loads.run()

    assert (before["State"], before["Lag"]) == ("PAUSED", {FIRST: -1})
    assert before["Statistic"]["maxMillisBehindLatest"] == -1
    assert ids(loads) == list(range(9))
    assert shown(loads)["Lag"] == {FIRST: 0}


def test_t81_a_token_that_expires_while_a_task_reads_is_renewed(
    open_node: OpenNode, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1, 2, 3)
    expiring = Failing(
        lambda: server.control.inject("GetRecords", "ExpiredTokenException"), times=1
    )
    node = open_node(clock=MovedClock(), read_interval=BLINK, work=expiring)
    node.sql(f"{CREATE_TABLE}; {create(stream)}")

    node.run()

    assert ids(node) == [1, 2, 3]
    assert expiring.calls == 1
    assert attempts(node, "r") == [(1, 1, "COMMITTED")]


def test_t81_keys_that_stay_expired_pause_the_load_until_others_are_given(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql("CREATE SECRET k ('aws.access_key' = 'old', 'aws.secret_key' = 'old')")
    text = create(stream).replace("'aws.access_key' = 'mine'", "'aws.access_key' = SECRET 'k'")
    loads.sql(text.replace("'aws.secret_key' = 'mine'", "'aws.secret_key' = SECRET 'k'"))
    server.control.refuse("old")

    reason = pause_reason(loads)
    loads.sql("ALTER SECRET k ('aws.access_key' = 'new')")
    pass_time(loads)
    loads.run()

    assert "ExpiredTokenException" in reason
    assert ids(loads) == [1]


@pytest.mark.parametrize(
    ("code", "message", "told"),
    [
        ("KMSDisabledException", "", "KMSDisabledException (HTTP 400)"),
        (
            "InvalidSignatureException",
            "Signature expired: 20261116T100000Z is now earlier than 20261116T101000Z",
            "This clock is wrong: it signed at 20261116T100000Z, "
            "the service allows 20261116T101000Z",
        ),
        ("AccessDeniedException", "", "AccessDeniedException (HTTP 400)"),
    ],
)
def test_t84_a_load_that_is_refused_says_why_and_resumes_by_itself(
    loads: Node,
    server: KinesisServer,
    stream: StreamUnderTest,
    *,
    code: str,
    message: str,
    told: str,
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    server.control.inject("GetRecords", code, message=message, times=100)

    reason = pause_reason(loads)
    server.control.heal()
    pass_time(loads)
    loads.run()

    assert reason.startswith(
        f'GET_REMOTE_DATA_ERROR: stream "{stream.name}" at {server.endpoint} refused '
        "kinesis:GetRecords"
    )
    assert told in reason
    assert ids(loads) == [1]
