"""SHOW ROUTINE LOAD, SHOW SHARDS and their cells, in the columns of Apache Doris."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.catalog.catalog import Catalog
from penstock.catalog.leases import Lease
from penstock.clock import Clock
from penstock.control.clauses import statement_of_load
from penstock.control.find import find_routine_load
from penstock.control.result import Cell, Result
from penstock.errors import Code, UserError
from penstock.model.epoch import CommitKind
from penstock.model.events import Outcome
from penstock.model.formats import PayloadFormat
from penstock.model.job import JobState, LoadProperties, Wish
from penstock.model.job_kinds import FIXED_OPTIONS
from penstock.model.ledger import LedgerEntry
from penstock.model.options import plain_options, print_options, secret_options
from penstock.model.schema import quoted_name, quoted_text
from penstock.model.split import End, ShardReport, StreamReport, position_text
from penstock.model.text import lasted
from penstock.sources.kinesis.shards import ShardState, readable, states
from penstock.sql.formatter import format_statement
from penstock.sql.statements import ShowCreateRoutineLoad, ShowRoutineLoad

SHARD_COLUMNS = (
    "shard",
    "state",
    "lag_ms",
    "lag_age",
    "records",
    "parents",
    "position",
)


def show_shards(name: str, *, catalog: Catalog, clock: Clock) -> Result:
    """List the shards of a load, children below their parents."""
    state = find_routine_load(name, catalog=catalog)
    report = catalog.report(state.id)
    reports = {one.shard: one for one in report.shards}
    named = states(state.progress, closed=frozenset(report.closed))
    lags = lag_by_shard(state, report)
    now = clock.now()
    rows: list[tuple[Cell, ...]] = []
    splits = {split.split: split for split in state.progress}
    for split, depth in _tree(state):
        progress = splits[split]
        heard = reports.get(split)
        parents = progress.lineage.parents if progress.lineage else ()
        finished = named[split] is ShardState.FINISHED
        rows.append(
            (
                ("  " * (depth - 1) + "└ " if depth else "") + split,
                str(named[split]),
                None if finished else lags[split],
                lasted(now - heard.at) if heard and heard.at and not finished else None,
                progress.records,
                ", ".join(parents),
                position_text(progress.position),
            )
        )
    return Result(columns=SHARD_COLUMNS, rows=tuple(rows))


def _tree(state: JobState) -> list[tuple[str, int]]:
    """Answer the shards, each below the first of its parents, and how deep it lies."""
    names = sorted(split.split for split in state.progress)
    children: dict[str | None, list[str]] = {}
    by_name = {split.split: split for split in state.progress}
    for name in names:
        lineage = by_name[name].lineage
        known = [parent for parent in (lineage.parents if lineage else ()) if parent in by_name]
        children.setdefault(known[0] if known else None, []).append(name)
    found: list[tuple[str, int]] = []
    waiting = [(name, 0) for name in reversed(children.get(None, []))]
    while waiting:
        name, depth = waiting.pop()
        found.append((name, depth))
        waiting += [(child, depth + 1) for child in reversed(children.get(name, []))]
    return found


def lag_by_shard(state: JobState, report: StreamReport) -> dict[str, int]:
    """Answer how far behind every unfinished shard was, in milliseconds; -1 is unknown."""
    reports = {one.shard: one for one in report.shards}
    return {
        split.split: _milliseconds(reports.get(split.split))
        for split in state.progress
        if not isinstance(split.position, End)
    }


def _milliseconds(report: ShardReport | None) -> int:
    if report is None or report.behind is None:
        return -1
    return max(0, round(report.behind.total_seconds() * 1000))


MASK = "******"
# What is told of a load and is no option: clauses of the statement, and what follows from it.
SHOWN_ALONE = frozenset(
    {
        "partitions",
        "columnToColumnExpr",
        "precedingFilter",
        "whereExpr",
        "column_separator",
        "line_delimiter",
        "delete",
        "sequence_col",
        "merge_type",
        "current_concurrent_number",
    }
)
_UNSET = "*"
_TASKS_MAX = 256
_NEAR_THE_END = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What is known of a load beside its state, and when."""

    report: StreamReport
    said: str
    counts: Mapping[Outcome, int]
    # The attempts of epochs that are under way.
    running: tuple[str, ...]
    tasks_max: int | None
    at: datetime


def json_cell(value: Mapping[str, object]) -> str:
    """Write a cell that holds JSON."""
    return json.dumps(value, ensure_ascii=False)


def task_number(state: JobState, heard: Heard) -> int:
    """Answer how many tasks an epoch has at most, by what is wanted and what there is."""
    wanted = state.definition.routine_properties.tasks_max
    at_once = _TASKS_MAX if heard.tasks_max is None else heard.tasks_max
    return min(wanted, at_once, _TASKS_MAX, len(readable(state.progress)))


def job_properties(state: JobState, heard: Heard) -> dict[str, str]:
    """Answer the clauses and the options of a load; a star is what is not given."""
    definition = state.definition
    load = definition.load or LoadProperties()
    options = dict(plain_options(definition.properties))
    return {
        "partitions": _UNSET,
        "columnToColumnExpr": _columns(load) or _UNSET,
        "precedingFilter": load.preceding_filter or _UNSET,
        "whereExpr": load.where or _UNSET,
        **_separators(state, load),
        "delete": _UNSET,
        "sequence_col": _UNSET,
        "partial_columns": FIXED_OPTIONS["partial_columns"],
        "exec_mem_limit": FIXED_OPTIONS["exec_mem_limit"],
        "merge_type": "APPEND",
        "current_concurrent_number": str(task_number(state, heard)),
        **options,
    }


def _columns(load: LoadProperties) -> str:
    columns = load.columns or ()
    listed = [column.name for column in columns if column.expression is None]
    made = [f"{c.name} = {c.expression}" for c in columns if c.expression is not None]
    return ", ".join([*listed, *made])


def _separators(state: JobState, load: LoadProperties) -> dict[str, str]:
    if state.definition.routine_properties.format is not PayloadFormat.CSV:
        return {}
    return {"column_separator": load.separator or "\t", "line_delimiter": "\n"}


def source_properties(state: JobState, heard: Heard) -> dict[str, str]:
    """Answer which stream is read, and which of its shards still take records."""
    source = state.definition.stream
    named = {"region": source.region, "stream": source.stream}
    if source.endpoint:
        named["endpoint"] = source.endpoint
    closed = heard.report.closed
    unfinished = sorted(s.split for s in state.progress if not isinstance(s.position, End))
    return named | {
        "openKinesisShards": ",".join(s for s in unfinished if s not in closed),
        "closedKinesisShards": ",".join(s for s in unfinished if s in closed),
    }


def custom_properties(state: JobState) -> dict[str, str]:
    """Answer the options of the stream as given, without their secrets."""
    source = state.definition.stream
    hidden = {key for key, _ in secret_options(source)}
    return {key: MASK if key in hidden else value for key, value in print_options(source)}


def statistic(state: JobState, heard: Heard) -> dict[str, object]:
    """Answer the counters of a load since it was made."""
    total, counts = state.cumulative, heard.counts
    milliseconds = max(1, round((heard.at - state.created_at).total_seconds() * 1000))
    lags = lag_by_shard(state, heard.report)
    known = [lag for lag in lags.values() if lag >= 0]
    open_shards = [shard for shard in lags if shard not in heard.report.closed]
    return {
        "totalRows": total.rows_read,
        "loadedRows": total.rows_loaded,
        "errorRows": total.rows_rejected,
        "errorRowsAfterResumed": total.rows_rejected - state.rejected_before,
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
        "runningTxns": list(heard.running),
        "openShardNum": len(open_shards),
        "closedShardNum": len(lags) - len(open_shards),
        "trackedShardNum": len(state.progress),
        "cachedMillisBehindLatestShardNum": len(known),
        "totalMillisBehindLatest": sum(known) if known else -1,
        "maxMillisBehindLatest": max(known, default=-1),
    }


def rejects_query(state: JobState) -> str:
    """Answer the SELECT that shows the rows of the window that could not be loaded."""
    if not state.window.first:
        return ""
    return f"SELECT * FROM rejects('job' = {quoted_text(state.name)})"  # noqa: S608 - A hint to people.


def other_message(state: JobState, heard: Heard) -> str:
    """Answer what a load waits for, and what a person should know of its shards."""
    told = [heard.said] if heard.said else []
    finished = all(isinstance(split.position, End) for split in state.progress)
    if state.definition.stream.pinned and finished:
        told.append(
            "all pinned shards finished; to go on with their children PAUSE the load, write "
            f"ALTER ROUTINE LOAD FOR {quoted_name(state.name)} FROM KINESIS "
            "('kinesis_shards' = ''), and RESUME it"
        )
    if state.wish.wish is Wish.PAUSE and state.wish.reason and state.wish.reason.hint:
        told.append(state.wish.reason.hint.rstrip("."))
    living = state.wish.wish in (Wish.RUN, Wish.PAUSE)
    return "; ".join([*told, *(_late(state, heard) if living else ())])


def _late(state: JobState, heard: Heard) -> Iterator[str]:
    """Name the shards that are about to lose records."""
    kept = heard.report.retention
    if kept is None:
        return
    unfinished = {s.split for s in state.progress if not isinstance(s.position, End)}
    for one in heard.report.shards:
        if one.shard not in unfinished or one.behind is None:
            continue
        # What came since the last answer is waiting, too.
        unheard = max(heard.at - one.at, timedelta(0)) if one.at else timedelta(0)
        limit = kept * _NEAR_THE_END
        if one.behind + unheard >= limit:
            yield (
                f"shard {one.shard} {_told(one.behind, unheard, limit=limit)}, and the stream "
                f"keeps records for {lasted(kept)}: what is older is lost"
            )


def _told(behind: timedelta, unheard: timedelta, *, limit: timedelta) -> str:
    if behind >= limit:
        return f"is {lasted(behind)} behind"
    return (
        f"may be {lasted(behind + unheard)} behind, for it was last asked {lasted(unheard)} ago"
    )


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
