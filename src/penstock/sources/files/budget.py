"""Spread requests over time, so that an hour has no more of them than it may have."""

from datetime import timedelta

from penstock.clock import Clock

_HOUR = timedelta(hours=1)
# So much may be sent at once after a quiet time.
_BURST = timedelta(minutes=1)


class RequestBudget:
    """Requests that may be sent: they grow with time, and may be overdrawn for an hour."""

    def __init__(self, per_hour: int | None, *, clock: Clock) -> None:
        self._per_hour = per_hour
        self._clock = clock
        self._left = self._most
        self._at = clock.monotonic()

    def spend(self, requests: int) -> None:
        """Take requests that were sent."""
        if self._per_hour is None:
            return
        now = self._clock.monotonic()
        grown = self._left + self._per_hour * (now - self._at) / _HOUR.total_seconds()
        self._left = max(min(grown, self._most) - requests, -float(self._per_hour))
        self._at = now

    def wait(self, requests: int) -> timedelta:
        """Answer how long to wait before so many can be sent."""
        if self._per_hour is None:
            return timedelta()
        self.spend(0)
        lacking = min(requests, self._most) - self._left
        return max(timedelta(), _HOUR * (lacking / self._per_hour))

    @property
    def _most(self) -> float:
        return max(1.0, (self._per_hour or 0) * (_BURST / _HOUR))
