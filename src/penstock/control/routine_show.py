"""Statements that look at routine loads, in the columns of Apache Doris."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from penstock.catalog.catalog import Catalog
from penstock.catalog.leases import Lease
from penstock.clock import Clock
from penstock.control.lookup import find_routine_load
from penstock.control.result import Cell, Result
from penstock.control.routine_words import statement_of_load
from penstock.control.shard_show import lag_by_shard
from penstock.errors import Code, UserError
from penstock.model.epoch import CommitKind
from penstock.model.events import Outcome
from penstock.model.job import JobState, Wish
from penstock.model.options import all_options, print_options, secret_options
from penstock.model.position import End, position_text
from penstock.model.schema import quoted_name
from penstock.model.shards import StreamReport
from penstock.nouns import lasted
from penstock.sources.kinesis.lineage import readable
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
MASK = "******"
_NEAR_THE_END = 0.8
_TIMEOUT_BATCHES = 10
_TIMEOUT_MIN = timedelta(seconds=60)


def show_routine_load(statement: ShowRoutineLoad, *, catalog: Catalog, clock: Clock) -> Result:
    """List routine loads, the oldest first; those that were stopped only with ALL."""
    leases, reports, said = catalog.leases(), catalog.reports(), catalog.statuses()
    rows = tuple(
        _row(
            state,
            lease=leases.get(state.id),
            report=reports.get(state.id, StreamReport()),
            said=said.get(state.id, ""),
            catalog=catalog,
            now=clock.now(),
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


def _row(
    state: JobState,
    *,
    lease: Lease | None,
    report: StreamReport,
    said: str,
    catalog: Catalog,
    now: datetime,
) -> tuple[Cell, ...]:
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
        _tasks(state) if named == "RUNNING" else 0,
        _job_properties(state),
        _source_properties(state, report),
        _custom_properties(state),
        _statistic(state, report, catalog=catalog, now=now),
        _json({split.split: position_text(split.position) for split in state.progress}),
        _json(lag_by_shard(state, report)),
        "" if reason is None else f"{reason.code}: {reason.message}",
        _rejects_hint(state),
        _other(state, report, said=said if state.wish.wish is Wish.RUN else ""),
        "",
        definition.comment,
        "",
        state.window.first,
    )


def _tasks(state: JobState) -> int:
    most = state.definition.routine_properties.tasks_max
    return min(most, len(readable(state.progress)))


def _job_properties(state: JobState) -> str:
    definition = state.definition
    load = definition.load
    made = [c for c in (load.columns if load else None) or () if c.expression is not None]
    listed = [c.name for c in (load.columns if load else None) or () if c.expression is None]
    told: dict[str, object] = {
        "partitions": "*",
        "columnToColumnExpr": ", ".join(
            [*listed, *(f"{column.name} = {column.expression}" for column in made)]
        )
        or "*",
        "precedingFilter": (load.preceding_filter if load else None) or "*",
        "whereExpr": (load.where if load else None) or "*",
        "column_separator": (load.separator if load else None) or "\t",
        "merge_type": "APPEND",
        "current_concurrent_number": str(_tasks(state)),
    }
    return _json(told | dict(all_options(definition.properties)))


def _source_properties(state: JobState, report: StreamReport) -> str:
    source = state.definition.stream
    named = {"region": source.region, "stream": source.stream}
    if source.endpoint:
        named["endpoint"] = source.endpoint
    unfinished = [s.split for s in state.progress if not isinstance(s.position, End)]
    closed = [shard for shard in unfinished if shard in report.closed]
    still_open = [shard for shard in unfinished if shard not in report.closed]
    return _json(
        named
        | {
            "openKinesisShards": ",".join(sorted(still_open)),
            "closedKinesisShards": ",".join(sorted(closed)),
        }
    )


def _custom_properties(state: JobState) -> str:
    source = state.definition.stream
    hidden = {key for key, _ in secret_options(source)}
    return _json(
        {key: MASK if key in hidden else value for key, value in print_options(source)}
    )


def _statistic(
    state: JobState, report: StreamReport, *, catalog: Catalog, now: datetime
) -> str:
    total = state.cumulative
    counts = catalog.ledger_counts(state.id, kind=CommitKind.EPOCH)
    milliseconds = max(1, round((now - state.created_at).total_seconds() * 1000))
    lags = lag_by_shard(state, report)
    known = [lag for lag in lags.values() if lag >= 0]
    open_shards = [shard for shard in lags if shard not in report.closed]
    return _json(
        {
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
            "runningTxns": [],
            "openShardNum": len(open_shards),
            "closedShardNum": len(lags) - len(open_shards),
            "trackedShardNum": len(state.progress),
            "cachedMillisBehindLatestShardNum": len(known),
            "totalMillisBehindLatest": sum(known) if known else -1,
            "maxMillisBehindLatest": max(known, default=-1),
        }
    )


def _rejects_hint(state: JobState) -> str:
    if not state.cumulative.rows_rejected:
        return ""
    return f"SELECT * FROM rejects('job' = '{state.name}')"  # noqa: S608 - A hint to people.


def _other(state: JobState, report: StreamReport, *, said: str) -> str:
    told = [said] if said else []
    finished = all(isinstance(split.position, End) for split in state.progress)
    if state.definition.stream.pinned and finished:
        told.append(
            "all pinned shards finished; to go on with their children PAUSE the load, write "
            f"ALTER ROUTINE LOAD FOR {quoted_name(state.name)} FROM KINESIS "
            "('kinesis_shards' = ''), and RESUME it"
        )
    return "; ".join([*told, *_late(report)])


def _late(report: StreamReport) -> Iterator[str]:
    """Name the shards that are about to lose records."""
    kept = report.retention
    for one in report.shards if kept is not None else ():
        if kept is not None and one.behind is not None and one.behind >= kept * _NEAR_THE_END:
            yield (
                f"shard {one.shard} is {lasted(one.behind)} behind, and the stream keeps "
                f"records for {lasted(kept)}: what is older is lost"
            )


def show_tasks(name: str, *, catalog: Catalog) -> Result:
    """List the epochs of a load that are under way."""
    state = find_routine_load(name, catalog=catalog)
    interval = state.definition.routine_properties.max_batch_interval
    timeout = max(interval * _TIMEOUT_BATCHES, _TIMEOUT_MIN)
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
            _json({s.split: position_text(s.position) for s in entry.progress}),
        )
        for entry in catalog.ledger(state.id)
        if entry.outcome is Outcome.STARTED and state.wish.wish is Wish.RUN
    )
    return Result(columns=TASK_COLUMNS, rows=rows)


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


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _instant(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
