"""Leases as rows: which node may run a job, and until when.

Invariant: at any instant of the database's clock at most one node holds a live lease of a job.
An expired lease is never renewed, because another node may have seen it expire.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from penstock.catalog import relations
from penstock.catalog.database import LeaseHeldError
from penstock.errors import LeaseLostError
from penstock.model.job import DesiredState, JobState

_leases = relations.leases
_OF_JOB = select(_leases).where(_leases.c.job_id == bindparam("job_id"))
_LIVE_OF_NODE = (
    _leases.c.node_id == bindparam("node"),
    _leases.c.expires_at > bindparam("now", type_=relations.Instant),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right of a node to run a job until a time."""

    node_id: str
    expires_at: datetime
    live: bool


def take(
    connection: Connection,
    state: JobState,
    *,
    node_id: str,
    now: datetime,
    expires_at: datetime,
) -> None:
    """Give the job's lease to a node, unless the job should not run or another has it."""
    if state.desired.state is not DesiredState.RUN:
        raise LeaseLostError(f'job "{state.name}" is not to run: {state.desired.state.value}')
    held = connection.execute(_OF_JOB, {"job_id": state.id}).one_or_none()
    if held is not None and held.node_id != node_id and held.expires_at > now:
        raise LeaseHeldError(
            f'job "{state.name}" is leased by the node "{held.node_id}"',
            detail=f"The lease lasts until {held.expires_at.isoformat()} unless it is renewed.",
        )
    connection.execute(delete(_leases).where(_leases.c.job_id == state.id))
    row = {"job_id": state.id, "node_id": node_id, "expires_at": expires_at}
    connection.execute(insert(_leases), row)


def renew(
    connection: Connection, node_id: str, *, now: datetime, expires_at: datetime
) -> frozenset[str]:
    """Prolong the live leases of a node; answer the ids of their jobs."""
    live = {"node": node_id, "now": now}
    renewed = update(_leases).where(*_LIVE_OF_NODE).values(expires_at=bindparam("expiry"))
    connection.execute(renewed, {**live, "expiry": expires_at})
    return frozenset(connection.scalars(select(_leases.c.job_id).where(*_LIVE_OF_NODE), live))


def release(connection: Connection, job_id: str, node_id: str) -> None:
    """Give a lease back; a lease that is another's stays."""
    connection.execute(
        delete(_leases).where(_leases.c.job_id == job_id, _leases.c.node_id == node_id)
    )


def all_leases(connection: Connection, *, now: datetime) -> dict[str, Lease]:
    """Answer the lease of every job that has one, by job id."""
    return {
        row.job_id: Lease(
            node_id=row.node_id, expires_at=row.expires_at, live=row.expires_at > now
        )
        for row in connection.execute(select(_leases))
    }


def free_of_others(connection: Connection, node_id: str) -> None:
    """End the leases of all nodes but one."""
    connection.execute(delete(_leases).where(_leases.c.node_id != node_id))
