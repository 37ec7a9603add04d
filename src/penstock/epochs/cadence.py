"""Compute the size and start of the next epoch, and the waits before polls and attempts.

The functions are pure. Nothing stores the time of the next epoch: the loop computes it again at
every wake-up. A stored time would be stale after a job enters or leaves its backlog.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from penstock.model.backlog import UPSTREAM, LagUnit
from penstock.model.epoch import EpochLimits
from penstock.model.job import JobDefinition, PaceReport
from penstock.model.job_kinds import POLL_INTERVAL_MAX
from penstock.model.split import Amount, SplitStatus, total_amount

_RETRY_DELAY_FIRST = timedelta(milliseconds=200)
# The rates that are assumed before the first epoch of a run: bytes and records per second.
_ASSUMED_BYTES = 32 * 2**20
_ASSUMED_RECORDS = 250_000
_SAMPLES_MAX = 5
# A rate is shown only after this many epochs.
_SAMPLES_MIN = 3
# The interval for a target lag is at least the target divided by this number.
_FRESHNESS_PART = 4
_FRESHNESS_STEP = timedelta(milliseconds=50)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """The interval and the limits of a job at one moment."""

    # With 0, an epoch starts only when the waiting rows reach a limit or the backlog ends.
    interval: timedelta
    limits: EpochLimits
    # Why the job is in backlog; empty if it is not.
    cause: str = ""
    # Whether an epoch waits for the interval; loads wait between polls instead.
    paced: bool = True


def cadence_of(
    definition: JobDefinition, *, cause: str, normal: timedelta | None = None
) -> Cadence:
    """Return the cadence of a job; ``normal`` replaces the interval outside of backlog."""
    properties = definition.properties
    interval = normal or properties.interval
    longer = properties.cadence.interval_backlog if cause else None
    # The interval from the readers' target lags can exceed the backlog interval.
    longer = longer and max(longer, interval)
    limits = properties.backlog_limits if cause else properties.limits
    if normal is not None:
        # Rows become visible only when an epoch ends, so the interval limits the duration.
        longest = normal if longer is None else longer or limits.duration
        limits = replace(limits, duration=min(limits.duration, longest))
    return Cadence(
        interval=interval if longer is None else longer,
        limits=limits,
        cause=cause,
        paced=bool(properties.commit_interval),
    )


def poll_interval(definition: JobDefinition, *, fresh: timedelta | None = None) -> timedelta:
    """Return the time between two polls of an idle source; ``fresh`` replaces the interval."""
    return min(fresh, POLL_INTERVAL_MAX) if fresh else definition.properties.max_interval


def fresh_interval(target: timedelta, epoch_seconds: float) -> timedelta:
    """Return the interval that keeps the lag below a target, given the time of an epoch."""
    interval = max(target - timedelta(seconds=epoch_seconds), target / _FRESHNESS_PART)
    return interval - interval % _FRESHNESS_STEP


def due_at(
    cadence: Cadence, *, last: datetime | None, waiting: Amount, now: datetime
) -> datetime | None:
    """Return when the next epoch is due; None if it waits for more rows without a time limit.

    ``last`` is the start of the last epoch; None before the first one. The result assumes
    that rows are waiting.
    """
    if not cadence.paced or is_full(cadence.limits, waiting):
        return now
    # The rest of the job's own backlog is available now. An upstream job still writes its
    # backlog.
    if cadence.cause and not cadence.cause.startswith(UPSTREAM):
        return now
    if not cadence.interval:
        return None
    return now if last is None else last + cadence.interval


def is_full(limits: EpochLimits, waiting: Amount) -> bool:
    """Return whether the waiting amount reaches a limit of an epoch."""
    return (
        bool(limits.items and (waiting.items or 0) >= limits.items)
        or bool(limits.records and (waiting.rows or 0) >= limits.records)
        or (waiting.size_bytes or 0) >= limits.size_bytes
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The amount and the duration of one epoch, from its run to the end of its commit."""

    rows: int
    size_bytes: int
    items: int
    seconds: float
    # The end of the epoch on the monotonic clock.
    at: float = 0.0
    # The lag at the end of the epoch; None if unknown.
    lag_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The budget of the next epoch, and the newest epochs of this run."""

    # None until an epoch has used at least half of its budget.
    bytes_max: int | None = None
    records_max: int | None = None
    samples: tuple[Sample, ...] = ()

    def limits(self, cadence: Cadence) -> EpochLimits:
        """Return limits that contain the budget; the limits of the job are never exceeded.

        With the interval 0, an epoch is as large as the limits of the job.
        """
        limits = cadence.limits
        seconds = cadence.interval.total_seconds()
        if not seconds:
            return limits
        bytes_max = self.bytes_max or max(1, int(_ASSUMED_BYTES * seconds))
        records_max = self.records_max or max(1, int(_ASSUMED_RECORDS * seconds))
        return replace(
            limits,
            size_bytes=min(limits.size_bytes, bytes_max),
            records=min(limits.records, records_max),
        )

    def after(self, sample: Sample, cadence: Cadence) -> "Pace":
        """Return the pace after an epoch.

        The budget changes only if the epoch used at least half of it.
        """
        samples = (*self.samples, sample)[-_SAMPLES_MAX:]
        if not cadence.interval:
            return replace(self, samples=samples)
        last = self.limits(cadence)
        return Pace(
            samples=samples,
            bytes_max=_adapted(
                last.size_bytes,
                [(one.size_bytes, one.seconds) for one in samples],
                cadence.interval,
                limit=cadence.limits.size_bytes,
            )
            or self.bytes_max,
            records_max=_adapted(
                last.records,
                [(one.rows, one.seconds) for one in samples],
                cadence.interval,
                limit=cadence.limits.records,
            )
            or self.records_max,
        )

    @property
    def epoch_seconds(self) -> float:
        """The mean duration of the newest epochs; 0 before the first one."""
        return sum(one.seconds for one in self.samples) / max(1, len(self.samples))

    def rate(self, unit: LagUnit) -> float | None:
        """Return the amount per second; None until three epochs are known.

        For time, the rate is the number of seconds of arrival time that are read per second.
        """
        if len(self.samples) < _SAMPLES_MIN:
            return None
        if unit is LagUnit.TIME:
            first, last = self.samples[0], self.samples[-1]
            if first.lag_seconds is None or last.lag_seconds is None or last.at <= first.at:
                return None
            return 1 + (first.lag_seconds - last.lag_seconds) / (last.at - first.at)
        seconds = sum(one.seconds for one in self.samples)
        total = sum(
            one.rows if unit is LagUnit.ROWS else one.size_bytes for one in self.samples
        )
        return total / seconds if seconds else None

    def report(
        self, statuses: tuple[SplitStatus, ...], *, cadence: Cadence, at: datetime
    ) -> PaceReport:
        """Return the amount that is left, the rate, and the time that the rest takes."""
        total = total_amount([status.remaining for status in statuses])
        found = PaceReport(at=at, remaining=statuses, interval=cadence.interval)
        for unit in LagUnit:
            left, rate = unit.of(total), self.rate(unit)
            if left is not None and rate is not None and rate > 0:
                eta = timedelta(seconds=left / rate)
                return replace(found, rate=rate, rate_unit=str(unit), eta=eta)
        return found


def _adapted(
    last: int, samples: Sequence[tuple[int, float]], interval: timedelta, *, limit: int
) -> int | None:
    """Return the next budget; None if the last epoch did not use half of its budget."""
    used, _ = samples[-1]
    if not limit or 2 * used < last:
        return None
    seconds = sum(taken for _, taken in samples)
    rate = sum(amount for amount, _ in samples) / seconds if seconds else None
    return next_budget(last, rate=rate, interval=interval, limit=limit)


def next_budget(last: int, *, rate: float | None, interval: timedelta, limit: int) -> int:
    """Return how much the next epoch reads, so that it takes about one interval.

    The budget is at least half and at most twice the last budget, and between one and the
    limit. While the rate is unknown, the budget doubles.
    """
    wanted = 2 * last if rate is None else int(rate * interval.total_seconds())
    return max(1, min(max(wanted, last // 2), 2 * last, limit))


def retry_delay(attempt: int) -> timedelta:
    """Return the delay before an attempt of an epoch; attempts are counted from 1."""
    doublings: int = 2 ** (attempt - 1)
    return _RETRY_DELAY_FIRST * doublings


@dataclass(slots=True)
class WakeRegistry:
    """The events of waiting loops, by the location of the tables that they read."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _events: list[tuple[str, threading.Event]] = field(default_factory=list)

    @contextmanager
    def registered(self, locations: Sequence[str], event: threading.Event) -> Iterator[None]:
        """Set the event at every commit to one of the tables."""
        own = [(location, event) for location in locations]
        with self._lock:
            self._events += own
        try:
            yield
        finally:
            with self._lock:
                self._events = [one for one in self._events if one[1] is not event]

    def wake(self, location: str) -> None:
        """Wake the loops that read a table."""
        with self._lock:
            events = [event for known, event in self._events if known == location]
        for event in events:
            event.set()
