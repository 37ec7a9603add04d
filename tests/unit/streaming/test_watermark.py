"""The watermark: the formula, the marker row and the filter that removes it."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.model.text import FINAL_WATERMARK_MS
from penstock.sources.table_log.source import HOLD_ALL_MS
from penstock.streaming.watermark import (
    SPARK_DELAY_MS,
    SourceTime,
    counted_high,
    held_by,
    is_idle,
    marker_microseconds,
    next_watermark,
    row_filter,
    statistics_high,
)

NOW = datetime(2026, 5, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1_000)


def source(name: str = "a", **values: int | bool | None) -> SourceTime:
    return SourceTime(name=name, **{"delay_ms": 0, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([], 100),
        ([source(high_ms=500)], 500),
        ([source(high_ms=500, delay_ms=50)], 450),
        ([source(high_ms=90)], 100),
        ([source(high_ms=None)], 100),
        ([source(high_ms=500, idle=True)], 500),
        ([source(high_ms=None, idle=True)], 100),
        ([source(high_ms=500, idle=True), source("b", high_ms=None, idle=True)], 500),
        ([source(high_ms=500), source("b", high_ms=300)], 300),
        ([source(high_ms=500), source("b", high_ms=None)], 100),
        ([source(high_ms=500), source("b", high_ms=None, idle=True)], 500),
        ([source(high_ms=500, hold_ms=200)], 199),
        ([source(high_ms=500, delay_ms=400, hold_ms=200)], 100),
        ([source(high_ms=500, hold_ms=HOLD_ALL_MS)], 100),
    ],
)
def test_the_slowest_active_source_decides(sources: list[SourceTime], expected: int) -> None:
    assert next_watermark(100, sources) == expected


def test_a_user_can_advance_the_watermark_but_not_move_it_back() -> None:
    slow = [source(high_ms=200)]
    assert next_watermark(100, slow, advance_ms=900) == 900
    assert next_watermark(100, slow, advance_ms=50) == 200
    assert next_watermark(100, [], advance_ms=FINAL_WATERMARK_MS) == FINAL_WATERMARK_MS


def test_show_names_the_source_that_holds_the_watermark() -> None:
    fast, slow = source("fast", high_ms=900), source("slow", high_ms=300)
    silent = source("silent", high_ms=None)
    assert held_by([fast, slow]) == "slow"
    assert held_by([fast, slow, silent]) == "silent"
    assert held_by([source("idle", idle=True)]) == ""
    assert held_by([source("before 1970", high_ms=-5), source("at 0", high_ms=0)]) == (
        "before 1970"
    )


@pytest.mark.parametrize(
    ("seconds", "timeout", "fed", "idle"),
    [
        (None, 5, False, False),
        (5, None, False, False),
        (4, 5, False, False),
        (5, 5, False, True),
        (5, 5, True, False),
    ],
)
def test_a_source_is_idle_after_its_timeout(
    seconds: int | None, timeout: int | None, *, fed: bool, idle: bool
) -> None:
    found = is_idle(
        head_since=None if seconds is None else NOW - timedelta(seconds=seconds),
        now=NOW,
        timeout=None if timeout is None else timedelta(seconds=timeout),
        fed_by_backlog=fed,
    )
    assert found is idle


def test_an_event_time_far_in_the_future_does_not_count() -> None:
    assert counted_high(5, 9, limit_ms=9) == 9
    assert counted_high(5, 10, limit_ms=9) == 5
    assert counted_high(None, 10, limit_ms=9) is None
    assert counted_high(5, None, limit_ms=9) == 5
    assert counted_high(5, 4, limit_ms=9) == 5


def test_a_statistic_is_rounded_up_so_the_high_is_one_less() -> None:
    assert statistics_high(1_000) == 999


def test_the_marker_row_of_the_last_watermark_fits_a_timestamp() -> None:
    assert marker_microseconds(0) == SPARK_DELAY_MS * 1_000
    assert marker_microseconds(FINAL_WATERMARK_MS) < 2**63


def test_the_filter_quotes_the_column() -> None:
    assert row_filter("a`b").startswith("`a``b` IS NULL OR `a``b` < timestamp_micros(")
