"""Requests of the last hour, counted by the minute."""

import json
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from penstock.catalog.status import requests_in_hour, with_requests

NOON = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def test_the_count_is_none_before_the_first_request() -> None:
    assert requests_in_hour(None, now=NOON) is None


def test_requests_of_a_minute_are_added_up() -> None:
    counts = with_requests(None, at=NOON, requests=3)

    counts = with_requests(counts, at=NOON + timedelta(seconds=20), requests=4)

    assert requests_in_hour(counts, now=NOON + MINUTE) == 7
    assert len(json.loads(counts)) == 1


def test_a_request_counts_for_an_hour() -> None:
    counts = with_requests(None, at=NOON, requests=3)

    assert requests_in_hour(counts, now=NOON + HOUR - MINUTE) == 3
    assert requests_in_hour(counts, now=NOON + HOUR) == 0


def test_the_count_of_an_hour_without_requests_is_zero() -> None:
    counts = with_requests(None, at=NOON, requests=3)

    assert requests_in_hour(counts, now=NOON + timedelta(days=400)) == 0


def test_old_minutes_leave_the_count_one_by_one() -> None:
    counts = with_requests(None, at=NOON, requests=1)
    counts = with_requests(counts, at=NOON + MINUTE, requests=2)
    counts = with_requests(counts, at=NOON + 2 * MINUTE, requests=4)

    found = [requests_in_hour(counts, now=NOON + HOUR + n * MINUTE) for n in (-1, 0, 1, 2)]

    assert found == [7, 6, 4, 0]


def test_the_counts_of_at_most_sixty_minutes_are_stored() -> None:
    counts = None
    for minute in range(200):
        counts = with_requests(counts, at=NOON + minute * MINUTE, requests=1)

    assert counts is not None
    assert len(json.loads(counts)) == 60


def test_future_minutes_do_not_count_after_the_clock_was_set_back() -> None:
    counts = with_requests(None, at=NOON, requests=1000)

    assert requests_in_hour(counts, now=NOON - timedelta(hours=20)) == 0


@given(
    sent=st.lists(
        st.tuples(st.timedeltas(timedelta(), timedelta(hours=3)), st.integers(0, 1000)),
        max_size=30,
    ),
    now=st.timedeltas(timedelta(hours=3), timedelta(hours=5)),
)
def test_the_count_covers_an_hour_to_within_a_minute(
    sent: list[tuple[timedelta, int]], now: timedelta
) -> None:
    counts = with_requests(None, at=NOON, requests=0)
    for at, requests in sorted(sent):
        counts = with_requests(counts, at=NOON + at, requests=requests)

    found = requests_in_hour(counts, now=NOON + now)

    assert found is not None
    least = sum(requests for at, requests in sent if now - at < HOUR - MINUTE)
    most = sum(requests for at, requests in sent if now - at < HOUR)
    assert least <= found <= most
