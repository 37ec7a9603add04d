"""Table logs as a source: follow the logs, and plan files in the order of event time.

Invariant: the reading order of a split depends only on its position and on the table. A replay
therefore reads the same files.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate

from penstock.arrow.types import arrow_type
from penstock.clock import Clock
from penstock.errors import Code, InvariantError, UserError
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import EpochLimits, EpochPlan
from penstock.model.schema import Column
from penstock.model.secrets import Sealed
from penstock.model.split import (
    Amount,
    Note,
    Position,
    Progress,
    SplitProgress,
    SplitRead,
    SplitStatus,
)
from penstock.sources.registry import source_options
from penstock.sources.source import (
    EpochResult,
    Poll,
    ReportPoll,
    Source,
    SourceServices,
    TableOpener,
)
from penstock.sources.table_log.kind import (
    FileResult,
    FileWork,
    LogPosition,
    Phase,
    Rewrites,
    TableLogOptions,
    TableStream,
    cannot_resume,
    event_order,
    file_work,
    id_error,
    log_position,
    parse_position,
    parse_streams,
    position_after,
)
from penstock.storage.store import ObjectMeta
from penstock.tables.chain import log_entry
from penstock.tables.folder import TableFolder
from penstock.tables.log import LogCommit, read_commit
from penstock.tables.table import TableHandle

# The value of ``hold_ms`` if the event times of an unread file are unknown.
HOLD_ALL_MS = -(2**63)
# A poll reads at most this many log entries of each table.
_ENTRIES_MAX = 1_000
# An idle table is checked this often for a replacement or a cleaned log.
_CHECK_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """The files of a snapshot or of one commit, in reading order."""

    # The position of the first file.
    start: LogPosition
    committed_at: datetime | None
    files: tuple[FileWork, ...]
    # The bytes and rows of all files before each index; the last value is the total.
    bytes_before: tuple[int, ...]
    rows_before: tuple[int, ...]

    def amount_from(self, index: int, *, now: datetime) -> Amount:
        """Return the amount of the files from an index on."""
        at = self.committed_at
        return Amount(
            items=len(self.files) - index,
            rows=self.rows_before[-1] - self.rows_before[index],
            size_bytes=self.bytes_before[-1] - self.bytes_before[index],
            lag=None if at is None else max(now - at, timedelta(0)),
        )


def _batch(
    start: LogPosition, files: Sequence[FileWork], *, committed_at: datetime | None
) -> _Batch:
    return _Batch(
        start=start,
        committed_at=committed_at,
        files=tuple(files),
        bytes_before=tuple(accumulate((file.size_bytes for file in files), initial=0)),
        rows_before=tuple(accumulate((file.rows or 0 for file in files), initial=0)),
    )


class _TableLog:
    """The unread files of one table, up to the newest log entry that was read."""

    def __init__(
        self, stream: TableStream, *, tables: TableOpener, rewrites: Rewrites, clock: Clock
    ) -> None:
        self._stream = stream
        self._tables = tables
        self._rewrites = rewrites
        self._clock = clock
        # By start position, in reading order. Commits without rows are included.
        self._batches: dict[LogPosition, _Batch] = {}
        # Before the first poll, the next version is unknown.
        self._next_version = -1
        # The error of the next version, if this version exists and cannot be read.
        self._refusal: UserError | None = None
        # The newest version when the table was last opened, and the log entry of that version.
        self._opened_version = -1
        self._entry: ObjectMeta | None = None
        self._checked_at = 0.0
        self._complete = True
        self.requests = 0
        # The log entries that ``prepare`` read, and the number of requests for these entries.
        self._prepared: Sequence[LogCommit] = ()
        self._prepared_requests = 0

    def prepare(self, report: ReportPoll) -> None:
        """Read the next log entries before the next poll; called in a second thread."""
        folder: TableFolder = self._tables.folder(self._stream.location)
        try:
            self._prepared = self._entries(folder, report, known=self._prepared)
        finally:
            self._prepared_requests += folder.store.requests

    def recheck(self) -> None:
        """Require that the next poll reads the log, and finds the newest version."""
        self._prepared, self._entry = (), None

    def poll(self, position: LogPosition, report: ReportPoll) -> None:
        """Read new log entries; raise UserError if the position cannot be read."""
        folder: TableFolder = self._tables.folder(self._stream.location)
        start = replace(position, index=0)
        if start not in self._batches and start != log_position(self._next_version):
            self._open_at(position, folder)
        for known in [known for known in self._batches if known.order < start.order]:
            del self._batches[known]
        commits = self._new_commits(folder, report)
        idle_seconds = self._clock.monotonic() - self._checked_at
        if commits or self._entry is None or idle_seconds >= _CHECK_SECONDS:
            self._check_same_log(folder, next_version=self._next_version + len(commits))
        self._refusal = self._accept(commits)
        self.requests += folder.store.requests + self._prepared_requests
        self._prepared_requests = 0
        # Rows before the refused commit are read first.
        if self._refusal is not None and not any(self.unread(position)):
            raise self._refusal

    def _open_at(self, position: LogPosition, folder: TableFolder) -> None:
        handle = self._open(folder)
        self._batches, self._prepared = {}, ()
        self._next_version = position.version
        if position.phase is Phase.SNAPSHOT:
            snapshot = self._snapshot(handle, position.version, folder)
            self._batches[snapshot.start] = snapshot
            self._next_version += 1
        self._check_not_restored(self._next_version)

    def _open(self, folder: TableFolder) -> TableHandle:
        handle: TableHandle = self._tables.open(self._stream.location)
        error = _change_error(self._stream, handle.table_id, handle.columns())
        if error is not None:
            raise error
        self._opened_version = handle.version
        self._entry = folder.store.head(folder.key(log_entry(handle.version)))
        self._checked_at = self._clock.monotonic()
        return handle

    def _snapshot(self, handle: TableHandle, version: int, folder: TableFolder) -> _Batch:
        stream = self._stream
        try:
            files = handle.at(version).files()
        except UserError as error:
            # The table was just opened, so only this version of it is missing.
            if error.code not in (Code.META_NOT_FOUND_ERR, Code.TABLE_CHANGED_ERR):
                raise
            reason = f"The snapshot of version {version} is no longer available."
            raise cannot_resume(stream.table, version, reason=reason) from error
        commit = read_commit(folder, version)
        works = (file_work(file, stream.event_time) for file in files)
        return _batch(
            LogPosition(phase=Phase.SNAPSHOT, version=version),
            sorted(works, key=lambda work: (*event_order(work), work.path)),
            committed_at=None if commit is None else commit.committed_at,
        )

    def _check_same_log(self, folder: TableFolder, *, next_version: int) -> None:
        """Raise UserError if another table, or an older copy, is now at the location.

        A cleanup of the log may also delete the known entry, so the table is opened again.
        """
        self._checked_at = self._clock.monotonic()
        if self._entry is None or folder.store.head(self._entry.key) != self._entry:
            self._open(folder)
            self._check_not_restored(next_version)

    def _check_not_restored(self, next_version: int) -> None:
        if next_version > self._opened_version + 1:
            raise UserError(
                f'table "{self._stream.table}" has fewer versions than were read',
                code=Code.TABLE_CHANGED_ERR,
                detail=f"Its newest version is {self._opened_version}, but version "
                f"{next_version - 1} was read.",
                hint="The table was probably restored from a backup. Create the streaming "
                "table again.",
            )

    def _new_commits(self, folder: TableFolder, report: ReportPoll) -> Sequence[LogCommit]:
        prepared, self._prepared = self._prepared, ()
        usable = bool(prepared) and prepared[0].version == self._next_version
        found = self._entries(folder, report, known=prepared if usable else ())
        self._complete = len(found) < _ENTRIES_MAX
        version = self._next_version + len(found)
        if self._complete and version <= self._opened_version:
            reason = f"The log has no entry of version {version} any more."
            raise cannot_resume(self._stream.table, version, reason=reason)
        return found

    def _entries(
        self, folder: TableFolder, report: ReportPoll, *, known: Sequence[LogCommit]
    ) -> Sequence[LogCommit]:
        """Return the log entries from the next version on; ``known`` entries are not read."""
        found = list(known)
        while len(found) < _ENTRIES_MAX:
            version = self._next_version + len(found)
            commit = read_commit(folder, version)
            if commit is None:
                break
            report(f"{self._stream.table}: version {version}")
            found.append(commit)
        return found

    def _accept(self, commits: Sequence[LogCommit]) -> UserError | None:
        """Add the batches of the commits up to the first refused one; return its error."""
        for commit in commits:
            refusal = self._refused(commit)
            if refusal is not None:
                return refusal
            start = log_position(commit.version)
            files = () if commit.rewrites else commit.files
            works = [file_work(file, self._stream.event_time) for file in files]
            self._batches[start] = _batch(start, works, committed_at=commit.committed_at)
            self._next_version = commit.version + 1
        return None

    def _refused(self, commit: LogCommit) -> UserError | None:
        # When the table was opened, its newest columns were checked. Older versions are not
        # checked, because they may lack these columns.
        if commit.metadata is not None and commit.version > self._opened_version:
            metadata = commit.metadata
            error = _change_error(self._stream, metadata.table_id, metadata.columns)
            if error is not None:
                return error
        if not commit.rewrites or self._rewrites is Rewrites.SKIP:
            return None
        return UserError(
            f'version {commit.version} of table "{self._stream.table}" deletes or updates rows',
            code=Code.SOURCE_REWRITTEN_ERR,
            detail=f"The operation is {commit.operation}.",
            hint='Set "rewrites" = "skip" to ignore such commits, or create the streaming '
            "table again.",
        )

    def unread(self, position: LogPosition) -> Iterator[SplitRead]:
        """Yield a read for each file from a position on."""
        for batch, first in self._unread_batches(position):
            for index in range(first, len(batch.files)):
                yield _read(self._stream.split, batch, index)

    def _unread_batches(self, position: LogPosition) -> Iterator[tuple[_Batch, int]]:
        """Yield the batches with unread files, and the index of the first unread file."""
        for batch in self._batches.values():
            first = max(batch.start, position, key=lambda one: one.order)
            same = replace(first, index=0) == batch.start
            if same and first.index < len(batch.files):
                yield batch, first.index

    def without_empty(self, position: LogPosition) -> LogPosition:
        """Skip commits without rows; return the position of the first unread file."""
        for batch, index in self._unread_batches(position):
            return replace(batch.start, index=index)
        return log_position(self._next_version)

    def hold_ms(self, position: LogPosition) -> int | None:
        """Return the lowest event time of the unread files of a snapshot.

        The files are ordered by event time, so the first unread one has the lowest.
        """
        if position.phase is not Phase.SNAPSHOT:
            return None
        batch = self._batches.get(replace(position, index=0))
        if batch is None or position.index >= len(batch.files):
            return None
        low = batch.files[position.index].low_ms
        return HOLD_ALL_MS if low is None else low

    def remaining(self, position: LogPosition) -> Amount:
        """Return the amount that is known and not read."""
        now = self._clock.now()
        batches = self._unread_batches(position)
        found = _sum([batch.amount_from(index, now=now) for batch, index in batches])
        lag = found.lag if found.items or not self._complete else timedelta(0)
        return replace(found, lag=lag, complete=self._complete)

    @property
    def head(self) -> LogPosition:
        """The position after the newest known version, including a refused one."""
        known = self._next_version + (self._refusal is not None)
        return log_position(max(known, self._opened_version + 1))


def _change_error(
    stream: TableStream, table_id: str, columns: tuple[Column, ...]
) -> UserError | None:
    """Return an error if the table was replaced, or if a used column was changed."""
    by_name = {column.name: column for column in columns}
    error = id_error(stream, table_id)
    if error is not None:
        return error
    for used in stream.columns:
        found = by_name.get(used.name)
        if found is None or arrow_type(found.type) != arrow_type(used.type):
            now = "it does not exist" if found is None else f"its type is {found.type.sql}"
            return UserError(
                f'column "{used.name}" of table "{stream.table}" was changed: {now}',
                code=Code.TABLE_CHANGED_ERR,
                detail=f"The query was created with {used.type.sql}.",
                hint="Restore the column, or create the streaming table again.",
            )
    return None


def _read(split: str, batch: _Batch, index: int) -> SplitRead:
    position = replace(batch.start, index=index)
    work = batch.files[index]
    return SplitRead(
        id=f"{split}:{position.version}.{index}",
        split=split,
        begin=position.stored,
        end=position_after(position, files=len(batch.files)).stored,
        size_bytes=work.size_bytes,
        shown=work.path,
        work=to_text(work),
    )


def _sum(amounts: Sequence[Amount]) -> Amount:
    return Amount(
        items=sum(amount.items or 0 for amount in amounts),
        rows=sum(amount.rows or 0 for amount in amounts),
        size_bytes=sum(amount.size_bytes or 0 for amount in amounts),
        lag=max((amount.lag for amount in amounts if amount.lag is not None), default=None),
        complete=all(amount.complete for amount in amounts),
    )


class TableLogSource(Source):
    """The streamed tables of one job, in the driver."""

    def __init__(self, services: SourceServices) -> None:
        if services.tables is None:
            raise InvariantError("a table log requires the tables")
        options: TableLogOptions = source_options(services.state.definition.source)
        self._services = services
        self._tables = services.tables
        self._streams = parse_streams(options.streams)
        self._logs = {
            stream.split: _TableLog(
                stream, tables=self._tables, rewrites=options.rewrites, clock=services.clock
            )
            for stream in self._streams
        }
        self._progress: Progress = services.state.progress
        # The positions after the last plan, by split; empty after a poll.
        self._planned: dict[str, LogPosition] = {}
        self._polled_at: datetime | None = None
        self._requests = 0

    def poll(self, progress: Progress, *, report: ReportPoll) -> Poll:
        self._polled_at = self._services.clock.now()
        self._progress = progress
        self._planned = {}
        for split in progress:
            self._logs[split.split].poll(parse_position(split.position), report)
        return Poll(progress=progress, waiting=self.waiting())

    def prepare(self, progress: Progress, *, report: ReportPoll) -> None:
        del progress  # A log is read from the last known version on.
        for log in self._logs.values():
            log.prepare(report)

    def recheck(self) -> None:
        for log in self._logs.values():
            log.recheck()

    def waiting(self) -> Amount:
        return _sum([self._remaining(split) for split in self._progress])

    def _remaining(self, split: SplitProgress) -> Amount:
        committed = parse_position(split.position)
        position = self._planned.get(split.split, committed)
        return self._logs[split.split].remaining(position)

    def plan(self, progress: Progress, *, limits: EpochLimits) -> EpochPlan | None:
        """Plan whole files; across tables, the file with the lowest event time is next."""
        self._progress = progress
        positions = {split.split: parse_position(split.position) for split in progress}
        # Files of a plan that was not committed are planned again only after the next poll.
        if self._planned and self._planned != positions:
            return None
        unread = [self._logs[split].unread(position) for split, position in positions.items()]
        reads = _within(limits, _by_event_time(unread))
        if not reads:
            return None
        ends = positions | {read.split: parse_position(read.end) for read in reads}
        # Commits without rows are skipped together with the rows before them.
        self._planned = {
            split: self._logs[split].without_empty(end) for split, end in ends.items()
        }
        moved = (replace(s, position=self._planned[s.split].stored) for s in progress)
        return EpochPlan(reads=reads, progress=tuple(moved), final=True)

    def distribute(
        self, plan: EpochPlan, *, tasks: int, needed: Sequence[str]
    ) -> list[tuple[SplitRead, ...]]:
        """Divide the files by size; a task reads one table if there are enough tasks."""
        del needed
        by_split: dict[str, list[SplitRead]] = {}
        for read in plan.reads:
            by_split.setdefault(read.split, []).append(read)
        if len(by_split) > tasks:
            return _balanced(plan.reads, tasks)
        counts = _task_counts(by_split, tasks)
        return [
            group
            for split, reads in by_split.items()
            for group in _balanced(reads, counts[split])
        ]

    def advance(self, plan: EpochPlan, notes: Sequence[Note]) -> Progress:
        """Check that the notes cover each file once, with all of its rows."""
        works = {read.id: from_text(FileWork, read.work) for read in plan.reads}
        if sorted(note.read for note in notes) != sorted(works):
            raise InvariantError(
                "tasks did not report the files of the plan exactly once",
                detail=f"Planned {sorted(works)}, reported {[note.read for note in notes]}.",
            )
        for note in notes:
            work, rows = works[note.read], from_text(FileResult, note.result).rows
            if work.rows not in (None, rows):
                raise InvariantError(
                    f'file "{work.path}" has {work.rows} rows, but {rows} rows were read'
                )
        return plan.progress

    def committed(self, progress: Progress, notes: Sequence[Note]) -> None:
        del notes
        self._progress = progress

    def heads(self) -> Mapping[str, Position]:
        return {split: log.head.stored for split, log in self._logs.items()}

    def hold_ms(self, split: str, position: Position) -> int | None:
        """Return the lowest event time of the unread files of a snapshot; None if all are read.

        Return HOLD_ALL_MS if the event times of an unread file are unknown.
        """
        return self._logs[split].hold_ms(parse_position(position))

    def passed(
        self, split: str, boundary: Position, *, result: EpochResult | None = None
    ) -> bool:
        progress = self._progress if result is None else result.progress
        found = next(one for one in progress if one.split == split)
        position = self._logs[split].without_empty(parse_position(found.position))
        return position.order >= parse_position(boundary).order

    def statuses(self) -> tuple[SplitStatus, ...]:
        return tuple(
            SplitStatus(
                split=split.split, remaining=self._remaining(split), seen_at=self._polled_at
            )
            for split in self._progress
        )

    def task_access(self) -> Sealed:
        """Return the access to the warehouse; tables on this machine need none."""
        sealed = (self._tables.task_access(stream.location) for stream in self._streams)
        return next((access for access in sealed if access.text), Sealed())

    def watched(self) -> tuple[str, ...]:
        return tuple(stream.location for stream in self._streams)

    def count_requests(self, requests: int) -> None:
        self._requests += requests

    def take_requests(self) -> int:
        taken = self._requests + sum(log.requests for log in self._logs.values())
        self._requests = 0
        for log in self._logs.values():
            log.requests = 0
        return taken


def _by_event_time(queues: Sequence[Iterator[SplitRead]]) -> Iterator[SplitRead]:
    """Merge queues without a change of their order; the lowest event time is next."""
    heap: list[tuple[tuple[bool, int], int, SplitRead]] = []

    def push_next(number: int) -> None:
        for read in queues[number]:
            order = event_order(from_text(FileWork, read.work))
            heapq.heappush(heap, (order, number, read))
            return

    for number in range(len(queues)):
        push_next(number)
    while heap:
        _, number, read = heapq.heappop(heap)
        yield read
        push_next(number)


def _within(limits: EpochLimits, reads: Iterator[SplitRead]) -> tuple[SplitRead, ...]:
    """Return the first reads; the file that crosses a limit is included."""
    found: list[SplitRead] = []
    size_bytes = 0
    for read in reads:
        found.append(read)
        size_bytes += read.size_bytes
        if size_bytes >= limits.size_bytes or len(found) == limits.items:
            break
    return tuple(found)


def _task_counts(by_split: Mapping[str, Sequence[SplitRead]], tasks: int) -> dict[str, int]:
    """Return the number of tasks by split; extra tasks go where bytes per task are highest."""
    sizes = {split: sum(read.size_bytes for read in own) for split, own in by_split.items()}
    counts = dict.fromkeys(by_split, 1)
    for _ in range(tasks - len(by_split)):
        growing = [split for split, own in by_split.items() if counts[split] < len(own)]
        if not growing:
            break
        counts[max(growing, key=lambda split: sizes[split] / counts[split])] += 1
    return counts


def _balanced(reads: Sequence[SplitRead], groups: int) -> list[tuple[SplitRead, ...]]:
    """Divide reads by size: each read, largest first, joins the smallest group."""
    largest = sorted(range(len(reads)), key=lambda at: (-reads[at].size_bytes, at))
    heap: list[tuple[int, int, int]] = [(0, 0, group) for group in range(groups)]
    members: list[list[int]] = [[] for _ in range(groups)]
    for at in largest:
        size_bytes, count, group = heapq.heappop(heap)
        members[group].append(at)
        heapq.heappush(heap, (size_bytes + reads[at].size_bytes, count + 1, group))
    # Inside of a group, the reads keep the order of the plan.
    return [tuple(reads[at] for at in sorted(own)) for own in members if own]
