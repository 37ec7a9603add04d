"""A Kinesis stream as a source: which shards exist, can be read, and have records.

The service limits the reads of a shard over all readers. The jobs of a node that read the same
stream share these reads evenly. A job's share expires one minute after the time limit of its
epoch, or after its last poll.

Invariant: progress is the given progress plus the shards that the stream reports. State
between calls only saves requests, or stores the lag of a shard.
"""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from penstock.clock import Clock
from penstock.errors import InvariantError
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import EpochLimits, EpochPlan
from penstock.model.options import sealed_pairs
from penstock.model.secrets import Sealed
from penstock.model.split import (
    Amount,
    AtTime,
    End,
    Note,
    Position,
    Progress,
    ReadLimits,
    SplitProgress,
    SplitRead,
    SplitStatus,
)
from penstock.model.text import format_count, format_instant
from penstock.sources.kinesis.client import Retries, StreamClient, stream_access
from penstock.sources.kinesis.kind import KINESIS, KinesisOptions, revealed_stream
from penstock.sources.kinesis.polling import (
    LISTING_INTERVAL,
    PollState,
    ShardDirectory,
    ShardPoller,
    gap_check_of,
    loaded_until,
)
from penstock.sources.kinesis.reading import (
    READ_INTERVAL,
    ShardPages,
    StreamSummary,
    describe,
)
from penstock.sources.kinesis.shards import (
    ListedShard,
    ShardMemory,
    ShardOutcome,
    StreamMemory,
    add_new_shards,
    load_memory,
    readable,
    stream_changed,
    unfinished_descendants,
)
from penstock.sources.source import (
    EpochResult,
    Poll,
    ReportPoll,
    ShowRequest,
    Source,
    SourceServices,
)

_READER_EXPIRES_AFTER = timedelta(minutes=1)

# The address and the name of a stream.
StreamKey = tuple[str, str]


class ReadBudgets:
    """Shares of the reads of each stream, for all jobs of a node; thread-safe."""

    def __init__(self, clock: Clock, *, interval: timedelta = READ_INTERVAL) -> None:
        self._clock = clock
        self._interval = interval
        self._lock = threading.Lock()
        # When the share of each reader of a stream expires.
        self._until: dict[StreamKey, dict[str, float]] = {}

    def interval(
        self, key: StreamKey, reader: str, *, busy: timedelta = timedelta(0)
    ) -> timedelta:
        """Return the minimum interval between a job's requests for one shard.

        ``busy`` is how long the job may read before it calls again.
        """
        now = self._clock.monotonic()
        with self._lock:
            readers = self._until.setdefault(key, {})
            readers[reader] = now + (busy + _READER_EXPIRES_AFTER).total_seconds()
            for other, until in list(readers.items()):
                if until < now:
                    del readers[other]
            return self._interval * len(readers)


_THREADS_MAX = 16
# The service's time has whole seconds, so records of the same second may be older.
_SERVER_TICK = timedelta(seconds=1)
# Gaps are checked again if the lag of a shard exceeds this part of the retention. The same
# holds if a shard was not polled for the rest of the retention.
_GAP_CHECK_RATIO = 0.9
# A poll reads empty pages for at most this time. The next poll includes all shards again.
_POLL_MAX = timedelta(seconds=10)


class KinesisSource(Source):
    """The stream of one job, as the driver sees it."""

    def __init__(self, options: KinesisOptions, *, services: SourceServices) -> None:
        if not isinstance(services.shared, ReadBudgets):
            raise InvariantError("a stream must be opened with the read budgets of its node")
        self._options = options
        self._services = services
        self._clock = services.clock
        self._budgets = services.shared
        retries = Retries(clock=services.clock, stop=services.stop)
        self._client = StreamClient(stream_access(self._values()), retries)
        self._directory = ShardDirectory(self._client, pinned=options.pinned)
        self._summary: StreamSummary | None = None
        self._described_at: float | None = None
        self._run_started_at: datetime | None = None
        self._polled_at: float | None = None
        self._progress: Progress = ()
        self._pollers: dict[str, ShardPoller] = {}
        self._requests_charged = self._requests_reported = 0
        stored = load_memory(services.memory.load(), services.state.progress)
        self._memory = {memory.shard: memory for memory in stored.shards}
        self._created_at = stored.created_at
        # A finished shard is removed from progress. The number of its last move stays known.
        placements = (split.placed for split in services.state.progress)
        self._placed = max((stored.placed, *placements))

    def poll(self, progress: Progress, *, report: ReportPoll) -> Poll:
        access = stream_access(self._values())
        if access != self._client.access:
            # After a change of credentials, pollers must start again.
            self._client.access = access
            self._pollers.clear()
        self._describe()
        self._progress = self._directory.refresh(progress)
        self._open_pollers()
        self._poll_shards(report)
        self._polled_at = self._clock.monotonic()
        self._store_memory()
        return Poll(progress=self._progress, waiting=self.waiting())

    def poll_due(self, interval: timedelta) -> bool:
        unpolled = any(split.split not in self._pollers for split in readable(self._progress))
        return unpolled or self._passed_since(self._polled_at, interval)

    def _passed_since(self, start: float | None, interval: timedelta) -> bool:
        return start is None or self._clock.monotonic() - start >= interval.total_seconds()

    def waiting(self) -> Amount:
        pollers = self._pollers.values()
        lags = [poller.memory.lag for poller in pollers if poller.memory.lag]
        return Amount(
            items=sum(poller.state is PollState.FOUND for poller in pollers),
            complete=not any(poller.state is PollState.SEARCHING for poller in pollers),
            lag=max(lags, default=None),
        )

    def heads(self) -> Mapping[str, Position]:
        # The start of the run, and later the time of the last describe request. Both times are
        # by the service's clock.
        at = max(self._run_started_at or self._described.at, self._described.at)
        return {split.split: AtTime(at=at) for split in self._progress}

    def passed(
        self, split: str, boundary: Position, *, result: EpochResult | None = None
    ) -> bool:
        progress = self._progress if result is None else result.progress
        # The children of a finished shard continue it.
        reading = unfinished_descendants(progress, split)
        if reading != (split,) and self._directory.awaits_child(progress):
            return False
        notes = () if result is None else result.notes
        ends = {note.read: from_text(ShardOutcome, note.result) for note in notes}
        return all(
            self._shard_passed(shard, boundary, outcome=ends.get(shard)) for shard in reading
        )

    def _shard_passed(
        self, shard: str, boundary: Position, *, outcome: ShardOutcome | None
    ) -> bool:
        poller = self._pollers.get(shard)
        if poller is None:
            return False
        return poller.passed(boundary, run_started_at=self._run_started_at, outcome=outcome)

    def statuses(self) -> tuple[SplitStatus, ...]:
        request = ShowRequest(
            state=replace(self._services.state, progress=self._progress),
            memory=self._services.memory.load(),
            at=self._clock.now(),
        )
        return KINESIS.statuses(request)

    def plan(self, progress: Progress, *, limits: EpochLimits) -> EpochPlan | None:
        # Read every shard that has records, with an equal part of the limits.
        self._progress = self._directory.completed(progress)
        ready = [poller for poller in self._pollers.values() if poller.state is PollState.FOUND]
        if not ready:
            return None
        share = ReadLimits(
            records=-(-limits.records // len(ready)),
            size_bytes=-(-limits.size_bytes // len(ready)),
            duration=limits.duration,
            interval=self._interval(busy=limits.duration),
        )
        for poller in ready:
            poller.state = PollState.IDLE
        return EpochPlan(
            reads=tuple(poller.read(share) for poller in ready), progress=self._progress
        )

    def distribute(
        self, plan: EpochPlan, *, tasks: int, needed: Sequence[str]
    ) -> list[tuple[SplitRead, ...]]:
        del needed
        return [plan.reads[task::tasks] for task in range(min(tasks, len(plan.reads)))]

    def advance(self, plan: EpochPlan, notes: Sequence[Note]) -> Progress:
        reads = {read.id: read for read in plan.reads}
        splits = {split.split: split for split in plan.progress}
        children: list[ListedShard] = []
        for note in notes:
            read, outcome = reads[note.read], from_text(ShardOutcome, note.result)
            if outcome.begin != read.begin:
                raise InvariantError(
                    f'tasks did not read shard "{read.split}" from the planned position',
                    detail=f"The plan starts at {read.begin}, the note at {outcome.begin}.",
                )
            split = splits[read.split]
            splits[read.split] = replace(
                split, position=note.end, records=split.records + note.counts.records
            )
            children += outcome.children
        moved = tuple(splits.values())
        return moved if self._options.pinned else add_new_shards(moved, children)

    def committed(self, progress: Progress, notes: Sequence[Note]) -> None:
        self._progress = progress
        for note in notes:
            self._apply_outcome(note.read, from_text(ShardOutcome, note.result))
        self._store_memory()

    def _apply_outcome(self, shard: str, outcome: ShardOutcome) -> None:
        poller = self._pollers[shard]
        poller.advance(outcome, run_started_at=self._run_started_at or self._described.at)
        poller.responded_at = self._clock.monotonic()
        near = self._described.retention * _GAP_CHECK_RATIO
        if outcome.lag is not None and outcome.lag > near:
            self._pollers.pop(shard)
        self._memory[shard] = poller.memory
        if isinstance(outcome.position, End):
            self._pollers.pop(shard, None)
            self._memory[shard] = replace(
                poller.memory, caught_up_at=loaded_until(outcome.begin, poller.memory)
            )
            for child in outcome.children:
                self._directory.add(child)

    def task_access(self) -> Sealed:
        return self._services.seal(sealed_pairs(self._values()))

    def count_requests(self, requests: int) -> None:
        self._requests_charged += requests

    def take_requests(self) -> int:
        sent = self._client.requests + self._requests_charged
        new, self._requests_reported = sent - self._requests_reported, sent
        return new

    @property
    def _described(self) -> StreamSummary:
        if self._summary is None:
            raise InvariantError("a stream must be polled before it is read")
        return self._summary

    def recheck(self) -> None:
        # Boundaries need the current time of the service. They also need a new listing, because
        # a shard that is listed only later would get no boundary.
        self._described_at = None
        self._directory.require_listing()

    def _describe(self) -> None:
        """Describe the stream if that is due; raise UserError if the stream was recreated."""
        if not self._passed_since(self._described_at, LISTING_INTERVAL):
            return
        found = describe(self._client)
        if self._created_at is not None and self._created_at != found.created_at:
            raise stream_changed(
                f'stream "{self._options.stream}" was created at '
                f"{format_instant(found.created_at)} UTC, but the stream that was loaded "
                f"before was created at {format_instant(self._created_at)} UTC"
            )
        if self._summary is not None and self._summary.retention != found.retention:
            # Check for gaps again, because a shorter retention trims records at once.
            self._pollers.clear()
        self._created_at, self._summary = found.created_at, found
        self._described_at = self._clock.monotonic()
        self._run_started_at = self._run_started_at or found.at + _SERVER_TICK

    def _values(self) -> KinesisOptions:
        return revealed_stream(self._options, self._services.reveal)

    def _interval(self, *, busy: timedelta = timedelta(0)) -> timedelta:
        access = self._client.access
        key = (access.endpoint or access.region, self._options.stream)
        return self._budgets.interval(key, self._services.state.id, busy=busy)

    def _open_pollers(self) -> None:
        """Create a poller for every readable shard; remove all other pollers."""
        by_id = self._directory.listed_by_id()
        before, self._pollers = self._pollers, {}
        for split in readable(self._progress):
            shard = by_id.get(split.split) or ListedShard(id=split.split)
            poller = before.get(split.split)
            if poller is None or poller.position != split.position or self._is_stale(poller):
                poller = self._new_poller(split, shard)
            poller.shard = shard
            self._pollers[split.split] = poller

    def _is_stale(self, poller: ShardPoller) -> bool:
        """Return whether records may have been trimmed since the shard was last polled."""
        left = self._described.retention * (1 - _GAP_CHECK_RATIO)
        return poller.responded_at is not None and self._passed_since(poller.responded_at, left)

    def _memory_of(self, split: SplitProgress) -> ShardMemory:
        """Return the memory of a shard; a new shard inherits from its parents.

        A child has no records from before the end of its parents.
        """
        known = self._memory.get(split.split)
        if known is None:
            parents = [self._memory.get(name) for name in split.parents]
            times = [one.caught_up_at for one in parents if one and one.caught_up_at]
            known = ShardMemory(shard=split.split, caught_up_at=max(times, default=None))
            self._memory[split.split] = known
        return known

    def _new_poller(self, split: SplitProgress, shard: ListedShard) -> ShardPoller:
        memory = self._memory_of(split)
        check = gap_check_of(split.position, memory)
        pages = ShardPages(
            client=self._client,
            shard=shard.id,
            position=check.start if check else split.position,
            is_closed=partial(self._directory.is_closed, shard.id),
        )
        return ShardPoller(
            shard=shard, position=split.position, pages=pages, memory=memory, gap_check=check
        )

    def _poll_shards(self, report: ReportPoll) -> None:
        """Poll the shards until one has records, all are known, or the time is up."""
        polled, started = 0, self._clock.monotonic()
        pollers = self._pollers.values()
        for poller in pollers:
            if poller.state is not PollState.FOUND:
                poller.state = PollState.SEARCHING
        with ThreadPoolExecutor(_THREADS_MAX) as threads:
            while not polled or all(poller.state is not PollState.FOUND for poller in pollers):
                searching = [one for one in pollers if one.state is PollState.SEARCHING]
                report(f"{self._options.stream}: {format_count(polled, 'shard')} so far")
                if not searching or (polled and self._passed_since(started, _POLL_MAX)):
                    return
                list(threads.map(self._poll_shard, searching))
                polled += len(searching)

    def _poll_shard(self, poller: ShardPoller) -> None:
        check = poller.gap_check
        self._send_poll(poller)
        if poller.state is PollState.SEARCHING and check and not poller.gap_check:
            # The first response only showed that no records were lost.
            self._send_poll(poller)

    def _send_poll(self, poller: ShardPoller) -> None:
        if poller.requested_at is not None:
            passed = timedelta(seconds=self._clock.monotonic() - poller.requested_at)
            if passed < (interval := self._interval()):
                self._clock.wait(self._services.stop, interval - passed)
        poller.requested_at = self._clock.monotonic()
        poller.poll(self._described.retention)
        poller.responded_at = self._clock.monotonic()
        self._memory[poller.shard.id] = poller.memory

    def _store_memory(self) -> None:
        found = (self._stored_memory(split) for split in self._progress)
        memory = StreamMemory(
            shards=tuple(one for one in found if one is not None),
            closed=tuple(shard.id for shard in self._directory.listed if shard.closed),
            retention=self._described.retention,
            created_at=self._created_at,
            placed=self._placed,
        )
        self._services.memory.store(to_text(memory))

    def _stored_memory(self, split: SplitProgress) -> ShardMemory | None:
        """Return the memory to store for a shard; omit the lag of a finished shard."""
        memory = self._memory.get(split.split)
        if memory is None:
            return None
        lag = None if split.finished else memory.lag
        return replace(memory, lag=lag, placed=split.placed)
