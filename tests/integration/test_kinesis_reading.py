"""Ask a stream and read its shards: what is counted, repeated, refused, and an end."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from penstock.errors import Code, ExternalError
from penstock.model.split import After, At, AtTime, Horizon, Position
from penstock.sources.kinesis.client import (
    Kind,
    Retries,
    StreamAccess,
    StreamClient,
    StreamError,
)
from penstock.sources.kinesis.reading import Page, ShardPages, describe, list_shards
from tests.error_values import assert_names, raises
from tests.integration.driving import MovedClock
from tests.integration.kinesis_streams import SHARD, access, access_to, pages_of, retries
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis.stream import StaleListing
from tests.servers.kinesis.switches import ShardEnd
from tests.servers.kinesis_clients import REGION, StreamUnderTest, kinesis_client, new_stream

__all__ = ["access", "retries"]
pytestmark = pytest.mark.integration


def reading(
    access: StreamAccess,
    retries: Retries,
    position: Position | None = None,
    *,
    client: StreamClient | None = None,
    closed: bool = False,
) -> ShardPages:
    return pages_of(access, retries, position or Horizon(), client=client, closed=closed)


def data(page: Page) -> list[bytes]:
    return [record.data for record in page.records]


def all_pages(pages: ShardPages, *, to_end: bool = False, most: int = 20) -> list[Page]:
    """Read until the end, or until the tip if that comes first."""
    found: list[Page] = []
    for _ in range(most):
        found.append(pages.next(limit=100))
        if found[-1].ended or not (to_end or found[-1].lag):
            return found
    raise AssertionError(f"neither tip nor end within {most} pages")


def taken(pages: ShardPages) -> list[bytes]:
    return [one for page in all_pages(pages) for one in data(page)]


def test_records_come_with_what_is_known_of_them(
    stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    sequence = stream.put(b"x", key="a key")

    (record,) = reading(access, retries).next(limit=10).records

    assert (record.sequence, record.partition_key, record.data) == (sequence, "a key", b"x")
    assert abs(record.arrived_at - datetime.now(UTC).timestamp()) < 60


@pytest.mark.parametrize(
    ("position", "found"),
    [
        (lambda _: Horizon(), [b"0", b"1", b"2"]),
        (lambda numbers: At(value=numbers[1]), [b"1", b"2"]),
        (lambda numbers: After(value=numbers[1]), [b"2"]),
        (lambda numbers: After(value=numbers[1], sub=0), [b"1", b"2"]),
    ],
    ids=["horizon", "t22 at", "t19 after", "behind a part"],
)
def test_reading_begins_at_a_position(
    stream: StreamUnderTest,
    access: StreamAccess,
    retries: Retries,
    *,
    position: Callable[[list[str]], Position],
    found: list[bytes],
) -> None:
    numbers = stream.put_all(b"0", b"1", b"2")

    assert taken(reading(access, retries, position(numbers))) == found


def test_t75_a_time_keeps_its_milliseconds(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    begun = server.control.now()
    stream.put(b"early")
    server.control.move_clock(timedelta(milliseconds=600))
    stream.put(b"late")

    found = taken(reading(access, retries, AtTime(at=begun + timedelta(milliseconds=500))))

    assert found == [b"late"]


def test_t30_empty_pages_are_followed_with_the_iterators_they_give(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    server.control.switch(empty_pages_after_iterator=3)
    stream.put(b"x")

    found = all_pages(reading(access, retries))

    assert [data(page) for page in found] == [[], [], [], [b"x"]]
    assert len(server.control.requests("GetShardIterator")) == 1


def test_an_expired_iterator_is_opened_again_behind_the_last_record(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.put_all(b"0", b"1", b"2")
    pages = reading(access, retries)
    first = pages.next(limit=1)
    server.control.expire_iterators()

    assert data(first) == [b"0"]
    assert taken(pages) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("ProvisionedThroughputExceededException", 400),
        ("LimitExceededException", 400),
        ("KMSThrottlingException", 400),
        ("InternalFailure", 500),
        ("ServiceUnavailable", 503),
    ],
)
def test_what_heals_is_asked_again_after_ever_longer_waits(
    server: KinesisServer,
    stream: StreamUnderTest,
    access: StreamAccess,
    retries: Retries,
    *,
    code: str,
    status: int,
) -> None:
    stream.put(b"x")
    server.control.inject("GetRecords", code, status=status, times=3)
    assert isinstance(retries.clock, MovedClock)

    assert taken(reading(access, retries)) == [b"x"]

    (waits,) = retries.clock.waits_by_thread.values()
    assert [wait / timedelta(milliseconds=1) for wait in waits] == [100, 200, 400]


def test_retries_end(server: KinesisServer, access: StreamAccess) -> None:
    server.control.inject("GetRecords", "InternalFailure", status=500, times=1_000)
    short = Retries(clock=MovedClock(), give_up_after=timedelta(seconds=0))

    with pytest.raises(StreamError) as refused:
        reading(access, short).next(limit=1)

    assert refused.value.code is Code.GET_REMOTE_DATA_ERROR
    assert_names(refused.value.detail, "InternalFailure", "500")


def test_t79_every_request_is_counted_and_none_is_repeated_in_secret(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.put(b"x")
    server.control.forget_requests()
    server.control.inject("GetRecords", "InternalFailure", status=500, times=2)
    client = StreamClient(access, retries)

    taken(reading(access, retries, client=client))

    assert client.requests == len(server.control.requests()) == 4


def test_t81_a_token_that_has_expired_is_renewed_and_reading_goes_on(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.put_all(b"0", b"1")
    pages = reading(access, retries)
    first = pages.next(limit=1)
    server.control.inject("GetRecords", "ExpiredTokenException")

    assert data(first) + taken(pages) == [b"0", b"1"]


def test_t81_a_token_that_stays_expired_is_refused(
    server: KinesisServer, access: StreamAccess, retries: Retries
) -> None:
    server.control.refuse("mine")

    with pytest.raises(StreamError) as refused:
        reading(access, retries).next(limit=1)

    assert refused.value.kind is Kind.EXPIRED_TOKEN


@pytest.mark.parametrize("shape", list(ShardEnd))
def test_t69_a_closed_shard_ends_with_its_children(
    server: KinesisServer,
    stream: StreamUnderTest,
    access: StreamAccess,
    retries: Retries,
    *,
    shape: ShardEnd,
) -> None:
    server.control.switch(shard_end=shape)
    stream.put(b"x")
    stream.split(0, 2**127)

    found = all_pages(reading(access, retries), to_end=True)

    assert [one for page in found for one in data(page)] == [b"x"]
    assert found[-1].ended
    assert [(child.id, child.parents) for child in found[-1].children] == [
        ("shardId-000000000001", (SHARD,)),
        ("shardId-000000000002", (SHARD,)),
    ]


def test_t69_an_answer_without_an_iterator_is_no_end(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.put(b"x")
    server.control.inject_body("GetRecords", "{}", times=2)

    (page,) = all_pages(reading(access, retries))

    assert data(page) == [b"x"]
    assert not page.ended


def test_t69_answers_that_are_none_are_an_error_in_the_end(
    server: KinesisServer, access: StreamAccess, retries: Retries
) -> None:
    server.control.inject_body("GetRecords", '{"Records": []}', times=100)

    with raises(StreamError, Code.GET_REMOTE_DATA_ERROR, "5"):
        reading(access, retries).next(limit=1)


def test_t69_a_closed_shard_does_not_end_with_an_answer_that_tells_no_lag(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.put_all(b"1", b"2")
    server.control.inject_body("GetRecords", '{"Records": []}')

    page = reading(access, retries, closed=True).next(limit=10)

    assert data(page) == [b"1", b"2"]


def test_t69_an_end_without_children_counts_for_a_shard_that_is_listed_as_closed(
    server: KinesisServer, access: StreamAccess, retries: Retries
) -> None:
    server.control.inject_body("GetRecords", '{"Records": [], "MillisBehindLatest": 0}')

    assert reading(access, retries, closed=True).next(limit=1).ended


def test_t69_a_stream_that_was_deleted_ends_no_shard(
    stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    pages = reading(access, retries)
    pages.next(limit=1)
    stream.delete()

    with pytest.raises(StreamError) as refused:
        pages.next(limit=1)

    assert refused.value.kind is Kind.NOT_FOUND


def test_t84_a_clock_that_is_wrong_is_told_with_both_times(
    server: KinesisServer, access: StreamAccess, retries: Retries
) -> None:
    message = "Signature expired: 20261116T100000Z is now earlier than 20261116T101000Z"
    server.control.inject("GetRecords", "InvalidSignatureException", message=message)

    with pytest.raises(StreamError) as refused:
        reading(access, retries).next(limit=1)

    assert_names(refused.value.detail, "20261116T100000Z", "20261116T101000Z")


def test_t84_a_missing_right_names_the_action(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    server.control.inject("GetShardIterator", "AccessDeniedException")

    with pytest.raises(StreamError) as refused:
        reading(access, retries).next(limit=1)

    assert_names(
        refused.value.message, f'"{stream.name}"', server.endpoint, "kinesis:GetShardIterator"
    )
    assert_names(refused.value.hint, "kinesis:GetShardIterator")


def test_t84_a_fault_of_kms_is_external_and_says_where_to_look(
    server: KinesisServer, access: StreamAccess, retries: Retries
) -> None:
    server.control.inject("GetRecords", "KMSDisabledException")

    with pytest.raises(ExternalError) as refused:
        reading(access, retries).next(limit=1)

    assert_names(refused.value.hint, "KMS")


def test_a_server_that_does_not_answer_is_named() -> None:
    away = access_to("s", "http://127.0.0.1:9")
    short = Retries(clock=MovedClock(), give_up_after=timedelta(0))

    with raises(StreamError, Code.GET_REMOTE_DATA_ERROR, '"s"', "http://127.0.0.1:9"):
        reading(away, short).next(limit=1)


def test_t20_all_pages_of_a_listing_are_read(server: KinesisServer, retries: Retries) -> None:
    with kinesis_client(server.endpoint) as client:
        stream = new_stream(client, shards=7)
    access = access_to(stream.name, server.endpoint, page_shards_max=2)

    shards = list_shards(StreamClient(access, retries))

    assert [shard.id for shard in shards] == [f"shardId-{n:012d}" for n in range(7)]
    assert shards[0].hash_keys is not None
    assert not shards[0].closed
    assert int(shards[0].begins) > 0


def test_t20_a_listing_whose_token_has_expired_begins_anew(
    server: KinesisServer, retries: Retries
) -> None:
    with kinesis_client(server.endpoint) as client:
        stream = new_stream(client, shards=3)
    access = access_to(stream.name, server.endpoint, page_shards_max=2)
    asked = StreamClient(access, retries)

    class Late(StreamClient):
        def send_once(self, operation: str, **arguments: object):  # type: ignore[no-untyped-def] # noqa: ANN202
            if "NextToken" in arguments and self.requests == 1:
                server.control.expire_tokens()
            return super().send_once(operation, **arguments)

    assert len(list_shards(Late(access, retries))) == 3
    assert len(list_shards(asked)) == 3


def test_t20_a_listing_without_shards_is_an_error(
    server: KinesisServer, access: StreamAccess, retries: Retries
) -> None:
    server.control.inject_body("ListShards", '{"Shards": []}')

    with raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, "no shards"):
        list_shards(StreamClient(access, retries))


def test_parents_and_ends_are_listed(
    stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.split(0, 2**127)
    stream.merge(1, 2)

    shards = list_shards(StreamClient(access, retries))

    assert [(shard.parents, shard.closed) for shard in shards] == [
        ((), True),
        ((SHARD,), True),
        ((SHARD,), True),
        (("shardId-000000000001", "shardId-000000000002"), False),
    ]


def test_t72_a_listing_that_is_late_is_what_it_is(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    server.control.switch(stale_listings=1, stale_listing=StaleListing.PARENT_OPEN)
    stream.split(0, 2**127)
    listed = partial(list_shards, StreamClient(access, retries))

    assert [len(listed()), len(listed())] == [1, 3]


def test_a_stream_is_described_with_the_time_of_its_server(
    server: KinesisServer, access: StreamAccess, retries: Retries
) -> None:
    server.control.move_clock(timedelta(hours=3))

    summary = describe(StreamClient(access, retries))

    assert summary.retention == timedelta(hours=24)
    assert summary.status == "ACTIVE"
    assert timedelta(hours=2) < summary.at - datetime.now(UTC) < timedelta(hours=4)


def test_t82_an_arn_names_the_stream_and_its_region(
    server: KinesisServer, stream: StreamUnderTest, retries: Retries
) -> None:
    stream.put(b"x")
    access = access_to(stream.name, server.endpoint, stream_arn=stream.arn, page_shards_max=1)

    shards = list_shards(StreamClient(access, retries))

    assert access.region == REGION
    assert [shard.id for shard in shards] == [SHARD]
    assert taken(reading(access, retries)) == [b"x"]
