"""What users see of a job, computed once as typed fields.

SHOW, the views jobs() and tasks(), the progress display and every later interface render a
``JobView``. English is produced by the functions that render.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from penstock.catalog.catalog import Catalog, Lease
from penstock.catalog.status import JobReport
from penstock.clock import Clock
from penstock.model.epoch import CommitKind, ErrorWindow, Statistics
from penstock.model.events import Outcome
from penstock.model.job import DesiredState, JobState, Reason, Status, StatusCode
from penstock.model.ledger import LedgerEntry
from penstock.model.split import Progress, SplitState, SplitStatus
from penstock.model.text import format_instant
from penstock.sources.registry import source_kind
from penstock.sources.source import ShowRequest, SourceShown

# So many recent epochs decide how far a source was ever read.
_HISTORY_ENTRIES_MAX = 100
_TASKS_MAX = 256


class RunState(StrEnum):
    """The state of a job; RUNNING is derived from the desired state and a live lease."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    DROPPING = "DROPPING"
    STOPPED = "STOPPED"
    CLOSED = "CLOSED"


def run_state(state: JobState, lease: Lease | None) -> RunState:
    """Return the state of a job."""
    match state.desired.state:
        case DesiredState.RUN:
            live = lease is not None and lease.live
            return RunState.RUNNING if live else RunState.PENDING
        case DesiredState.PAUSE:
            return RunState.PAUSED
        case DesiredState.DROP:
            return RunState.DROPPING
        case DesiredState.CLOSED:
            return RunState.STOPPED if state.stopped else RunState.CLOSED


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What is stored of a job, as read from the catalog at one time."""

    state: JobState
    at: datetime
    lease: Lease | None = None
    status: Status | None = None
    memory: str = ""
    requests: int | None = None
    # Attempts by outcome, and those that are running; only if asked for.
    counts: Mapping[Outcome, int] = field(default_factory=dict)
    running: tuple[LedgerEntry, ...] = ()
    history: tuple[Progress, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as users see it."""

    job: JobState
    state: RunState
    owner: str
    reason: Reason | None
    status: Status | None
    position: str
    splits: tuple[SplitStatus, ...]
    # Age of the oldest unread record over all splits; None if unknown.
    lag: timedelta | None
    # Most tasks of an epoch, by what is wanted and what is readable.
    tasks: int
    totals: Statistics
    # Rows that the WHERE dropped; None where a row may give several.
    rows_unselected: int | None
    window: ErrorWindow
    notices: Mapping[str, int]
    requests: int | None
    counts: Mapping[Outcome, int]
    running: tuple[LedgerEntry, ...]
    source: SourceShown
    at: datetime

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.name

    @property
    def ended(self) -> bool:
        """Whether a person ended the job."""
        return self.job.desired.state in (DesiredState.DROP, DesiredState.CLOSED)


def view_job(facts: JobFacts, *, tasks_max: int | None = None) -> JobView:
    """Return what users see of a job; pure."""
    job = facts.state
    definition = job.definition
    kind = source_kind(definition.source.kind)
    request = ShowRequest(state=job, memory=facts.memory, at=facts.at, history=facts.history)
    splits = kind.statuses(request)
    lags = [split.remaining.lag for split in splits if split.remaining.lag is not None]
    query = definition.query
    row_wise = query is None or query.row_wise
    return JobView(
        job=job,
        state=run_state(job, facts.lease),
        owner=facts.lease.node_id if facts.lease and facts.lease.live else "",
        reason=job.desired.reason,
        status=facts.status,
        position=kind.position(job.progress),
        splits=splits,
        lag=max(lags, default=None),
        tasks=_tasks(job, splits, tasks_max=tasks_max),
        totals=job.cumulative,
        rows_unselected=job.cumulative.rows_unselected if row_wise else None,
        window=job.window,
        notices=dict(job.notices),
        requests=facts.requests,
        counts=facts.counts,
        running=facts.running,
        source=kind.show(request),
        at=facts.at,
    )


def _tasks(job: JobState, splits: Iterable[SplitStatus], *, tasks_max: int | None) -> int:
    readable = sum(s.state in (SplitState.OPEN, SplitState.DRAINING) for s in splits)
    wanted = job.definition.properties.tasks_max or _TASKS_MAX
    return min(wanted, tasks_max or _TASKS_MAX, _TASKS_MAX, readable)


def job_facts(
    catalog: Catalog,
    *,
    clock: Clock,
    states: Iterable[JobState] | None = None,
    with_ledger: bool = False,
) -> list[JobFacts]:
    """Read the facts of jobs; the ledger is read job by job, so only if asked for."""
    leases, reports, now = catalog.leases(), catalog.reports(), clock.now()
    found = []
    for state in catalog.jobs() if states is None else states:
        entries = catalog.ledger(state.id, newest=_HISTORY_ENTRIES_MAX) if with_ledger else ()
        counts = catalog.ledger_counts(state.id, kind=CommitKind.EPOCH) if with_ledger else {}
        runs = state.desired.state is DesiredState.RUN
        report = reports.get(state.id, JobReport())
        found.append(
            JobFacts(
                state=state,
                at=now,
                lease=leases.get(state.id),
                status=report.status,
                memory=report.memory,
                requests=report.requests,
                counts=counts,
                running=tuple(e for e in entries if runs and e.outcome is Outcome.STARTED),
                history=tuple(e.progress for e in entries if _loaded(e)),
            )
        )
    return found


def _loaded(entry: LedgerEntry) -> bool:
    return entry.kind is CommitKind.EPOCH and entry.outcome is Outcome.COMMITTED


def status_text(status: Status | None) -> str:
    """Write a status for people; empty without one."""
    if status is None:
        return ""
    fields = dict(status.fields)
    match status.code:
        case StatusCode.IDLE:
            until = datetime.fromisoformat(fields["until"])
            return f"no data, next try at {format_instant(until)}"
        case StatusCode.LACKS_CAPABILITY:
            return (
                f"node {fields['node']} lacks the capability {fields['capability']}; "
                "another node must run it"
            )


def reason_text(reason: Reason | None) -> str:
    """Write a reason for people: its code and message; empty without one."""
    return "" if reason is None else f"{reason.code}: {reason.message}"
