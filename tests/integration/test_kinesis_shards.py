"""A shard is read up to the limits of an epoch; the next epoch continues at its end."""

from datetime import timedelta

import pytest

from penstock.model.split import After, At, AtTime, End, Horizon, Position, ReadLimits
from penstock.sources.kinesis.client import Response, Retries, StreamAccess, StreamClient
from penstock.sources.kinesis.kind import KinesisOptions
from penstock.sources.kinesis.reading import READ_INTERVAL, ShardPages, ShardReading
from penstock.sources.kinesis.shards import ShardOutcome
from tests.integration.driving import MovedClock
from tests.integration.kinesis_streams import access, pages_of, retries
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import StreamUnderTest
from tests.unit.sources.kinesis.aggregates import packed
from tests.unit.sources.kinesis.test_records import sub

__all__ = ["access", "retries"]
pytestmark = pytest.mark.integration

PLENTY = ReadLimits(
    records=1_000, size_bytes=2**30, duration=timedelta(minutes=1), interval=READ_INTERVAL
)


def read(
    access: StreamAccess,
    retries: Retries,
    position: Position,
    *,
    limits: ReadLimits = PLENTY,
    iterator: str | None = None,
) -> tuple[list[bytes], ShardOutcome]:
    """Read a shard once; return its records and the outcome."""
    pages = pages_of(access, retries, position, iterator=iterator)
    reading = reading_of(pages, limits)
    return [item.record.data for item in reading.items()], reading.outcome


def reading_of(pages: ShardPages, limits: ReadLimits) -> ShardReading:
    options = KinesisOptions(region="us-east-1", stream="s")
    return ShardReading(pages, limits=limits, options=options, hash_keys=None)


def few(records: int) -> ReadLimits:
    return ReadLimits(
        records=records, size_bytes=2**30, duration=timedelta(minutes=1), interval=READ_INTERVAL
    )


def test_a_shard_is_read_to_its_tip(
    stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    numbers = stream.put_all(b"0", b"1")

    found, outcome = read(access, retries, Horizon())

    assert found == [b"0", b"1"]
    assert (outcome.position, outcome.lag) == (After(value=numbers[-1]), timedelta(0))


@pytest.mark.parametrize("page", [2, 10])
def test_t21_records_of_a_page_beyond_the_limit_are_read_next(
    stream: StreamUnderTest,
    access: StreamAccess,
    retries: Retries,
    monkeypatch: pytest.MonkeyPatch,
    *,
    page: int,
) -> None:
    stream.put_all(*(str(number).encode() for number in range(10)))
    # The server can return more records than the limit of the request.
    send_once = StreamClient.send_once

    def send(client: StreamClient, operation: str, **given: object) -> Response:
        limit = {"Limit": page} if "Limit" in given else {}
        return send_once(client, operation, **{**given, **limit})

    monkeypatch.setattr(StreamClient, "send_once", send)

    first, outcome = read(access, retries, Horizon(), limits=few(3))
    second, _ = read(access, retries, outcome.position)

    assert first == [b"0", b"1", b"2"]
    assert first + second == [str(number).encode() for number in range(10)]


def test_t74_the_lag_of_a_partly_read_page_is_ignored(
    stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.put(packed(sub(b"0"), sub(b"1"), sub(b"2")))

    first, outcome = read(access, retries, Horizon(), limits=few(2))
    second, caught_up = read(access, retries, outcome.position)

    assert (first, outcome.lag, outcome.iterator) == ([b"0", b"1"], None, None)
    assert (second, caught_up.lag) == ([b"2"], timedelta(0))


def test_the_record_that_exceeds_the_byte_limit_is_read(
    stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.put_all(b"12345", b"6789", b"x")
    limits = ReadLimits(
        records=100, size_bytes=6, duration=timedelta(minutes=1), interval=READ_INTERVAL
    )

    found, outcome = read(access, retries, Horizon(), limits=limits)

    assert found == [b"12345", b"6789"]
    assert read(access, retries, outcome.position)[0] == [b"x"]


class SlowClock(MovedClock):
    """A clock on which every call takes a minute."""

    def monotonic(self) -> float:
        self._delays = getattr(self, "_delays", 0) + 1
        return 60.0 * self._delays


@pytest.mark.parametrize("kind", ["at", "time"])
def test_t19_reading_no_record_does_not_move_the_position(
    server: KinesisServer,
    stream: StreamUnderTest,
    access: StreamAccess,
    *,
    kind: str,
) -> None:
    before = AtTime(at=server.control.now())
    number = stream.put(b"x")
    start = At(value=number) if kind == "at" else before
    server.control.switch(empty_pages_after_iterator=100)
    limits = ReadLimits(
        records=100, size_bytes=100, duration=timedelta(minutes=10), interval=READ_INTERVAL
    )
    reading = reading_of(pages_of(access, Retries(clock=SlowClock()), start), limits)

    found = list(reading.items())

    assert (found, reading.outcome.position) == ([], start)
    assert len(server.control.requests("GetRecords")) > 1


def test_t67_reading_continues_with_the_iterator_of_the_last_empty_page(
    server: KinesisServer, stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.put(b"x")
    server.control.switch(empty_pages_after_iterator=4)
    pages = pages_of(access, retries, Horizon())
    for _ in range(3):
        assert not pages.next(limit=1).records

    found, _ = read(access, retries, Horizon(), iterator=pages.iterator)

    assert found == [b"x"]
    assert len(server.control.requests("GetShardIterator")) == 1


def test_a_finished_shard_has_an_end_position_and_its_children(
    stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.put(b"x")
    stream.split(0, 2**127)

    found, outcome = read(access, retries, Horizon())

    assert (found, outcome.position) == ([b"x"], End())
    assert len(outcome.children) == 2


def test_t68_a_shard_that_ends_without_records_has_an_end_position(
    stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.split(0, 2**127)

    found, outcome = read(access, retries, Horizon())

    assert (found, outcome.position) == ([], End())


def test_the_end_is_not_reached_while_records_of_the_last_page_are_unread(
    stream: StreamUnderTest, access: StreamAccess, retries: Retries
) -> None:
    stream.put(packed(sub(b"0"), sub(b"1")))
    stream.split(0, 2**127)

    first, outcome = read(access, retries, Horizon(), limits=few(1))
    second, ended = read(access, retries, outcome.position)

    assert (first, second) == ([b"0"], [b"1"])
    assert isinstance(outcome.position, After)
    assert ended.position == End()


class StillClock(MovedClock):
    """A clock that stops."""

    def monotonic(self) -> float:
        return 0.0


def test_a_shard_gets_at_most_five_requests_per_second(access: StreamAccess) -> None:
    clock = StillClock()
    reading = reading_of(pages_of(access, Retries(clock=clock), Horizon()), PLENTY)

    reading._next_page()
    reading._next_page()

    # The driver may have sent a request just before.
    assert list(clock.waits_by_thread.values()) == [[READ_INTERVAL, READ_INTERVAL]]


def test_all_records_of_a_page_are_read_even_if_time_is_up(
    stream: StreamUnderTest, access: StreamAccess
) -> None:
    stream.put_all(b"1", b"2", b"3")
    pages = pages_of(access, Retries(clock=SlowClock()), Horizon())
    limits = ReadLimits(
        records=100, size_bytes=100, duration=timedelta(minutes=3), interval=READ_INTERVAL
    )

    reading = reading_of(pages, limits)

    assert [item.record.data for item in reading.items()] == [b"1", b"2", b"3"]
