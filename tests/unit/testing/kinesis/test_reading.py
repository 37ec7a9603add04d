"""How readers meet late, empty and last pages."""

import pytest

from tests.unit.testing.kinesis.asking import MIDDLE, Asking, RefusedError, texts


def test_a_reader_is_as_late_as_the_last_record_it_saw(kinesis: Asking) -> None:
    kinesis.put("one")
    kinesis.later(seconds=7)
    kinesis.put("two")
    kinesis.later(seconds=3)

    first = kinesis.page(kinesis.iterator(), Limit=1)
    second = kinesis.page(first["NextShardIterator"])

    assert first["MillisBehindLatest"] == 10_000
    assert second["MillisBehindLatest"] == 0


def test_arrivals_and_timestamps_have_milliseconds(kinesis: Asking) -> None:
    kinesis.put("one")
    kinesis.later(milliseconds=1)
    kinesis.put("two")
    first, second = kinesis.page(kinesis.iterator())["Records"]

    at = second["ApproximateArrivalTimestamp"]

    assert at == first["ApproximateArrivalTimestamp"] + 0.001
    assert texts(kinesis.page(kinesis.iterator("AT_TIMESTAMP", Timestamp=at))) == ["two"]


def test_arrivals_need_not_grow(kinesis: Asking) -> None:
    kinesis.put("one")
    kinesis.switch(arrival_shift_ms=-5_000)
    kinesis.put("two")
    first, second = kinesis.page(kinesis.iterator())["Records"]

    at = first["ApproximateArrivalTimestamp"]
    found = kinesis.page(kinesis.iterator("AT_TIMESTAMP", Timestamp=at))

    assert second["ApproximateArrivalTimestamp"] == at - 5
    assert texts(found) == ["one", "two"]


def test_empty_pages_come_before_the_records_of_a_new_iterator(kinesis: Asking) -> None:
    kinesis.put("one")
    kinesis.switch(empty_pages_after_iterator=2)

    assert kinesis.pages(4) == [[], [], ["one"], []]


def test_an_empty_page_of_a_reader_who_is_behind_says_so(kinesis: Asking) -> None:
    kinesis.put("one")
    kinesis.later(seconds=4)
    kinesis.switch(empty_pages_after_iterator=1)

    page = kinesis.page(kinesis.iterator())

    assert page["Records"] == []
    assert page["MillisBehindLatest"] == 4_000


def test_empty_pages_come_between_pages_of_a_reader_who_is_behind(kinesis: Asking) -> None:
    kinesis.put("one", "two")
    kinesis.switch(empty_pages_while_behind=2)

    assert kinesis.pages(5, limit=1) == [["one"], [], [], ["two"], []]


def test_a_shard_ends_with_its_last_records(kinesis: Asking) -> None:
    kinesis.put("one")
    kinesis.split()

    page = kinesis.page(kinesis.iterator())

    assert texts(page) == ["one"]
    assert "NextShardIterator" not in page
    assert len(page["ChildShards"]) == 2


def test_a_shard_may_end_on_an_empty_page(kinesis: Asking) -> None:
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


def test_empty_pages_come_before_the_end_too(kinesis: Asking) -> None:
    kinesis.split()
    kinesis.switch(empty_pages_after_iterator=1)

    first = kinesis.page(kinesis.iterator())

    assert "NextShardIterator" not in kinesis.page(first["NextShardIterator"])


def test_an_iterator_lives_five_minutes(kinesis: Asking) -> None:
    iterator = kinesis.iterator()
    kinesis.later(minutes=5)
    kinesis.page(iterator)

    kinesis.later(milliseconds=1)

    with pytest.raises(RefusedError, match="ExpiredIteratorException"):
        kinesis.page(iterator)


def test_iterators_live_on_where_they_do_not_expire(kinesis: Asking) -> None:
    kinesis.switch(iterators_expire=False)
    iterator = kinesis.iterator()

    kinesis.later(hours=1)

    assert kinesis.page(iterator)["NextShardIterator"]


def test_iterators_expire_on_demand(kinesis: Asking) -> None:
    iterator = kinesis.iterator()
    following = kinesis.page(iterator)["NextShardIterator"]

    kinesis.order("expire_iterators")

    with pytest.raises(RefusedError, match="ExpiredIteratorException"):
        kinesis.page(following)
    assert kinesis.page(kinesis.iterator())["NextShardIterator"]


def test_an_iterator_of_a_stream_that_was_before_is_not_found(kinesis: Asking) -> None:
    iterator = kinesis.iterator()
    kinesis.ask("DeleteStream", StreamName="s")
    kinesis.create()

    with pytest.raises(RefusedError, match="ResourceNotFoundException"):
        kinesis.page(iterator)


def test_a_stream_recreated_at_once_has_other_sequence_numbers(kinesis: Asking) -> None:
    (old,) = kinesis.put("one")
    kinesis.ask("DeleteStream", StreamName="s")
    kinesis.create()

    with pytest.raises(RefusedError, match="InvalidArgumentException"):
        kinesis.iterator("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=old)


def test_the_last_number_of_a_closed_shard_is_its_end(kinesis: Asking) -> None:
    kinesis.put("one")
    kinesis.split()
    last = kinesis.shards()[0]["SequenceNumberRange"]["EndingSequenceNumber"]

    page = kinesis.page(kinesis.iterator("AT_SEQUENCE_NUMBER", StartingSequenceNumber=last))

    assert page["Records"] == []
    assert "NextShardIterator" not in page


def test_preloaded_records_are_json_of_one_size_in_all_shards(kinesis: Asking) -> None:
    kinesis.split()

    kinesis.order("preload", stream="s", count=3, size_bytes=40)

    low = texts(kinesis.page(kinesis.iterator(shard=1)))
    high = texts(kinesis.page(kinesis.iterator(shard=2)))
    assert low == [f'{{"id":{n},"text":"{"x" * 22}"}}' for n in (0, 2)]
    assert [len(text) for text in high] == [40]
    assert kinesis.put("more", hash_key=MIDDLE)
