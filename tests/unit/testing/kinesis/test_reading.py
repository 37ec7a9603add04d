"""Lag, empty pages, and the last page of a shard."""

import pytest

from tests.unit.testing.kinesis.in_process import MIDDLE, InProcessKinesis, ResponseError, texts


def test_the_lag_is_the_age_of_the_last_record_of_the_page(kinesis: InProcessKinesis) -> None:
    kinesis.put("one")
    kinesis.advance(seconds=7)
    kinesis.put("two")
    kinesis.advance(seconds=3)

    first = kinesis.page(kinesis.iterator(), Limit=1)
    second = kinesis.page(first["NextShardIterator"])

    assert first["MillisBehindLatest"] == 10_000
    assert second["MillisBehindLatest"] == 0


def test_arrival_times_and_timestamps_have_milliseconds(kinesis: InProcessKinesis) -> None:
    kinesis.put("one")
    kinesis.advance(milliseconds=1)
    kinesis.put("two")
    first, second = kinesis.page(kinesis.iterator())["Records"]

    at = second["ApproximateArrivalTimestamp"]

    assert at == first["ApproximateArrivalTimestamp"] + 0.001
    assert texts(kinesis.page(kinesis.iterator("AT_TIMESTAMP", Timestamp=at))) == ["two"]


def test_arrival_times_can_decrease(kinesis: InProcessKinesis) -> None:
    kinesis.put("one")
    kinesis.switch(arrival_shift_ms=-5_000)
    kinesis.put("two")
    first, second = kinesis.page(kinesis.iterator())["Records"]

    at = first["ApproximateArrivalTimestamp"]
    found = kinesis.page(kinesis.iterator("AT_TIMESTAMP", Timestamp=at))

    assert second["ApproximateArrivalTimestamp"] == at - 5
    assert texts(found) == ["one", "two"]


def test_empty_pages_come_before_the_records_of_a_new_iterator(
    kinesis: InProcessKinesis,
) -> None:
    kinesis.put("one")
    kinesis.switch(empty_pages_after_iterator=2)

    assert kinesis.pages(4) == [[], [], ["one"], []]


def test_an_empty_page_has_the_lag_of_the_reader(kinesis: InProcessKinesis) -> None:
    kinesis.put("one")
    kinesis.advance(seconds=4)
    kinesis.switch(empty_pages_after_iterator=1)

    page = kinesis.page(kinesis.iterator())

    assert page["Records"] == []
    assert page["MillisBehindLatest"] == 4_000


def test_empty_pages_come_between_pages_with_records(
    kinesis: InProcessKinesis,
) -> None:
    kinesis.put("one", "two")
    kinesis.switch(empty_pages_between_pages=2)

    assert kinesis.pages(5, limit=1) == [["one"], [], [], ["two"], []]


def test_the_page_with_the_last_records_ends_a_closed_shard(kinesis: InProcessKinesis) -> None:
    kinesis.put("one")
    kinesis.split()

    page = kinesis.page(kinesis.iterator())

    assert texts(page) == ["one"]
    assert "NextShardIterator" not in page
    assert len(page["ChildShards"]) == 2


def test_an_empty_page_can_end_a_closed_shard(kinesis: InProcessKinesis) -> None:
    kinesis.put("one")
    kinesis.split()
    kinesis.switch(shard_end="on_empty_page")

    first = kinesis.page(kinesis.iterator())
    second = kinesis.page(first["NextShardIterator"])

    assert texts(first) == ["one"]
    assert "ChildShards" not in first
    assert second["Records"] == []
    assert "NextShardIterator" not in second
    assert len(second["ChildShards"]) == 2


def test_empty_pages_come_before_the_end_of_a_shard(kinesis: InProcessKinesis) -> None:
    kinesis.split()
    kinesis.switch(empty_pages_after_iterator=1)

    first = kinesis.page(kinesis.iterator())

    assert "NextShardIterator" not in kinesis.page(first["NextShardIterator"])


def test_an_iterator_expires_after_five_minutes(kinesis: InProcessKinesis) -> None:
    iterator = kinesis.iterator()
    kinesis.advance(minutes=5)
    kinesis.page(iterator)

    kinesis.advance(milliseconds=1)

    with pytest.raises(ResponseError, match="ExpiredIteratorException"):
        kinesis.page(iterator)


def test_the_expiry_of_iterators_can_be_disabled(kinesis: InProcessKinesis) -> None:
    kinesis.switch(iterators_expire=False)
    iterator = kinesis.iterator()

    kinesis.advance(hours=1)

    assert kinesis.page(iterator)["NextShardIterator"]


def test_iterators_expire_on_demand(kinesis: InProcessKinesis) -> None:
    iterator = kinesis.iterator()
    next_iterator = kinesis.page(iterator)["NextShardIterator"]

    kinesis.control("expire_iterators")

    with pytest.raises(ResponseError, match="ExpiredIteratorException"):
        kinesis.page(next_iterator)
    assert kinesis.page(kinesis.iterator())["NextShardIterator"]


def test_an_iterator_of_a_deleted_stream_is_not_found(
    kinesis: InProcessKinesis,
) -> None:
    iterator = kinesis.iterator()
    kinesis.send("DeleteStream", StreamName="s")
    kinesis.create()

    with pytest.raises(ResponseError, match="ResourceNotFoundException"):
        kinesis.page(iterator)


def test_a_recreated_stream_refuses_old_sequence_numbers(
    kinesis: InProcessKinesis,
) -> None:
    (old,) = kinesis.put("one")
    kinesis.send("DeleteStream", StreamName="s")
    kinesis.create()

    with pytest.raises(ResponseError, match="InvalidArgumentException"):
        kinesis.iterator("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=old)


def test_the_ending_number_of_a_closed_shard_is_at_its_end(kinesis: InProcessKinesis) -> None:
    kinesis.put("one")
    kinesis.split()
    last = kinesis.shards()[0]["SequenceNumberRange"]["EndingSequenceNumber"]

    page = kinesis.page(kinesis.iterator("AT_SEQUENCE_NUMBER", StartingSequenceNumber=last))

    assert page["Records"] == []
    assert "NextShardIterator" not in page


def test_preloaded_records_are_json_of_one_size_in_all_shards(
    kinesis: InProcessKinesis,
) -> None:
    kinesis.split()

    kinesis.control("preload", stream="s", count=3, size_bytes=40)

    low = texts(kinesis.page(kinesis.iterator(shard=1)))
    high = texts(kinesis.page(kinesis.iterator(shard=2)))
    assert low == [f'{{"id":{n},"text":"{"x" * 22}"}}' for n in (0, 2)]
    assert [len(text) for text in high] == [40]
    assert kinesis.put("more", hash_key=MIDDLE)
