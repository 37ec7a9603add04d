"""Files of a folder as a source: what is new, and how much of it makes an epoch.

Invariant: a file is new when it matches, lies above the floor and the file index does not know
its key. Nothing else decides: neither its time nor its place in the listing. A look keeps at
most ``WINDOW_FILES`` new files, so memory does not grow with what was loaded before.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from penstock.errors import Code, UserError
from penstock.model.epoch import EpochPlan, SourceFile
from penstock.model.files import FilesOptions, LateFiles, ModifiedFiles
from penstock.model.job import JobProperties
from penstock.model.position import After, SplitProgress, further, lies_above
from penstock.sources.files.globs import Glob, compile_glob
from penstock.sources.files.listing import list_all
from penstock.sources.source import Backlog
from penstock.storage.objects import ObjectMeta
from penstock.storage.stores import Store, open_store

WINDOW_FILES = 50_000
LOOKUP_FILES = 1_000

KnownFiles = Callable[[Sequence[str]], Mapping[str, str]]


class FilesSource:
    """The files of one job, seen from the driver."""

    def __init__(
        self, *, options: FilesOptions, store: Store, glob: Glob, known_files: KnownFiles
    ) -> None:
        self._options = options
        self._store = store
        self._glob = glob
        self._known_files = known_files
        self._window: deque[SourceFile] = deque()
        self._window_bytes = 0
        self._complete = True
        self._modified = 0

    @property
    def modified_files(self) -> int:
        """How many loaded files the last look found changed."""
        return self._modified

    def discover(self, progress: tuple[SplitProgress, ...]) -> Backlog:
        """List the matching files anew and keep those that are new."""
        self._modified = 0
        new = self._new_files(_only_split(progress))
        self._window = deque(islice(new, WINDOW_FILES))
        self._window_bytes = sum(file.size_bytes for file in self._window)
        self._complete = next(new, None) is None
        return self.waiting()

    def waiting(self) -> Backlog:
        """Answer what the last look found and no plan has taken."""
        return Backlog(
            files=len(self._window),
            size_bytes=self._window_bytes,
            complete=self._complete,
        )

    def plan(
        self, progress: tuple[SplitProgress, ...], *, limits: JobProperties
    ) -> EpochPlan | None:
        """Take files in byte order until a limit is reached; the crossing file is included."""
        if not self._window:
            return None
        files: list[SourceFile] = []
        size_bytes = 0
        while self._window and len(files) < limits.batch_files_max:
            files.append(self._window.popleft())
            size_bytes += files[-1].size_bytes
            if size_bytes >= limits.batch_bytes_max:
                break
        self._window_bytes -= size_bytes
        split = _only_split(progress)
        reached = further(split.position, After(value=files[-1].key))
        after = SplitProgress(split=split.split, floor=split.floor, position=reached)
        return EpochPlan(files=tuple(files), progress=(after,))

    def _new_files(self, split: SplitProgress) -> Iterator[SourceFile]:
        late_ignored = self._options.late_files is LateFiles.IGNORE
        lowest = split.position if late_ignored else split.floor
        for chunk in _chunks(list_all(self._store, self._glob), LOOKUP_FILES):
            known = self._known_files([meta.key for meta in chunk])
            for meta in chunk:
                if meta.key in known:
                    self._notice_change(meta, known[meta.key])
                elif lies_above(meta.key, lowest):
                    yield _source_file(meta)

    def _notice_change(self, meta: ObjectMeta, etag: str) -> None:
        if meta.etag == etag:
            return
        self._modified += 1
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


def open_files_source(options: FilesOptions, *, known_files: KnownFiles) -> FilesSource:
    """Open the files that the options name; ``known_files`` tells which were loaded."""
    store, pattern = open_store(options.uri)
    return FilesSource(
        options=options, store=store, glob=compile_glob(pattern), known_files=known_files
    )


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
