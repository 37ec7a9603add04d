"""Plan the batches of a streaming query: shares of the readers, positions and watermark.

The planner only reads the source and the clock. The plan contains everything that the next plan
depends on. So a plan after a restart equals the plan without the restart.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from penstock.clock import Clock
from penstock.epochs.runner import Owned
from penstock.errors import InvariantError
from penstock.model.codec import from_text
from penstock.model.epoch import EpochLimits, EpochPlan
from penstock.model.job import JobState, StreamingQuery
from penstock.model.job_kinds import StreamingTableProperties
from penstock.model.split import At, Position, Progress, SplitRead
from penstock.sources.registry import source_options
from penstock.sources.table_log.kind import (
    FileWork,
    parse_position,
    parse_streams,
    with_times,
)
from penstock.sources.table_log.source import TableLogSource
from penstock.streaming.checkpoint import BatchPlan, SourcePlan
from penstock.streaming.watermark import (
    FIRST_WATERMARK_MS,
    SourceTime,
    counted_high,
    held_by,
    is_idle,
    next_watermark,
)

Shares = tuple[tuple[SplitRead, ...], ...]
_NO_LIMITS = EpochLimits(size_bytes=2**62, items=2**62)


class BatchPlanner:
    """Plans the next batch from the plan of the last one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: BatchPlan | None = None
        # The highest event time that the readers of the last batch found, by split.
        self._found_high: Mapping[str, int] = {}
        # The time since which a split has no unread rows, by split.
        self._head_since: dict[str, datetime] = {}

    def follow(self, last: BatchPlan | None, *, found_high: Mapping[str, int]) -> None:
        """Set the last batch; None before the first batch."""
        self._last = last
        self._found_high = found_high

    def pending(self, owned: Owned) -> bool:
        """Return whether a watermark must still be applied to the state."""
        last = self._last
        if last is None or not query_of(owned.state).closes_state:
            return False
        if last.watermark_ms > last.closes_ms:
            return True
        times = self._times(owned, reads=(), progress=owned.state.progress)
        return self._watermark(owned.state, times) > last.watermark_ms

    def batch_plan(
        self, batch: int, planned: EpochPlan, *, owned: Owned, pins: Mapping[str, int]
    ) -> BatchPlan:
        """Return the plan of a batch that reads the rows in ``planned``."""
        query, last = query_of(owned.state), self._last
        times = self._times(owned, reads=planned.reads, progress=planned.progress)
        drops = FIRST_WATERMARK_MS if last is None else last.closes_ms
        limit = self._high_max(owned.state)
        shares = _shares(
            planned, owned, slots=query.parallelism, drops_ms=drops, high_max_ms=limit
        )
        begin, end = positions(owned.state.progress), positions(planned.progress)
        table_id = {split.split: split.identity for split in planned.progress}
        return BatchPlan(
            epoch=owned.state.epoch_newest + 1,
            batch=batch,
            first=batch * query.parallelism,
            slots=query.parallelism,
            moves=bool(planned.reads),
            watermark_ms=self._watermark(owned.state, times),
            closes_ms=FIRST_WATERMARK_MS if last is None else last.watermark_ms,
            drops_ms=drops,
            high_max_ms=limit,
            held_by=_table_name(owned.state, held_by(_timed(query, times))),
            pins=pins,
            sources={
                time.name: SourcePlan(
                    table=table_id[time.name],
                    begin=begin[time.name],
                    end=end[time.name],
                    high_ms=time.high_ms,
                    idle=time.idle,
                    shares=shares[time.name],
                )
                for time in times
            },
        )

    def _watermark(self, state: JobState, times: list[SourceTime]) -> int:
        previous = FIRST_WATERMARK_MS if self._last is None else self._last.watermark_ms
        timed = _timed(query_of(state), times)
        return next_watermark(previous, timed, advance_ms=state.advance_ms)

    def _times(
        self, owned: Owned, *, reads: tuple[SplitRead, ...], progress: Progress
    ) -> list[SourceTime]:
        """Return the event time of each stream after these reads."""
        source = table_log_of(owned)
        remaining = {status.split: status.remaining for status in source.statuses()}
        fed = {s.split for s in owned.state.progress if s.identity in owned.fed}
        position = {split.split: split.position for split in progress}
        times: list[SourceTime] = []
        for view in query_of(owned.state).views:
            own = tuple(read for read in reads if read.split == view.split)
            at_head = not own and not remaining[view.split].items
            times.append(
                SourceTime(
                    name=view.split,
                    delay_ms=view.delay_ms,
                    high_ms=self._high(view.split, own, limit_ms=self._high_max(owned.state)),
                    hold_ms=source.hold_ms(view.split, position[view.split]),
                    idle=self._idle(
                        view.split, owned.state, at_head=at_head, fed=view.split in fed
                    ),
                )
            )
        return times

    def _high(self, split: str, reads: tuple[SplitRead, ...], *, limit_ms: int) -> int | None:
        """Return the highest event time of a split after these reads."""
        high = None if self._last is None else self._last.sources[split].high_ms
        works = (from_text(FileWork, read.work) for read in reads)
        for found in (self._found_high.get(split), *(work.high_ms for work in works)):
            high = counted_high(high, found, limit_ms=limit_ms)
        return high

    def _high_max(self, state: JobState) -> int:
        """Return the latest event time that can now raise the highest one of a stream."""
        latest = self._clock.now() + _properties(state).max_future
        return int(latest.timestamp() * 1_000)

    def _idle(self, split: str, state: JobState, *, at_head: bool, fed: bool) -> bool:
        now = self._clock.now()
        if not at_head:
            self._head_since.pop(split, None)
            return False
        return is_idle(
            head_since=self._head_since.setdefault(split, now),
            now=now,
            timeout=_properties(state).idle_timeout,
            fed_by_backlog=fed,
        )


def query_of(state: JobState) -> StreamingQuery:
    """Return the query of a streaming table."""
    query = state.definition.streaming
    if query is None:
        raise InvariantError(f'job "{state.name}" has no streaming query')
    return query


def table_log_of(owned: Owned) -> TableLogSource:
    """Return the source of a streaming table."""
    if not isinstance(owned.source, TableLogSource):
        raise InvariantError("a streaming table reads table logs")
    return owned.source


def positions(progress: Progress) -> dict[str, str]:
    """Return the texts of all positions, by split."""
    return {split.split: parse_position(split.position).stored.value for split in progress}


def epoch_plan(stored: BatchPlan, progress: Progress) -> EpochPlan:
    """Convert the stored plan of a batch to the plan of an epoch."""
    reads = tuple(r for s in stored.sources.values() for share in s.shares for r in share)
    return EpochPlan(reads=reads, progress=_at_ends(stored, progress), final=True)


def with_shares(stored: BatchPlan, owned: Owned) -> BatchPlan:
    """Return an attachment's plan with the shares computed again from its positions."""
    source = table_log_of(owned)
    starts = tuple(
        replace(split, position=At(value=stored.sources[split.split].begin))
        for split in owned.state.progress
    )
    ends = {split.split: split.position for split in _at_ends(stored, starts)}
    _poll_to(source, starts, ends)
    everything = source.plan(starts, limits=_NO_LIMITS)
    reads = tuple(
        read
        for read in (everything.reads if everything else ())
        if parse_position(read.begin).order < parse_position(ends[read.split]).order
    )
    planned = EpochPlan(reads=reads, progress=_at_ends(stored, starts), final=True)
    shares = _shares(
        planned,
        owned,
        slots=stored.slots,
        drops_ms=stored.drops_ms,
        high_max_ms=stored.high_max_ms,
    )
    sources = {name: replace(s, shares=shares[name]) for name, s in stored.sources.items()}
    return replace(stored, sources=sources)


def _poll_to(source: TableLogSource, starts: Progress, ends: Mapping[str, Position]) -> None:
    """Poll until everything before the ends is known; a poll reads a limited part of a log."""
    heads: Mapping[str, Position] = {}
    while True:
        source.poll(starts, report=lambda _: None)
        before, heads = heads, source.heads()
        if all(
            parse_position(heads[split]).order >= parse_position(end).order
            for split, end in ends.items()
        ):
            return
        if heads == before:
            raise InvariantError(f"the logs end at {heads}, before the stored ends {ends}")


def _at_ends(stored: BatchPlan, progress: Progress) -> Progress:
    return tuple(
        replace(split, position=At(value=stored.sources[split.split].end)) for split in progress
    )


def _shares(
    planned: EpochPlan, owned: Owned, *, slots: int, drops_ms: int, high_max_ms: int
) -> dict[str, Shares]:
    """Divide the reads of each stream into one share per reader task."""
    shares: dict[str, Shares] = {}
    for split in planned.progress:
        own = tuple(read for read in planned.reads if read.split == split.split)
        timed = (with_times(r, watermark_ms=drops_ms, high_max_ms=high_max_ms) for r in own)
        counted = replace(planned, reads=tuple(timed))
        groups = owned.source.distribute(counted, tasks=slots, needed=()) if own else []
        shares[split.split] = tuple(groups)
    return shares


def _timed(query: StreamingQuery, times: list[SourceTime]) -> list[SourceTime]:
    """Return the times of the streams that have an event time."""
    timed = {view.split for view in query.views if view.event_time is not None}
    return [time for time in times if time.name in timed]


def _table_name(state: JobState, split: str) -> str:
    streams = parse_streams(source_options(state.definition.source).streams)
    return next((stream.table for stream in streams if stream.split == split), "")


def _properties(state: JobState) -> StreamingTableProperties:
    properties = state.definition.properties
    if not isinstance(properties, StreamingTableProperties):
        raise InvariantError(f'job "{state.name}" is not a streaming table')
    return properties
