"""The ledger as rows: one row per recent attempt, and daily totals of older attempts.

Invariant: an attempt is counted exactly once, in its own row or in the row of one day. An
attempt that has not ended keeps its own row.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Select,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from penstock.catalog import relations
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import CommitKind, Statistics
from penstock.model.events import Event, Outcome
from penstock.model.ledger import LedgerEntry, entry_of, merge

ENTRIES_RETAINED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerDay:
    """Totals of the older attempts of one day with the same kind and outcome."""

    day: date
    kind: CommitKind
    outcome: Outcome
    attempts: int
    statistics: Statistics


_ledger = relations.ledger
_days = relations.ledger_days
_ENTRY = select(_ledger.c.entry).where(
    _ledger.c.job_id == bindparam("job_id"), _ledger.c.attempt_id == bindparam("attempt_id")
)
_INSERT = insert(_ledger)
_UPDATE = update(_ledger).where(
    _ledger.c.job_id == bindparam("job"), _ledger.c.attempt_id == bindparam("attempt")
)
_FOLDABLE = (
    _ledger.c.job_id == bindparam("job"),
    _ledger.c.ordinal <= bindparam("last"),
    _ledger.c.outcome != Outcome.STARTED.value,
)


def record(connection: Connection, events: Sequence[Event]) -> None:
    """Store the ledger entries of events, merged with the stored entries."""
    for event in events:
        entry = entry_of(event)
        if entry is None:
            continue
        key = {"job_id": event.job_id, "attempt_id": entry.attempt_id}
        stored = connection.scalar(_ENTRY, key)
        if stored is None:
            # The first event of an attempt determines its place in the ledger.
            connection.execute(_INSERT, {**key, "ordinal": event.number, **_columns(entry)})
            continue
        merged = merge(from_text(LedgerEntry, stored), entry)
        of_attempt = {"job": event.job_id, "attempt": entry.attempt_id}
        connection.execute(_UPDATE, {**of_attempt, **_columns(merged)})


def _columns(entry: LedgerEntry) -> dict[str, object]:
    return {
        "kind": entry.kind.value,
        "outcome": entry.outcome.value,
        "number": entry.number,
        "epoch": entry.epoch,
        "entry": to_text(entry),
    }


def newest_entries(
    connection: Connection, job_id: str, *, newest: int
) -> tuple[LedgerEntry, ...]:
    """Return the newest entries in order of appearance, oldest first."""
    texts = connection.scalars(_newest_first(job_id, _ledger.c.entry).limit(newest)).all()
    return tuple(from_text(LedgerEntry, text) for text in reversed(texts))


def _newest_first(job_id: str, column: Column[Any]) -> Select[Any]:
    of_job = _ledger.c.job_id == job_id
    return select(column).where(of_job).order_by(_ledger.c.ordinal.desc())


def open_entries(connection: Connection, job_id: str) -> tuple[LedgerEntry, ...]:
    """Return the attempts that have not ended."""
    started = _ledger.c.outcome == Outcome.STARTED.value
    texts = connection.scalars(_newest_first(job_id, _ledger.c.entry).where(started)).all()
    return tuple(from_text(LedgerEntry, text) for text in reversed(texts))


def counts(
    connection: Connection, job_id: str, *, kind: CommitKind | None
) -> dict[Outcome, int]:
    """Count the attempts of a job by outcome, including the daily totals."""
    found: Counter[Outcome] = Counter()
    groups = (_ledger.c.outcome, _ledger.c.kind)
    grouped = select(*groups, func.count()).where(_ledger.c.job_id == job_id).group_by(*groups)
    for outcome, of_kind, attempts in connection.execute(grouped):
        if kind is None or of_kind == kind:
            found[Outcome(outcome)] += attempts
    for day in days(connection, job_id):
        if kind is None or day.kind is kind:
            found[day.outcome] += day.attempts
    return dict(found)


def days(connection: Connection, job_id: str) -> tuple[LedgerDay, ...]:
    """Return the daily totals of older attempts."""
    order = (_days.c.day, _days.c.kind, _days.c.outcome)
    rows = connection.execute(select(_days).where(_days.c.job_id == job_id).order_by(*order))
    return tuple(
        LedgerDay(
            day=date.fromisoformat(row.day),
            kind=CommitKind(row.kind),
            outcome=Outcome(row.outcome),
            attempts=row.attempts,
            statistics=from_text(Statistics, row.statistics),
        )
        for row in rows
    )


def fold(connection: Connection, job_id: str, *, keep: int) -> None:
    """Replace the ended attempts, except the newest, with daily totals."""
    older = _newest_first(job_id, _ledger.c.ordinal).limit(1).offset(keep)
    last = connection.scalar(older)
    if last is None:
        return
    old = {"job": job_id, "last": last}
    by_key: defaultdict[tuple[str, CommitKind, Outcome], list[Statistics]] = defaultdict(list)
    for text in connection.scalars(select(_ledger.c.entry).where(*_FOLDABLE), old):
        entry = from_text(LedgerEntry, text)
        # Every event of an attempt sets one of the two times.
        at = entry.ended_at or entry.started_at
        day = at.astimezone(UTC).date() if at else date.min
        by_key[day.isoformat(), entry.kind, entry.outcome].append(entry.statistics)
    for (day_text, kind, outcome), statistics in by_key.items():
        key = {"job_id": job_id, "day": day_text, "kind": kind.value, "outcome": outcome.value}
        _add_to_day(connection, key, statistics)
    connection.execute(delete(_ledger).where(*_FOLDABLE), old)


def _add_to_day(
    connection: Connection, key: dict[str, str], statistics: list[Statistics]
) -> None:
    this_day = [_days.c[name] == value for name, value in key.items()]
    attempts, total = len(statistics), sum(statistics, Statistics())
    stored = connection.execute(select(_days).where(*this_day)).one_or_none()
    if stored is not None:
        attempts += stored.attempts
        total += from_text(Statistics, stored.statistics)
        connection.execute(delete(_days).where(*this_day))
    row = {**key, "attempts": attempts, "statistics": to_text(total)}
    connection.execute(insert(_days), row)
