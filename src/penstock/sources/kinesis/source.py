"""A Kinesis stream as a source: which shards exist, may be read, and have records.

The service counts the reads of a shard, whoever sends them. Jobs on the same stream share them
evenly; a job whose epoch must be over, and that has not asked since, has given its part back.

Invariant: progress is what is given, completed by what the stream tells of its shards. Whatever
is remembered between calls only saves requests, or says how far behind a shard is.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Event
from typing import Protocol

from penstock.clock import Clock
from penstock.errors import InvariantError
from penstock.model.epoch import EpochLimits, EpochPlan, Note
from penstock.model.options import Reveal, sealed_pairs
from penstock.model.secrets import Sealed
from penstock.model.split import (
    End,
    ListedShard,
    ReadLimits,
    ShardPart,
    ShardRead,
    ShardReport,
    SplitProgress,
    StreamReport,
)
from penstock.sources.kinesis.access import revealed_stream, stream_access
from penstock.sources.kinesis.client import GIVE_UP_AFTER, Patience, StreamAccess, StreamClient
from penstock.sources.kinesis.directory import LISTING_INTERVAL, Roll
from penstock.sources.kinesis.options import KinesisOptions
from penstock.sources.kinesis.pages import ShardPages, StreamSummary, describe
from penstock.sources.kinesis.reading import READ_INTERVAL
from penstock.sources.kinesis.shards import (
    Progress,
    follow,
    parents_of,
    readable,
    stream_changed,
)
from penstock.sources.kinesis.watching import Watch, loaded_until, needs_proof, probe_of
from penstock.sources.source import Backlog, Listed


class Reports(Protocol):
    """The newest report about the stream of one job."""

    def load(self) -> StreamReport:
        """Answer the newest report; an empty one if there is none."""
        ...

    def store(self, report: StreamReport) -> None:
        """Replace the report."""
        ...


_ABSENT_AFTER = timedelta(minutes=1)

# Where a stream is asked, and its name.
StreamKey = tuple[str, str]


class ReadBudgets:
    """Who reads which stream from this node; used by all runners."""

    def __init__(self, clock: Clock, *, interval: timedelta = READ_INTERVAL) -> None:
        self._clock = clock
        self._interval = interval
        self._lock = threading.Lock()
        # Until when each reader of a stream is counted.
        self._until: dict[StreamKey, dict[str, float]] = {}

    def interval(
        self, key: StreamKey, reader: str, *, busy: timedelta = timedelta(0)
    ) -> timedelta:
        """Answer how far apart the requests of a reader, a job, for one shard lie at least.

        ``busy`` is how long it may read without asking here again.
        """
        now = self._clock.monotonic()
        with self._lock:
            readers = self._until.setdefault(key, {})
            readers[reader] = now + (busy + _ABSENT_AFTER).total_seconds()
            for other, until in list(readers.items()):
                if until < now:
                    del readers[other]
            return self._interval * len(readers)


_THREADS_MAX = 16
# The service tells its time in whole seconds: what arrived within the same one may be older.
_SERVER_TICK = timedelta(seconds=1)
# A position that lies further back than this part of the retention is proven anew, and so is
# one of which nothing was heard for the rest of it.
_NEAR_THE_HORIZON = 0.9
# How long a look follows empty pages before it begins anew with all shards.
_LOOK_MAX = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamParts:
    """What a stream is opened with."""

    job_id: str
    clock: Clock
    # Ends every wait.
    stop: Event
    reports: Reports
    budgets: ReadBudgets
    # A reference in an option becomes its value.
    reveal: Reveal
    # Values become what tasks are given.
    seal: Callable[[Mapping[str, str]], Sealed]


class KinesisSource:
    """The stream of one job, seen from the driver."""

    def __init__(self, options: KinesisOptions, *, parts: StreamParts) -> None:
        self._options = options
        self._parts = parts
        self._stop = parts.stop
        self._patience = Patience(
            clock=parts.clock, give_up_after=GIVE_UP_AFTER, stop=self._stop
        )
        self._client = StreamClient(stream_access(self._values()))
        self._summary: StreamSummary | None = None
        self._told_at: float | None = None
        self._begun_at: datetime | None = None
        self._looked_at: float | None = None
        self._roll = Roll(
            options,
            client=lambda: self._client,
            patience=self._patience,
            clock=parts.clock,
            stop=self._stop,
        )
        self._progress: Progress = ()
        self._watches: dict[str, Watch] = {}
        self._charged = self._taken = 0
        stored = parts.reports.load()
        self._reports = {report.shard: report for report in stored.shards}
        self._created_at = stored.created_at

    def discover(self, progress: Progress, *, listed: Listed) -> Backlog:
        """Look for new shards, and ask those that may be read whether they hold anything."""
        self._renew_client()
        self._hear_of_stream()
        self._progress = self._roll.look(progress)
        self._watch()
        self._poll(listed)
        self._looked_at = self._parts.clock.monotonic()
        self._store_reports()
        return self.waiting()

    def look_due(self, interval: timedelta) -> bool:
        """Tell whether a shard may be read that nobody watches, or idle ones may have news."""
        unwatched = any(split.split not in self._watches for split in readable(self._progress))
        return unwatched or self._passed_since(self._looked_at, interval)

    def _passed_since(self, begun: float | None, interval: timedelta) -> bool:
        now = self._parts.clock.monotonic()
        return begun is None or now - begun >= interval.total_seconds()

    def waiting(self) -> Backlog:
        """Answer which shards have something, and how old the oldest of it is."""
        behind = [
            watch.report.behind for watch in self._watches.values() if watch.report.behind
        ]
        return Backlog(
            files=sum(watch.found for watch in self._watches.values()),
            complete=not any(watch.searching for watch in self._watches.values()),
            behind=max(behind, default=None),
        )

    def caught_up(self) -> bool:
        """Tell whether every shard was read to its tip, or to a record of this run."""
        unfinished = [s.split for s in self._progress if not isinstance(s.position, End)]
        return not self._roll.awaits_child(self._progress) and all(
            split in self._watches and self._watches[split].caught_up for split in unfinished
        )

    def plan(self, progress: Progress, *, limits: EpochLimits) -> EpochPlan | None:
        """Let tasks read every shard that has something; the limits are shared out evenly."""
        self._progress = self._roll.completed(progress)
        ready = [watch for watch in self._watches.values() if watch.found]
        if not ready:
            return None
        share = ReadLimits(
            records=-(-limits.records // len(ready)),
            size_bytes=-(-limits.size_bytes // len(ready)),
            duration=limits.duration,
            interval=self._interval(busy=limits.duration),
        )
        reads = []
        for watch in ready:
            watch.found = False
            reads.append(
                ShardRead(
                    shard=watch.shard,
                    begin=watch.position,
                    limits=share,
                    iterator=watch.iterator,
                )
            )
        return EpochPlan(shards=tuple(reads), progress=self._progress)

    def reached(self, plan: EpochPlan, notes: Sequence[Note]) -> Progress:
        """Move the shards to where tasks ended, and add the children of those that ended."""
        return self._moved(plan.progress, notes)

    def _moved(self, progress: Progress, notes: Sequence[Note]) -> Progress:
        splits = {split.split: split for split in progress}
        children: list[ListedShard] = []
        for note in notes:
            if isinstance(note.part, ShardPart):
                split, outcome = splits[note.part.shard], note.part.outcome
                splits[split.split] = replace(
                    split, position=outcome.position, records=split.records + note.records
                )
                children += outcome.children
        moved = tuple(splits.values())
        return moved if self._options.pinned else follow(moved, children)

    def committed(self, notes: Sequence[Note]) -> None:
        """Go on behind what was read, and remember what was said about it."""
        self._progress = self._moved(self._progress, notes)
        for note in notes:
            if isinstance(note.part, ShardPart):
                self._take(note.part)
        self._store_reports()

    def _take(self, part: ShardPart) -> None:
        outcome = part.outcome
        watch = self._watches[part.shard]
        watch.take(outcome, begun_at=self._begun_at or self._told.at)
        watch.heard_at = self._parts.clock.monotonic()
        near = self._told.retention * _NEAR_THE_HORIZON
        if outcome.behind is not None and outcome.behind > near:
            self._watches.pop(part.shard)
        self._reports[part.shard] = watch.report
        if isinstance(outcome.position, End):
            self._watches.pop(part.shard, None)
            self._reports[part.shard] = replace(
                watch.report, caught_up_at=loaded_until(part.begin, watch.report)
            )
            for child in outcome.children:
                self._roll.add(child)

    @property
    def modified_files(self) -> int:
        """None: what a stream holds never changes."""
        return 0

    def task_access(self) -> Sealed:
        """Answer what tasks need to read, with the credentials of this moment."""
        return self._parts.seal(sealed_pairs(self._values()))

    def charge(self, requests: int) -> None:
        """Count requests that tasks have sent."""
        self._charged += requests

    def take_requests(self) -> int:
        """Answer how many requests were sent since this was last asked."""
        sent = self._client.requests + self._charged
        new, self._taken = sent - self._taken, sent
        return new

    def pause(self) -> timedelta:
        """Answer how long to wait at least before the next look."""
        return timedelta(0)

    @property
    def _told(self) -> StreamSummary:
        if self._summary is None:
            raise InvariantError("a stream must be looked at before it is read")
        return self._summary

    def _hear_of_stream(self) -> None:
        """Ask for the stream as a whole from time to time; it must be the one that it was."""
        if not self._passed_since(self._told_at, LISTING_INTERVAL):
            return
        told = describe(self._client, self._access, self._patience)
        if self._created_at is not None and self._created_at != told.created_at:
            made, before = (
                f"{at:%Y-%m-%d %H:%M:%S}" for at in (told.created_at, self._created_at)
            )
            raise stream_changed(
                f'stream "{self._options.stream}" was made at {made} UTC, and not at {before} '
                "UTC any more"
            )
        if self._summary is not None and self._summary.retention != told.retention:
            # What was proven holds no more: records may have been trimmed at once.
            self._watches.clear()
        self._created_at, self._summary = told.created_at, told
        self._told_at = self._parts.clock.monotonic()
        self._begun_at = self._begun_at or told.at + _SERVER_TICK

    @property
    def _access(self) -> StreamAccess:
        return self._client.access

    def _values(self) -> KinesisOptions:
        return revealed_stream(self._options, self._parts.reveal)

    def _renew_client(self) -> None:
        """Ask with the keys of this moment; whoever watches a shard begins anew with them."""
        access = stream_access(self._values())
        if access != self._access:
            self._charged += self._client.requests
            self._client = StreamClient(access)
            self._watches.clear()

    def _interval(self, *, busy: timedelta = timedelta(0)) -> timedelta:
        key = (self._access.endpoint or self._access.region, self._options.stream)
        return self._parts.budgets.interval(key, self._parts.job_id, busy=busy)

    def _watch(self) -> None:
        """Watch the shards that may be read, and no others."""
        splits = {split.split: split for split in readable(self._progress)}
        by_id = self._roll.told_of()
        for name in self._watches.keys() - splits.keys():
            del self._watches[name]
        for name, split in splits.items():
            shard = by_id.get(name) or ListedShard(id=name)
            watch = self._watches.get(name)
            if watch is None or watch.position != split.position or self._is_stale(watch):
                self._watches[name] = self._new_watch(split, shard)
            else:
                watch.shard = shard

    def _is_stale(self, watch: Watch) -> bool:
        """Tell whether records may have been trimmed since a shard was last heard of."""
        left = self._told.retention * (1 - _NEAR_THE_HORIZON)
        return watch.heard_at is not None and self._passed_since(watch.heard_at, left)

    def _report_of(self, split: SplitProgress) -> ShardReport:
        """Answer what was heard of a shard; of a new one, what was heard of its parents.

        Nothing was in a child before its parents ended.
        """
        known = self._reports.get(split.split)
        if known is None:
            parents = [self._reports.get(name) for name in parents_of(split)]
            times = [one.caught_up_at for one in parents if one and one.caught_up_at]
            known = ShardReport(shard=split.split, caught_up_at=max(times, default=None))
            self._reports[split.split] = known
        return known

    def _new_watch(self, split: SplitProgress, shard: ListedShard) -> Watch:
        report = self._report_of(split)
        proof = needs_proof(split.position, report)
        pages = ShardPages(
            self._client,
            self._access,
            split.split,
            probe_of(split.position) if proof else split.position,
            patience=self._patience,
            is_closed=lambda: self._roll.is_closed(split.split),
        )
        return Watch(
            shard=shard, position=split.position, pages=pages, report=report, proven=not proof
        )

    def _poll(self, listed: Listed) -> None:
        """Ask shards for one record each, until all are decided or one has something."""
        asked = 0
        for watch in self._watches.values():
            watch.searching = not watch.found
        retention, begun = self._told.retention, self._parts.clock.monotonic()
        with ThreadPoolExecutor(_THREADS_MAX) as threads:
            while not any(watch.found for watch in self._watches.values()) or not asked:
                searching = [watch for watch in self._watches.values() if watch.searching]
                listed(asked)
                if not searching or (asked and self._passed_since(begun, _LOOK_MAX)):
                    return
                list(threads.map(lambda watch: self._ask(watch, retention), searching))
                asked += len(searching)

    def _ask(self, watch: Watch, retention: timedelta) -> None:
        proven = watch.proven
        self._ask_once(watch, retention)
        if watch.searching and watch.proven and not proven:
            # That has only shown that nothing was lost.
            self._ask_once(watch, retention)

    def _ask_once(self, watch: Watch, retention: timedelta) -> None:
        now = self._parts.clock.monotonic()
        if watch.asked_at is not None:
            left = self._interval() - timedelta(seconds=now - watch.asked_at)
            if left > timedelta(0):
                self._parts.clock.wait(self._stop, left)
        watch.asked_at = self._parts.clock.monotonic()
        watch.ask(retention)
        watch.heard_at = self._parts.clock.monotonic()
        self._reports[watch.shard.id] = watch.report

    def _store_reports(self) -> None:
        told = (self._told_of(split) for split in self._progress)
        self._parts.reports.store(
            StreamReport(
                shards=tuple(report for report in told if report is not None),
                closed=tuple(shard.id for shard in self._roll.listed if shard.closed),
                retention=self._told.retention,
                created_at=self._created_at,
            )
        )

    def _told_of(self, split: SplitProgress) -> ShardReport | None:
        """Answer the report of a shard; of one that has ended, what its children begin with."""
        report = self._reports.get(split.split)
        if report is None or not isinstance(split.position, End):
            return report
        return replace(report, behind=None)
