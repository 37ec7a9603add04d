"""The ledger: the attempts of a job's epochs and the other commits of its chain.

Invariant: each attempt id has one entry. ``merge`` returns the same result in either order.
The outcome of the higher rank wins; from high to low: committed, failed, cancelled, started.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from penstock.model.epoch import BatchRecord, CommitKind, Statistics
from penstock.model.events import (
    Committed,
    EpochEnded,
    EpochStarted,
    Event,
    JobCreated,
    Outcome,
)
from penstock.model.job import Reason
from penstock.model.split import Progress

_RANK = {
    Outcome.STARTED: 0,
    Outcome.CANCELLED: 1,
    Outcome.FAILED: 2,
    Outcome.COMMITTED: 3,
}
# Fields that either of two merged entries may lack.
_PARTIAL = (
    "started_at",
    "ended_at",
    "table_version",
    "plan_seconds",
    "run_seconds",
    "commit_seconds",
    "progress",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """The outcome of one attempt, or of one commit that loads nothing."""

    attempt_id: str
    kind: CommitKind
    epoch: int
    attempt: int
    outcome: Outcome
    number: int | None = None
    table_version: int | None = None
    progress: Progress = ()
    statistics: Statistics = Statistics()
    started_at: datetime | None = None
    ended_at: datetime | None = None
    plan_seconds: float | None = None
    run_seconds: float | None = None
    commit_seconds: float | None = None
    reason: Reason | None = None
    batch: BatchRecord | None = None


def entry_of(event: Event) -> LedgerEntry | None:
    """Return the entry that an event adds to the ledger; None for other events."""
    match event.body:
        case JobCreated() as body:
            committed = Committed(attachment=body.opening, table_version=body.table_version)
            return _commit_entry(event, committed)
        case Committed() as body:
            return _commit_entry(event, body)
        case EpochStarted() as body:
            return LedgerEntry(
                attempt_id=body.attempt_id,
                kind=CommitKind.EPOCH,
                epoch=body.epoch,
                attempt=body.attempt,
                outcome=Outcome.STARTED,
                progress=body.progress,
                # The event is stored at the end of planning.
                started_at=event.at - timedelta(seconds=body.plan_seconds),
                plan_seconds=body.plan_seconds,
            )
        case EpochEnded() as body:
            return LedgerEntry(
                attempt_id=body.attempt_id,
                kind=CommitKind.EPOCH,
                epoch=body.epoch,
                attempt=body.attempt,
                outcome=body.outcome,
                ended_at=event.at,
                run_seconds=body.run_seconds,
                reason=body.reason,
            )
        case _:
            return None


def _commit_entry(event: Event, body: Committed) -> LedgerEntry:
    attachment = body.attachment
    loads = attachment.kind is CommitKind.EPOCH
    return LedgerEntry(
        attempt_id=attachment.attempt_id,
        kind=attachment.kind,
        epoch=attachment.epoch,
        attempt=attachment.attempt,
        outcome=Outcome.COMMITTED,
        number=attachment.number,
        table_version=body.table_version,
        progress=attachment.progress,
        statistics=attachment.statistics,
        ended_at=event.at,
        plan_seconds=attachment.timings.plan_seconds if loads else None,
        run_seconds=attachment.timings.run_seconds if loads else None,
        commit_seconds=body.commit_seconds,
        batch=attachment.batch if loads else None,
    )


def merge(one: LedgerEntry, other: LedgerEntry) -> LedgerEntry:
    """Merge two entries of one attempt; their order does not matter."""
    low, high = sorted((one, other), key=lambda entry: _RANK[entry.outcome])
    lacking = [name for name in _PARTIAL if getattr(high, name) in (None, ())]
    return replace(high, **{name: getattr(low, name) for name in lacking})
