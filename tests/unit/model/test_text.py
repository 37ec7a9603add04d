"""Counts, durations and sizes in messages."""

from datetime import timedelta

import pytest

from penstock.model.text import format_count, format_duration, format_size


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 files"), (1, "1 file"), (1234, "1,234 files")]
)
def test_a_count_agrees_with_its_noun(number: int, words: str) -> None:
    assert format_count(number, "file") == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (400_000, "4 d 15 h"),
    ],
)
def test_a_duration_is_formatted_in_its_two_largest_units(seconds: float, words: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize(("seconds", "words"), [(0.84, "0.8 s"), (61, "1 min 1 s")])
def test_a_short_duration_can_have_tenths(seconds: float, words: str) -> None:
    assert format_duration(timedelta(seconds=seconds), tenths=True) == words


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (1_234_567, "1.2 MB"),
        (7 * 10**15, "7,000.0 TB"),
    ],
)
def test_a_size_is_formatted_in_the_largest_unit_that_it_fills(
    size_bytes: int, words: str
) -> None:
    assert format_size(size_bytes) == words
