"""Events of a job, and ``apply``, which folds them into the job's state.

Invariant: only ``apply`` changes a job's state, whether live, in recovery or for snapshots. The
state consists of registers. In each register, the value with the highest number wins. The
number of each register is:

* definition: the revision
* desired state, notices and requests: the number of the event
* generation: the number of the generation
* progress and statistics: the commit number
* batch of a streaming query: the number of the batch
* backlog: the copies are merged, see ``model/backlog.py``

Repeating an event changes nothing. An older event never overwrites a newer one. The first event
creates the job. The order of all later events does not matter.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from penstock.errors import InvariantError
from penstock.model.backlog import Backlog, SplitBacklog, merge
from penstock.model.epoch import (
    Attachment,
    BatchRecord,
    CommitKind,
    Generation,
    Statistics,
)
from penstock.model.job import Desired, DesiredState, JobDefinition, JobState, Reason
from penstock.model.split import Progress


class Outcome(StrEnum):
    """Outcome of an attempt of an epoch."""

    STARTED = "STARTED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    COMMITTED = "COMMITTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCreated:
    """A user created the job; its opening commit is in the table."""

    definition: JobDefinition
    generation: Generation
    opening: Attachment
    table_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChanged:
    """A user altered the job."""

    definition: JobDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredStateChanged:
    """A user, or Penstock itself, requested another state of the job."""

    state: DesiredState
    reason: Reason | None
    generation: Generation
    auto_resumes: int = 0
    resumed_at: datetime | None = None
    # Number of rejected rows when a user resumed the job; None for any other change.
    rejected_before: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRaised:
    """A node acquired the lease, or a statement is about to change the job."""

    generation: Generation
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStarted:
    """An attempt of an epoch is about to run."""

    attempt_id: str
    epoch: int
    attempt: int
    progress: Progress
    items: int
    size_bytes: int
    plan_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnded:
    """An attempt of an epoch ended without a commit."""

    attempt_id: str
    epoch: int
    attempt: int
    outcome: Outcome
    reason: Reason | None
    run_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A commit of the job's chain was found in the table."""

    attachment: Attachment
    table_version: int | None
    commit_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticesChanged:
    """A poll of the source reported counts that differ from the previous counts."""

    notices: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStarted:
    """A streaming query was started; a number of -1 means that no batch was found."""

    # The newest batch that Spark committed, the newest that Spark opened, and the newest in
    # the table.
    committed: int
    opened: int
    in_table: int
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRequested:
    """A user requested an epoch now, or a later watermark."""

    # The requested watermark in milliseconds since 1970; None: do not advance it.
    advance_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogEntered:
    """The job entered its backlog, or its boundaries were fixed again."""

    cause: str
    record: Backlog
    # When the job entered its backlog. A change of the cause does not change this time.
    since: datetime
    # The number of the newest event whose request for boundaries was fulfilled.
    arm_event: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogFinished:
    """A split reached its boundary, ended or was removed."""

    armed: int
    split: SplitBacklog


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogLeft:
    """The job left its backlog, or its boundaries were fixed while there was no unread data."""

    record: Backlog
    # Whether the job was in backlog before.
    entered: bool = True
    arm_event: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkApplied:
    """A batch without rows was run, to apply a watermark; it changed no row of the table."""

    # The plan of this record is empty.
    batch: BatchRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogReset:
    """A user requested boundaries at the current heads."""


EventBody = (
    JobCreated
    | DefinitionChanged
    | DesiredStateChanged
    | GenerationRaised
    | EpochStarted
    | EpochEnded
    | Committed
    | NoticesChanged
    | EpochRequested
    | QueryStarted
    | WatermarkApplied
    | BacklogEntered
    | BacklogFinished
    | BacklogLeft
    | BacklogReset
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An entry of a job's journal."""

    job_id: str
    number: int
    at: datetime
    body: EventBody
    # The user whose statement caused the event; empty if Penstock caused it.
    by: str = ""


def apply(state: JobState | None, event: Event) -> JobState:  # noqa: C901, PLR0912
    """Return the state after the event."""
    body = event.body
    if isinstance(body, JobCreated):
        created = _created(event, body)
        return created if state is None else state
    if state is None:
        raise InvariantError(
            f"job {event.job_id} has event {event.number} but was never created"
        )
    state = replace(state, event_number=max(state.event_number, event.number))
    match body:
        case DefinitionChanged():
            newer = body.definition.revision > state.definition.revision
            return replace(state, definition=body.definition) if newer else state
        case DesiredStateChanged():
            raised = _generation_raised(state, body.generation)
            return _desired_state_changed(raised, event, body)
        case GenerationRaised():
            return _generation_raised(state, body.generation)
        case EpochStarted() | EpochEnded():
            return replace(state, epoch_newest=max(state.epoch_newest, body.epoch))
        case Committed():
            return _committed(state, event, body.attachment)
        case NoticesChanged():
            noticed = replace(state, notices=body.notices, notices_event=event.number)
            return noticed if event.number > state.notices_event else state
        case EpochRequested():
            return _requested(state, event, body)
        case QueryStarted():
            started = max(state.query_started_at or event.at, event.at)
            return replace(state, query_started_at=started)
        case WatermarkApplied():
            return replace(state, batch=_newer_batch(state.batch, body.batch))
        case BacklogEntered() | BacklogLeft():
            armed_event = body.arm_event or event.number
            merged = _with_backlog(state, body.record, armed_event=armed_event)
            if isinstance(body, BacklogEntered):
                return _with_cause(merged, event, body.cause, since=body.since)
            return _with_cause(merged, event, "", since=None)
        case BacklogFinished():
            record = Backlog(armed=body.armed, splits=(body.split,))
            return _with_backlog(state, record, armed_event=event.number)
        case BacklogReset():
            return _arm(state, event)
    assert_never(body)


def _created(event: Event, body: JobCreated) -> JobState:
    return JobState(
        id=event.job_id,
        created_at=event.at,
        definition=body.definition,
        generation=body.generation,
        desired=Desired(
            state=DesiredState.RUN, reason=None, event=event.number, changed_at=event.at
        ),
        number=body.opening.number,
        progress=body.opening.progress,
        cumulative=Statistics(),
        rejects_number=0,
        committed_at=None,
        epoch_newest=0,
        epoch_committed=0,
        succeeded_event=0,
        event_number=event.number,
        arm_event=event.number,
    )


def _arm(state: JobState, event: Event) -> JobState:
    """Request that the boundaries of the backlog are fixed."""
    return replace(state, arm_event=max(state.arm_event, event.number))


def _with_backlog(state: JobState, record: Backlog, *, armed_event: int) -> JobState:
    """Merge a copy of the backlog; record the first event with the newest boundaries."""
    before = state.backlog.armed
    state = replace(state, backlog=merge(state.backlog, record))
    if record.armed > before:
        return replace(state, armed_event=armed_event)
    if record.armed == before and record.armed:
        return replace(state, armed_event=min(state.armed_event, armed_event))
    return state


def _with_cause(
    state: JobState, event: Event, cause: str, *, since: datetime | None
) -> JobState:
    if event.number <= state.backlog_event:
        return state
    return replace(state, backlog_cause=cause, backlog_since=since, backlog_event=event.number)


def _generation_raised(state: JobState, generation: Generation) -> JobState:
    newer = generation.number > state.generation.number
    return replace(state, generation=generation) if newer else state


def _desired_state_changed(
    state: JobState, event: Event, body: DesiredStateChanged
) -> JobState:
    if body.rejected_before is not None and event.number > state.rejected_before_event:
        state = replace(
            state, rejected_before=body.rejected_before, rejected_before_event=event.number
        )
    if body.state is DesiredState.RUN and not body.auto_resumes:
        state = _arm(state, event)
    if event.number <= state.desired.event:
        return state
    desired = Desired(
        state=body.state,
        reason=body.reason,
        event=event.number,
        changed_at=event.at,
        auto_resumes=body.auto_resumes,
        resumed_at=body.resumed_at,
    )
    return replace(state, desired=desired)


def _requested(state: JobState, event: Event, body: EpochRequested) -> JobState:
    marks = [mark for mark in (state.advance_ms, body.advance_ms) if mark is not None]
    return replace(
        state,
        requested_event=max(state.requested_event, event.number),
        advance_ms=max(marks, default=None),
    )


def _committed(state: JobState, event: Event, attachment: Attachment) -> JobState:
    if attachment.kind is CommitKind.EPOCH:
        state = replace(
            state,
            epoch_newest=max(state.epoch_newest, attachment.epoch),
            epoch_committed=max(state.epoch_committed, attachment.epoch),
            succeeded_event=max(state.succeeded_event, event.number),
            committed_at=max(
                state.committed_at or attachment.committed_at, attachment.committed_at
            ),
        )
    state = _with_backlog(state, attachment.backlog, armed_event=event.number)
    if attachment.kind is CommitKind.MOVE:
        state = _arm(state, event)
    if attachment.window.tripped and event.number > state.tripped_event:
        state = replace(state, tripped=attachment.window.tripped, tripped_event=event.number)
    state = replace(state, batch=_newer_batch(state.batch, attachment.batch))
    if attachment.number <= state.number:
        return state
    return replace(
        state,
        window=attachment.window,
        number=attachment.number,
        progress=attachment.progress,
        cumulative=attachment.cumulative,
        rejects_number=attachment.rejects_number,
    )


def _newer_batch(one: BatchRecord | None, other: BatchRecord | None) -> BatchRecord | None:
    """Return the newer batch; if the numbers are equal, prefer the batch in the table."""
    known = [batch for batch in (one, other) if batch is not None]
    return max(known, key=lambda batch: (batch.batch, bool(batch.plan)), default=None)
