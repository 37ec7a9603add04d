"""Files of a folder or bucket as a source: find new files and plan epochs.

A pass lists the keys once: all from the floor (an audit), or only those after the loaded ones.
It takes several polls if more files are new than memory should hold. A poll is repeated from
its start until everything that was planned from it is committed. Only then nothing can have
been left out.

Invariant: a file is new if it matches, is above the floor and is not in the file index.
Neither its time nor its place in the listing matter, unless an option says so. A poll keeps at
most ``WINDOW_FILES`` new files, so memory does not grow with what was loaded before.
"""

import heapq
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
    SplitProgress,
    SplitRead,
    SplitStatus,
)
from penstock.model.text import counted
from penstock.sources.files.globs import files_glob, list_all
from penstock.sources.files.kind import (
    FilesOptions,
    LateFiles,
    ModifiedFiles,
    further,
    is_above,
)
from penstock.sources.files.reader import FilePart, splittable
from penstock.sources.source import Poll, Seen, Source, SourceServices
from penstock.storage.options import Choice, StoreOptions, revealed, seal
from penstock.storage.store import ObjectMeta, Store, open_store
from penstock.storage.uris import Scheme, Uri, parse_uri

WINDOW_FILES = 50_000
LOOKUP_FILES = 1_000
_CUT_BYTES_MIN = 4 * 2**20
_HOUR = timedelta(hours=1)
# The requests of so much time may be sent at once after a quiet time.
_BURST = timedelta(minutes=1)
# Buckets of S3 Express One Zone list in an order of their own.
_DIRECTORY_BUCKET = "--x-s3"
_by_key = attrgetter("key")

OpenStore = Callable[[Uri, StoreOptions], tuple[Store, str]]


class RequestBudget:
    """Requests that may be sent: they grow with time, and may be overdrawn for an hour."""

    def __init__(self, per_hour: int | None, *, clock: Clock) -> None:
        self._per_hour = per_hour
        self._clock = clock
        self._most = max(1.0, (per_hour or 0) * (_BURST / _HOUR))
        self._left = self._most
        self._at = clock.monotonic()

    def spend(self, requests: int) -> None:
        """Take requests that were sent."""
        if self._per_hour is None:
            return
        now = self._clock.monotonic()
        grown = self._left + self._per_hour * (now - self._at) / _HOUR.total_seconds()
        self._left = max(min(grown, self._most) - requests, -float(self._per_hour))
        self._at = now

    def wait(self, requests: int) -> timedelta:
        """Return how long to wait before so many can be sent."""
        if self._per_hour is None:
            return timedelta()
        self.spend(0)
        lacking = min(requests, self._most) - self._left
        return max(timedelta(), _HOUR * (lacking / self._per_hour))


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRange:
    """The keys of one poll: from after a key to the last new file that it kept."""

    audit: bool
    begin: str = ""
    end: str = ""
    complete: bool = False


def next_range(last: PollRange | None, *, settled: bool, audit_due: bool) -> PollRange:
    """Return the next poll's range; ``settled``: everything of the last one is loaded."""
    if last is None:
        return PollRange(audit=True)
    if not settled:
        return PollRange(audit=last.audit, begin=last.begin)
    if not last.complete:
        return PollRange(audit=last.audit, begin=last.end)
    return PollRange(audit=audit_due)


class FilesSource(Source):
    """The files of one job, seen from the driver."""

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
        self._polled_at: datetime | None = None
        self._poll_requests = 1
        # When the next audit is due, by a clock that is never set back.
        self._audit_at: float | None = None
        self._modified = 0
        # Changed files that earlier polls of a pass found, and that the last one found.
        self._changed_before = self._changed = 0
        self._requests = 0

    def poll(self, progress: Progress, *, seen: Seen) -> Poll:
        store, _ = self._open_store(self._uri, self._values())
        (split,) = progress
        chosen = next_range(self._range, settled=self._settled(), audit_due=self._audit_due())
        scan = _Scan(
            range=chosen,
            options=self._options,
            split=split,
            high_water={prefix: self._index.newest(prefix) for prefix in self._glob.prefixes},
            written_before=self._written_before(),
        )
        started_at = self._clock.now()
        try:
            self._take(store, scan, seen=seen)
        finally:
            self._poll_requests = store.requests
            self.charge(store.requests)
        # A clock that is set back must not make a later poll look like an earlier one.
        self._polled_at = max(started_at, self._polled_at or started_at)
        if chosen.audit and self.waiting().complete:
            self._end_audit(scan)
        return Poll(
            progress=progress,
            waiting=self.waiting(),
            notices=(("files_modified", self._modified),),
        )

    def _take(self, store: Store, scan: "_Scan", *, seen: Seen) -> None:
        chosen = scan.range
        if not chosen.begin:
            self._changed_before = 0
        elif self._ordered and self._range is not None and self._range.end == chosen.begin:
            self._changed_before += self._changed
        files, complete = self._kept(self._new_files(store, scan, seen=seen))
        self._window = deque(files)
        self._window_bytes = sum(file.size_bytes for file in files)
        self._planned = ()
        self._range = replace(chosen, end=files[-1].key if files else "", complete=complete)

    def waiting(self) -> Amount:
        return Amount(
            items=len(self._window),
            size_bytes=self._window_bytes,
            complete=self._range is None or self._range.complete,
        )

    def poll_delay(self) -> timedelta:
        return self._budget.wait(self._poll_requests)

    def heads(self) -> Mapping[str, Position]:
        at = self._polled_at or self._clock.now()
        return {self._options.uri: AtTime(at=at)}

    def passed(self, split: str, boundary: Position) -> bool:  # noqa: ARG002 - There is one.
        if self._polled_at is None or not isinstance(boundary, AtTime):
            return False
        done = not self._window and self.waiting().complete
        return done and self._polled_at >= boundary.at

    def statuses(self) -> tuple[SplitStatus, ...]:
        uri = self._options.uri
        return (SplitStatus(split=uri, remaining=self.waiting(), seen_at=self._polled_at),)

    def plan(self, progress: Progress, *, limits: EpochLimits) -> EpochPlan | None:
        """Take files in byte order until a limit is reached; the crossing file is included."""
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
        reached = further(split.position, After(value=files[-1].key))
        whole = (FilePart(item=file, start=0, end=file.size_bytes) for file in files)
        return EpochPlan(
            reads=tuple(_read(split.split, part) for part in whole),
            items=tuple(files),
            progress=(replace(split, position=reached),),
            final=True,
        )

    def share(
        self, plan: EpochPlan, *, tasks: int, needed: Sequence[str]
    ) -> list[tuple[SplitRead, ...]]:
        """Divide the files, in order, into shares of nearly equal bytes.

        A share ends inside a file only where both parts are worth a task of their own. The
        first failing share therefore holds the first failing line.
        """
        (split,) = plan.progress
        total = sum(file.size_bytes for file in plan.items)
        wanted = max(1, min(tasks, len(plan.items) + total // _CUT_BYTES_MIN))
        shares: list[list[SplitRead]] = [[]]
        taken = 0
        for file in plan.items:
            cuts = wanted if splittable(file, source=self._options, needed=needed) else 1
            for part in _cut(file, taken=taken, total=total, shares=cuts):
                middle = taken + (part.start + part.end) / 2
                share = min(wanted - 1, int(middle * wanted / total)) if total else 0
                if share >= len(shares) and shares[-1]:
                    shares.append([])
                shares[-1].append(_read(split.split, part))
            taken += file.size_bytes
        return [tuple(share) for share in shares if share]

    def advance(self, plan: EpochPlan, notes: Sequence[Note]) -> Progress:
        """Check that the notes cover every byte of every file once; the plan knows the end."""
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

    def charge(self, requests: int) -> None:
        self._requests += requests
        self._budget.spend(requests)

    def take_requests(self) -> int:
        taken, self._requests = self._requests, 0
        return taken

    def _values(self) -> StoreOptions:
        return revealed(self._options.store, self._services.reveal)

    def _settled(self) -> bool:
        """Return whether everything that the last poll found is loaded."""
        keys = [file.key for file in self._planned]
        return not self._window and len(self._index.known(keys)) == len(keys)

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
        """Return the time before which late files count as loaded; it never goes back."""
        pruned, window = self._index.pruned_before, self._options.late_window
        if window is None:
            return pruned
        before = self._clock.now() - window
        return before if pruned is None else max(before, pruned)

    def _kept(self, new: Iterator[LoadedItem]) -> tuple[list[LoadedItem], bool]:
        """Keep the first files in byte order, and return whether these are all."""
        if self._ordered:
            files = list(islice(new, WINDOW_FILES))
            # The next poll sees again what comes after the last file that is kept.
            changed = self._changed
            complete = next(new, None) is None
            self._changed = self._changed if complete else changed
            return sorted(files, key=_by_key), complete
        # The store may list in any order, so all of it must be seen.
        files = heapq.nsmallest(WINDOW_FILES + 1, new, key=_by_key)
        return files[:WINDOW_FILES], len(files) <= WINDOW_FILES

    def _new_files(self, store: Store, scan: "_Scan", *, seen: Seen) -> Iterator[LoadedItem]:
        listed = self._changed = 0
        # A store without order may hide keys that come after the one a listing starts at.
        found = list_all(store, self._glob, after=scan.begin if self._ordered else None)
        for chunk in _chunks(found, LOOKUP_FILES):
            listed += len(chunk)
            seen(f"{self._options.uri}: {counted(listed, 'key')} so far")
            known = self._index.known([meta.key for meta in chunk])
            for meta in chunk:
                if not is_above(meta.key, scan.split.floor):
                    continue
                if meta.key in known:
                    self._notice_change(meta, known[meta.key])
                elif scan.new(meta, self._prefix_of(meta.key)):
                    yield LoadedItem(
                        key=meta.key,
                        etag=meta.etag,
                        size_bytes=meta.size_bytes,
                        modified_at=meta.modified_at,
                    )

    def _prefix_of(self, key: str) -> str:
        return next(prefix for prefix in self._glob.prefixes if key.startswith(prefix))

    def _notice_change(self, meta: ObjectMeta, etag: str) -> None:
        if meta.etag == etag:
            return
        self._changed += 1
        if self._options.modified_files is ModifiedFiles.FAIL:
            raise UserError(
                f'file "{meta.key}" has changed since it was loaded',
                code=Code.CANNOT_RESUME_ERR,
                detail=f"Its ETag was {etag} and is {meta.etag} now.",
                hint=(
                    "Put the loaded file back and resume; or move the job's offset back, "
                    "so that this file and those behind it load again."
                ),
            )


def _cut(file: LoadedItem, *, taken: int, total: int, shares: int) -> Iterator[FilePart]:
    start = 0
    for share in range(1, shares):
        cut = total * share // shares - taken
        if start + _CUT_BYTES_MIN <= cut <= file.size_bytes - _CUT_BYTES_MIN:
            yield FilePart(item=file, start=start, end=cut)
            start = cut
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
    """What one poll covers, and which files are new to it."""

    range: PollRange
    options: FilesOptions
    split: SplitProgress
    # The largest loaded key of every prefix; empty where nothing was loaded.
    high_water: Mapping[str, str]
    written_before: datetime | None

    def begin(self, prefix: str) -> str:
        """Return the key after which the listing of a prefix starts."""
        floor = self.split.floor.value if isinstance(self.split.floor, After) else ""
        loaded = "" if self.range.audit else self.high_water[prefix]
        return max(floor, self.range.begin, loaded)

    def new(self, meta: ObjectMeta, prefix: str) -> bool:
        """Return whether a file that the index does not know is loaded."""
        if meta.key <= self.begin(prefix):
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
    from penstock.storage.bucket_clients import of_aws

    own_aws = uri.scheme is Scheme.S3 and of_aws(options.store)
    return (own_aws and not uri.bucket.endswith(_DIRECTORY_BUCKET)) or uri.scheme is Scheme.GS


def _chunks(metas: Iterable[ObjectMeta], size: int) -> Iterator[list[ObjectMeta]]:
    metas = iter(metas)
    while chunk := list(islice(metas, size)):
        yield chunk
