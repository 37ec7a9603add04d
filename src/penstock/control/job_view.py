"""The view of a job that users see, as typed fields.

SHOW, the views jobs() and tasks(), and the progress display render a ``JobView``. Only the
rendering functions produce English text.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from penstock.catalog.catalog import Catalog, Lease
from penstock.catalog.status import JobReport
from penstock.clock import Clock
from penstock.model.backlog import UPSTREAM
from penstock.model.epoch import CommitKind, Statistics
from penstock.model.events import Outcome
from penstock.model.job import (
    DesiredState,
    JobState,
    PaceReport,
    Reason,
    Status,
    StatusCode,
)
from penstock.model.ledger import LedgerEntry
from penstock.model.options import print_duration
from penstock.model.split import Progress, SplitState, SplitStatus
from penstock.model.text import format_duration, format_instant
from penstock.sources.registry import source_kind
from penstock.sources.source import ShowRequest, SourceKind, SourceView

# The number of recent ledger entries to search for the furthest position of a source.
_HISTORY_ENTRIES_MAX = 100
_TASKS_MAX = 256


class RunState(StrEnum):
    """The state of a job, derived from the desired state and the lease."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    DROPPING = "DROPPING"
    STOPPED = "STOPPED"
    CLOSED = "CLOSED"


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job as users see it; a field that needs the source kind is computed on first use."""

    job: JobState
    at: datetime
    lease: Lease | None = None
    report: JobReport = field(default_factory=JobReport)
    # How many tasks a node runs at once; None if unknown.
    tasks_max: int | None = None
    # Attempts by outcome, and running attempts; empty unless the ledger was read.
    counts: Mapping[Outcome, int] = field(default_factory=dict)
    running: tuple[LedgerEntry, ...] = ()
    history: tuple[Progress, ...] = ()

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.name

    @property
    def state(self) -> RunState:
        """The state of the job; RUNNING if it should run and a node has a live lease."""
        match self.job.desired.state:
            case DesiredState.RUN:
                return RunState.RUNNING if self.owner else RunState.PENDING
            case DesiredState.PAUSE:
                return RunState.PAUSED
            case DesiredState.DROP:
                return RunState.DROPPING
            case DesiredState.CLOSED:
                return RunState.STOPPED if self.job.stopped else RunState.CLOSED

    @property
    def owner(self) -> str:
        """The node that runs the job; empty if no node does."""
        return self.lease.node_id if self.lease and self.lease.live else ""

    @property
    def reason(self) -> Reason | None:
        """Why the job is paused."""
        return self.job.desired.reason

    @property
    def ended(self) -> bool:
        """Whether a user dropped or stopped the job."""
        return self.job.desired.state in (DesiredState.DROP, DesiredState.CLOSED)

    @property
    def kind(self) -> SourceKind:
        """The kind of the job's source."""
        return source_kind(self.job.definition.source.kind)

    @property
    def position(self) -> str:
        """The position, as text."""
        return self.kind.position(self.job.progress)

    @property
    def totals(self) -> Statistics:
        """The counters of the job since it was created."""
        return self.job.cumulative

    @property
    def rows_unselected(self) -> int | None:
        """Rows that the WHERE excluded; None unless each input row becomes at most one row."""
        query = self.job.definition.query
        if self.job.definition.streaming is not None:
            return None
        return self.totals.rows_unselected if query is None or query.row_wise else None

    @cached_property
    def splits(self) -> tuple[SplitStatus, ...]:
        """The status of every split."""
        return self.kind.statuses(self._request)

    @cached_property
    def source(self) -> SourceView:
        """The parts of the view that the source kind computes."""
        return self.kind.show(self._request)

    @property
    def backlog_cause(self) -> str:
        """Why the job is in backlog; empty if it is not.

        The backlog of an upstream job counts only while both jobs run.
        """
        own = self.job.backlog.cause
        upstream = self.job.backlog_cause if self.state is RunState.RUNNING else ""
        return own or (upstream if upstream.startswith(UPSTREAM) else "")

    @property
    def pace(self) -> PaceReport | None:
        """The last stored report about the amount left and the rate."""
        return self.report.status.pace if self.report.status else None

    @property
    def tasks(self) -> int:
        """The task limit of an epoch: the minimum of option, node limit and readable splits."""
        readable = sum(s.state in (SplitState.OPEN, SplitState.DRAINING) for s in self.splits)
        desired = self.job.definition.properties.tasks_max or _TASKS_MAX
        return min(desired, self.tasks_max or _TASKS_MAX, _TASKS_MAX, readable)

    @property
    def _request(self) -> ShowRequest:
        return ShowRequest(
            state=self.job, memory=self.report.memory, at=self.at, history=self.history
        )


def view_jobs(
    catalog: Catalog,
    *,
    clock: Clock,
    states: Iterable[JobState] | None = None,
    with_ledger: bool = False,
    tasks_max: int | None = None,
) -> list[JobView]:
    """Return views of jobs; the ledger is optional, because it takes a query per job."""
    leases, reports, now = catalog.leases(), catalog.reports(), clock.now()
    views = []
    for state in catalog.jobs() if states is None else states:
        view = JobView(
            job=state,
            at=now,
            lease=leases.get(state.id),
            report=reports.get(state.id, JobReport()),
            tasks_max=tasks_max,
        )
        views.append(_with_ledger(view, catalog) if with_ledger else view)
    return views


def _with_ledger(view: JobView, catalog: Catalog) -> JobView:
    entries = catalog.ledger(view.job.id, newest=_HISTORY_ENTRIES_MAX)
    epochs = [entry for entry in entries if entry.kind is CommitKind.EPOCH]
    runs = view.job.desired.state is DesiredState.RUN
    return replace(
        view,
        counts=catalog.ledger_counts(view.job.id, kind=CommitKind.EPOCH),
        running=tuple(e for e in entries if runs and e.outcome is Outcome.STARTED),
        history=tuple(e.progress for e in epochs if e.outcome is Outcome.COMMITTED),
    )


# The columns about backlog and cadence that every list of jobs has.
BACKLOG_COLUMNS = (
    "in_backlog BOOLEAN, backlog_cause, backlog_eta, interval, next_epoch_at TIMESTAMP"
)


def backlog_cells(view: JobView) -> tuple[bool, str, str | None, str, str | None]:
    """Return the values of ``BACKLOG_COLUMNS``."""
    pace, cause, properties = view.pace, view.backlog_cause, view.job.definition.properties
    options = properties.cadence
    # With a target lag, the loop chooses the interval.
    chosen = pace.interval if pace and options.freshness else None
    normal = chosen or options.target or properties.interval
    longer = options.interval_backlog if cause else None
    # A stored report of a job that does not run has no valid times.
    eta = pace.eta if pace and cause and view.state is RunState.RUNNING else None
    return (
        bool(cause),
        cause,
        None if eta is None else format_duration(eta),
        print_duration(normal if longer is None else longer and max(longer, normal)),
        format_instant(pace.next_epoch_at if pace and view.owner else None),
    )


def status_text(status: Status | None) -> str:
    """Return the text of a status; empty for None."""
    if status is None:
        return ""
    fields = dict(status.fields)
    match status.code:
        case StatusCode.IDLE:
            until = datetime.fromisoformat(fields["until"])
            return f"no data; next poll at {format_instant(until)}"
        case StatusCode.LOADING:
            due = format_instant(status.pace.next_epoch_at if status.pace else None)
            return f"unread rows; next epoch at {due}" if due else ""
        case StatusCode.LACKS_CAPABILITY:
            return (
                f"node {fields['node']} does not have the library {fields['capability']}; "
                "install it, or run the job on another node"
            )


def reason_text(reason: Reason | None) -> str:
    """Return the text of a reason, its code and message; empty for None."""
    return "" if reason is None else f"{reason.code}: {reason.message}"
