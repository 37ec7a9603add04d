"""Format of sequence numbers."""

import pytest

from tests.servers.kinesis.sequence import (
    Sequence,
    ending_number,
    parse_sequence,
    starting_number,
)


def test_a_sequence_number_has_as_many_digits_as_on_aws() -> None:
    number = starting_number(creation_second=1_772_366_400, shard=0)

    assert len(str(number)) == 56
    assert str(number).startswith("49")


def test_a_sequence_number_contains_its_fields() -> None:
    sequence = Sequence(
        creation_second=1_772_366_400, index=12, arrival_ms=1_772_366_405_000, shard=7
    )

    assert parse_sequence(str(sequence.number())) == sequence


def test_numbers_of_records_are_between_the_starting_and_the_ending_number() -> None:
    creation_second, shard = 1_772_366_400, 3
    record = Sequence(
        creation_second=creation_second, index=1, arrival_ms=creation_second * 1000, shard=shard
    ).number()

    assert starting_number(creation_second=creation_second, shard=shard) < record
    assert record < ending_number(
        creation_second=creation_second, shard=shard, closed_ms=creation_second * 1000
    )


@pytest.mark.parametrize("text", ["", "abc", "-1", "1", "9223372036854775807", "9" * 61, "٣"])
def test_other_texts_are_not_sequence_numbers(text: str) -> None:
    assert parse_sequence(text) is None
