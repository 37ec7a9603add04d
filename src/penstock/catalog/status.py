"""Reports of running jobs: status, requests to the source, state of the source."""

import json
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, insert, select, update

from penstock.catalog import relations
from penstock.model.codec import from_text
from penstock.model.job import Status

_MINUTES_RETAINED = 60

_statuses = relations.statuses


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """Latest report of a job."""

    status: Status | None = None
    # Requests to the source in the last hour; None if none were ever counted.
    requests: int | None = None
    # State of the source, in the format of its kind; empty if there is none.
    memory: str = ""


def report_by_job(
    connection: Connection, *, now: datetime, job_id: str | None = None
) -> dict[str, JobReport]:
    """Return the reports of one job, or of all jobs that have one, by job id."""
    query = select(_statuses)
    if job_id is not None:
        query = query.where(_statuses.c.job_id == job_id)
    return {
        row.job_id: JobReport(
            status=from_text(Status, row.text) if row.text else None,
            requests=requests_in_hour(row.requests, now=now),
            memory=row.memory or "",
        )
        for row in connection.execute(query)
    }


def put(connection: Connection, job_id: str, **columns: str) -> None:
    """Store columns of a job's report; do nothing if the job was dropped."""
    of_job = update(_statuses).where(_statuses.c.job_id == job_id)
    if connection.execute(of_job, columns).rowcount:
        return
    jobs = relations.jobs
    if connection.scalar(select(jobs.c.id).where(jobs.c.id == job_id)) is not None:
        connection.execute(insert(_statuses), {"job_id": job_id, "text": "", **columns})


def add_requests(connection: Connection, job_id: str, requests: int, *, at: datetime) -> None:
    """Add requests to the count of the current minute."""
    known = select(_statuses.c.requests).where(_statuses.c.job_id == job_id)
    counts = with_requests(connection.scalar(known), at=at, requests=requests)
    put(connection, job_id, requests=counts)


def with_requests(text: str | None, *, at: datetime, requests: int) -> str:
    """Return the counts with further requests, and without counts older than an hour."""
    minute = _minute(at)
    count_by_minute = _counts(text, now=at)
    count_by_minute[minute] = count_by_minute.get(minute, 0) + requests
    return json.dumps({str(key): count for key, count in count_by_minute.items()})


def requests_in_hour(text: str | None, *, now: datetime) -> int | None:
    """Return the number of requests in the last hour; None if none were ever counted."""
    return None if text is None else sum(_counts(text, now=now).values())


def _counts(text: str | None, *, now: datetime) -> dict[int, int]:
    newest = _minute(now)
    oldest = newest - _MINUTES_RETAINED
    found = json.loads(text or "{}").items()
    # Minutes in the future were counted before the clock was set back.
    return {int(key): count for key, count in found if oldest < int(key) <= newest}


def _minute(at: datetime) -> int:
    return int(at.timestamp()) // 60
