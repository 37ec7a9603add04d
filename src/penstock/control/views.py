"""The rows of the views jobs(…) and tasks(…), in the columns of Apache Doris.

Invariant: for a paused job, the number of tasks equals the sum of the job's three counts. Both
views use ``_status``. Old attempts with the same day and outcome are one row; its TaskNumber
counts the attempts.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from operator import itemgetter

from penstock.catalog.catalog import Catalog
from penstock.catalog.ledger import ENTRIES_RETAINED, LedgerDay
from penstock.clock import Clock
from penstock.control.job_view import (
    BACKLOG_COLUMNS,
    JobView,
    RunState,
    backlog_cells,
    reason_text,
    status_text,
    view_jobs,
)
from penstock.control.result import ResultColumn, result_columns
from penstock.model.epoch import CommitKind, Statistics
from penstock.model.events import Outcome
from penstock.model.job import DesiredState, JobState
from penstock.model.job_kinds import STREAMING
from penstock.model.ledger import LedgerEntry
from penstock.model.options import print_options
from penstock.model.split import Progress
from penstock.model.text import format_instant, quoted_name
from penstock.sources.registry import source_kind

JOB_COLUMNS = result_columns(
    "Id, Name, Definer, ExecuteType, RecurringStrategy, Status, ExecuteSql, CreateTime, "
    "SucceedTaskCount BIGINT, FailedTaskCount BIGINT, CanceledTaskCount BIGINT, Comment, "
    "Properties, CurrentOffset, EndOffset, LoadStatistic, ErrorMsg, JobRuntimeMsg, Lag, "
    f"LastTaskSuccessTime, {BACKLOG_COLUMNS}"
)
TASK_COLUMNS = result_columns(
    "TaskId, JobId, JobName, Label, Status, ErrorMsg, CreateTime, StartTime, FinishTime, "
    "TrackingUrl, LoadStatistic, User, FirstErrorMsg, RunningOffset"
)

# The ledger is pruned occasionally, so it can contain more entries than its limit.
_ENTRIES_MAX = 2 * ENTRIES_RETAINED

Row = tuple[str | int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A named relation with its columns and rows."""

    name: str
    columns: tuple[ResultColumn, ...]
    rows: tuple[Row, ...]


def jobs_view(catalog: Catalog, *, clock: Clock) -> View:
    """Return all streaming jobs by name; SHOW ROUTINE LOAD lists routine loads."""
    views = view_jobs(catalog, clock=clock, states=_streaming(catalog), with_ledger=True)
    rows = tuple(_job_row(view) for view in views)
    return View(name="jobs", columns=JOB_COLUMNS, rows=rows)


def _streaming(catalog: Catalog) -> list[JobState]:
    return [state for state in catalog.jobs() if state.definition.kind is STREAMING]


def _job_row(view: JobView) -> Row:
    job, definition, reason = view.job, view.job.definition, view.reason
    tasks: Counter[str] = Counter()
    for outcome, attempts in view.counts.items():
        tasks[_status(outcome, desired=job.desired.state)] += attempts
    columns = ""
    if definition.columns is not None:
        columns = f" ({', '.join(map(quoted_name, definition.columns))})"
    properties = dict((*print_options(definition.properties), *definition.metadata))
    return (
        job.id,
        view.name,
        "",
        "STREAMING",
        "",
        str(view.state),
        f"INSERT INTO {quoted_name(definition.table.name)}{columns} {definition.select}",
        format_instant(job.created_at),
        tasks["SUCCESS"],
        tasks["FAILED"],
        tasks["CANCELED"],
        definition.comment,
        _json(properties) if properties else "",
        view.source.offset,
        view.source.end_offset,
        _job_statistic(view.totals),
        _json({"code": str(reason.code), "msg": reason.message}) if reason else "",
        # The status of a runner is valid only while the job runs.
        status_text(view.report.status) if view.state is RunState.RUNNING else "",
        "",
        format_instant(job.committed_at) or "",
        *backlog_cells(view),
    )


def _status(outcome: Outcome, *, desired: DesiredState) -> str:
    match outcome:
        case Outcome.STARTED:
            # A pause prevents every commit, even if no runner reported the attempt's end.
            return "RUNNING" if desired is DesiredState.RUN else "CANCELED"
        case Outcome.COMMITTED:
            return "SUCCESS"
        case Outcome.FAILED:
            return "FAILED"
        case Outcome.CANCELLED:
            return "CANCELED"


def _job_statistic(total: Statistics) -> str:
    return _json(
        {
            "scannedRows": total.rows_read,
            "loadBytes": total.bytes_written,
            "fileNumber": total.files_read,
            "fileSize": total.bytes_read,
            "filteredRows": total.rows_rejected,
        }
    )


def tasks_view(catalog: Catalog) -> View:
    """Return the attempts of all streaming jobs, the newest first."""
    tasks = [task for state in _streaming(catalog) for task in _tasks(state, catalog=catalog)]
    tasks.sort(key=itemgetter(0), reverse=True)
    return View(name="tasks", columns=TASK_COLUMNS, rows=tuple(row for _, row in tasks))


def _tasks(state: JobState, *, catalog: Catalog) -> list[tuple[datetime, Row]]:
    """Return the rows of one job with their start times, the newest first."""
    days = [day for day in catalog.ledger_days(state.id) if day.kind is CommitKind.EPOCH]
    entries = catalog.ledger(state.id, newest=_ENTRIES_MAX)
    end_by_number = {e.number: e.progress for e in entries if e.number is not None}
    epochs = [entry for entry in entries if entry.kind is CommitKind.EPOCH]
    return [
        *(_task(entry, state, end_by_number=end_by_number) for entry in reversed(epochs)),
        *(_day_of_tasks(day, state) for day in reversed(days)),
    ]


def _task(
    entry: LedgerEntry, state: JobState, *, end_by_number: Mapping[int, Progress]
) -> tuple[datetime, Row]:
    # An attempt that is known only from the table has no start time.
    started_at = entry.started_at or entry.ended_at or state.created_at
    start = end_by_number.get(entry.number - 1, ()) if entry.number else entry.progress
    end = entry.progress if entry.number else ()
    return started_at, (
        entry.attempt_id,
        state.id,
        state.name,
        f"{state.id}_{entry.attempt_id}",
        _status(entry.outcome, desired=state.desired.state),
        reason_text(entry.reason) or None,
        format_instant(started_at),
        format_instant(started_at),
        format_instant(entry.ended_at),
        None,
        _task_statistic(entry.statistics, tasks=1),
        "",
        None,
        source_kind(state.definition.source.kind).span(start, end),
    )


def _day_of_tasks(day: LedgerDay, state: JobState) -> tuple[datetime, Row]:
    started_at = datetime.combine(day.day, time.min, tzinfo=UTC)
    return started_at, (
        None,
        state.id,
        state.name,
        None,
        _status(day.outcome, desired=state.desired.state),
        None,
        format_instant(started_at),
        None,
        None,
        None,
        _task_statistic(day.statistics, tasks=day.attempts),
        "",
        None,
        None,
    )


def _task_statistic(counted: Statistics, *, tasks: int) -> str:
    return _json(
        {
            "ScannedRows": counted.rows_read,
            "LoadBytes": counted.bytes_written,
            "FileNumber": counted.files_read,
            "FileSize": counted.bytes_read,
            "FilteredRows": counted.rows_rejected,
            "TaskNumber": tasks,
            "Unfinished backends": {},
            "All backends": {},
        }
    )


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False)
