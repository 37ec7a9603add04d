"""SHOW statements about jobs of any kind, with the columns of Apache Doris where they exist."""

import json
import re
from collections.abc import Mapping

from penstock.catalog.catalog import Catalog
from penstock.control.clauses import statement_of
from penstock.control.execute import Services
from penstock.control.find import find_job
from penstock.control.job_view import (
    BACKLOG_COLUMNS,
    JobView,
    RunState,
    backlog_cells,
    reason_text,
    status_text,
    view_jobs,
)
from penstock.control.result import Cell, Result, result_columns
from penstock.errors import Code, UserError
from penstock.model.backlog import Backlog
from penstock.model.epoch import CommitKind
from penstock.model.events import (
    BacklogEntered,
    BacklogFinished,
    BacklogLeft,
    BacklogReset,
    Committed,
    DefinitionChanged,
    DesiredStateChanged,
    EpochEnded,
    EpochRequested,
    EpochStarted,
    EventBody,
    GenerationRaised,
    JobCreated,
    NoticesChanged,
    Outcome,
    QueryStarted,
    WatermarkApplied,
)
from penstock.model.formats import PayloadFormat
from penstock.model.job import DesiredState, JobDefinition, JobState, LoadProperties
from penstock.model.job_kinds import FIXED_OPTIONS, ROUTINE_LOAD, RoutineProperties
from penstock.model.ledger import LedgerEntry
from penstock.model.options import plain_options, secret_options
from penstock.model.split import Progress, SplitState, position_text
from penstock.model.text import (
    format_count,
    format_duration,
    format_event_time,
    format_instant,
    quoted_name,
    quoted_text,
)
from penstock.sources.registry import source_kind, source_options
from penstock.sql.formatter import format_statement
from penstock.sql.statements import (
    ShowCreateJob,
    ShowEpochs,
    ShowEvents,
    ShowJobs,
    ShowRoutineLoad,
    ShowRoutineLoadTask,
    ShowShards,
)

JOB_COLUMNS = result_columns(
    "name, kind, state, table, position, files_loaded BIGINT, rows_loaded BIGINT, "
    "rows_rejected BIGINT, rows_unselected BIGINT, files_modified BIGINT, "
    f"requests_per_hour BIGINT, last_commit TIMESTAMP, {BACKLOG_COLUMNS}, reason, comment"
)
EPOCH_COLUMNS = result_columns(
    "number BIGINT, kind, epoch BIGINT, attempt BIGINT, outcome, position, rows BIGINT, "
    "rejected BIGINT, files BIGINT, bytes BIGINT, table_version BIGINT, plan_ms DOUBLE, "
    "run_ms DOUBLE, commit_ms DOUBLE, ended TIMESTAMP, reason"
)
EVENT_COLUMNS = result_columns("number BIGINT, at TIMESTAMP, event, detail")
SPLIT_COLUMNS = result_columns(
    "shard, state, lag_ms BIGINT, lag_age, records BIGINT, parents, position"
)
LOAD_COLUMNS = result_columns(
    "Id, Name, CreateTime TIMESTAMP, PauseTime TIMESTAMP, EndTime TIMESTAMP, DbName, "
    "TableName, IsMultiTable, State, DataSourceType, CurrentTaskNum BIGINT, JobProperties, "
    "DataSourceProperties, CustomProperties, Statistic, Progress, Lag, ReasonOfStateChanged, "
    f"ErrorLogUrls, OtherMsg, User, Comment, ComputeGroup, FirstErrorMsg, {BACKLOG_COLUMNS}"
)
TASK_COLUMNS = result_columns(
    "TaskId, TxnId BIGINT, TxnStatus, JobId, CreateTime TIMESTAMP, ExecuteStartTime TIMESTAMP, "
    "Timeout BIGINT, BeId, DataSourceProperties"
)
MASK = "******"
_UNSET = "*"
# SHOW EVENTS prints at most this many boundaries of an event.
_BOUNDARIES_MAX = 3
# The states of a routine load in Apache Doris.
_DORIS_STATES = {
    RunState.PENDING: "NEED_SCHEDULE",
    RunState.RUNNING: "RUNNING",
    RunState.PAUSED: "PAUSED",
}


def show_jobs(statement: ShowJobs, *, services: Services) -> Result:
    """List the jobs with their state, position and counts."""
    del statement
    views = view_jobs(services.catalog, clock=services.clock)
    rows = tuple(_job_row(view) for view in views if not view.job.stopped)
    return Result(columns=JOB_COLUMNS, rows=rows)


def _job_row(view: JobView) -> tuple[Cell, ...]:
    definition = view.job.definition
    return (
        view.name,
        definition.kind.shown,
        str(view.state),
        definition.table.name,
        view.position,
        view.totals.files_read,
        view.totals.rows_loaded,
        view.totals.rows_rejected,
        view.rows_unselected,
        dict(view.job.notices).get("files_modified", 0),
        view.report.requests,
        format_instant(view.job.committed_at),
        *backlog_cells(view),
        reason_text(view.reason),
        definition.comment,
    )


def show_create_job(statement: ShowCreateJob, *, services: Services) -> Result:
    """Return the statement that creates the same job at its current positions."""
    kind = statement.kind
    state = find_job(statement.name, kind=kind, catalog=services.catalog)
    if state.stopped and not statement.all:
        raise UserError(
            f'{kind.noun} "{statement.name}" was stopped',
            code=Code.META_NOT_FOUND_ERR,
            hint=f"Write SHOW ALL CREATE {kind.noun.upper()} FOR {quoted_name(state.name)}.",
        )
    if state.definition.streaming is not None:
        from penstock.control.stream_show import stream_statement

        text = stream_statement(state, services=services)
        columns = result_columns("name, create_statement")
        return Result(columns=columns, rows=((state.name, text),))
    (view,) = view_jobs(services.catalog, clock=services.clock, states=[state])
    text = format_statement(statement_of(state, start=view.source.start))
    if kind is ROUTINE_LOAD:
        columns = result_columns("JobId, JobName, CreateStmt")
        return Result(columns=columns, rows=((state.id, state.name, text),))
    return Result(columns=result_columns("job, create_statement"), rows=((state.name, text),))


def show_epochs(statement: ShowEpochs, *, services: Services) -> Result:
    """List the ledger of a job, the newest entry last."""
    state = find_job(statement.name, catalog=services.catalog)
    entries = services.catalog.ledger(state.id, newest=1000)
    rows = tuple(_epoch_row(entry, state.definition) for entry in entries)
    return Result(columns=EPOCH_COLUMNS, rows=rows)


def _epoch_row(entry: LedgerEntry, definition: JobDefinition) -> tuple[Cell, ...]:
    total = entry.statistics
    return (
        entry.number,
        str(entry.kind),
        entry.epoch,
        entry.attempt,
        str(entry.outcome),
        source_kind(definition.source.kind).position(entry.progress),
        total.rows_loaded,
        total.rows_rejected,
        total.files_read,
        total.bytes_read,
        entry.table_version,
        _milliseconds(entry.plan_seconds),
        _milliseconds(entry.run_seconds),
        _milliseconds(entry.commit_seconds),
        format_instant(entry.ended_at),
        reason_text(entry.reason),
    )


def show_events(statement: ShowEvents, *, services: Services) -> Result:
    """List the journal of a job, the newest entry last."""
    state = find_job(statement.name, catalog=services.catalog)
    rows = tuple(
        (event.number, format_instant(event.at), *_event_text(event.body, state.definition))
        for event in services.catalog.events(state.id)
    )
    return Result(columns=EVENT_COLUMNS, rows=rows)


def _event_text(  # noqa: C901, PLR0912 - One branch per class of events.
    body: EventBody, definition: JobDefinition
) -> tuple[str, str]:
    """Return the name of an event for users, and its detail."""
    match body:
        case JobCreated():
            return "JobCreated", f"generation {body.generation.number}"
        case DefinitionChanged():
            return "JobAltered", f"revision {body.definition.revision}"
        case DesiredStateChanged():
            reason = reason_text(body.reason)
            detail = f"{body.state}, generation {body.generation.number}"
            return _request_name(body), detail + (f", {reason}" if reason else "")
        case GenerationRaised():
            name = "OwnerChanged" if body.cause == "lease" else "ChangeStarted"
            return name, f"generation {body.generation.number}, {body.cause}"
        case EpochStarted():
            items = f", {format_count(body.items, 'file')}" if body.items else ""
            return "EpochStarted", f"epoch {body.epoch}, attempt {body.attempt}{items}"
        case EpochEnded():
            failed = body.outcome is Outcome.FAILED
            detail = f"epoch {body.epoch}, attempt {body.attempt}, {body.outcome}"
            return "EpochFailed" if failed else "EpochCancelled", detail
        case Committed():
            name = f"{str(body.attachment.kind).title()}Committed"
            return name, _commit_text(body, definition)
        case NoticesChanged():
            return "SourceChanged", ", ".join(f"{name} {n}" for name, n in body.notices)
        case QueryStarted():
            return "QueryStarted", _start_text(body)
        case WatermarkApplied():
            batch = body.batch
            kept = f"{format_count(batch.state_rows, 'row')} in the state"
            watermark = format_event_time(batch.watermark_ms)
            return "WatermarkApplied", f"batch {batch.batch}, watermark {watermark}, {kept}"
        case EpochRequested():
            advance = body.advance_ms
            detail = "" if advance is None else f"watermark {format_event_time(advance)}"
            return "EpochRequested", detail
        case BacklogEntered():
            return "BacklogEntered", f"{body.cause}; {_boundaries(body.record)}"
        case BacklogFinished():
            return "BacklogFinished", _finish_text(body)
        case BacklogLeft():
            name = "BacklogLeft" if body.entered else "BacklogChecked"
            return name, _boundaries(body.record)
        case BacklogReset():
            return "BacklogReset", ""


def _boundaries(record: Backlog) -> str:
    opened = [(split.split, split.boundary) for split in record.splits if split.open]
    shown = [f"{name} {position_text(at)}" for name, at in opened[:_BOUNDARIES_MAX] if at]
    more = len(opened) - len(shown)
    texts = [*shown, *([f"{more} more"] if more else [])]
    return f"boundaries {record.armed}: {', '.join(texts) or 'none open'}"


def _start_text(body: QueryStarted) -> str:
    numbers = f"checkpoint {body.committed}, opened {body.opened}, table {body.in_table}"
    return f"{body.verdict}; newest batches: {numbers}"


def _finish_text(body: BacklogFinished) -> str:
    split = body.split
    boundary = "" if split.boundary is None else f", boundary {position_text(split.boundary)}"
    how = "removed" if split.gone else f"epoch {split.epoch}" if split.epoch else "no data left"
    return f"split {split.split}{boundary}, {how}"


def _request_name(body: DesiredStateChanged) -> str:
    manual = body.reason is not None and body.reason.code is Code.MANUAL_PAUSE_ERR
    match body.state:
        case DesiredState.RUN:
            return "ResumedAutomatically" if body.auto_resumes else "ResumeRequested"
        case DesiredState.PAUSE:
            return "PauseRequested" if manual else "JobPaused"
        case DesiredState.DROP:
            return "DropRequested"
        case DesiredState.CLOSED:
            return "StopRequested"


def _commit_text(body: Committed, definition: JobDefinition) -> str:
    attachment = body.attachment
    position = source_kind(definition.source.kind).position(attachment.progress)
    epoch = f", epoch {attachment.epoch}" if attachment.kind is CommitKind.EPOCH else ""
    return (
        f"commit {attachment.number}{epoch}, generation {attachment.generation.number}, "
        f"{format_count(attachment.statistics.rows_loaded, 'row')}, position {position}"
    )


def show_splits(statement: ShowShards, *, services: Services) -> Result:
    """List the splits of a load, children below their parents."""
    state = find_job(statement.name, kind=ROUTINE_LOAD, catalog=services.catalog)
    (view,) = view_jobs(services.catalog, clock=services.clock, states=[state])
    statuses = {status.split: status for status in view.splits}
    splits = {split.split: split for split in state.progress}
    lags = _lags(view)
    rows: list[tuple[Cell, ...]] = []
    for name, depth in _tree(state.progress):
        split, status = splits[name], statuses[name]
        finished = status.state is SplitState.FINISHED
        age = view.at - status.seen_at if status.seen_at and not finished else None
        rows.append(
            (
                ("  " * (depth - 1) + "└ " if depth else "") + name,
                str(status.state),
                lags.get(name),
                None if age is None else format_duration(age),
                split.records,
                ", ".join(split.parents),
                position_text(split.position),
            )
        )
    return Result(columns=SPLIT_COLUMNS, rows=tuple(rows))


def _lags(view: JobView) -> dict[str, int]:
    """Return the lag of every unfinished split in milliseconds; -1 if unknown."""
    return {
        split.split: -1
        if split.remaining.lag is None
        else max(0, round(split.remaining.lag.total_seconds() * 1000))
        for split in view.splits
        if split.state is not SplitState.FINISHED
    }


def _tree(progress: Progress) -> list[tuple[str, int]]:
    """Return the splits with their depths, each split after its first parent."""
    by_name = {split.split: split for split in progress}
    children: dict[str | None, list[str]] = {}
    for name in sorted(by_name):
        known = [parent for parent in by_name[name].parents if parent in by_name]
        children.setdefault(known[0] if known else None, []).append(name)
    found: list[tuple[str, int]] = []
    waiting = [(name, 0) for name in reversed(children.get(None, []))]
    while waiting:
        name, depth = waiting.pop()
        found.append((name, depth))
        waiting += [(child, depth + 1) for child in reversed(children.get(name, []))]
    return found


def show_loads(statement: ShowRoutineLoad, *, services: Services) -> Result:
    """List routine loads, the oldest first; stopped loads only with ALL."""
    views = view_jobs(
        services.catalog,
        clock=services.clock,
        states=_selected(statement, catalog=services.catalog),
        with_ledger=True,
        tasks_max=services.tasks_max,
    )
    return Result(columns=LOAD_COLUMNS, rows=tuple(_load_row(view) for view in views))


def _selected(statement: ShowRoutineLoad, *, catalog: Catalog) -> list[JobState]:
    loads = [state for state in catalog.jobs() if state.definition.kind is ROUTINE_LOAD]
    if not statement.all:
        loads = [s for s in loads if s.desired.state is not DesiredState.CLOSED]
    if statement.name is not None:
        loads = [state for state in loads if state.name == statement.name]
        if not loads:
            raise UserError(
                f'routine load "{statement.name}" does not exist',
                code=Code.META_NOT_FOUND_ERR,
                hint="" if statement.all else "SHOW ALL ROUTINE LOAD includes stopped loads.",
            )
    if statement.like is not None:
        pattern = _pattern(statement.like)
        loads = [state for state in loads if pattern.fullmatch(state.name)]
    return sorted(loads, key=lambda state: state.created_at)


def _pattern(like: str) -> re.Pattern[str]:
    """Convert a LIKE pattern to a regular expression; a backslash escapes a wildcard."""
    parts = re.findall(r"\\.|.", like, re.DOTALL)
    wildcards = {"%": ".*", "_": "."}
    return re.compile(
        "".join(wildcards.get(part, re.escape(part[-1])) for part in parts), re.DOTALL
    )


def _load_row(view: JobView) -> tuple[Cell, ...]:
    job = view.job
    changed_at = format_instant(job.desired.changed_at)
    rejects = f"SELECT * FROM rejects('job' = {quoted_text(view.name)})"  # noqa: S608 - A hint.
    return (
        job.id,
        view.name,
        format_instant(job.created_at),
        changed_at if view.state is RunState.PAUSED else None,
        changed_at if view.ended else None,
        "default",
        job.definition.table.name,
        "false",
        _DORIS_STATES.get(view.state, "STOPPED"),
        job.definition.function,
        view.tasks if view.state is RunState.RUNNING else 0,
        _json(job_properties(view)),
        _json(view.source.properties),
        _json(custom_properties(job)),
        _json(statistic(view)),
        _json({split.split: position_text(split.position) for split in job.progress}),
        _json(_lags(view)),
        reason_text(view.reason),
        rejects if job.window.first else "",
        other_message(view),
        "",
        job.definition.comment,
        "",
        job.window.first,
        *backlog_cells(view),
    )


def job_properties(view: JobView) -> dict[str, str]:
    """Return the clauses and options of a load; a star means that a clause is not set."""
    definition = view.job.definition
    load = definition.load or LoadProperties()
    return {
        "partitions": _UNSET,
        "columnToColumnExpr": _columns(load) or _UNSET,
        "precedingFilter": load.preceding_filter or _UNSET,
        "whereExpr": load.where or _UNSET,
        **_separators(definition, load),
        "delete": _UNSET,
        "sequence_col": _UNSET,
        "partial_columns": FIXED_OPTIONS["partial_columns"],
        "exec_mem_limit": FIXED_OPTIONS["exec_mem_limit"],
        "merge_type": "APPEND",
        "current_concurrent_number": str(view.tasks),
        **dict(plain_options(definition.properties)),
    }


def _columns(load: LoadProperties) -> str:
    columns = load.columns or ()
    listed = [column.name for column in columns if column.expression is None]
    computed = [f"{c.name} = {c.expression}" for c in columns if c.expression is not None]
    return ", ".join([*listed, *computed])


def _separators(definition: JobDefinition, load: LoadProperties) -> dict[str, str]:
    properties = definition.properties
    csv = isinstance(properties, RoutineProperties) and properties.format is PayloadFormat.CSV
    if not csv or not source_kind(definition.source.kind).decodes:
        return {}
    return {"column_separator": load.separator or "\t", "line_delimiter": "\n"}


def custom_properties(job: JobState) -> dict[str, str]:
    """Return the options of the source; secrets are masked."""
    hidden = {key for key, _ in secret_options(source_options(job.definition.source))}
    return {
        key: MASK if key in hidden else value for key, value in job.definition.source.options
    }


def statistic(view: JobView) -> dict[str, object]:
    """Return the counters of a load since it was created."""
    total, counts = view.totals, view.counts
    milliseconds = max(1, round((view.at - view.job.created_at).total_seconds() * 1000))
    return {
        "totalRows": total.rows_read,
        "loadedRows": total.rows_loaded,
        "errorRows": total.rows_rejected,
        "errorRowsAfterResumed": total.rows_rejected - view.job.rejected_before,
        "unselectedRows": max(0, total.rows_unselected),
        "skippedRows": total.rows_skipped,
        "foreignRows": total.rows_foreign,
        "receivedRecords": total.records_read,
        "receivedBytes": total.bytes_read,
        "taskExecuteTimeMs": milliseconds,
        "receivedBytesRate": total.bytes_read * 1000 // milliseconds,
        "loadRowsRate": total.rows_loaded * 1000 // milliseconds,
        "committedTaskNum": counts.get(Outcome.COMMITTED, 0),
        "abortedTaskNum": counts.get(Outcome.FAILED, 0) + counts.get(Outcome.CANCELLED, 0),
        "runningTxns": [entry.attempt_id for entry in view.running],
        **view.source.statistic,
    }


def other_message(view: JobView) -> str:
    """Return the status of a load, how to resume it, and messages of its source."""
    job = view.job
    notes = []
    if job.desired.state is DesiredState.RUN and view.report.status is not None:
        notes.append(status_text(view.report.status))
    if job.desired.state is DesiredState.PAUSE and view.reason and view.reason.hint:
        notes.append(view.reason.hint.rstrip("."))
    return "; ".join([*notes, *(() if view.ended else view.source.messages)])


def show_load_tasks(statement: ShowRoutineLoadTask, *, services: Services) -> Result:
    """List the running epochs of a load."""
    state = find_job(statement.name, kind=ROUTINE_LOAD, catalog=services.catalog)
    (view,) = view_jobs(
        services.catalog, clock=services.clock, states=[state], with_ledger=True
    )
    timeout = state.definition.properties.task_timeout
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            entry.attempt_id,
            -1,
            "UNKNOWN",
            state.id,
            format_instant(entry.started_at),
            format_instant(entry.started_at),
            round(timeout.total_seconds()) if timeout else None,
            view.lease.node_id if view.lease else "",
            _json({s.split: position_text(s.position) for s in entry.progress}),
        )
        for entry in view.running
    )
    return Result(columns=TASK_COLUMNS, rows=rows)


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
