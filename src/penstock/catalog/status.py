"""What running jobs report to observers: status, requests, source memory."""

import json
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, bindparam, insert, literal, select, update

from penstock.catalog import relations
from penstock.model.codec import from_text, to_text
from penstock.model.status import Status

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


_statuses = relations.statuses
_jobs = relations.jobs


def put(connection: Connection, job_id: str, status: Status | None) -> None:
    """Store the newest status of a job; that of a dropped job is not stored."""
    text = "" if status is None else to_text(status)
    found = connection.execute(
        update(_statuses).where(_statuses.c.job_id == bindparam("job")),
        {"job": job_id, "text": text},
    )
    if found.rowcount == 0:
        living = select(_jobs.c.id, literal(text)).where(_jobs.c.id == job_id)
        connection.execute(insert(_statuses).from_select(["job_id", "text"], living))


def add_requests(connection: Connection, job_id: str, requests: int, *, at: datetime) -> None:
    """Count requests of a job, by the minute."""
    of_job = _begun(connection, job_id)
    counted = connection.scalar(select(_statuses.c.requests).where(of_job))
    counted = with_requests(counted, at=at, requests=requests)
    connection.execute(update(_statuses).where(of_job), {"requests": counted})


def put_memory(connection: Connection, job_id: str, text: str) -> None:
    """Store what a job's source remembers."""
    of_job = _begun(connection, job_id)
    connection.execute(update(_statuses).where(of_job), {"memory": text})


def memory_by_job(connection: Connection) -> dict[str, str]:
    """Return what the sources of jobs remember, by job id."""
    rows = connection.execute(select(_statuses).where(_statuses.c.memory.is_not(None)))
    return {row.job_id: row.memory for row in rows}


def _begun(connection: Connection, job_id: str) -> ColumnElement[bool]:
    """Answer how the row of a job is found, after making one if there is none."""
    of_job = _statuses.c.job_id == job_id
    if connection.scalar(select(_statuses.c.text).where(of_job)) is None:
        put(connection, job_id, None)
    return of_job


def requests_by_job(connection: Connection, *, now: datetime) -> dict[str, int]:
    """Answer how many requests jobs have sent in the last hour, by job id."""
    rows = connection.execute(select(_statuses))
    found = ((row.job_id, requests_in_hour(row.requests, now=now)) for row in rows)
    return {job_id: requests for job_id, requests in found if requests is not None}


def status_by_job(connection: Connection) -> dict[str, Status]:
    """Return the newest status of all jobs that have one, by job id."""
    rows = connection.execute(select(_statuses).where(_statuses.c.text != ""))
    return {row.job_id: from_text(Status, row.text) for row in rows}
