"""Limits of an epoch, and the waits before the next poll, epoch or attempt."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from penstock.model.epoch import EpochLimits
from penstock.model.job import JobDefinition
from penstock.model.split import Amount

_RETRY_DELAY_FIRST = timedelta(milliseconds=200)


def epoch_limits(definition: JobDefinition) -> EpochLimits:
    """Return the limits of the next epoch."""
    return definition.properties.limits


def poll_interval(definition: JobDefinition) -> timedelta:
    """Return the time between two polls of an idle source."""
    return definition.properties.max_interval


def due_at(
    definition: JobDefinition, *, last: datetime | None, waiting: Amount
) -> datetime | None:
    """Return when the next epoch is due; None if it is due now.

    ``last`` is the start of the last epoch. An epoch is due now if its limits are full.
    """
    limits = epoch_limits(definition)
    full = limits.items and (waiting.items or 0) >= limits.items
    full = full or (waiting.size_bytes or 0) >= limits.size_bytes
    return None if last is None or full else last + definition.properties.commit_interval


def retry_delay(attempt: int) -> timedelta:
    """Return the delay before an attempt of an epoch; attempts are counted from 1."""
    doublings: int = 2 ** (attempt - 1)
    return _RETRY_DELAY_FIRST * doublings


class Wakes:
    """The events of waiting loops, by the location of the tables that they read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[tuple[str, threading.Event]] = []

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
