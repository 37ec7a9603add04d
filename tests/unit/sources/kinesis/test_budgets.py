"""How often the jobs of a node may ask for a shard."""

from datetime import timedelta

from penstock.sources.kinesis.source import ReadBudgets
from tests.integration.kinesis_load import LeapingClock

STREAM = ("us-east-1", "s")
MINUTE = timedelta(minutes=1)
FIFTH = timedelta(milliseconds=200)


def test_jobs_on_one_stream_share_its_reads() -> None:
    budgets = ReadBudgets(LeapingClock())
    first, second = "first", "second"

    alone = budgets.interval(STREAM, first)
    beside = budgets.interval(STREAM, second)

    assert (alone, beside, budgets.interval(STREAM, first)) == (FIFTH, 2 * FIFTH, 2 * FIFTH)


def test_jobs_on_other_streams_do_not_matter() -> None:
    budgets = ReadBudgets(LeapingClock())
    budgets.interval(("us-east-1", "other"), "second")

    assert budgets.interval(STREAM, "second") == FIFTH


def test_t73_a_job_that_reads_a_long_epoch_keeps_its_part() -> None:
    clock = LeapingClock()
    budgets = ReadBudgets(clock)
    budgets.interval(STREAM, "first", busy=MINUTE)
    clock.leap(MINUTE + timedelta(seconds=5))

    assert budgets.interval(STREAM, "second") == 2 * FIFTH


def test_a_job_that_asks_no_more_gives_its_part_back() -> None:
    clock = LeapingClock()
    budgets = ReadBudgets(clock)
    budgets.interval(STREAM, "first", busy=MINUTE)
    clock.leap(3 * MINUTE)

    assert budgets.interval(STREAM, "second") == FIFTH
