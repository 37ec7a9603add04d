"""How often a shard may be asked by one job, so that all jobs of a node stay within its limit.

The service counts the reads of a shard, whoever sends them. Jobs on the same stream share them
evenly; a job that has not looked at the stream for a while has given its part back.
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
        self._seen: dict[StreamKey, dict[int, float]] = {}

    def interval(self, key: StreamKey, reader: object) -> timedelta:
        """Answer how far apart the reader's requests for one shard lie at least."""
        now = self._clock.monotonic()
        with self._lock:
            readers = self._seen.setdefault(key, {})
            readers[id(reader)] = now
            for other, seen in list(readers.items()):
                if now - seen > _ABSENT_AFTER.total_seconds():
                    del readers[other]
            return self._interval * len(readers)
