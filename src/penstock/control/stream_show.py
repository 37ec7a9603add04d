"""SHOW and EXPLAIN of streaming tables and flows."""

import re
import threading
from datetime import timedelta

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
from penstock.control.stream_define import define_query, stream_options
from penstock.errors import Code, InvariantError, PenstockError, UserError
from penstock.model.epoch import CommitKind
from penstock.model.events import Outcome
from penstock.model.job import JobDefinition, JobState, StreamingQuery
from penstock.model.job_kinds import STREAMING_TABLE, OutputMode
from penstock.model.ledger import LedgerEntry
from penstock.model.options import all_options, print_options
from penstock.model.split import Amount
from penstock.model.text import format_count, format_duration, format_event_time, format_instant
from penstock.sources.registry import source_kind
from penstock.sql.formatter import format_statement
from penstock.sql.statements import (
    CreateFlow,
    CreateStreamingTable,
    ExplainStreamingTable,
    ShowCheckpoints,
    ShowStreamingTables,
    StreamColumn,
    StreamQueryText,
)

TABLE_COLUMNS = result_columns(
    "name, kind, state, epoch BIGINT, rows BIGINT, rows_late BIGINT, state_rows BIGINT, "
    "state_bytes BIGINT, watermark, watermark_held_by, lag_rows BIGINT, lag_bytes BIGINT, "
    f"lag_seconds DOUBLE, {BACKLOG_COLUMNS}, uptime, reason"
)
CHECKPOINT_COLUMNS = result_columns(
    "epoch BIGINT, batch BIGINT, started TIMESTAMP, duration DOUBLE, positions, watermark, "
    "rows_in BIGINT, rows_out BIGINT, rows_late BIGINT, state_rows BIGINT, "
    "state_bytes BIGINT, table_version BIGINT, attempt BIGINT, outcome, reason"
)
_CHECKPOINTS_MAX = 1_000


def show_streaming_tables(statement: ShowStreamingTables, *, services: Services) -> Result:
    """List the streaming tables and flows with their state, watermark and lag."""
    views = view_jobs(services.catalog, clock=services.clock)
    pattern = None if statement.like is None else _like(statement.like)
    rows = tuple(
        _row(view, services)
        for view in views
        if view.job.definition.streaming is not None
        and (pattern is None or pattern.fullmatch(view.name))
    )
    return Result(columns=TABLE_COLUMNS, rows=rows)


def _like(text: str) -> re.Pattern[str]:
    """Return the regular expression of a LIKE pattern."""
    parts = (".*" if c == "%" else "." if c == "_" else re.escape(c) for c in text)
    return re.compile("".join(parts), re.IGNORECASE | re.DOTALL)


def _row(view: JobView, services: Services) -> tuple[Cell, ...]:
    job = view.job
    batch = job.batch
    remaining = _remaining(job, services)
    running = view.state is RunState.RUNNING and job.query_started_at is not None
    since = job.query_started_at
    return (
        view.name,
        job.definition.kind.shown,
        str(view.state),
        job.epoch_committed,
        job.cumulative.rows_loaded,
        job.cumulative.rows_late,
        None if batch is None else batch.state_rows,
        None if batch is None else batch.state_bytes,
        _watermark(job),
        "" if batch is None else batch.held_by,
        remaining.rows,
        remaining.size_bytes,
        None if remaining.lag is None else round(remaining.lag.total_seconds(), 1),
        *backlog_cells(view),
        format_duration(view.at - since) if running and since else "",
        reason_text(view.reason) or status_text(view.report.status),
    )


def _watermark(job: JobState) -> str:
    query = job.definition.streaming
    timed = query is not None and any(view.event_time for view in query.views)
    if job.batch is None or not timed or job.batch.watermark_ms == 0:
        return ""
    return format_event_time(job.batch.watermark_ms)


def _remaining(job: JobState, services: Services) -> Amount:
    """Return the unread rows; an empty amount if the input cannot be read now."""
    try:
        source = services.sources.open(job, threading.Event())
        return source.poll(job.progress, report=lambda _: None).waiting
    except PenstockError:
        # The reason of a paused table names the error.
        return Amount()


def show_checkpoints(statement: ShowCheckpoints, *, services: Services) -> Result:
    """List the epochs of a streaming table, the newest last."""
    state = _streaming_job(statement.name, services)
    entries = services.catalog.ledger(state.id, newest=_CHECKPOINTS_MAX)
    rows = tuple(
        _checkpoint_row(entry, state.definition)
        for entry in entries
        if entry.kind is CommitKind.EPOCH
    )
    return Result(columns=CHECKPOINT_COLUMNS, rows=rows)


def _streaming_job(name: str, services: Services) -> JobState:
    state = find_job(name, catalog=services.catalog)
    if state.definition.streaming is None:
        raise UserError(
            f'"{name}" is a {state.definition.kind.title}, which has no checkpoints',
            code=Code.STATE_ERR,
            hint="See its epochs with SHOW EPOCHS FOR name.",
        )
    return state


def _checkpoint_row(entry: LedgerEntry, definition: JobDefinition) -> tuple[Cell, ...]:
    batch, total = entry.batch, entry.statistics
    committed = entry.outcome is Outcome.COMMITTED
    steps = (entry.plan_seconds, entry.run_seconds, entry.commit_seconds)
    seconds = sum(step or 0.0 for step in steps)
    # Epochs without reads have no EpochStarted event.
    derived = entry.ended_at and entry.ended_at - timedelta(seconds=seconds)
    return (
        entry.epoch,
        None if batch is None else batch.batch,
        format_instant(entry.started_at or derived),
        round(seconds, 3),
        source_kind(definition.source.kind).position(entry.progress),
        format_event_time(batch.watermark_ms) if batch and batch.watermark_ms else "",
        total.rows_read if committed else None,
        total.rows_loaded if committed else None,
        total.rows_late if committed else None,
        None if batch is None else batch.state_rows,
        None if batch is None else batch.state_bytes,
        entry.table_version,
        entry.attempt,
        str(entry.outcome),
        reason_text(entry.reason),
    )


def explain_streaming_table(statement: ExplainStreamingTable, *, services: Services) -> Result:
    """Return the operators of a query, their state, the columns read and the output."""
    columns = result_columns("item, value")
    if statement.query is not None:
        options = stream_options((), kind=STREAMING_TABLE)
        defined = define_query(statement.query, target="", options=options, services=services)
        return Result(columns=columns, rows=tuple(_query_rows(defined.query)))
    state = _streaming_job(statement.name or "", services)
    query = state.definition.streaming
    if query is None:
        raise InvariantError("a streaming table has a query")
    batch = state.batch
    held = batch.held_by if batch else ""
    rows = [
        *_query_rows(query),
        ("watermark", _watermark(state) or "none yet"),
        ("watermark held by", held or "no stream"),
        *((f"option {key}", v) for key, v in all_options(state.definition.properties) if v),
    ]
    return Result(columns=columns, rows=tuple(rows))


def _query_rows(query: StreamingQuery) -> list[tuple[str, str]]:
    key = ", ".join(query.key) or "none: the table has one row"
    rows = [("output", str(query.output))]
    if query.output is OutputMode.UPDATE:
        rows.append(("key", key))
    rows.append(("tasks", f"{format_count(query.parallelism, 'task')} per stage"))
    for number, operator in enumerate(query.operators):
        rows.append((f"operator {number}", " ".join((operator.name, operator.detail)).strip()))
        if operator.keeps:
            rows.append(("  keeps", operator.keeps))
            rows.append(("  until", operator.until))
        if operator.notice:
            rows.append(("  notice", operator.notice))
    return rows


def stream_statement(state: JobState, *, services: Services) -> str:
    """Return the statement that creates the same streaming table or flow."""
    definition = state.definition
    options = (*print_options(definition.properties), *_source_options(definition))
    query = StreamQueryText(text=definition.select)
    if definition.kind is not STREAMING_TABLE:
        flow = CreateFlow(
            name=state.name,
            table=definition.table.name,
            query=query,
            comment=definition.comment,
            options=options,
        )
        return format_statement(flow)
    record = services.catalog.table(definition.table.name)
    handle = services.tables.open(definition.table.location)
    columns = tuple(
        StreamColumn(name=c.name, type=c.type, comment=c.comment, nullable=c.nullable)
        for c in handle.columns()
    )
    return format_statement(
        CreateStreamingTable(
            name=state.name,
            columns=columns,
            partition_by=handle.partition_columns(),
            comment=definition.comment,
            location=None if record is None or record.managed else record.location,
            options=options,
            query=query,
        )
    )


def _source_options(definition: JobDefinition) -> tuple[tuple[str, str], ...]:
    """Return the options of the source that a statement can contain."""
    fixed = source_kind(definition.source.kind).fixed
    return tuple((key, text) for key, text in definition.source.options if key not in fixed)
