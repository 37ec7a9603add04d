"""What one row of SHOW ROUTINE LOAD tells, cell by cell, in the words of Apache Doris."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.control.shard_show import lag_by_shard
from penstock.model.events import Outcome
from penstock.model.job import JobState, Wish
from penstock.model.options import plain_options, print_options, secret_options
from penstock.model.payload import PayloadFormat
from penstock.model.position import End
from penstock.model.routine import LoadProperties
from penstock.model.routine_properties import FIXED_OPTIONS
from penstock.model.schema import quoted_name, quoted_text
from penstock.model.shards import StreamReport
from penstock.nouns import lasted
from penstock.sources.kinesis.lineage import readable

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
