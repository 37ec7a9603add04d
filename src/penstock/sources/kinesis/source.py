"""A Kinesis stream as a source: which shards exist, may be read, and have records.

The service counts the reads of a shard over all readers. Jobs of a node on the same stream
share them evenly. A job gives its part back once its epoch must be over.

Invariant: progress is what is given, completed by the shards that the stream reports. Memory
between calls only saves requests, or tells the lag of a shard.
"""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

from penstock.clock import Clock
from penstock.errors import InvariantError, PenstockError, UserError
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
from penstock.model.text import counted
from penstock.sources.kinesis.access import revealed_stream, stream_access
from penstock.sources.kinesis.client import GIVE_UP_AFTER, Patience, StreamAccess, StreamClient
from penstock.sources.kinesis.kind import KINESIS, KinesisOptions
from penstock.sources.kinesis.polling import (
    LISTING_INTERVAL,
    ShardDirectory,
    ShardPoller,
    loaded_until,
    needs_proof,
    probe_of,
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
    follow,
    readable,
    remembered,
    stream_changed,
    unfinished_descendants,
)
from penstock.sources.source import OnFailure, Poll, Seen, ShowRequest, SourceServices

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
_POLL_MAX = timedelta(seconds=10)


class KinesisSource:
    """The stream of one job, seen from the driver."""

    def __init__(self, options: KinesisOptions, *, services: SourceServices) -> None:
        self._options = options
        self._services = services
        self._clock = services.clock
        self._stop = services.stop
        self._budgets = _budgets(services.shared)
        self._patience = Patience(
            clock=self._clock, give_up_after=GIVE_UP_AFTER, stop=self._stop
        )
        self._client = StreamClient(stream_access(self._values()))
        self._summary: StreamSummary | None = None
        self._described_at: float | None = None
        self._begun_at: datetime | None = None
        self._polled_at: float | None = None
        self._directory = ShardDirectory(
            options,
            client=lambda: self._client,
            patience=self._patience,
            clock=self._clock,
            stop=self._stop,
        )
        self._progress: Progress = ()
        self._pollers: dict[str, ShardPoller] = {}
        self._charged = self._taken = 0
        stored = remembered(services.memory.load(), services.state.progress)
        self._memory = {memory.shard: memory for memory in stored.shards}
        self._created_at = stored.created_at
        # A finished shard is forgotten with its mark, but the newest placement stays known.
        marks = (split.placed for split in services.state.progress)
        self._placed = max((stored.placed, *marks))

    def poll(self, progress: Progress, *, seen: Seen) -> Poll:
        """Find new shards, and ask those that may be read whether they hold records."""
        self._renew_client()
        self._describe()
        self._progress = self._directory.refresh(progress)
        self._open_pollers()
        self._poll_shards(seen)
        self._polled_at = self._clock.monotonic()
        self._store_memory()
        return Poll(progress=self._progress, waiting=self.waiting())

    def poll_due(self, interval: timedelta) -> bool:
        """Return whether a readable shard has no poller, or idle ones may have records."""
        unpolled = any(split.split not in self._pollers for split in readable(self._progress))
        return unpolled or self._passed_since(self._polled_at, interval)

    def poll_delay(self) -> timedelta:
        """Return zero: the read budget spaces requests."""
        return timedelta(0)

    def _passed_since(self, begun: float | None, interval: timedelta) -> bool:
        return begun is None or self._clock.monotonic() - begun >= interval.total_seconds()

    def waiting(self) -> Amount:
        """Return how many shards have records, and the age of the oldest one."""
        lags = [p.memory.lag for p in self._pollers.values() if p.memory.lag]
        return Amount(
            items=sum(poller.found for poller in self._pollers.values()),
            complete=not any(poller.searching for poller in self._pollers.values()),
            lag=max(lags, default=None),
        )

    def heads(self) -> Mapping[str, Position]:
        """Return the service's time when the run started."""
        at = self._begun_at or self._described.at
        return {split.split: AtTime(at=at) for split in self._progress}

    def passed(self, split: str, boundary: Position) -> bool:
        """Return whether a shard, and after its end its children, was read to a time."""
        reading = unfinished_descendants(self._progress, split)
        if reading != (split,) and self._directory.awaits_child(self._progress):
            return False
        pollers = [self._pollers.get(shard) for shard in reading]
        return all(
            poller is not None and poller.passed(boundary, run_began_at=self._begun_at)
            for poller in pollers
        )

    def statuses(self) -> tuple[SplitStatus, ...]:
        """Return what is known of every shard."""
        request = ShowRequest(
            state=replace(self._services.state, progress=self._progress),
            memory=self._services.memory.load(),
            at=self._clock.now(),
        )
        return KINESIS.statuses(request)

    def plan(self, progress: Progress, *, limits: EpochLimits) -> EpochPlan | None:
        """Let tasks read every shard that has records; the limits are shared out evenly."""
        self._progress = self._directory.completed(progress)
        ready = [poller for poller in self._pollers.values() if poller.found]
        if not ready:
            return None
        share = ReadLimits(
            records=-(-limits.records // len(ready)),
            size_bytes=-(-limits.size_bytes // len(ready)),
            duration=limits.duration,
            interval=self._interval(busy=limits.duration),
        )
        for poller in ready:
            poller.found = False
        return EpochPlan(
            reads=tuple(poller.read(share) for poller in ready), progress=self._progress
        )

    def share(
        self, plan: EpochPlan, *, tasks: int, needed: Sequence[str]
    ) -> list[tuple[SplitRead, ...]]:
        """Distribute shards to tasks in turn."""
        del needed
        return [plan.reads[task::tasks] for task in range(min(tasks, len(plan.reads)))]

    def advance(self, plan: EpochPlan, notes: Sequence[Note]) -> Progress:
        """Move the shards to where tasks ended, and add the children of those that ended."""
        reads = {read.id: read for read in plan.reads}
        for note in notes:
            read, begin = reads[note.read], _outcome(note).begin
            if begin != read.begin:
                raise InvariantError(
                    f'tasks did not read shard "{read.split}" from where it was planned',
                    detail=f"Planned from {read.begin}, reported from {begin}.",
                )
        return self._moved(plan.progress, notes)

    def _moved(self, progress: Progress, notes: Sequence[Note]) -> Progress:
        splits = {split.split: split for split in progress}
        children: list[ListedShard] = []
        for note in notes:
            split = splits[note.read]
            splits[split.split] = replace(
                split, position=note.end, records=split.records + note.counts.records
            )
            children += _outcome(note).children
        moved = tuple(splits.values())
        return moved if self._options.pinned else follow(moved, children)

    def committed(self, progress: Progress, notes: Sequence[Note]) -> None:
        """Continue after what was read, and store what the stream reported."""
        self._progress = progress
        for note in notes:
            self._follow(note.read, _outcome(note))
        self._store_memory()

    def _follow(self, shard: str, outcome: ShardOutcome) -> None:
        poller = self._pollers[shard]
        poller.take(outcome, begun_at=self._begun_at or self._described.at)
        poller.seen_at = self._clock.monotonic()
        near = self._described.retention * _NEAR_THE_HORIZON
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

    def failed(self, read: str, error: PenstockError) -> OnFailure:
        """Retry whatever may heal."""
        del read
        return OnFailure.RAISE if isinstance(error, UserError) else OnFailure.RETRY

    def task_access(self) -> Sealed:
        """Return the sealed options and credentials of this moment."""
        return self._services.seal(sealed_pairs(self._values()))

    def charge(self, requests: int) -> None:
        """Count requests that tasks have sent."""
        self._charged += requests

    def take_requests(self) -> int:
        """Return how many requests were sent since the last call."""
        sent = self._client.requests + self._charged
        new, self._taken = sent - self._taken, sent
        return new

    def close(self) -> None:
        """Do nothing: clients are shared by the process and closed when idle."""

    @property
    def _described(self) -> StreamSummary:
        if self._summary is None:
            raise InvariantError("a stream must be polled before it is read")
        return self._summary

    def _describe(self) -> None:
        """Describe the stream from time to time; it must be the same one as before."""
        if not self._passed_since(self._described_at, LISTING_INTERVAL):
            return
        found = describe(self._client, self._access, self._patience)
        if self._created_at is not None and self._created_at != found.created_at:
            made, before = (
                f"{at:%Y-%m-%d %H:%M:%S}" for at in (found.created_at, self._created_at)
            )
            raise stream_changed(
                f'stream "{self._options.stream}" was made at {made} UTC, and not at {before} '
                "UTC any more"
            )
        if self._summary is not None and self._summary.retention != found.retention:
            # What was proven holds no more: records may have been trimmed at once.
            self._pollers.clear()
        self._created_at, self._summary = found.created_at, found
        self._described_at = self._clock.monotonic()
        self._begun_at = self._begun_at or found.at + _SERVER_TICK

    @property
    def _access(self) -> StreamAccess:
        return self._client.access

    def _values(self) -> KinesisOptions:
        return revealed_stream(self._options, self._services.reveal)

    def _renew_client(self) -> None:
        """Use the keys of this moment; with other keys, pollers start again."""
        access = stream_access(self._values())
        if access != self._access:
            self._charged += self._client.requests
            self._client = StreamClient(access)
            self._pollers.clear()

    def _interval(self, *, busy: timedelta = timedelta(0)) -> timedelta:
        key = (self._access.endpoint or self._access.region, self._options.stream)
        return self._budgets.interval(key, self._services.state.id, busy=busy)

    def _open_pollers(self) -> None:
        """Poll the shards that may be read, and no others."""
        splits = {split.split: split for split in readable(self._progress)}
        by_id = self._directory.listed_by_id()
        for name in self._pollers.keys() - splits.keys():
            del self._pollers[name]
        for name, split in splits.items():
            shard = by_id.get(name) or ListedShard(id=name)
            poller = self._pollers.get(name)
            if poller is None or poller.position != split.position or self._is_stale(poller):
                self._pollers[name] = self._new_poller(split, shard)
            else:
                poller.shard = shard

    def _is_stale(self, poller: ShardPoller) -> bool:
        """Return whether records may have been trimmed since the shard was last polled."""
        left = self._described.retention * (1 - _NEAR_THE_HORIZON)
        return poller.seen_at is not None and self._passed_since(poller.seen_at, left)

    def _memory_of(self, split: SplitProgress) -> ShardMemory:
        """Return what is known of a shard; a new shard inherits from its parents.

        Nothing was in a child before its parents ended.
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
        proof = needs_proof(split.position, memory)
        pages = ShardPages(
            self._client,
            self._access,
            split.split,
            probe_of(split.position) if proof else split.position,
            patience=self._patience,
            is_closed=lambda: self._directory.is_closed(split.split),
        )
        return ShardPoller(
            shard=shard, position=split.position, pages=pages, memory=memory, proven=not proof
        )

    def _poll_shards(self, seen: Seen) -> None:
        """Ask shards for one record each, until all are decided or one has something."""
        asked = 0
        for poller in self._pollers.values():
            poller.searching = not poller.found
        retention, begun = self._described.retention, self._clock.monotonic()
        with ThreadPoolExecutor(_THREADS_MAX) as threads:
            while not any(poller.found for poller in self._pollers.values()) or not asked:
                searching = [poller for poller in self._pollers.values() if poller.searching]
                seen(f"{self._options.stream}: {counted(asked, 'shard')} so far")
                if not searching or (asked and self._passed_since(begun, _POLL_MAX)):
                    return
                list(threads.map(lambda poller: self._ask(poller, retention), searching))
                asked += len(searching)

    def _ask(self, poller: ShardPoller, retention: timedelta) -> None:
        proven = poller.proven
        self._ask_once(poller, retention)
        if poller.searching and poller.proven and not proven:
            # That has only shown that nothing was lost.
            self._ask_once(poller, retention)

    def _ask_once(self, poller: ShardPoller, retention: timedelta) -> None:
        now = self._clock.monotonic()
        if poller.asked_at is not None:
            left = self._interval() - timedelta(seconds=now - poller.asked_at)
            if left > timedelta(0):
                self._clock.wait(self._stop, left)
        poller.asked_at = self._clock.monotonic()
        poller.ask(retention)
        poller.seen_at = self._clock.monotonic()
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
        """Return what is stored of a shard; omit the lag of a finished one."""
        memory = self._memory.get(split.split)
        if memory is None:
            return None
        lag = None if split.finished else memory.lag
        return replace(memory, lag=lag, placed=split.placed)


def _outcome(note: Note) -> ShardOutcome:
    return from_text(ShardOutcome, note.result)


def _budgets(shared: object) -> ReadBudgets:
    if not isinstance(shared, ReadBudgets):
        raise InvariantError("a stream must be opened with the read budgets of its node")
    return shared
