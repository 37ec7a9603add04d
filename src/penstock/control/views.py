"""The rows of the views jobs(…) and tasks(…), in the columns of Apache Doris.

Invariant: the tasks of a job that is paused are as many as its three counts say. Both sides go
through ``_status``; attempts that were added up by day are one row, whose TaskNumber counts
them.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from functools import reduce

from penstock.catalog.catalog import Catalog
from penstock.catalog.leases import Lease
from penstock.catalog.ledger import ENTRIES_KEPT, LedgerDay
from penstock.control.clauses import write_offset
from penstock.control.show import job_state
from penstock.model.epoch import CommitKind, Statistics
from penstock.model.events import Outcome
from penstock.model.job import JobDefinition, JobState, Reason, Wish
from penstock.model.ledger import LedgerEntry
from penstock.model.options import print_options
from penstock.model.schema import quoted_name
from penstock.model.split import After, Horizon, Position, SplitProgress, further

JOB_COLUMNS = (
    "Id",
    "Name",
    "Definer",
    "ExecuteType",
    "RecurringStrategy",
    "Status",
    "ExecuteSql",
    "CreateTime",
    "SucceedTaskCount",
    "FailedTaskCount",
    "CanceledTaskCount",
    "Comment",
    "Properties",
    "CurrentOffset",
    "EndOffset",
    "LoadStatistic",
    "ErrorMsg",
    "JobRuntimeMsg",
    "Lag",
    "LastTaskSuccessTime",
)
COUNT_COLUMNS = ("SucceedTaskCount", "FailedTaskCount", "CanceledTaskCount")
TASK_COLUMNS = (
    "TaskId",
    "JobId",
    "JobName",
    "Label",
    "Status",
    "ErrorMsg",
    "CreateTime",
    "StartTime",
    "FinishTime",
    "TrackingUrl",
    "LoadStatistic",
    "User",
    "FirstErrorMsg",
    "RunningOffset",
)
END_OFFSET_ENTRIES_MAX = 100

# The ledger is cut only now and then, so it may hold somewhat more than it keeps.
_ENTRIES_MAX = 2 * ENTRIES_KEPT

Row = tuple[str | None, ...]
Progress = tuple[SplitProgress, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What can be selected from: a name, columns, and rows of texts.

    Columns in ``counts`` hold numbers, and are compared as such.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    counts: tuple[str, ...] = ()


def jobs_view(catalog: Catalog) -> View:
    """Answer all streaming jobs, by name; routine loads have SHOW ROUTINE LOAD."""
    leases, said = catalog.leases(), catalog.statuses()
    rows = tuple(
        _job_row(state, leases.get(state.id), said=said.get(state.id, ""), catalog=catalog)
        for state in catalog.jobs()
        if state.definition.load is None
    )
    return View(name="jobs", columns=JOB_COLUMNS, rows=rows, counts=COUNT_COLUMNS)


def _job_row(state: JobState, lease: Lease | None, *, said: str, catalog: Catalog) -> Row:
    tasks = _tasks_by_status(state, catalog=catalog)
    definition = state.definition
    properties = dict((*print_options(definition.properties), *definition.metadata))
    status = job_state(state, lease)
    return (
        state.id,
        state.name,
        "",
        "STREAMING",
        "",
        status,
        _insert(definition),
        _instant(state.created_at),
        str(tasks["SUCCESS"]),
        str(tasks["FAILED"]),
        str(tasks["CANCELED"]),
        definition.comment,
        _json(properties) if properties else "",
        write_offset(state.progress[0].position),
        write_offset(_end_position(state, catalog=catalog)),
        _job_statistic(state.cumulative),
        _error(state.wish.reason),
        # What a runner said last is true only as long as it lives.
        said if status == "RUNNING" else "",
        "",
        _instant(state.committed_at) or "",
    )


def _tasks_by_status(state: JobState, *, catalog: Catalog) -> Counter[str]:
    tasks: Counter[str] = Counter()
    counts = catalog.ledger_counts(state.id, kind=CommitKind.EPOCH)
    for outcome, attempts in counts.items():
        tasks[_status(outcome, wish=state.wish.wish)] += attempts
    return tasks


def _status(outcome: Outcome, *, wish: Wish) -> str:
    match outcome:
        case Outcome.STARTED:
            # Behind a pause nothing can be committed, even if nobody was left to say so.
            return "RUNNING" if wish is Wish.RUN else "CANCELED"
        case Outcome.COMMITTED:
            return "SUCCESS"
        case Outcome.FAILED:
            return "FAILED"
        case Outcome.CANCELLED:
            return "CANCELED"


def _insert(definition: JobDefinition) -> str:
    columns = ""
    if definition.columns is not None:
        columns = f" ({', '.join(quoted_name(column) for column in definition.columns)})"
    return f"INSERT INTO {quoted_name(definition.table.name)}{columns} {definition.select}"


def _end_position(state: JobState, *, catalog: Catalog) -> Position:
    """Answer the newest file that is known; never before the current position."""
    split = state.progress[0]
    # Only an offset that a person gave can lie before files that were loaded.
    if isinstance(split.floor, Horizon):
        return split.position
    entries = catalog.ledger(state.id, newest=END_OFFSET_ENTRIES_MAX)
    loaded = [entry.progress[0].position for entry in entries if _loaded(entry)]
    return reduce(further, loaded, split.position)


def _loaded(entry: LedgerEntry) -> bool:
    return entry.kind is CommitKind.EPOCH and entry.outcome is Outcome.COMMITTED


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


def _error(reason: Reason | None) -> str:
    return "" if reason is None else _json({"code": str(reason.code), "msg": reason.message})


def tasks_view(catalog: Catalog) -> View:
    """Answer the attempts of all jobs, the newest first."""
    streaming = (state for state in catalog.jobs() if state.definition.load is None)
    tasks = [task for state in streaming for task in _tasks(state, catalog=catalog)]
    tasks.sort(key=lambda task: task.at, reverse=True)
    return View(name="tasks", columns=TASK_COLUMNS, rows=tuple(task.row for task in tasks))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    at: datetime
    row: Row


def _tasks(state: JobState, *, catalog: Catalog) -> list[_Task]:
    """Answer the tasks of one job, the newest first."""
    days = [day for day in catalog.ledger_days(state.id) if day.kind is CommitKind.EPOCH]
    entries = catalog.ledger(state.id, newest=_ENTRIES_MAX)
    end_by_number = {e.number: e.progress for e in entries if e.number is not None}
    epochs = [entry for entry in entries if entry.kind is CommitKind.EPOCH]
    return [
        *(_task(entry, state, end_by_number=end_by_number) for entry in reversed(epochs)),
        *(_day_of_tasks(day, state) for day in reversed(days)),
    ]


def _task(
    entry: LedgerEntry,
    state: JobState,
    *,
    end_by_number: Mapping[int, Progress],
) -> _Task:
    # An attempt that is only known from the table has no beginning.
    began_at = entry.started_at or entry.ended_at or state.created_at
    reason = entry.reason
    return _Task(
        at=began_at,
        row=(
            entry.attempt_id,
            state.id,
            state.name,
            f"{state.id}_{entry.attempt_id}",
            _status(entry.outcome, wish=state.wish.wish),
            None if reason is None else f"{reason.code}: {reason.message}",
            _instant(began_at),
            _instant(began_at),
            _instant(entry.ended_at),
            None,
            _task_statistic(entry.statistics, tasks=1),
            "",
            None,
            _range(entry, end_by_number=end_by_number),
        ),
    )


def _range(entry: LedgerEntry, *, end_by_number: Mapping[int, Progress]) -> str:
    """Write where an attempt began and, once it is committed, where it ended."""
    start = end_by_number.get(entry.number - 1, ()) if entry.number else entry.progress
    end = entry.progress if entry.number else ()
    return _json({"startFileName": _file_name(start), "endFileName": _file_name(end)})


def _file_name(progress: Progress) -> str:
    position = progress[0].position if progress else Horizon()
    return position.value if isinstance(position, After) else ""


def _day_of_tasks(day: LedgerDay, state: JobState) -> _Task:
    began_at = datetime.combine(day.day, time.min, tzinfo=UTC)
    return _Task(
        at=began_at,
        row=(
            None,
            state.id,
            state.name,
            None,
            _status(day.outcome, wish=state.wish.wish),
            None,
            _instant(began_at),
            None,
            None,
            None,
            _task_statistic(day.statistics, tasks=day.attempts),
            "",
            None,
            None,
        ),
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


def _instant(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
