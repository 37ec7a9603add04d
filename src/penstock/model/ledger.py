"""The ledger: the attempts of a job's epochs and the other commits of its chain.

Invariant: entries form a set by attempt id, and ``merge`` does not care which half came first:
a committed outcome wins over a failed one, that over a cancelled one, that over a started one.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from penstock.model.epoch import CommitKind, Statistics
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

_N = TypeVar("_N", int, float)
_RANK = {
    Outcome.STARTED: 0,
    Outcome.CANCELLED: 1,
    Outcome.FAILED: 2,
    Outcome.COMMITTED: 3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """What became of one attempt, or one commit that loads nothing."""

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


def entry_of(event: Event) -> LedgerEntry | None:
    """Answer what an event says about an attempt, if it says anything."""
    match event.body:
        case JobCreated() as body:
            committed = Committed(attachment=body.opening, table_version=body.table_version)
            return _of_commit(event, committed)
        case Committed() as body:
            return _of_commit(event, body)
        case EpochStarted() as body:
            return LedgerEntry(
                attempt_id=body.attempt_id,
                kind=CommitKind.EPOCH,
                epoch=body.epoch,
                attempt=body.attempt,
                outcome=Outcome.STARTED,
                progress=body.progress,
                started_at=event.at,
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


def _of_commit(event: Event, body: Committed) -> LedgerEntry:
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
    )


def merge(one: LedgerEntry | None, other: LedgerEntry) -> LedgerEntry:
    """Join two entries of one attempt; the order of the two does not matter."""
    if one is None:
        return other
    low, high = sorted((one, other), key=lambda entry: _RANK[entry.outcome])
    return replace(
        high,
        started_at=high.started_at or low.started_at,
        ended_at=high.ended_at or low.ended_at,
        table_version=_first(high.table_version, low.table_version),
        plan_seconds=_first(high.plan_seconds, low.plan_seconds),
        run_seconds=_first(high.run_seconds, low.run_seconds),
        commit_seconds=_first(high.commit_seconds, low.commit_seconds),
        progress=high.progress or low.progress,
    )


def _first(one: _N | None, other: _N | None) -> _N | None:
    return other if one is None else one
