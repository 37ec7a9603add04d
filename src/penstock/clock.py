"""Time as a dependency, so that tests control it."""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """The product's only access to time."""

    def now(self) -> datetime:
        """Return the current time as an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a monotonic clock, to measure durations."""
        ...

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:
        """Wait until the event is set or the time has passed; return whether it is set."""
        ...


class SystemClock:
    """The time of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:
        return event.wait(max(0.0, timeout.total_seconds()))
