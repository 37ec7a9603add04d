"""Requests per hour: polls that wait as told stay within the budget, and nobody waits long."""

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
    """Time that passes when the test says so; what the clock shows may be set."""

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
    """Answer when polls were made that waited as told, and how much each has sent."""
    clock = PassingClock()
    budget = RequestBudget(per_hour, clock=clock)
    polls = []
    for sent, rest in zip(requests, breaks, strict=True):
        clock.passed += max(rest, budget.wait(sent))
        budget.spend(sent)
        polls.append((clock.passed, sent))
    return polls


def most_in_an_hour(polls: Sequence[tuple[timedelta, int]]) -> int:
    begins = [begin for begin, _ in polls]
    return max(sum(n for at, n in polls if begin <= at < begin + HOUR) for begin in begins)


@given(
    per_hour=st.integers(1, 100_000),
    sent=st.integers(1, 200),
    breaks=st.lists(st.timedeltas(timedelta(), timedelta(minutes=10)), min_size=2, max_size=90),
)
def test_equal_polls_never_send_more_in_an_hour_than_the_budget_and_one_burst(
    per_hour: int, sent: int, breaks: list[timedelta]
) -> None:
    polls = polls_that_wait(per_hour, [sent] * len(breaks), breaks)

    # A poll is not taken apart: one that is larger than the burst is made all the same.
    assert most_in_an_hour(polls) <= per_hour + max(sent, per_hour / 60)


@given(
    per_hour=st.integers(1, 100_000),
    requests=st.lists(st.integers(1, 200), min_size=2, max_size=90),
)
def test_uneven_polls_never_send_more_than_the_budget_and_their_largest(
    per_hour: int, requests: list[int]
) -> None:
    polls = polls_that_wait(per_hour, requests, [timedelta()] * len(requests))

    assert most_in_an_hour(polls) <= per_hour + max(*requests, per_hour / 60)


@given(
    per_hour=st.integers(1, 100_000),
    spent=st.lists(st.integers(0, 10**9), max_size=5),
    sent=st.integers(0, 10**9),
)
def test_nobody_waits_longer_than_an_hour_and_a_burst(
    per_hour: int, spent: list[int], sent: int
) -> None:
    budget = RequestBudget(per_hour, clock=PassingClock())

    budget.spend(sum(spent))

    # A budget below one request a minute saves for the whole one.
    burst = max(timedelta(minutes=1), HOUR / per_hour)
    assert timedelta() <= budget.wait(sent) <= HOUR + burst


def test_a_budget_of_one_poll_a_minute_makes_polls_wait_a_minute() -> None:
    polls = polls_that_wait(60, [1, 1, 1, 1], [timedelta(seconds=10)] * 4)

    assert [at.total_seconds() for at, _ in polls] == [10, 70, 130, 190]


def test_a_quiet_time_saves_no_more_than_a_minute() -> None:
    clock = PassingClock()
    budget = RequestBudget(600, clock=clock)
    clock.passed += timedelta(days=30)

    budget.spend(10)

    assert budget.wait(1) == timedelta(seconds=6)


def test_a_poll_within_what_was_saved_waits_for_nothing() -> None:
    budget = RequestBudget(600, clock=PassingClock())

    assert budget.wait(10) == timedelta()


def test_what_was_overdrawn_is_waited_for() -> None:
    budget = RequestBudget(600, clock=PassingClock())

    budget.spend(310)

    assert budget.wait(10) == timedelta(minutes=31)


def test_asking_costs_nothing() -> None:
    budget = RequestBudget(600, clock=PassingClock())
    budget.spend(100)

    waits = {budget.wait(1) for _ in range(3)}

    assert len(waits) == 1


@pytest.mark.parametrize("set_by", [timedelta(days=-1), timedelta(days=1)])
def test_a_clock_that_is_set_changes_nothing(set_by: timedelta) -> None:
    clock = PassingClock()
    budget = RequestBudget(600, clock=clock)
    budget.spend(110)
    before = budget.wait(10)

    clock.set_by = set_by

    assert budget.wait(10) == before


def test_an_unlimited_budget_waits_for_nothing() -> None:
    budget = RequestBudget(None, clock=PassingClock())

    budget.spend(10**9)

    assert budget.wait(10**9) == timedelta()
