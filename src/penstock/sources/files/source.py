"""Files of a folder or bucket as a source: find new files and plan epochs.

A pass lists the keys once. An audit lists all keys after the floor, the offset that a user set.
Other passes list only keys after the loaded keys. A pass needs several polls if it finds more
than ``WINDOW_FILES`` new files. A poll is repeated from its start until all its files are
committed. Only then the next poll continues where the last poll ended, so no file is skipped.

Invariant: a file is new if it matches, is after the floor and is not in the file index. Its
time and its position in the listing matter only for ``late_files`` and ``late_window``. A poll
holds at most ``WINDOW_FILES`` new files. So memory does not grow with the number of loaded
files.
"""

import heapq
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from operator import attrgetter

from penstock.clock import Clock
from penstock.errors import Code, InvariantError, UserError
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import EpochLimits, EpochPlan, LoadedItem
from penstock.model.secrets import Sealed
from penstock.model.split import (
    After,
    Amount,
    AtTime,
    Horizon,
    Note,
    Position,
    Progress,
    SplitRead,
    SplitStatus,
    total_amount,
)
from penstock.model.text import format_count
from penstock.sources.files.globs import Glob, files_glob, list_all
from penstock.sources.files.kind import (
    FilesOptions,
    LateFiles,
    ModifiedFiles,
    is_above,
    later_position,
)
from penstock.sources.files.reader import FilePart, splittable
from penstock.sources.source import (
    EpochResult,
    ItemIndex,
    Poll,
    ReportPoll,
    Source,
    SourceServices,
)
from penstock.storage.options import Choice, StoreOptions, resolve_store_options, seal
from penstock.storage.store import ObjectMeta, Store, open_store
from penstock.storage.uris import Scheme, Uri, parse_uri

WINDOW_FILES = 50_000
LOOKUP_FILES = 1_000
_PART_BYTES_MIN = 4 * 2**20
_HOUR = timedelta(hours=1)
# The token bucket holds at most the requests that the budget allows in this time.
_BURST = timedelta(minutes=1)
# Buckets of S3 Express One Zone do not list in byte order.
_DIRECTORY_BUCKET = "--x-s3"
_by_key = attrgetter("key")

OpenStore = Callable[[Uri, StoreOptions], tuple[Store, str]]


class RequestBudget:
    """A token bucket for requests; its level is never below minus the requests of one hour."""

    def __init__(self, per_hour: int | None, *, clock: Clock) -> None:
        self._per_hour = per_hour
        self._clock = clock
        self._most = max(1.0, (per_hour or 0) * (_BURST / _HOUR))
        self._left = self._most
        self._at = clock.monotonic()

    def spend(self, requests: int) -> None:
        """Subtract requests that were sent."""
        if self._per_hour is None:
            return
        now = self._clock.monotonic()
        grown = self._left + self._per_hour * (now - self._at) / _HOUR.total_seconds()
        self._left = max(min(grown, self._most) - requests, -float(self._per_hour))
        self._at = now

    def wait(self, requests: int) -> timedelta:
        """Return how long to wait before this number of requests can be sent."""
        if self._per_hour is None:
            return timedelta()
        self.spend(0)
        lacking = min(requests, self._most) - self._left
        return max(timedelta(), _HOUR * (lacking / self._per_hour))


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRange:
    """The keys of one poll: after ``start``, up to the last new file that it holds."""

    audit: bool
    start: str = ""
    end: str = ""
    complete: bool = False


def next_range(last: PollRange | None, *, loaded: bool, audit_due: bool) -> PollRange:
    """Return the range of the next poll.

    ``loaded`` means that all files of the last poll are loaded.
    """
    if last is None:
        return PollRange(audit=True)
    if not loaded:
        return PollRange(audit=last.audit, start=last.start)
    if not last.complete:
        return PollRange(audit=last.audit, start=last.end)
    return PollRange(audit=audit_due)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """The new files that one listing found."""

    scan: "_Scan"
    started_at: datetime
    # The first new files in byte order, and whether these are all new files.
    files: tuple[LoadedItem, ...]
    complete: bool
    # All new files that were listed, and the newest of them.
    items: int
    size_bytes: int
    newest: datetime | None
    # Number of loaded files that have changed, up to the last of ``files``.
    changed: int
    requests: int


class FilesSource(Source):
    """The files of one job, in the driver."""

    def __init__(
        self,
        options: FilesOptions,
        *,
        services: SourceServices,
        open_store: OpenStore = open_store,
    ) -> None:
        self._options = options
        self._services = services
        self._clock = services.clock
        self._index = services.items
        self._open_store = open_store
        self._uri = parse_uri(options.uri)
        self._glob = files_glob(self._uri)
        self._lists_only_new = lists_only_new(options, self._uri)
        # Whether listings are in byte order.
        self._ordered = self._uri.scheme is Scheme.FILE or self._lists_only_new
        self._budget = RequestBudget(options.request_budget, clock=services.clock)
        self._window: deque[LoadedItem] = deque()
        self._window_bytes = 0
        self._planned: tuple[LoadedItem, ...] = ()
        self._range: PollRange | None = None
        # The new files beyond the window, and the newest modification time of all new files.
        self._beyond = Amount()
        self._newest: datetime | None = None
        self._polled_at: datetime | None = None
        self._poll_requests = 1
        # The time of the next audit, on the monotonic clock.
        self._audit_at: float | None = None
        self._modified = 0
        # Number of changed files in earlier polls of the pass, and in the last poll.
        self._changed_before = self._changed = 0
        self._requests = 0
        self._counting = threading.Lock()
        # The listing of a second thread during the last epoch; None if there is none.
        self._prepared: _Listing | None = None

    def poll(self, progress: Progress, *, report: ReportPoll) -> Poll:
        keys = [file.key for file in self._planned]
        loaded = not self._window and len(self._index.known(keys)) == len(keys)
        chosen = next_range(self._range, loaded=loaded, audit_due=self._audit_due())
        scan = self._scan(chosen, progress, loading={})
        found, self._prepared = self._prepared, None
        # A prepared listing omits the files of the last epoch. So this epoch must be committed.
        if found is None or not loaded or not found.scan.covers(scan):
            found = self._list(scan, report=report)
        self._fill_window(found)
        self._poll_requests = found.requests
        # If the clock is set back, a later poll must not get an earlier time.
        self._polled_at = max(found.started_at, self._polled_at or found.started_at)
        if chosen.audit and self.waiting().complete:
            self._end_audit(found.scan)
        return Poll(
            progress=progress,
            waiting=self.waiting(),
            notices=(("files_modified", self._modified),),
        )

    def prepare(self, progress: Progress, *, report: ReportPoll) -> None:
        """List the files of the next poll, unless the last poll has more files to plan."""
        if self._window or self._range is None:
            return
        chosen = next_range(self._range, loaded=True, audit_due=self._audit_due())
        loading = {file.key: file.etag for file in self._planned}
        self._prepared = self._list(
            self._scan(chosen, progress, loading=loading), report=report
        )

    def _scan(
        self, chosen: PollRange, progress: Progress, *, loading: Mapping[str, str]
    ) -> "_Scan":
        """Return the scan of a poll; ``loading`` are the files of the running epoch."""
        (split,) = progress
        high_water = {}
        for prefix in self._glob.prefixes:
            own = (key for key in loading if key.startswith(prefix))
            high_water[prefix] = max(self._index.newest(prefix), max(own, default=""))
        return _Scan(
            range=chosen,
            options=self._options,
            glob=self._glob,
            ordered=self._ordered,
            floor=split.floor,
            high_water=high_water,
            written_before=self._written_before(),
            loading=loading,
        )

    def _list(self, scan: "_Scan", *, report: ReportPoll) -> _Listing:
        """List the keys of a poll; another thread can use the source meanwhile."""
        store, _ = self._open_store(self._uri, self._values())
        new = _NewFiles(scan, store=store, index=self._index, report=report)
        started_at = self._clock.now()
        try:
            files, complete, changed = self._first_files(new)
            # Only the first poll lists all new files. Later polls subtract the files they find.
            if self._range is None and not complete:
                deque(new, maxlen=0)
        finally:
            self.count_requests(store.requests)
        return _Listing(
            scan=scan,
            started_at=started_at,
            files=tuple(files),
            complete=complete,
            items=new.items,
            size_bytes=new.size_bytes,
            newest=new.newest,
            changed=changed,
            requests=store.requests,
        )

    def _fill_window(self, found: _Listing) -> None:
        chosen, files = found.scan.range, found.files
        if not chosen.start:
            self._changed_before = 0
        elif self._ordered and self._range is not None and self._range.end == chosen.start:
            self._changed_before += self._changed
        self._changed = found.changed
        self._window = deque(files)
        self._window_bytes = sum(file.size_bytes for file in files)
        self._planned = ()
        self._count_beyond(found)
        end = files[-1].key if files else ""
        self._range = replace(chosen, end=end, complete=found.complete)

    def _count_beyond(self, found: _Listing) -> None:
        """Count the new files that the window does not hold."""
        if found.complete:
            self._newest, self._beyond = found.newest, Amount()
            return
        listed = self._range is None or not self._ordered
        counted = Amount(items=found.items, size_bytes=found.size_bytes)
        total = counted if listed else self._beyond
        self._newest = found.newest if listed else None
        self._beyond = Amount(
            items=max(1, (total.items or 0) - len(self._window)),
            size_bytes=max(0, (total.size_bytes or 0) - self._window_bytes),
        )

    def waiting(self) -> Amount:
        return Amount(
            items=len(self._window),
            size_bytes=self._window_bytes,
            complete=self._range is None or self._range.complete,
        )

    def poll_due(self, interval: timedelta) -> bool:
        # A prepared listing is used at once; later it would be too old.
        del interval
        return self._prepared is not None

    def recheck(self) -> None:
        self._range = self._prepared = None

    def poll_delay(self) -> timedelta:
        return self._budget.wait(self._poll_requests)

    def heads(self) -> Mapping[str, Position]:
        """Return the newest modification time of the new files, by the store's clock."""
        at = self._newest or self._polled_at or self._clock.now()
        return {self._options.uri: AtTime(at=at)}

    def passed(
        self, split: str, boundary: Position, *, result: EpochResult | None = None
    ) -> bool:
        del split  # There is only one.
        if self._range is None or not self._range.complete or not isinstance(boundary, AtTime):
            return False
        planned = self._planned if result is None else ()
        return all(file.modified_at > boundary.at for file in (*planned, *self._window))

    def committed(self, progress: Progress, notes: Sequence[Note]) -> None:
        del progress, notes
        self._planned = ()

    def statuses(self) -> tuple[SplitStatus, ...]:
        waiting, now = self.waiting(), self._clock.now()
        # The lag is unknown if all files of the window are planned and more files may exist.
        ages = [max(timedelta(), now - file.modified_at) for file in self._window]
        lag = max(ages, default=timedelta() if waiting.complete else None)
        remaining = replace(total_amount([waiting, self._beyond]), lag=lag)
        uri = self._options.uri
        return (SplitStatus(split=uri, remaining=remaining, seen_at=self._polled_at),)

    def plan(self, progress: Progress, *, limits: EpochLimits) -> EpochPlan | None:
        """Plan files in byte order, including the file that reaches a limit."""
        if not self._window:
            return None
        files: list[LoadedItem] = []
        size_bytes = 0
        while self._window and len(files) < limits.items:
            files.append(self._window.popleft())
            size_bytes += files[-1].size_bytes
            if size_bytes >= limits.size_bytes:
                break
        self._window_bytes -= size_bytes
        self._planned = tuple(files)
        (split,) = progress
        reached = later_position(split.position, After(value=files[-1].key))
        whole = (FilePart(item=file, start=0, end=file.size_bytes) for file in files)
        return EpochPlan(
            reads=tuple(_read(split.split, part) for part in whole),
            items=tuple(files),
            progress=(replace(split, position=reached),),
            final=True,
        )

    def distribute(
        self, plan: EpochPlan, *, tasks: int, needed: Sequence[str]
    ) -> list[tuple[SplitRead, ...]]:
        """Divide the files, in order, into shares of nearly equal size.

        A file is divided only if each part has at least ``_PART_BYTES_MIN``. Because of the
        order, the first failing share contains the first failing line.
        """
        (split,) = plan.progress
        total = sum(file.size_bytes for file in plan.items)
        wanted = max(1, min(tasks, len(plan.items) + total // _PART_BYTES_MIN))
        shares: list[list[SplitRead]] = [[]]
        taken = 0
        for file in plan.items:
            parts_max = wanted if splittable(file, source=self._options, needed=needed) else 1
            for part in _divide(file, taken=taken, total=total, shares=parts_max):
                middle = taken + (part.start + part.end) / 2
                share = min(wanted - 1, int(middle * wanted / total)) if total else 0
                if share >= len(shares) and shares[-1]:
                    shares.append([])
                shares[-1].append(_read(split.split, part))
            taken += file.size_bytes
        return [tuple(share) for share in shares if share]

    def advance(self, plan: EpochPlan, notes: Sequence[Note]) -> Progress:
        """Check that the notes cover each byte of each file once; return the progress."""
        parts: dict[str, list[FilePart]] = {item.key: [] for item in plan.items}
        for note in notes:
            part = from_text(FilePart, note.result)
            parts.setdefault(part.item.key, []).append(part)
        for item in plan.items:
            _check_cover(item, parts.pop(item.key))
        if parts:
            raise InvariantError(f'tasks reported file "{min(parts)}", which was not planned')
        return plan.progress

    def task_access(self) -> Sealed:
        return seal(self._values(), self._services.seal)

    def count_requests(self, requests: int) -> None:
        with self._counting:
            self._requests += requests
            self._budget.spend(requests)

    def take_requests(self) -> int:
        with self._counting:
            taken, self._requests = self._requests, 0
        return taken

    def _values(self) -> StoreOptions:
        return resolve_store_options(self._options.store, self._services.reveal)

    def _audit_due(self) -> bool:
        if not self._lists_only_new or self._audit_at is None:
            return True
        return self._clock.monotonic() >= self._audit_at

    def _end_audit(self, scan: "_Scan") -> None:
        self._modified = self._changed_before + self._changed
        interval = self._options.audit_interval.total_seconds()
        self._audit_at = self._clock.monotonic() + interval
        if self._options.late_window is not None and scan.written_before is not None:
            self._index.prune(scan.written_before, prefixes=self._glob.prefixes)

    def _written_before(self) -> datetime | None:
        """Return the time before which late files count as loaded; it never decreases."""
        pruned, window = self._index.pruned_before, self._options.late_window
        if window is None:
            return pruned
        before = self._clock.now() - window
        return before if pruned is None else max(before, pruned)

    def _first_files(self, new: "_NewFiles") -> tuple[list[LoadedItem], bool, int]:
        """Return the first new files in byte order, and whether these are all new files.

        Also return how many files have changed up to the last of them.
        """
        if self._ordered:
            files = list(islice(new, WINDOW_FILES))
            # The next poll counts the changed files after the last returned file.
            changed = new.changed
            complete = next(new, None) is None
            return sorted(files, key=_by_key), complete, new.changed if complete else changed
        # The store can list in any order, so the whole listing must be read.
        files = heapq.nsmallest(WINDOW_FILES + 1, new, key=_by_key)
        return files[:WINDOW_FILES], len(files) <= WINDOW_FILES, new.changed


class _NewFiles(Iterator[LoadedItem]):
    """The new files of one listing; new and changed files are counted while they are listed."""

    def __init__(
        self, scan: "_Scan", *, store: Store, index: ItemIndex, report: ReportPoll
    ) -> None:
        self.items = self.size_bytes = self.changed = 0
        self.newest: datetime | None = None
        self._scan = scan
        self._index = index
        self._report = report
        # Without order, a listing that starts after a key may omit keys that sort after it.
        after = scan.start_after if scan.ordered else None
        self._new = self._select(list_all(store, scan.glob, after=after))

    def __next__(self) -> LoadedItem:
        item = next(self._new)
        self.items += 1
        self.size_bytes += item.size_bytes
        self.newest = max(item.modified_at, self.newest or item.modified_at)
        return item

    def _select(self, found: Iterable[ObjectMeta]) -> Iterator[LoadedItem]:
        listed, scan = 0, self._scan
        for chunk in _chunks(found, LOOKUP_FILES):
            listed += len(chunk)
            self._report(f"{scan.options.uri}: {format_count(listed, 'key')} so far")
            known = {**self._index.known([meta.key for meta in chunk]), **scan.loading}
            for meta in chunk:
                if not is_above(meta.key, scan.floor):
                    continue
                if meta.key in known:
                    self.changed += meta.etag != known[meta.key]
                    _check_change(meta, known[meta.key], scan.options)
                elif scan.new(meta):
                    yield LoadedItem(
                        key=meta.key,
                        etag=meta.etag,
                        size_bytes=meta.size_bytes,
                        modified_at=meta.modified_at,
                    )


def _check_change(meta: ObjectMeta, etag: str, options: FilesOptions) -> None:
    """Raise UserError if a loaded file has changed and the job must not ignore this."""
    if meta.etag == etag or options.modified_files is not ModifiedFiles.FAIL:
        return
    raise UserError(
        f'file "{meta.key}" has changed since it was loaded',
        code=Code.CANNOT_RESUME_ERR,
        detail=f"The ETag was {etag} and is now {meta.etag}.",
        hint=(
            "Restore the loaded file and resume the job. Or set the offset before this "
            "file with ALTER JOB; this file and all later files load again."
        ),
    )


def _divide(file: LoadedItem, *, taken: int, total: int, shares: int) -> Iterator[FilePart]:
    start = 0
    for share in range(1, shares):
        bound = total * share // shares - taken
        if start + _PART_BYTES_MIN <= bound <= file.size_bytes - _PART_BYTES_MIN:
            yield FilePart(item=file, start=start, end=bound)
            start = bound
    yield FilePart(item=file, start=start, end=file.size_bytes)


def _read(split: str, part: FilePart) -> SplitRead:
    return SplitRead(
        id=f"{part.item.key}:{part.start}-{part.end}",
        split=split,
        begin=Horizon(),
        end=After(value=part.item.key),
        size_bytes=part.end - part.start,
        shown=part.item.key,
        work=to_text(part),
    )


def _check_cover(item: LoadedItem, parts: list[FilePart]) -> None:
    parts = sorted(parts, key=lambda part: (part.start, part.end))
    ends = [0, *(part.end for part in parts)]
    contiguous = all(part.start == end for part, end in zip(parts, ends, strict=False))
    pinned = all(part.item.etag == item.etag for part in parts)
    if not (parts and contiguous and pinned and ends[-1] == item.size_bytes):
        ranges = ", ".join(f"{part.start}..{part.end}" for part in parts) or "nothing"
        raise InvariantError(
            f'tasks did not report file "{item.key}" exactly once',
            detail=f"Planned 0..{item.size_bytes}, reported {ranges}.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scan:
    """The range of one poll, and the rules for new files."""

    range: PollRange
    options: FilesOptions
    glob: Glob
    # Whether the store lists in byte order.
    ordered: bool
    # Files up to this position are never new.
    floor: Position
    # The largest loaded key of every prefix; empty where nothing was loaded.
    high_water: Mapping[str, str]
    written_before: datetime | None
    # The ETags of the files that are being loaded, by key.
    loading: Mapping[str, str]

    def covers(self, other: "_Scan") -> bool:
        """Return whether the result of this scan is valid for another scan, too."""
        parts = attrgetter("range", "floor", "high_water")
        return bool(parts(self) == parts(other))

    def start_after(self, prefix: str) -> str:
        """Return the key after which the listing of a prefix starts."""
        floor = self.floor.value if isinstance(self.floor, After) else ""
        loaded = "" if self.range.audit else self.high_water[prefix]
        return max(floor, self.range.start, loaded)

    def new(self, meta: ObjectMeta) -> bool:
        """Return whether to load a file that is not in the index."""
        prefix = next(one for one in self.glob.prefixes if meta.key.startswith(one))
        if meta.key <= self.start_after(prefix):
            return False
        if meta.key > self.high_water[prefix]:
            return True
        if self.options.late_files is LateFiles.IGNORE:
            return False
        return self.written_before is None or meta.modified_at >= self.written_before


def lists_only_new(options: FilesOptions, uri: Uri) -> bool:
    """Return whether polls list only the keys after the loaded ones."""
    if uri.scheme is Scheme.FILE:
        return False
    if options.ordered_listing is not Choice.AUTO:
        return options.ordered_listing is Choice.TRUE
    from penstock.storage.bucket_clients import is_aws

    own_aws = uri.scheme is Scheme.S3 and is_aws(options.store)
    return (own_aws and not uri.bucket.endswith(_DIRECTORY_BUCKET)) or uri.scheme is Scheme.GS


def _chunks(metas: Iterable[ObjectMeta], size: int) -> Iterator[list[ObjectMeta]]:
    metas = iter(metas)
    while chunk := list(islice(metas, size)):
        yield chunk
