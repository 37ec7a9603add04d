"""The five types of iterators, as AWS documents them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.servers.kinesis_clients import (
    INVALID,
    MIDDLE,
    UNKNOWN,
    StreamUnderTest,
    data_of,
    refusal,
    server_time,
)


def test_trim_horizon_starts_at_the_oldest_record(stream: StreamUnderTest) -> None:
    stream.put_all(b"one", b"two")

    assert stream.read("TRIM_HORIZON") == [b"one", b"two"]


def test_at_sequence_number_includes_the_record_and_after_does_not(
    stream: StreamUnderTest,
) -> None:
    _, second, _ = stream.put_all(b"one", b"two", b"three")

    at = stream.read("AT_SEQUENCE_NUMBER", StartingSequenceNumber=second)
    after = stream.read("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=second)

    assert at == [b"two", b"three"]
    assert after == [b"three"]


def test_an_iterator_after_the_last_record_returns_the_next_record(
    stream: StreamUnderTest,
) -> None:
    last = stream.put(b"one")
    iterator = stream.iterator("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=last)

    stream.put(b"two")

    assert data_of(stream.follow(iterator)) == [b"two"]


def test_the_starting_number_of_a_shard_is_a_valid_position(stream: StreamUnderTest) -> None:
    stream.put(b"one")
    first = stream.shards()[0]["SequenceNumberRange"]["StartingSequenceNumber"]

    assert stream.read("AT_SEQUENCE_NUMBER", StartingSequenceNumber=first) == [b"one"]


def test_latest_returns_only_later_records(stream: StreamUnderTest) -> None:
    stream.put(b"before")
    iterator = stream.iterator("LATEST")

    first = stream.follow(iterator)
    stream.put(b"later")
    second = stream.follow(first["NextShardIterator"])

    assert data_of(first) == []
    assert data_of(second) == [b"later"]


def test_a_timestamp_has_milliseconds(stream: StreamUnderTest) -> None:
    _, second, _ = stream.put_apart(b"one", b"two", b"three")

    at = stream.read("AT_TIMESTAMP", Timestamp=second)
    later = stream.read("AT_TIMESTAMP", Timestamp=second + timedelta(milliseconds=1))

    assert at == [b"two", b"three"]
    assert later == [b"three"]


def test_a_timestamp_after_the_last_record_returns_the_next_record(
    stream: StreamUnderTest,
) -> None:
    (only,) = stream.put_apart(b"one")
    iterator = stream.iterator("AT_TIMESTAMP", Timestamp=only + timedelta(milliseconds=1))

    stream.put(b"two")

    assert data_of(stream.follow(iterator)) == [b"two"]


def test_a_timestamp_before_the_stream_is_the_trim_horizon(stream: StreamUnderTest) -> None:
    stream.put(b"one")

    assert stream.read("AT_TIMESTAMP", Timestamp=datetime(2020, 1, 1, tzinfo=UTC)) == [b"one"]


def test_a_timestamp_in_the_future_is_refused(stream: StreamUnderTest) -> None:
    stream.put()
    soon = server_time(stream.client) + timedelta(minutes=5)

    assert refusal(lambda: stream.iterator("AT_TIMESTAMP", Timestamp=soon)) == INVALID


def test_a_timestamp_in_the_future_is_refused_on_an_empty_shard(
    stream: StreamUnderTest, expected: Callable[[str], str]
) -> None:
    soon = server_time(stream.client) + timedelta(minutes=5)

    refused = refusal(lambda: stream.iterator("AT_TIMESTAMP", Timestamp=soon))

    assert refused == expected(INVALID)


def test_a_sequence_number_of_another_shard_is_refused(
    two_shards: StreamUnderTest, expected: Callable[[str], str]
) -> None:
    other = two_shards.put(hash_key=0)
    two_shards.put(hash_key=MIDDLE)

    refused = refusal(
        lambda: two_shards.iterator(
            "AFTER_SEQUENCE_NUMBER", shard=1, StartingSequenceNumber=other
        )
    )

    assert refused == expected(INVALID)


@pytest.mark.parametrize(
    "kind", ["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER", "AT_TIMESTAMP"]
)
def test_an_iterator_type_without_its_parameter_is_refused(
    stream: StreamUnderTest, kind: str
) -> None:
    assert refusal(lambda: stream.iterator(kind)) == INVALID


def test_an_unknown_shard_is_not_found(stream: StreamUnderTest) -> None:
    assert refusal(lambda: stream.iterator(shard=7)) == UNKNOWN


def test_an_invalid_iterator_is_refused(
    stream: StreamUnderTest, expected: Callable[[str], str]
) -> None:
    assert refusal(lambda: stream.follow("garbage")) == expected(INVALID)


def test_a_sequence_number_of_a_deleted_stream_is_refused(
    stream: StreamUnderTest, expected: Callable[[str], str]
) -> None:
    old = stream.put(b"old")
    stream.recreate()
    stream.put(b"new")

    refused = refusal(
        lambda: stream.iterator("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=old)
    )

    assert refused == expected(INVALID)
