"""Requests of the last hour, counted by the minute."""

import json
from datetime import datetime

_MINUTES_KEPT = 60


def with_requests(text: str | None, *, at: datetime, requests: int) -> str:
    """Answer the counts with some more; those of more than an hour ago are left out."""
    minute = _minute(at)
    count_by_minute = _counts(text, now=at)
    count_by_minute[minute] = count_by_minute.get(minute, 0) + requests
    return json.dumps({str(key): count for key, count in count_by_minute.items()})


def requests_in_hour(text: str | None, *, now: datetime) -> int | None:
    """Answer how many requests there were; None if none were ever counted."""
    return None if text is None else sum(_counts(text, now=now).values())


def _counts(text: str | None, *, now: datetime) -> dict[int, int]:
    newest = _minute(now)
    oldest = newest - _MINUTES_KEPT
    found = json.loads(text or "{}").items()
    # Minutes still to come are left from before the clock was set back.
    return {int(key): count for key, count in found if oldest < int(key) <= newest}


def _minute(at: datetime) -> int:
    return int(at.timestamp()) // 60
