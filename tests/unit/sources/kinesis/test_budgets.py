"""Intervals between the requests that jobs of a node send for a shard."""

from datetime import timedelta

from penstock.sources.kinesis.source import ReadBudgets
from tests.integration.kinesis_load import SteppingClock

STREAM = ("us-east-1", "s")
MINUTE = timedelta(minutes=1)
FIFTH = timedelta(milliseconds=200)


def test_jobs_on_one_stream_share_its_reads() -> None:
    budgets = ReadBudgets(SteppingClock())
    first, second = "first", "second"

    alone = budgets.interval(STREAM, first)
    shared = budgets.interval(STREAM, second)

    assert (alone, shared, budgets.interval(STREAM, first)) == (FIFTH, 2 * FIFTH, 2 * FIFTH)


def test_jobs_on_other_streams_have_budgets_of_their_own() -> None:
    budgets = ReadBudgets(SteppingClock())
    budgets.interval(("us-east-1", "other"), "second")

    assert budgets.interval(STREAM, "second") == FIFTH


def test_t73_a_job_keeps_its_share_during_a_long_epoch() -> None:
    clock = SteppingClock()
    budgets = ReadBudgets(clock)
    budgets.interval(STREAM, "first", busy=MINUTE)
    clock.leap(MINUTE + timedelta(seconds=5))

    assert budgets.interval(STREAM, "second") == 2 * FIFTH


def test_the_share_of_an_inactive_job_expires() -> None:
    clock = SteppingClock()
    budgets = ReadBudgets(clock)
    budgets.interval(STREAM, "first", busy=MINUTE)
    clock.leap(3 * MINUTE)

    assert budgets.interval(STREAM, "second") == FIFTH
