"""The watermark of a streaming table, computed by the loop and stored in every plan.

Spark takes a watermark only from rows. The reader adds one marker row to each batch, with the
event time W + D. Spark subtracts the fixed delay D, so the watermark of Spark is exactly
W. Rows of data are far below W + D, so they never move the watermark.

All times are milliseconds since 1970, unless a name has another unit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.model.text import FINAL_WATERMARK_MS, quoted_name

_MS_PER_DAY = 86_400_000
_MICROSECONDS_PER_MS = 1_000
# D, the fixed delay that Spark receives instead of the user's delay.
SPARK_DELAY_MS = FINAL_WATERMARK_MS
SPARK_DELAY = f"{SPARK_DELAY_MS // _MS_PER_DAY} days"
# Spark starts every query with this watermark.
FIRST_WATERMARK_MS = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTime:
    """The event time of one source at the moment of a plan."""

    name: str
    delay_ms: int
    # The highest event time that was planned or read; None if there was none yet.
    high_ms: int | None = None
    # The lowest event time of the snapshot files that are not planned yet; None if all are.
    hold_ms: int | None = None
    # An idle source does not hold the watermark.
    idle: bool = False

    @property
    def limit_ms(self) -> int | None:
        """The highest watermark that this source allows; None before its first row."""
        if self.high_ms is None:
            return None
        limit = self.high_ms - self.delay_ms
        return limit if self.hold_ms is None else min(limit, self.hold_ms - 1)


def next_watermark(
    previous_ms: int, sources: Sequence[SourceTime], *, advance_ms: int | None = None
) -> int:
    """Return the watermark of the next plan; it never falls.

    The slowest active source decides. If all sources are idle, the sources that had rows
    decide, so that the last windows close. ``advance_ms`` is the watermark that a user
    requested.
    """
    floor = previous_ms if advance_ms is None else max(previous_ms, advance_ms)
    limits = [source.limit_ms for source in sources if not source.idle]
    if not limits:
        limits = [source.limit_ms for source in sources if source.limit_ms is not None]
    known = [limit for limit in limits if limit is not None]
    if not known or len(known) < len(limits):
        return floor
    return max(floor, min(known))


def held_by(sources: Sequence[SourceTime]) -> str:
    """Return the name of the active source with the lowest limit; empty if all are idle.

    A source without a row yet has the lowest limit of all.
    """
    active = [source for source in sources if not source.idle]
    return min(active, key=_limit_order).name if active else ""


def _limit_order(source: SourceTime) -> tuple[bool, int]:
    return source.limit_ms is not None, source.limit_ms or 0


def is_idle(
    *,
    head_since: datetime | None,
    now: datetime,
    timeout: timedelta | None,
    fed_by_backlog: bool,
) -> bool:
    """Return whether a source counts as idle.

    ``head_since`` is the time since which the source has no unread row; None if it has some.
    A source is never idle while a job that writes it is in backlog.
    """
    if head_since is None or timeout is None or fed_by_backlog:
        return False
    return now - head_since >= timeout


def statistics_high(maximum_ms: int) -> int:
    """Return the highest event time that a file with this statistic surely reaches.

    Statistics are rounded up to the next millisecond, so 1 ms is subtracted.
    """
    return maximum_ms - 1


def counted_high(high_ms: int | None, found_ms: int | None, *, limit_ms: int) -> int | None:
    """Return the higher of two event times; a time above the limit does not count."""
    if found_ms is None or found_ms > limit_ms:
        return high_ms
    return found_ms if high_ms is None else max(high_ms, found_ms)


def marker_microseconds(watermark_ms: int) -> int:
    """Return the event time of the marker row."""
    return (watermark_ms + SPARK_DELAY_MS) * _MICROSECONDS_PER_MS


def row_filter(column: str) -> str:
    """Return the condition that removes the marker row and keeps all rows of data.

    ``spark_partition_id() < 0`` is never true. Spark does not move conditions of the user below
    a condition that is not deterministic. So these conditions cannot remove the marker row.
    """
    name = quoted_name(column)
    limit = SPARK_DELAY_MS * _MICROSECONDS_PER_MS
    return f"{name} IS NULL OR {name} < timestamp_micros({limit}) OR spark_partition_id() < 0"
