"""Rules of the watermark for all sources and all sequences of plans."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.model.text import FINAL_WATERMARK_MS
from penstock.streaming.watermark import (
    FIRST_WATERMARK_MS,
    SPARK_DELAY_MS,
    SourceTime,
    held_by,
    marker_microseconds,
    next_watermark,
)

INT64_MAX = 2**63 - 1
times = st.integers(-5_000, 5_000)
watermarks = st.integers(FIRST_WATERMARK_MS, 5_000)
advances = st.none() | watermarks | st.just(FINAL_WATERMARK_MS)
sources = st.lists(
    st.builds(
        SourceTime,
        name=st.sampled_from("abc"),
        delay_ms=st.integers(0, 3_000),
        high_ms=st.none() | times,
        hold_ms=st.none() | times,
        idle=st.booleans(),
    ),
    max_size=4,
    unique_by=lambda source: source.name,
)


@given(plans=st.lists(st.tuples(sources, advances), max_size=6))
def test_t54_a_watermark_never_falls(
    plans: list[tuple[list[SourceTime], int | None]],
) -> None:
    found = [FIRST_WATERMARK_MS]
    for given_sources, advance_ms in plans:
        found.append(next_watermark(found[-1], given_sources, advance_ms=advance_ms))

    assert found == sorted(found)


@given(previous_ms=watermarks, given_sources=sources)
def test_no_active_source_is_passed_unless_a_user_advances(
    previous_ms: int, given_sources: list[SourceTime]
) -> None:
    found = next_watermark(previous_ms, given_sources)

    for source in (s for s in given_sources if not s.idle and found > previous_ms):
        assert source.high_ms is not None
        assert found <= source.high_ms - source.delay_ms
        assert source.hold_ms is None or found < source.hold_ms


@given(previous_ms=watermarks, given_sources=sources)
def test_the_watermark_reaches_the_slowest_active_source(
    previous_ms: int, given_sources: list[SourceTime]
) -> None:
    active = [s.limit_ms for s in given_sources if not s.idle]
    limits = active or [s.limit_ms for s in given_sources if s.limit_ms is not None]

    found = next_watermark(previous_ms, given_sources)

    known = [limit for limit in limits if limit is not None]
    complete = bool(limits) and len(known) == len(limits)
    assert found == (max(previous_ms, min(known)) if complete else previous_ms)


@given(previous_ms=watermarks, given_sources=sources, idle=sources)
def test_idle_sources_do_not_hold_the_watermark(
    previous_ms: int, given_sources: list[SourceTime], idle: list[SourceTime]
) -> None:
    assume(any(not source.idle for source in given_sources))
    with_idle = [*given_sources, *(replace(source, idle=True) for source in idle)]

    assert next_watermark(previous_ms, with_idle) == next_watermark(previous_ms, given_sources)
    assert held_by(with_idle) == held_by(given_sources)


@given(previous_ms=watermarks, given_sources=sources, advance_ms=watermarks)
def test_an_advance_is_reached_and_adds_nothing_else(
    previous_ms: int, given_sources: list[SourceTime], advance_ms: int
) -> None:
    found = next_watermark(previous_ms, given_sources, advance_ms=advance_ms)

    assert found == max(advance_ms, next_watermark(previous_ms, given_sources))


@given(given_sources=sources)
def test_a_watermark_moves_only_if_its_holder_allows_it(
    given_sources: list[SourceTime],
) -> None:
    assume(any(not source.idle for source in given_sources))
    by_name = {source.name: source for source in given_sources}
    holder = held_by(given_sources)

    found = next_watermark(FIRST_WATERMARK_MS, given_sources)

    limit = by_name[holder].limit_ms if holder else None
    assert found == max(FIRST_WATERMARK_MS, FIRST_WATERMARK_MS if limit is None else limit)


@given(watermark_ms=st.integers(FIRST_WATERMARK_MS, FINAL_WATERMARK_MS))
def test_spark_gets_exactly_the_watermark_from_the_marker_row(watermark_ms: int) -> None:
    marker = marker_microseconds(watermark_ms)

    assert SPARK_DELAY_MS * 1_000 <= marker <= INT64_MAX
    assert marker // 1_000 - SPARK_DELAY_MS == watermark_ms
