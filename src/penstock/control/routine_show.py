"""Statements that look at routine loads, in the columns of Apache Doris."""

import re
from datetime import UTC, datetime

from penstock.catalog.catalog import Catalog
from penstock.catalog.leases import Lease
from penstock.clock import Clock
from penstock.control.lookup import find_routine_load
from penstock.control.result import Cell, Result
from penstock.control.routine_cells import (
    Heard,
    custom_properties,
    job_properties,
    json_cell,
    other_message,
    rejects_query,
    source_properties,
    statistic,
    task_number,
)
from penstock.control.routine_words import statement_of_load
from penstock.control.shard_show import lag_by_shard
from penstock.errors import Code, UserError
from penstock.model.epoch import CommitKind
from penstock.model.events import Outcome
from penstock.model.job import JobState, Wish
from penstock.model.ledger import LedgerEntry
from penstock.model.position import position_text
from penstock.model.shards import StreamReport
from penstock.sql.formatter import format_statement
from penstock.sql.statements import ShowCreateRoutineLoad, ShowRoutineLoad

LOAD_COLUMNS = (
    "Id",
    "Name",
    "CreateTime",
    "PauseTime",
    "EndTime",
    "DbName",
    "TableName",
    "IsMultiTable",
    "State",
    "DataSourceType",
    "CurrentTaskNum",
    "JobProperties",
    "DataSourceProperties",
    "CustomProperties",
    "Statistic",
    "Progress",
    "Lag",
    "ReasonOfStateChanged",
    "ErrorLogUrls",
    "OtherMsg",
    "User",
    "Comment",
    "ComputeGroup",
    "FirstErrorMsg",
)
TASK_COLUMNS = (
    "TaskId",
    "TxnId",
    "TxnStatus",
    "JobId",
    "CreateTime",
    "ExecuteStartTime",
    "Timeout",
    "BeId",
    "DataSourceProperties",
)


def show_routine_load(
    statement: ShowRoutineLoad, *, catalog: Catalog, clock: Clock, tasks_max: int | None
) -> Result:
    """List routine loads, the oldest first; those that were stopped only with ALL.

    A node runs at most ``tasks_max`` tasks at once; None where nobody knows.
    """
    leases, reports, said = catalog.leases(), catalog.reports(), catalog.statuses()
    rows = tuple(
        _row(
            state,
            lease=leases.get(state.id),
            heard=Heard(
                report=reports.get(state.id, StreamReport()),
                said=said.get(state.id, "") if state.wish.wish is Wish.RUN else "",
                counts=catalog.ledger_counts(state.id, kind=CommitKind.EPOCH),
                running=tuple(entry.attempt_id for entry in _under_way(state, catalog)),
                tasks_max=tasks_max,
                at=clock.now(),
            ),
        )
        for state in _chosen(statement, catalog=catalog)
    )
    return Result(columns=LOAD_COLUMNS, rows=rows)


def _chosen(statement: ShowRoutineLoad, *, catalog: Catalog) -> list[JobState]:
    loads = [state for state in catalog.jobs() if state.definition.load is not None]
    if not statement.all:
        loads = [state for state in loads if state.wish.wish is not Wish.CLOSED]
    if statement.name is not None:
        loads = [state for state in loads if state.name == statement.name]
        if not loads:
            history = "also among those that were stopped" if statement.all else ""
            raise UserError(
                " ".join(
                    filter(None, [f'there is no routine load "{statement.name}"', history])
                ),
                code=Code.META_NOT_FOUND_ERR,
                hint="" if statement.all else "SHOW ALL ROUTINE LOAD finds stopped ones, too.",
            )
    if statement.like is not None:
        pattern = _pattern(statement.like)
        loads = [state for state in loads if pattern.fullmatch(state.name)]
    return sorted(loads, key=lambda state: state.created_at)


def _pattern(like: str) -> re.Pattern[str]:
    """Turn a SQL pattern into a regular expression; a backslash makes a sign plain."""
    parts = re.findall(r"\\.|.", like, re.DOTALL)
    signs = {"%": ".*", "_": "."}
    return re.compile(
        "".join(signs.get(part, re.escape(part[-1])) for part in parts), re.DOTALL
    )


def load_state(state: JobState, lease: Lease | None) -> str:
    """Name a load's state as Doris does."""
    match state.wish.wish:
        case Wish.RUN:
            return "RUNNING" if lease is not None and lease.live else "NEED_SCHEDULE"
        case Wish.PAUSE:
            return "PAUSED"
        case Wish.DROP | Wish.CLOSED:
            return "STOPPED"


def _row(state: JobState, *, lease: Lease | None, heard: Heard) -> tuple[Cell, ...]:
    definition = state.definition
    named = load_state(state, lease)
    ended = state.wish.wish in (Wish.DROP, Wish.CLOSED)
    reason = state.wish.reason
    changed_at = _instant(state.wish.changed_at)
    return (
        state.id,
        state.name,
        _instant(state.created_at),
        changed_at if named == "PAUSED" else None,
        changed_at if ended else None,
        "default",
        definition.table.name,
        "false",
        named,
        definition.function,
        task_number(state, heard) if named == "RUNNING" else 0,
        json_cell(job_properties(state, heard)),
        json_cell(source_properties(state, heard)),
        json_cell(custom_properties(state)),
        json_cell(statistic(state, heard)),
        json_cell({split.split: position_text(split.position) for split in state.progress}),
        json_cell(lag_by_shard(state, heard.report)),
        "" if reason is None else f"{reason.code}: {reason.message}",
        rejects_query(state),
        other_message(state, heard),
        "",
        definition.comment,
        "",
        state.window.first,
    )


def show_tasks(name: str, *, catalog: Catalog) -> Result:
    """List the epochs of a load that are under way."""
    state = find_routine_load(name, catalog=catalog)
    timeout = state.definition.routine_properties.task_timeout
    lease = catalog.leases().get(state.id)
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            entry.attempt_id,
            -1,
            "UNKNOWN",
            state.id,
            _instant(entry.started_at),
            _instant(entry.started_at),
            round(timeout.total_seconds()),
            lease.node_id if lease else "",
            json_cell({s.split: position_text(s.position) for s in entry.progress}),
        )
        for entry in _under_way(state, catalog)
    )
    return Result(columns=TASK_COLUMNS, rows=rows)


def _under_way(state: JobState, catalog: Catalog) -> tuple[LedgerEntry, ...]:
    """Answer the attempts of epochs that have begun and not ended."""
    if state.wish.wish is not Wish.RUN:
        return ()
    entries = catalog.ledger(state.id)
    return tuple(entry for entry in entries if entry.outcome is Outcome.STARTED)


def show_create(statement: ShowCreateRoutineLoad, *, catalog: Catalog) -> Result:
    """Write the statement that makes the same load, from where it stands."""
    state = find_routine_load(statement.name, catalog=catalog)
    if state.wish.wish is Wish.CLOSED and not statement.all:
        raise UserError(
            f'routine load "{statement.name}" was stopped',
            code=Code.META_NOT_FOUND_ERR,
            hint="SHOW ALL CREATE ROUTINE LOAD FOR shows it.",
        )
    return Result(
        columns=("JobId", "JobName", "CreateStmt"),
        rows=((state.id, state.name, format_statement(statement_of_load(state))),),
    )


def _instant(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
