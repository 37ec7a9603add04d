"""SHOW SHARDS: the shards of a routine load as a tree, and how far each was read."""

from penstock.catalog.catalog import Catalog
from penstock.clock import Clock
from penstock.control.lookup import find_routine_load
from penstock.control.result import Cell, Result
from penstock.model.job import JobState
from penstock.model.position import End, position_text
from penstock.model.shards import ShardReport, StreamReport
from penstock.nouns import lasted
from penstock.sources.kinesis.lineage import ShardState, states

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
