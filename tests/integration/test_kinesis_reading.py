"""Requests to a stream and its shards: counts, retries, refusals and ends."""

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
    """Read to the end of the shard, or to its tip if the tip comes first."""
    found: list[Page] = []
    for _ in range(most):
        found.append(pages.next(limit=100))
        if found[-1].ended or not (to_end or found[-1].lag):
            return found
    raise AssertionError(f"neither tip nor end within {most} pages")


def records_of(pages: ShardPages) -> list[bytes]:
    return [one for page in all_pages(pages) for one in data(page)]


def test_records_have_their_metadata(
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
    ids=["horizon", "t22 at", "t19 after", "after a part"],
)
def test_reading_starts_at_a_position(
    stream: StreamUnderTest,
    access: StreamAccess,
    retries: Retries,
    *,
    position: Callable[[list[str]], Position],
    found: list[bytes],
) -> None:
    numbers = stream.put_all(b"0", b"1", b"2")

    assert records_of(reading(access, retries, position(numbers))) == found


def test_t75_a_time_keeps_its_milliseconds(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    started_at = server.control.now()
    stream.put(b"early")
    server.control.move_clock(timedelta(milliseconds=600))
    stream.put(b"late")

    found = records_of(
        reading(access, retries, AtTime(at=started_at + timedelta(milliseconds=500)))
    )

    assert found == [b"late"]


def test_t30_empty_pages_are_followed_by_their_next_iterators(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    server.control.switch(empty_pages_after_iterator=3)
    stream.put(b"x")

    found = all_pages(reading(access, retries))

    assert [data(page) for page in found] == [[], [], [], [b"x"]]
    assert len(server.control.requests("GetShardIterator")) == 1


def test_an_expired_iterator_is_opened_again_after_the_last_record(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.put_all(b"0", b"1", b"2")
    pages = reading(access, retries)
    first = pages.next(limit=1)
    server.control.expire_iterators()

    assert data(first) == [b"0"]
    assert records_of(pages) == [b"1", b"2"]


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
def test_a_temporary_error_is_retried_with_growing_backoff(
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

    assert records_of(reading(access, retries)) == [b"x"]

    (waits,) = retries.clock.waits_by_thread.values()
    assert [wait / timedelta(milliseconds=1) for wait in waits] == [100, 200, 400]


def test_the_number_of_retries_is_limited(server: KinesisServer, access: StreamAccess) -> None:
    server.control.inject("GetRecords", "InternalFailure", status=500, times=1_000)
    short = Retries(clock=MovedClock(), give_up_after=timedelta(seconds=0))

    with pytest.raises(StreamError) as refused:
        reading(access, short).next(limit=1)

    assert refused.value.code is Code.GET_REMOTE_DATA_ERROR
    assert_names(refused.value.detail, "InternalFailure", "500")


def test_t79_every_request_is_counted_including_retries(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.put(b"x")
    server.control.clear_requests()
    server.control.inject("GetRecords", "InternalFailure", status=500, times=2)
    client = StreamClient(access, retries)

    records_of(reading(access, retries, client=client))

    assert client.requests == len(server.control.requests()) == 4


def test_t81_an_expired_token_is_renewed_and_reading_continues(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.put_all(b"0", b"1")
    pages = reading(access, retries)
    first = pages.next(limit=1)
    server.control.inject("GetRecords", "ExpiredTokenException")

    assert data(first) + records_of(pages) == [b"0", b"1"]


def test_t81_a_token_that_stays_expired_is_an_error(
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


def test_t69_a_response_without_an_iterator_is_not_the_end_of_a_shard(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.put(b"x")
    server.control.inject_body("GetRecords", "{}", times=2)

    (page,) = all_pages(reading(access, retries))

    assert data(page) == [b"x"]
    assert not page.ended


def test_t69_malformed_responses_are_an_error_after_all_retries(
    server: KinesisServer, access: StreamAccess, retries: Retries
) -> None:
    server.control.inject_body("GetRecords", '{"Records": []}', times=100)

    with raises(StreamError, Code.GET_REMOTE_DATA_ERROR, "5"):
        reading(access, retries).next(limit=1)


def test_t69_a_closed_shard_does_not_end_with_a_response_without_lag(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.put_all(b"1", b"2")
    server.control.inject_body("GetRecords", '{"Records": []}')

    page = reading(access, retries, closed=True).next(limit=10)

    assert data(page) == [b"1", b"2"]


def test_t69_an_end_without_children_is_accepted_for_a_shard_listed_as_closed(
    server: KinesisServer, access: StreamAccess, retries: Retries
) -> None:
    server.control.inject_body("GetRecords", '{"Records": [], "MillisBehindLatest": 0}')

    assert reading(access, retries, closed=True).next(limit=1).ended


def test_t69_a_deleted_stream_does_not_end_its_shards(
    stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    pages = reading(access, retries)
    pages.next(limit=1)
    stream.delete()

    with pytest.raises(StreamError) as refused:
        pages.next(limit=1)

    assert refused.value.kind is Kind.NOT_FOUND


def test_t84_a_wrong_clock_is_reported_with_both_times(
    server: KinesisServer, access: StreamAccess, retries: Retries
) -> None:
    message = "Signature expired: 20261116T100000Z is now earlier than 20261116T101000Z"
    server.control.inject("GetRecords", "InvalidSignatureException", message=message)

    with pytest.raises(StreamError) as refused:
        reading(access, retries).next(limit=1)

    assert_names(refused.value.detail, "20261116T100000Z", "20261116T101000Z")


def test_t84_a_missing_permission_is_reported_with_the_action(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    server.control.inject("GetShardIterator", "AccessDeniedException")

    with pytest.raises(StreamError) as refused:
        reading(access, retries).next(limit=1)

    assert_names(
        refused.value.message, f'"{stream.name}"', server.endpoint, "kinesis:GetShardIterator"
    )
    assert_names(refused.value.hint, "kinesis:GetShardIterator")


def test_t84_a_kms_error_is_external_with_a_hint(
    server: KinesisServer, access: StreamAccess, retries: Retries
) -> None:
    server.control.inject("GetRecords", "KMSDisabledException")

    with pytest.raises(ExternalError) as refused:
        reading(access, retries).next(limit=1)

    assert_names(refused.value.hint, "KMS")


def test_an_unreachable_server_is_reported_with_its_address() -> None:
    unreachable = access_to("s", "http://127.0.0.1:9")
    short = Retries(clock=MovedClock(), give_up_after=timedelta(0))

    with raises(StreamError, Code.GET_REMOTE_DATA_ERROR, '"s"', "http://127.0.0.1:9"):
        reading(unreachable, short).next(limit=1)


def test_t20_all_pages_of_a_listing_are_read(server: KinesisServer, retries: Retries) -> None:
    with kinesis_client(server.endpoint) as client:
        stream = new_stream(client, shards=7)
    access = access_to(stream.name, server.endpoint, page_shards_max=2)

    shards = list_shards(StreamClient(access, retries))

    assert [shard.id for shard in shards] == [f"shardId-{n:012d}" for n in range(7)]
    assert shards[0].hash_keys is not None
    assert not shards[0].closed
    assert int(shards[0].first_sequence) > 0


def test_t20_a_listing_with_an_expired_token_starts_again(
    server: KinesisServer, retries: Retries
) -> None:
    with kinesis_client(server.endpoint) as client:
        stream = new_stream(client, shards=3)
    access = access_to(stream.name, server.endpoint, page_shards_max=2)
    client = StreamClient(access, retries)

    class ExpiringClient(StreamClient):
        def send_once(self, operation: str, **arguments: object):  # type: ignore[no-untyped-def] # noqa: ANN202
            if "NextToken" in arguments and self.requests == 1:
                server.control.expire_tokens()
            return super().send_once(operation, **arguments)

    assert len(list_shards(ExpiringClient(access, retries))) == 3
    assert len(list_shards(client)) == 3


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


def test_t72_a_stale_listing_is_returned_unchanged(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    server.control.switch(stale_listings=1, stale_listing=StaleListing.PARENT_OPEN)
    stream.split(0, 2**127)
    listed = partial(list_shards, StreamClient(access, retries))

    assert [len(listed()), len(listed())] == [1, 3]


def test_a_stream_description_has_the_time_of_its_server(
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
    assert records_of(reading(access, retries)) == [b"x"]
