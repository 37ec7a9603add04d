"""Statements that only look: jobs, their definition, ledger and journal."""

from datetime import UTC, datetime

from penstock.catalog.catalog import Catalog
from penstock.catalog.leases import Lease
from penstock.control.clauses import statement_of
from penstock.control.result import Cell, Result
from penstock.model.epoch import Statistics
from penstock.model.events import (
    Committed,
    DefinitionChanged,
    EpochEnded,
    EpochStarted,
    Event,
    GenerationRaised,
    JobCreated,
    ModifiedFilesSeen,
    WishChanged,
)
from penstock.model.job import JobDefinition, JobState, Reason, Wish
from penstock.model.ledger import LedgerEntry
from penstock.model.split import After, End, Position, SplitProgress, position_text
from penstock.model.text import counted
from penstock.sql.formatter import format_statement

JOB_COLUMNS = (
    "name",
    "kind",
    "state",
    "table",
    "position",
    "files_loaded",
    "rows_loaded",
    "rows_rejected",
    "rows_unselected",
    "files_modified",
    "requests_per_hour",
    "last_commit",
    "reason",
    "comment",
)
EPOCH_COLUMNS = (
    "number",
    "kind",
    "epoch",
    "attempt",
    "outcome",
    "position",
    "rows",
    "rejected",
    "files",
    "bytes",
    "table_version",
    "plan_ms",
    "run_ms",
    "commit_ms",
    "ended",
    "reason",
)


def show_jobs(*, catalog: Catalog) -> Result:
    """List the jobs with their state, position and counts."""
    leases = catalog.leases()
    requests = catalog.requests_in_hour()
    rows = tuple(
        _job_row(state, leases.get(state.id), requests.get(state.id))
        for state in catalog.jobs()
        if not state.stopped
    )
    return Result(columns=JOB_COLUMNS, rows=rows)


def job_state(state: JobState, lease: Lease | None) -> str:
    """Name a job's state; RUNNING is derived from the wish and a live lease."""
    match state.wish.wish:
        case Wish.RUN:
            return "RUNNING" if lease is not None and lease.live else "PENDING"
        case Wish.PAUSE:
            return "PAUSED"
        case Wish.DROP:
            return "DROPPING"
        case Wish.CLOSED:
            return "STOPPED" if state.stopped else "CLOSED"


def _job_row(state: JobState, lease: Lease | None, requests: int | None) -> tuple[Cell, ...]:
    total = state.cumulative
    return (
        state.name,
        "STREAMING" if state.definition.load is None else "ROUTINE LOAD",
        job_state(state, lease),
        state.definition.table.name,
        _positions(state.progress),
        total.files_read,
        total.rows_loaded,
        total.rows_rejected,
        _unselected(state.definition, total),
        state.modified_files,
        requests,
        _instant(state.committed_at),
        _reason(state.wish.reason),
        state.definition.comment,
    )


def _unselected(definition: JobDefinition, total: Statistics) -> int | None:
    """Answer what the WHERE dropped; unknown where a row may give several."""
    query = definition.query
    return total.rows_unselected if query is None or query.row_wise else None


def show_create_job(state: JobState) -> Result:
    """Write the statement that makes the same job."""
    statement = statement_of(state.definition, floor=state.progress[0].floor)
    return Result(
        columns=("job", "create_statement"),
        rows=((state.name, format_statement(statement)),),
    )


def show_epochs(state: JobState, *, catalog: Catalog) -> Result:
    """List the ledger of a job, the newest entry last."""
    rows = tuple(_epoch_row(entry) for entry in catalog.ledger(state.id, newest=1000))
    return Result(columns=EPOCH_COLUMNS, rows=rows)


def _epoch_row(entry: LedgerEntry) -> tuple[Cell, ...]:
    counted = entry.statistics
    return (
        entry.number,
        str(entry.kind),
        entry.epoch,
        entry.attempt,
        str(entry.outcome),
        _positions(entry.progress),
        counted.rows_loaded,
        counted.rows_rejected,
        counted.files_read,
        counted.bytes_read,
        entry.table_version,
        _milliseconds(entry.plan_seconds),
        _milliseconds(entry.run_seconds),
        _milliseconds(entry.commit_seconds),
        _instant(entry.ended_at),
        _reason(entry.reason),
    )


def show_events(state: JobState, *, catalog: Catalog) -> Result:
    """List the journal of a job, the newest entry last."""
    rows = tuple(
        (event.number, _instant(event.at), type(event.body).__name__, _told(event))
        for event in catalog.events(state.id)
    )
    return Result(columns=("number", "at", "event", "detail"), rows=rows)


def _told(event: Event) -> str:
    match event.body:
        case JobCreated() as body:
            return f"generation {body.generation.number}"
        case DefinitionChanged() as body:
            return f"revision {body.definition.revision}"
        case WishChanged() as body:
            reason = _reason(body.reason)
            return f"{body.wish}, generation {body.generation.number}" + (
                f", {reason}" if reason else ""
            )
        case GenerationRaised() as body:
            return f"generation {body.generation.number}, {body.cause}"
        case EpochStarted() as body:
            files = f", {counted(body.files, 'file')}" if body.files else ""
            return f"epoch {body.epoch}, attempt {body.attempt}{files}"
        case EpochEnded() as body:
            return f"epoch {body.epoch}, attempt {body.attempt}, {body.outcome}"
        case Committed() as body:
            return _told_commit(body)
        case ModifiedFilesSeen() as body:
            return f"{body.files} loaded files have changed"


def _told_commit(body: Committed) -> str:
    attachment = body.attachment
    return (
        f"{attachment.kind} {attachment.number}, generation {attachment.generation.number}, "
        f"{attachment.statistics.rows_loaded} rows, position {_positions(attachment.progress)}"
    )


def _positions(progress: tuple[SplitProgress, ...]) -> str:
    """Write the position among files, or those of shards that are still read."""
    if any(split.lineage is not None for split in progress):
        return _shards(progress)
    return ", ".join(_file(split.position) for split in progress)


def _file(position: Position) -> str:
    return position.value if isinstance(position, After) else "beginning"


def _shards(progress: tuple[SplitProgress, ...]) -> str:
    """Write where a single shard stands; of several, only how many there are."""
    reading = [split for split in progress if not isinstance(split.position, End)]
    if len(reading) == 1:
        return f"{reading[0].split} {position_text(reading[0].position)}"
    finished = len(progress) - len(reading)
    told = f"{counted(len(reading), 'shard')}, see SHOW SHARDS"
    return told + (f" ({finished} finished)" if finished else "")


def _reason(reason: Reason | None) -> str:
    return "" if reason is None else f"{reason.code}: {reason.message}"


def _instant(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
