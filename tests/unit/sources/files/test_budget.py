"""Polls that obey the request budget stay within it, and their waits are bounded."""

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.files.source import RequestBudget

HOUR = timedelta(hours=1)
START = datetime(2026, 1, 1, tzinfo=UTC)


class PassingClock:
    """A clock that the test moves and sets."""

    def __init__(self) -> None:
        self.passed = timedelta()
        self.set_by = timedelta()

    def now(self) -> datetime:
        return START + self.passed + self.set_by

    def monotonic(self) -> float:
        return self.passed.total_seconds()

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:
        self.passed += timeout
        return event.is_set()


def polls_that_wait(
    per_hour: int, requests: Sequence[int], breaks: Sequence[timedelta]
) -> list[tuple[timedelta, int]]:
    """Return the time and the requests of each poll; polls wait as the budget requires."""
    clock = PassingClock()
    budget = RequestBudget(per_hour, clock=clock)
    polls = []
    for sent, rest in zip(requests, breaks, strict=True):
        clock.passed += max(rest, budget.wait(sent))
        budget.spend(sent)
        polls.append((clock.passed, sent))
    return polls


def most_in_an_hour(polls: Sequence[tuple[timedelta, int]]) -> int:
    starts = [start for start, _ in polls]
    return max(sum(n for at, n in polls if start <= at < start + HOUR) for start in starts)


@given(
    per_hour=st.integers(1, 100_000),
    sent=st.integers(1, 200),
    breaks=st.lists(st.timedeltas(timedelta(), timedelta(minutes=10)), min_size=2, max_size=90),
)
def test_equal_polls_send_at_most_the_budget_and_one_burst_per_hour(
    per_hour: int, sent: int, breaks: list[timedelta]
) -> None:
    polls = polls_that_wait(per_hour, [sent] * len(breaks), breaks)

    # A poll cannot be divided, so a poll larger than the burst is sent completely.
    assert most_in_an_hour(polls) <= per_hour + max(sent, per_hour / 60)


@given(
    per_hour=st.integers(1, 100_000),
    requests=st.lists(st.integers(1, 200), min_size=2, max_size=90),
)
def test_uneven_polls_send_at_most_the_budget_and_the_largest_poll(
    per_hour: int, requests: list[int]
) -> None:
    polls = polls_that_wait(per_hour, requests, [timedelta()] * len(requests))

    assert most_in_an_hour(polls) <= per_hour + max(*requests, per_hour / 60)


@given(
    per_hour=st.integers(1, 100_000),
    spent=st.lists(st.integers(0, 10**9), max_size=5),
    sent=st.integers(0, 10**9),
)
def test_no_wait_is_longer_than_an_hour_and_a_burst(
    per_hour: int, spent: list[int], sent: int
) -> None:
    budget = RequestBudget(per_hour, clock=PassingClock())

    budget.spend(sum(spent))

    # With less than one request per minute, the burst is one whole request.
    burst = max(timedelta(minutes=1), HOUR / per_hour)
    assert timedelta() <= budget.wait(sent) <= HOUR + burst


def test_a_budget_of_one_poll_per_minute_delays_polls_by_a_minute() -> None:
    polls = polls_that_wait(60, [1, 1, 1, 1], [timedelta(seconds=10)] * 4)

    assert [at.total_seconds() for at, _ in polls] == [10, 70, 130, 190]


def test_idle_time_saves_at_most_the_requests_of_one_minute() -> None:
    clock = PassingClock()
    budget = RequestBudget(600, clock=clock)
    clock.passed += timedelta(days=30)

    budget.spend(10)

    assert budget.wait(1) == timedelta(seconds=6)


def test_a_poll_within_the_saved_requests_does_not_wait() -> None:
    budget = RequestBudget(600, clock=PassingClock())

    assert budget.wait(10) == timedelta()


def test_a_poll_waits_until_overdrawn_requests_are_paid_back() -> None:
    budget = RequestBudget(600, clock=PassingClock())

    budget.spend(310)

    assert budget.wait(10) == timedelta(minutes=31)


def test_computing_the_wait_spends_no_requests() -> None:
    budget = RequestBudget(600, clock=PassingClock())
    budget.spend(100)

    waits = {budget.wait(1) for _ in range(3)}

    assert len(waits) == 1


@pytest.mark.parametrize("set_by", [timedelta(days=-1), timedelta(days=1)])
def test_setting_the_clock_does_not_change_the_budget(set_by: timedelta) -> None:
    clock = PassingClock()
    budget = RequestBudget(600, clock=clock)
    budget.spend(110)
    before = budget.wait(10)

    clock.set_by = set_by

    assert budget.wait(10) == before


def test_an_unlimited_budget_never_waits() -> None:
    budget = RequestBudget(None, clock=PassingClock())

    budget.spend(10**9)

    assert budget.wait(10**9) == timedelta()
