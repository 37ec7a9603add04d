"""What running jobs say of themselves to observers; nothing depends on it."""

from sqlalchemy import Connection, bindparam, insert, literal, select, update

from penstock.catalog import relations

_statuses = relations.statuses
_jobs = relations.jobs


def put(connection: Connection, job_id: str, text: str) -> None:
    """Keep the newest words of a job; those of a dropped one are not kept."""
    found = connection.execute(
        update(_statuses).where(_statuses.c.job_id == bindparam("job")),
        {"job": job_id, "text": text},
    )
    if found.rowcount == 0:
        living = select(_jobs.c.id, literal(text)).where(_jobs.c.id == job_id)
        connection.execute(insert(_statuses).from_select(["job_id", "text"], living))


def text_by_job(connection: Connection) -> dict[str, str]:
    """Answer the newest words of all jobs, by job id."""
    return {row.job_id: row.text for row in connection.execute(select(_statuses))}
