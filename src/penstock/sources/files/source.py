"""Files of a folder or bucket as a source: find new files and plan epochs.

A pass goes over the keys once, from the floor on (an audit) or only behind what was loaded. It
takes several looks when more is new than memory should hold. A look is repeated from where it
began until everything that was planned from it has been committed: only then is it sure that
nothing was left behind.

Invariant: a file is new when it matches, lies above the floor and the file index does not know
its key. Nothing else decides: neither its time nor its place in the listing, unless an option
says so. A look keeps at most ``WINDOW_FILES`` new files, so memory does not grow with what was
loaded before.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Protocol

from penstock.clock import Clock
from penstock.errors import Code, UserError
from penstock.model.epoch import EpochLimits, EpochPlan, Note, SourceFile
from penstock.model.options import Reveal
from penstock.model.secrets import Sealed
from penstock.model.split import After, Position, SplitProgress, further, lies_above
from penstock.sources.files.globs import Glob, files_glob
from penstock.sources.files.listing import list_all
from penstock.sources.files.options import FilesOptions, LateFiles, ModifiedFiles
from penstock.sources.source import Backlog, Listed
from penstock.storage.options import Choice, StoreOptions, revealed, seal
from penstock.storage.store import ObjectMeta, Store, open_store
from penstock.storage.uris import Scheme, Uri, parse_uri

_HOUR = timedelta(hours=1)
# So much may be sent at once after a quiet time.
_BURST = timedelta(minutes=1)


class RequestBudget:
    """Requests that may be sent: they grow with time, and may be overdrawn for an hour."""

    def __init__(self, per_hour: int | None, *, clock: Clock) -> None:
        self._per_hour = per_hour
        self._clock = clock
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
        """Answer how long to wait before so many can be sent."""
        if self._per_hour is None:
            return timedelta()
        self.spend(0)
        lacking = min(requests, self._most) - self._left
        return max(timedelta(), _HOUR * (lacking / self._per_hour))

    @property
    def _most(self) -> float:
        return max(1.0, (self._per_hour or 0) * (_BURST / _HOUR))


class FileIndex(Protocol):
    """The files that one job has loaded."""

    def known(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Answer ETags by key of those files among the given ones that were loaded."""
        ...

    def newest(self, prefix: str) -> str:
        """Answer the largest loaded key below a prefix; empty if there is none."""
        ...

    @property
    def pruned_before(self) -> datetime | None:
        """The time before which files were written that the index has forgotten."""
        ...

    def prune(self, before: datetime, *, prefixes: Sequence[str]) -> None:
        """Forget the files that were written before a time, except the newest of prefixes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look of a pass: it begins behind a key and ends with the last new file it kept."""

    audit: bool
    begin: str = ""
    end: str = ""
    complete: bool = False


def next_look(last: Look | None, *, settled: bool, audit_due: bool) -> Look:
    """Answer the look that follows; ``settled`` tells that all of the last one is loaded."""
    if last is None:
        return Look(audit=True)
    if not settled:
        return Look(audit=last.audit, begin=last.begin)
    if not last.complete:
        return Look(audit=last.audit, begin=last.end)
    return Look(audit=audit_due)


WINDOW_FILES = 50_000
LOOKUP_FILES = 1_000

# Buckets of S3 Express One Zone list in an order of their own.
_DIRECTORY_BUCKET = "--x-s3"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceParts:
    """What a source of files is opened with."""

    index: FileIndex
    clock: Clock
    # A reference in an option becomes its value.
    reveal: Reveal
    # Values become what tasks are given.
    seal: Callable[[Mapping[str, str]], Sealed]
    open_store: Callable[[Uri, StoreOptions], tuple[Store, str]] = open_store


class FilesSource:
    """The files of one job, seen from the driver."""

    def __init__(self, options: FilesOptions, *, parts: SourceParts) -> None:
        self._options = options
        self._parts = parts
        self._uri = parse_uri(options.uri)
        self._glob: Glob = files_glob(self._uri)
        self._budget = RequestBudget(options.request_budget, clock=parts.clock)
        self._window: deque[SourceFile] = deque()
        self._window_bytes = 0
        self._planned: tuple[SourceFile, ...] = ()
        self._look: Look | None = None
        self._look_requests = 1
        # When the next audit is due, by a clock that nobody sets.
        self._audit_at: float | None = None
        self._modified = 0
        # Changed files that the earlier looks of a pass found, and that the last one did.
        self._changed_before = self._changed = 0
        self._requests = 0

    @property
    def modified_files(self) -> int:
        """How many loaded files the last look at all of them found changed."""
        return self._modified

    def discover(self, progress: tuple[SplitProgress, ...], *, listed: Listed) -> Backlog:
        """List what may be new and keep what is."""
        store = self._store()
        look = next_look(self._look, settled=self._settled(), audit_due=self._audit_due())
        sweep = _Sweep(
            look=look,
            options=self._options,
            split=_only_split(progress),
            high_water={
                prefix: self._parts.index.newest(prefix) for prefix in self._glob.prefixes
            },
            written_before=self._written_before(),
        )
        try:
            self._take(store, sweep, listed=listed)
        finally:
            self._look_requests = store.requests
            self._spend(store.requests)
        if look.audit and self.waiting().complete:
            self._end_audit(sweep)
        return self.waiting()

    def _take(self, store: Store, sweep: "_Sweep", *, listed: Listed) -> None:
        look = sweep.look
        if not look.begin:
            self._changed_before = 0
        elif self._ordered and self._look is not None and self._look.end == look.begin:
            self._changed_before += self._changed
        files, complete = self._kept(self._new_files(store, sweep, listed=listed))
        self._window = deque(files)
        self._window_bytes = sum(file.size_bytes for file in files)
        self._planned = ()
        self._look = replace(look, end=files[-1].key if files else "", complete=complete)

    def waiting(self) -> Backlog:
        """Answer what the last look found and no plan has taken."""
        return Backlog(
            files=len(self._window),
            size_bytes=self._window_bytes,
            complete=self._look is None or self._look.complete,
        )

    def look_due(self, interval: timedelta) -> bool:  # noqa: ARG002 - Files wait for each other.
        """Never: one look serves many epochs, and what comes meanwhile is not in a hurry."""
        return False

    def caught_up(self) -> bool:
        """Tell whether the last look saw everything, and all of it was taken."""
        return not self._window and self.waiting().complete

    def plan(
        self, progress: tuple[SplitProgress, ...], *, limits: EpochLimits
    ) -> EpochPlan | None:
        """Take files in byte order until a limit is reached; the crossing file is included."""
        if not self._window:
            return None
        files: list[SourceFile] = []
        size_bytes = 0
        while self._window and len(files) < limits.files:
            files.append(self._window.popleft())
            size_bytes += files[-1].size_bytes
            if size_bytes >= limits.size_bytes:
                break
        self._window_bytes -= size_bytes
        self._planned = tuple(files)
        split = _only_split(progress)
        reached = further(split.position, After(value=files[-1].key))
        after = SplitProgress(split=split.split, floor=split.floor, position=reached)
        return EpochPlan(files=tuple(files), progress=(after,))

    def reached(self, plan: EpochPlan, notes: Sequence[Note]) -> tuple[SplitProgress, ...]:  # noqa: ARG002 - Part of the protocol.
        """Answer where the only split stands; for files the plan knows."""
        return plan.progress

    def committed(self, notes: Sequence[Note]) -> None:
        """Remember nothing: the file index does."""

    def task_access(self) -> Sealed:
        """Answer what tasks need to read the files, with the keys of this moment."""
        return seal(self._values(), self._parts.seal)

    def charge(self, requests: int) -> None:
        """Count requests that tasks have sent."""
        self._spend(requests)

    def take_requests(self) -> int:
        """Answer how many requests were sent since this was last asked."""
        taken, self._requests = self._requests, 0
        return taken

    def pause(self) -> timedelta:
        """Answer how long to wait at least before the next look, to stay within the budget."""
        return self._budget.wait(self._look_requests)

    def _values(self) -> StoreOptions:
        return revealed(self._options.store, self._parts.reveal)

    def _store(self) -> Store:
        return self._parts.open_store(self._uri, self._values())[0]

    def _spend(self, requests: int) -> None:
        self._requests += requests
        self._budget.spend(requests)

    def _settled(self) -> bool:
        """Tell whether everything that the last look found is loaded."""
        keys = [file.key for file in self._planned]
        return not self._window and len(self._parts.index.known(keys)) == len(keys)

    @property
    def _ordered(self) -> bool:
        """Whether listings come in byte order."""
        return self._uri.scheme is Scheme.FILE or lists_behind(self._options, self._uri)

    def _audit_due(self) -> bool:
        if not lists_behind(self._options, self._uri):
            return True
        return self._audit_at is None or self._parts.clock.monotonic() >= self._audit_at

    def _end_audit(self, sweep: "_Sweep") -> None:
        self._modified = self._changed_before + self._changed
        interval = self._options.audit_interval.total_seconds()
        self._audit_at = self._parts.clock.monotonic() + interval
        if self._options.late_window is not None and sweep.written_before is not None:
            self._parts.index.prune(sweep.written_before, prefixes=self._glob.prefixes)

    def _written_before(self) -> datetime | None:
        """Answer the time before which late files count as loaded; it never goes back."""
        pruned, window = self._parts.index.pruned_before, self._options.late_window
        if window is None:
            return pruned
        before = self._parts.clock.now() - window
        return before if pruned is None else max(before, pruned)

    def _kept(self, new: Iterator[SourceFile]) -> tuple[list[SourceFile], bool]:
        """Keep the first files in byte order, and tell whether these are all."""
        if self._ordered:
            files = list(islice(new, WINDOW_FILES))
            # The next look sees again what lies behind the last file that is kept.
            changed = self._changed
            complete = next(new, None) is None
            self._changed = self._changed if complete else changed
            return sorted(files, key=_key), complete
        # The store may answer in any order, so that all of it must be seen.
        files = heapq.nsmallest(WINDOW_FILES + 1, new, key=_key)
        return files[:WINDOW_FILES], len(files) <= WINDOW_FILES

    def _new_files(
        self, store: Store, sweep: "_Sweep", *, listed: Listed
    ) -> Iterator[SourceFile]:
        seen = self._changed = 0
        # A store without order may hide keys that lie behind the one a listing begins with.
        found = list_all(store, self._glob, after=sweep.begin if self._ordered else None)
        for chunk in _chunks(found, LOOKUP_FILES):
            seen += len(chunk)
            listed(seen)
            known = self._parts.index.known([meta.key for meta in chunk])
            for meta in chunk:
                if not lies_above(meta.key, sweep.split.floor):
                    continue
                if meta.key in known:
                    self._notice_change(meta, known[meta.key])
                elif sweep.new(meta, self._prefix_of(meta.key)):
                    yield _source_file(meta)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweep:
    """What one look goes over, and what is new to it."""

    look: Look
    options: FilesOptions
    split: SplitProgress
    # The largest loaded key of every prefix; empty where nothing was loaded.
    high_water: Mapping[str, str]
    written_before: datetime | None

    def begin(self, prefix: str) -> str:
        """Answer the key behind which the listing of a prefix begins."""
        loaded = "" if self.look.audit else self.high_water[prefix]
        return max(_text(self.split.floor), self.look.begin, loaded)

    def new(self, meta: ObjectMeta, prefix: str) -> bool:
        """Tell whether a file that the index does not know is to be loaded."""
        if meta.key <= self.begin(prefix):
            return False
        if meta.key > self.high_water[prefix]:
            return True
        if self.options.late_files is LateFiles.IGNORE:
            return False
        return self.written_before is None or meta.modified_at >= self.written_before


def lists_behind(options: FilesOptions, uri: Uri) -> bool:
    """Tell whether looks ask a store only for keys behind the loaded ones."""
    if uri.scheme is Scheme.FILE:
        return False
    if options.ordered_listing is not Choice.AUTO:
        return options.ordered_listing is Choice.TRUE
    from penstock.storage.bucket_clients import of_aws

    own_aws = uri.scheme is Scheme.S3 and of_aws(options.store)
    return (own_aws and not uri.bucket.endswith(_DIRECTORY_BUCKET)) or uri.scheme is Scheme.GS


def _text(position: Position) -> str:
    return position.value if isinstance(position, After) else ""


def _key(file: SourceFile) -> str:
    return file.key


def _only_split(progress: tuple[SplitProgress, ...]) -> SplitProgress:
    (split,) = progress
    return split


def _source_file(meta: ObjectMeta) -> SourceFile:
    return SourceFile(
        key=meta.key, etag=meta.etag, size_bytes=meta.size_bytes, modified_at=meta.modified_at
    )


def _chunks(metas: Iterable[ObjectMeta], size: int) -> Iterator[list[ObjectMeta]]:
    metas = iter(metas)
    while chunk := list(islice(metas, size)):
        yield chunk
