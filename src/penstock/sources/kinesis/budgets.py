"""How often a shard may be asked by one job, so that all jobs of a node stay within its limit.

The service counts the reads of a shard, whoever sends them. Jobs on the same stream share them
evenly; a job whose epoch must be over, and that has not asked since, has given its part back.
"""

import threading
from datetime import timedelta

from penstock.clock import Clock
from penstock.sources.kinesis.reading import READ_INTERVAL

_ABSENT_AFTER = timedelta(minutes=1)

# Where a stream is asked, and its name.
StreamKey = tuple[str, str]


class ReadBudgets:
    """Who reads which stream from this node; used by all runners."""

    def __init__(self, clock: Clock, *, interval: timedelta = READ_INTERVAL) -> None:
        self._clock = clock
        self._interval = interval
        self._lock = threading.Lock()
        # Until when each reader of a stream is counted.
        self._until: dict[StreamKey, dict[str, float]] = {}

    def interval(
        self, key: StreamKey, reader: str, *, busy: timedelta = timedelta(0)
    ) -> timedelta:
        """Answer how far apart the requests of a reader, a job, for one shard lie at least.

        ``busy`` is how long it may read without asking here again.
        """
        now = self._clock.monotonic()
        with self._lock:
            readers = self._until.setdefault(key, {})
            readers[reader] = now + (busy + _ABSENT_AFTER).total_seconds()
            for other, until in list(readers.items()):
                if until < now:
                    del readers[other]
            return self._interval * len(readers)
