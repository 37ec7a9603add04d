"""The next epoch starts when it is due, and reads as much as it can within an interval."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.epochs.backlog import downstream_targets
from penstock.epochs.cadence import (
    Cadence,
    Pace,
    Sample,
    WakeRegistry,
    cadence_of,
    due_at,
    fresh_interval,
    next_budget,
)
from penstock.model.cadence import CadenceOptions
from penstock.model.events import Event, apply
from penstock.model.job import DesiredState, JobState
from penstock.model.job_kinds import (
    ROUTINE_LOAD,
    STREAMING_TABLE,
    RoutineProperties,
    StreamingTableProperties,
)
from penstock.model.split import Amount, Horizon, SplitProgress, SplitStatus
from tests.contract.catalog.building import DEFINITION, START, created

INTERVAL, LONGER = timedelta(seconds=10), timedelta(seconds=60)
LATER = START + timedelta(seconds=1)
STREAMING = replace(
    DEFINITION,
    job_kind=STREAMING_TABLE.name,
    properties=StreamingTableProperties(
        checkpoint_interval=INTERVAL,
        epoch_files_max=3,
        epoch_bytes_max=1_000,
        epoch_bytes_backlog=5_000,
        cadence=CadenceOptions(interval_backlog=LONGER),
    ),
)
NORMAL, BACKLOG = cadence_of(STREAMING, cause=""), cadence_of(STREAMING, cause="upstream j")
ENDLESS = replace(BACKLOG, interval=timedelta(0))
LITTLE = Amount(items=1, size_bytes=1)


def test_the_first_epoch_of_a_run_is_due_at_once() -> None:
    assert due_at(NORMAL, last=None, waiting=LITTLE, now=LATER) == LATER


def test_t58_an_endless_backlog_interval_has_no_first_trigger() -> None:
    boundary = replace(ENDLESS, cause="boundary")

    assert due_at(ENDLESS, last=None, waiting=LITTLE, now=LATER) is None
    assert due_at(BACKLOG, last=None, waiting=LITTLE, now=LATER) == LATER
    assert due_at(boundary, last=None, waiting=LITTLE, now=LATER) == LATER


def test_the_next_epoch_is_due_an_interval_after_the_last_one() -> None:
    assert due_at(NORMAL, last=START, waiting=LITTLE, now=LATER) == START + INTERVAL
    assert due_at(BACKLOG, last=START, waiting=LITTLE, now=LATER) == START + LONGER


@pytest.mark.parametrize("waiting", [Amount(items=3, size_bytes=1), Amount(size_bytes=1_000)])
def test_an_epoch_with_full_limits_is_due_at_once(waiting: Amount) -> None:
    assert due_at(NORMAL, last=START, waiting=waiting, now=LATER) == LATER


def test_a_load_never_waits_between_epochs() -> None:
    load = cadence_of(DEFINITION, cause="")

    assert due_at(load, last=START, waiting=LITTLE, now=LATER) == LATER


def test_t58_an_endless_backlog_interval_has_no_trigger_even_after_ten_intervals() -> None:
    late = START + 10 * INTERVAL

    assert due_at(NORMAL, last=START, waiting=LITTLE, now=late) == START + INTERVAL
    assert due_at(ENDLESS, last=START, waiting=LITTLE, now=late) is None


def test_an_endless_backlog_interval_ends_when_a_limit_is_full() -> None:
    full = Amount(items=1, size_bytes=5_000)

    assert due_at(ENDLESS, last=START, waiting=full, now=LATER) == LATER


@pytest.mark.parametrize("cause", ["boundary", "lag"])
def test_the_rest_of_a_backlog_that_waits_is_due_at_once(cause: str) -> None:
    cadence = replace(ENDLESS, cause=cause)

    assert due_at(cadence, last=START, waiting=LITTLE, now=LATER) == LATER


def test_t64_a_job_that_leaves_its_backlog_is_due_at_the_normal_interval() -> None:
    now = START + timedelta(seconds=30)

    before = due_at(BACKLOG, last=START, waiting=LITTLE, now=now)
    after = due_at(NORMAL, last=START, waiting=LITTLE, now=now)

    assert before == START + LONGER
    assert after is not None
    assert after <= now + INTERVAL


@pytest.mark.parametrize(
    ("epoch_seconds", "interval_seconds"), [(0.0, 40.0), (10.0, 30.0), (39.0, 10.0)]
)
def test_the_interval_of_a_target_lag_leaves_time_for_an_epoch(
    epoch_seconds: float, interval_seconds: float
) -> None:
    interval = fresh_interval(timedelta(seconds=40), epoch_seconds)

    assert interval == timedelta(seconds=interval_seconds)


@pytest.mark.parametrize(
    ("cause", "longer", "expected"),
    [
        ("", LONGER, timedelta(seconds=30)),
        ("lag", None, timedelta(seconds=30)),
        ("lag", LONGER, LONGER),
        ("lag", timedelta(0), timedelta(seconds=600)),
    ],
)
def test_a_target_lag_limits_the_time_of_an_epoch_unless_the_backlog_has_an_interval(
    cause: str, longer: timedelta | None, expected: timedelta
) -> None:
    load = RoutineProperties(
        max_batch_interval=timedelta(seconds=60),
        cadence=CadenceOptions(interval_backlog=longer),
    )

    cadence = cadence_of(
        replace(DEFINITION, job_kind=ROUTINE_LOAD.name, properties=load),
        cause=cause,
        normal=timedelta(seconds=30),
    )

    assert cadence.limits.duration == expected


def reader(reads: str, *, writes: str, freshness: str, runs: bool = True) -> JobState:
    """A job that reads one table and writes another one, which has the same name."""
    properties = StreamingTableProperties(
        checkpoint_interval=INTERVAL, cadence=CadenceOptions(freshness=freshness)
    )
    table = replace(STREAMING.table, id=writes)
    body = created(writes, writes)
    body = replace(body, definition=replace(STREAMING, table=table, properties=properties))
    state = apply(None, Event(job_id=writes, number=1, at=START, body=body))
    split = SplitProgress(split="s1", floor=Horizon(), position=Horizon(), identity=reads)
    wanted = DesiredState.RUN if runs else DesiredState.PAUSE
    return replace(state, progress=(split,), desired=replace(state.desired, state=wanted))


def test_a_downstream_target_is_that_of_the_running_readers_also_through_other_tables() -> None:
    source = reader("raw", writes="a", freshness="downstream")
    jobs = [
        source,
        reader("a", writes="b", freshness="downstream"),
        reader("b", writes="c", freshness="30 s"),
        reader("a", writes="d", freshness=""),
        reader("a", writes="e", freshness="5 s", runs=False),
        reader("raw", writes="f", freshness="1 s"),
    ]

    found = sorted(downstream_targets(source, jobs))

    assert found == [INTERVAL, timedelta(seconds=30)]


amounts = st.integers(1, 10**12)
rates = st.none() | st.floats(0, 1e12)
intervals = st.integers(0, 10**6).map(lambda seconds: timedelta(seconds=seconds))


@given(last=amounts, rate=rates, interval=intervals, limit=amounts)
def test_a_budget_stays_within_its_bounds(
    last: int, rate: float | None, interval: timedelta, limit: int
) -> None:
    budget = next_budget(last, rate=rate, interval=interval, limit=limit)

    assert 1 <= budget <= limit
    assert budget <= 2 * last
    assert budget >= min(last // 2, limit)


def sample(size_bytes: int, seconds: float) -> Sample:
    return Sample(rows=size_bytes, size_bytes=size_bytes, items=1, seconds=seconds)


def test_the_budget_follows_the_rate_of_full_epochs() -> None:
    cadence = replace(NORMAL, limits=replace(NORMAL.limits, size_bytes=10**12))
    pace = Pace(bytes_max=1_000)

    slow = pace.after(sample(1_000, seconds=15.0), cadence)
    fast = pace.after(sample(1_000, seconds=1.0), cadence)
    partial = pace.after(sample(100, seconds=15.0), cadence)

    assert (slow.bytes_max, fast.bytes_max, partial.bytes_max) == (666, 2_000, 1_000)


def test_an_epoch_of_an_endless_backlog_interval_is_as_large_as_the_limits_of_the_job() -> None:
    before = Pace(bytes_max=5, records_max=5)

    after = before.after(sample(10_000, seconds=1.0), ENDLESS)

    assert before.limits(ENDLESS) == after.limits(ENDLESS) == ENDLESS.limits
    # The budget of the time before the backlog applies again after it.
    assert (after.bytes_max, after.records_max) == (5, 5)


def test_a_backlog_interval_is_never_shorter_than_a_target_lag_of_the_readers() -> None:
    properties = StreamingTableProperties(
        cadence=CadenceOptions(freshness="downstream", interval_backlog=timedelta(seconds=20))
    )

    cadence = cadence_of(
        replace(STREAMING, properties=properties), cause="lag", normal=timedelta(seconds=30)
    )

    assert cadence.interval == timedelta(seconds=30)


def test_the_rate_is_unknown_until_three_epochs_have_ended() -> None:
    pace, cadence = Pace(), Cadence(interval=INTERVAL, limits=NORMAL.limits)

    two = pace.after(sample(10, 1.0), cadence).after(sample(10, 1.0), cadence)
    three = two.after(sample(40, 1.0), cadence)

    assert estimate(two, Amount(rows=100)) == (None, "", None)
    assert estimate(three, Amount(rows=100)) == (20, "rows", timedelta(seconds=5))
    assert estimate(three, Amount(size_bytes=40)) == (20, "bytes", timedelta(seconds=2))


def estimate(pace: Pace, remaining: Amount) -> tuple[float | None, str, timedelta | None]:
    """Return the rate, its unit, and the time that the remaining amount takes."""
    status = SplitStatus(split="s", remaining=remaining)
    found = pace.report((status,), cadence=NORMAL, at=START)
    return found.rate, found.rate_unit, found.eta


def test_the_rate_of_a_lag_in_time_is_the_arrival_time_that_was_read() -> None:
    # In ten seconds the lag falls from 100 to 80 seconds, so 30 seconds were read.
    lags = ((0.0, 100.0), (5.0, 95.0), (10.0, 80.0))
    samples = tuple(
        Sample(rows=0, size_bytes=0, items=1, seconds=1.0, at=at, lag_seconds=lag)
        for at, lag in lags
    )

    found = estimate(Pace(samples=samples), Amount(lag=timedelta(seconds=60)))

    assert found == (3, "time", timedelta(seconds=20))


def test_a_commit_wakes_only_the_loops_that_read_the_table() -> None:
    wakes, reader, other = WakeRegistry(), threading.Event(), threading.Event()

    with wakes.registered(["file:///a", "file:///b"], reader), wakes.registered([], other):
        wakes.wake("file:///b")

    assert (reader.is_set(), other.is_set()) == (True, False)


def test_a_loop_that_has_ended_is_not_woken() -> None:
    wakes, ended = WakeRegistry(), threading.Event()

    with wakes.registered(["file:///a"], ended):
        pass
    wakes.wake("file:///a")

    assert not ended.is_set()
