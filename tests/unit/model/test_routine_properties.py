"""Properties of a routine load: their units and derived limits."""

from datetime import timedelta

import pytest

from penstock.model.job_kinds import RoutineProperties
from penstock.model.options import parse_options


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("30s", 30), ("2m", 120), ("1.5h", 5400)]
)
def test_durations_can_have_units(text: str, seconds: int) -> None:
    read = parse_options(RoutineProperties, [("max_batch_interval", text)], what="a load")

    assert read.limits.duration == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("104857600", 100 * 2**20), ("100MB", 100 * 2**20), ("1GiB", 2**30), ("7", 7)],
)
def test_sizes_can_have_units(text: str, size_bytes: int) -> None:
    read = parse_options(RoutineProperties, [("max_batch_size", text)], what="a load")

    assert read.limits.size_bytes == size_bytes


def test_an_idle_source_is_polled_at_least_every_ten_seconds() -> None:
    waits = [
        RoutineProperties(max_batch_interval=timedelta(seconds=seconds)).max_interval
        for seconds in (1, 10, 60)
    ]

    assert waits == [timedelta(seconds=seconds) for seconds in (1, 10, 10)]
