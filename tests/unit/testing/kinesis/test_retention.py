"""Retention and trimming of records and shards."""

import pytest

from tests.unit.testing.kinesis.in_process import InProcessKinesis, ResponseError, texts


@pytest.fixture
def trimming(kinesis: InProcessKinesis) -> InProcessKinesis:
    kinesis.switch(retention_trims=True)
    return kinesis


def test_records_do_not_expire_by_default(kinesis: InProcessKinesis) -> None:
    kinesis.put("one")

    kinesis.advance(days=400)

    assert kinesis.pages(1) == [["one"]]


def test_records_older_than_the_retention_are_trimmed(trimming: InProcessKinesis) -> None:
    trimming.put("one")
    trimming.advance(hours=1)
    trimming.put("two")

    trimming.advance(hours=23, milliseconds=1)

    assert trimming.pages(1) == [["two"]]


def test_a_longer_retention_keeps_records_longer(trimming: InProcessKinesis) -> None:
    trimming.put("one")
    trimming.send("IncreaseStreamRetentionPeriod", StreamName="s", RetentionPeriodHours=48)

    trimming.advance(hours=47)

    assert trimming.pages(1) == [["one"]]


def test_an_iterator_at_a_trimmed_number_starts_at_the_horizon_without_an_error(
    trimming: InProcessKinesis,
) -> None:
    first, _ = trimming.put("one", "two")
    trimming.advance(hours=25)
    trimming.put("three")

    iterator = trimming.iterator("AT_SEQUENCE_NUMBER", StartingSequenceNumber=first)

    assert texts(trimming.page(iterator)) == ["three"]


def test_the_size_of_a_page_is_right_after_records_were_trimmed(
    kinesis: InProcessKinesis,
) -> None:
    kinesis.control("preload", stream="s", count=21, size_bytes=2**20)
    kinesis.control("trim", stream="s", shard="shardId-000000000000", count=5)

    pages = kinesis.pages(2)

    assert [len(page) for page in pages] == [10, 6]


def test_a_closed_shard_is_deleted_when_all_its_records_are_trimmed(
    trimming: InProcessKinesis,
) -> None:
    trimming.put("one")
    trimming.split()
    trimming.advance(hours=24)
    before = trimming.numbers()

    trimming.advance(milliseconds=1)

    assert before == [0, 1, 2]
    assert trimming.numbers() == [1, 2]
    with pytest.raises(ResponseError, match="ResourceNotFoundException"):
        trimming.iterator(shard=0)


def test_an_open_shard_without_records_is_not_deleted(trimming: InProcessKinesis) -> None:
    trimming.put("one")

    trimming.advance(days=2)

    assert trimming.numbers() == [0]
    assert trimming.pages(1) == [[]]


def test_records_of_one_shard_can_be_trimmed_on_demand(kinesis: InProcessKinesis) -> None:
    kinesis.put("one", "two", "three")

    trimmed = kinesis.control("trim", stream="s", shard="shardId-000000000000", count=2)

    assert trimmed == 2
    assert kinesis.pages(1) == [["three"]]


def test_trimming_a_closed_shard_on_demand_deletes_it(kinesis: InProcessKinesis) -> None:
    kinesis.put("one")
    kinesis.split()

    kinesis.control("trim", stream="s", shard="shardId-000000000000")

    assert kinesis.numbers() == [1, 2]


def test_sequence_numbers_still_increase_after_all_records_were_trimmed(
    trimming: InProcessKinesis,
) -> None:
    (old,) = trimming.put("one")
    trimming.advance(days=2)

    (new,) = trimming.put("two")

    assert int(new) > int(old)
    iterator = trimming.iterator("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=old)
    assert texts(trimming.page(iterator)) == ["two"]
