"""How records and shards go."""

import pytest

from tests.unit.testing.kinesis.asking import Asking, RefusedError, texts


@pytest.fixture
def trimming(kinesis: Asking) -> Asking:
    kinesis.switch(retention_trims=True)
    return kinesis


def test_without_a_word_records_stay(kinesis: Asking) -> None:
    kinesis.put("one")

    kinesis.later(days=400)

    assert kinesis.pages(1) == [["one"]]


def test_records_go_when_they_are_older_than_the_retention(trimming: Asking) -> None:
    trimming.put("one")
    trimming.later(hours=1)
    trimming.put("two")

    trimming.later(hours=23, milliseconds=1)

    assert trimming.pages(1) == [["two"]]


def test_a_longer_retention_keeps_records(trimming: Asking) -> None:
    trimming.put("one")
    trimming.ask("IncreaseStreamRetentionPeriod", StreamName="s", RetentionPeriodHours=48)

    trimming.later(hours=47)

    assert trimming.pages(1) == [["one"]]


def test_a_trimmed_position_silently_begins_at_the_horizon(trimming: Asking) -> None:
    first, _ = trimming.put("one", "two")
    trimming.later(hours=25)
    trimming.put("three")

    iterator = trimming.iterator("AT_SEQUENCE_NUMBER", StartingSequenceNumber=first)

    assert texts(trimming.page(iterator)) == ["three"]


def test_a_page_is_measured_right_behind_the_horizon(kinesis: Asking) -> None:
    kinesis.order("preload", stream="s", count=21, size_bytes=2**20)
    kinesis.order("trim", stream="s", shard="shardId-000000000000", count=5)

    pages = kinesis.pages(2)

    assert [len(page) for page in pages] == [10, 6]


def test_a_closed_shard_goes_when_it_is_wholly_trimmed(trimming: Asking) -> None:
    trimming.put("one")
    trimming.split()
    trimming.later(hours=24)
    before = trimming.numbers()

    trimming.later(milliseconds=1)

    assert before == [0, 1, 2]
    assert trimming.numbers() == [1, 2]
    with pytest.raises(RefusedError, match="ResourceNotFoundException"):
        trimming.iterator(shard=0)


def test_an_open_shard_stays_without_records(trimming: Asking) -> None:
    trimming.put("one")

    trimming.later(days=2)

    assert trimming.numbers() == [0]
    assert trimming.pages(1) == [[]]


def test_records_of_one_shard_go_on_demand(kinesis: Asking) -> None:
    kinesis.put("one", "two", "three")

    trimmed = kinesis.order("trim", stream="s", shard="shardId-000000000000", count=2)

    assert trimmed == 2
    assert kinesis.pages(1) == [["three"]]


def test_a_closed_shard_goes_on_demand(kinesis: Asking) -> None:
    kinesis.put("one")
    kinesis.split()

    kinesis.order("trim", stream="s", shard="shardId-000000000000")

    assert kinesis.numbers() == [1, 2]


def test_sequence_numbers_grow_on_after_everything_was_trimmed(trimming: Asking) -> None:
    (old,) = trimming.put("one")
    trimming.later(days=2)

    (new,) = trimming.put("two")

    assert int(new) > int(old)
    iterator = trimming.iterator("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=old)
    assert texts(trimming.page(iterator)) == ["two"]
