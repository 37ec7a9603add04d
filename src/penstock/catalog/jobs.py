"""Jobs as rows: a snapshot of the state, and the journal of the events.

Invariant: snapshot, event and ledger entry change in one transaction. A snapshot is the fold of
all events up to its own number, so deleting old events loses nothing.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from functools import lru_cache

from sqlalchemy import Connection, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from penstock.catalog import ledger, relations
from penstock.catalog.database import GenerationChangedError, JobDroppedError
from penstock.errors import Code, InvariantError, UserError
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import Generation
from penstock.model.events import Event, EventBody, JobCreated, apply
from penstock.model.job import JobState

EVENTS_RETAINED = 1_792
_PRUNED_EVERY = 256

_jobs = relations.jobs
_events = relations.events
_SNAPSHOT = select(_jobs.c.snapshot)
_BY_ID = _SNAPSHOT.where(_jobs.c.id == bindparam("job_id"))
_BY_ID_LOCKED = _BY_ID.with_for_update()
_UPDATE = update(_jobs).where(_jobs.c.id == bindparam("job_id"))


def create(connection: Connection, job_id: str, body: JobCreated, *, at: datetime) -> JobState:
    """Store a new job; raise UserError if its name is in use or its table does not exist."""
    table, known = body.definition.table, relations.tables.c.id
    named = select(known).where(known == table.id).with_for_update(read=True)
    if connection.scalar(named) is None:
        raise UserError(
            f'table "{table.name}" does not exist',
            code=Code.META_NOT_FOUND_ERR,
            detail="The table was dropped while the job was being created.",
            hint="Create the table, then create the job again.",
        )
    event = Event(job_id=job_id, number=1, at=at, body=body)
    state = apply(None, event)
    try:
        connection.execute(insert(_jobs), {"id": job_id, **_columns(state)})
    except IntegrityError as error:
        raise UserError(
            f'job "{state.name}" already exists',
            code=Code.ALREADY_EXISTS_ERR,
            hint="Choose another name, or drop the existing job first.",
        ) from error
    _store_events(connection, [event])
    return state


def by_id(connection: Connection, job_id: str) -> JobState | None:
    """Return the job with this id."""
    text = connection.scalar(_BY_ID, {"job_id": job_id})
    return None if text is None else _state(text)


def by_name(connection: Connection, name: str) -> JobState | None:
    """Return the job with this name."""
    text = connection.scalar(_SNAPSHOT.where(_jobs.c.name == name))
    return None if text is None else _state(text)


def all_jobs(connection: Connection) -> tuple[JobState, ...]:
    """Return all jobs by name."""
    return tuple(_state(text) for text in connection.scalars(_SNAPSHOT.order_by(_jobs.c.name)))


def writers(connection: Connection, table_ids: Collection[str]) -> tuple[JobState, ...]:
    """Return the jobs that write one of these tables, by name."""
    found = _SNAPSHOT.where(_jobs.c.table_id.in_(table_ids)).order_by(_jobs.c.name)
    return tuple(_state(text) for text in connection.scalars(found))


def locked(connection: Connection, job_id: str, *, expected: Generation | None) -> JobState:
    """Return the job that this transaction changes, with its row locked.

    Raise LeaseLostError if the job was dropped, or if its generation is not the expected one.
    """
    text = connection.scalar(_BY_ID_LOCKED, {"job_id": job_id})
    if text is None:
        raise JobDroppedError(f'job with the id "{job_id}" was dropped')
    state = _state(text)
    if expected is not None and state.generation != expected:
        raise GenerationChangedError(
            f'job "{state.name}" has generation {state.generation.number}, '
            f"not the expected {expected.number}",
            detail="A statement or another node took over the job after it was read.",
        )
    return state


def append(
    connection: Connection, state: JobState, bodies: Iterable[EventBody], *, at: datetime
) -> JobState:
    """Append events to the journal of a job; return the new state."""
    first = state.event_number + 1
    events = [
        Event(job_id=state.id, number=number, at=at, body=body)
        for number, body in enumerate(bodies, start=first)
    ]
    if not events:
        return state
    for event in events:
        state = apply(state, event)
    if state.event_number != events[-1].number:
        raise InvariantError(f'job "{state.name}" was created a second time')
    connection.execute(_UPDATE, {"job_id": state.id, **_columns(state)})
    _store_events(connection, events)
    if first // _PRUNED_EVERY != (state.event_number + 1) // _PRUNED_EVERY:
        truncate(connection, state, keep=EVENTS_RETAINED)
        ledger.fold(connection, state.id, keep=ledger.ENTRIES_RETAINED)
    return state


def newest_events(connection: Connection, job_id: str, *, newest: int) -> tuple[Event, ...]:
    """Return the newest events of a job in order, oldest first."""
    of_job = select(_events.c.event).where(_events.c.job_id == job_id)
    newest_first = of_job.order_by(_events.c.number.desc()).limit(newest)
    texts = connection.scalars(newest_first).all()
    return tuple(from_text(Event, text) for text in reversed(texts))


def truncate(connection: Connection, state: JobState, *, keep: int) -> None:
    """Delete all but the newest events; the snapshot includes the effects of all events."""
    older = _events.c.number <= state.event_number - keep
    connection.execute(delete(_events).where(_events.c.job_id == state.id, older))


def retire(connection: Connection, state: JobState) -> None:
    """Free the name of a job that has ended; the job keeps its id and is still listed."""
    connection.execute(
        _UPDATE, {"job_id": state.id, **_columns(state), "name": f"{state.name} {state.id}"}
    )


def remove(connection: Connection, job_id: str) -> None:
    """Delete a job, if it exists, with everything that belongs to it."""
    connection.execute(delete(_jobs).where(_jobs.c.id == job_id))


def _store_events(connection: Connection, events: list[Event]) -> None:
    rows = [{"job_id": e.job_id, "number": e.number, "event": to_text(e)} for e in events]
    connection.execute(insert(_events), rows)
    ledger.record(connection, events)


def _columns(state: JobState) -> dict[str, str]:
    return {
        "name": state.name,
        "table_id": state.definition.table.id,
        "snapshot": to_text(state),
    }


@lru_cache(maxsize=256)
def _state(text: str) -> JobState:
    # Cached, because decoding is slow and most snapshots are read again unchanged.
    return from_text(JobState, text)
