"""Sequence numbers."""

import pytest

from tests.servers.kinesis.sequence import Sequence, first_number, last_number, parse_sequence


def test_a_sequence_number_has_as_many_digits_as_on_aws() -> None:
    number = first_number(birth=1_772_366_400, shard=0)

    assert len(str(number)) == 56
    assert str(number).startswith("49")


def test_a_sequence_number_tells_what_it_is_made_of() -> None:
    made = Sequence(birth=1_772_366_400, index=12, arrival_ms=1_772_366_405_000, shard=7)

    assert parse_sequence(str(made.number())) == made


def test_records_lie_between_the_first_and_the_last_number() -> None:
    birth, shard = 1_772_366_400, 3
    record = Sequence(birth=birth, index=1, arrival_ms=birth * 1000, shard=shard).number()

    assert first_number(birth=birth, shard=shard) < record
    assert record < last_number(birth=birth, shard=shard, closed_ms=birth * 1000)


@pytest.mark.parametrize("text", ["", "abc", "-1", "1", "9223372036854775807", "9" * 61, "٣"])
def test_what_is_no_sequence_number_is_seen(text: str) -> None:
    assert parse_sequence(text) is None
