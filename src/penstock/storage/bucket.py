"""A bucket as a store; a key is the path of an object in it.

Objects without a byte are no files: most are markers that some tool put in the place of a
folder, and the others hold no row. One that gets its content later is new then.

Whether listings come in byte order is the server's matter. Not every server keeps it, and one
that does not may also hide keys that lie behind the one from which a listing begins.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from io import BufferedIOBase
from typing import IO, Any, NoReturn

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError

from penstock.model.store_options import StoreOptions
from penstock.storage.bucket_clients import client_of
from penstock.storage.bucket_errors import asking
from penstock.storage.bucket_stream import BucketStream
from penstock.storage.objects import (
    ObjectChangedError,
    ObjectMeta,
    ObjectMissingError,
    Selection,
)
from penstock.storage.uris import Scheme, Uri

_PAGE_KEYS = 1_000
_DELETED_AT_ONCE = 1_000
_PART_BYTES = 8 * 2**20
_PARTS_AT_ONCE = 4
_OBJECTS_AT_ONCE = 8


Begun = dict[tuple[str, str | None], Future[BucketStream]]


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_OBJECTS_AT_ONCE, thread_name_prefix="objects")


class RequestCount:
    """Counts requests of several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.total = 0

    def add(self, requests: int = 1) -> None:
        """Count some more."""
        with self._lock:
            self.total += requests


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketStore:
    """The objects of one bucket; clients are shared by all stores with the same options."""

    scheme: Scheme
    bucket: str
    options: StoreOptions
    count: RequestCount = field(default_factory=RequestCount, compare=False, repr=False)
    begun: Begun = field(default_factory=dict, compare=False, repr=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("the store of a bucket holds keys and is sent nowhere")

    @property
    def requests(self) -> int:
        """How many requests this store has sent; retries inside the library are not seen."""
        return self.count.total

    def list(
        self, prefix: str, *, selection: Selection, after: str = ""
    ) -> Iterator[ObjectMeta]:
        """Yield the selected objects below a prefix, behind a key, in the server's order."""
        with asking(f'bucket "{self.shown()}" could not be listed', self.options):
            pages = obstore.list(
                self.client(),
                prefix or None,
                offset=after or None,
                chunk_size=_PAGE_KEYS,
            )
            self.count.add()
            first = True
            for page in pages:
                if not first:
                    self.count.add()
                first = False
                yield from self._selected(page, prefix, selection)

    def _selected(
        self, page: Sequence[Any], prefix: str, selection: Selection
    ) -> Iterator[ObjectMeta]:
        for found in page:
            key = found["path"]
            # A server may list the object that is called like the folder itself.
            if found["size"] and key.startswith(prefix) and selection.matches(key):
                yield _meta(found)

    @contextmanager
    def open(self, key: str, *, etag: str | None) -> Iterator[BufferedIOBase]:
        """Open exactly the object that was listed; every request names its ETag."""
        begun = self.begun.pop((key, etag), None)
        with begun.result() if begun is not None else self._begin(key, etag) as stream:
            yield stream

    def prepare(self, key: str, *, etag: str) -> None:
        """Begin to fetch an object in another thread; whoever opens it waits for the rest."""
        if (key, etag) not in self.begun:
            self.begun[key, etag] = _threads().submit(self._begin, key, etag)

    def _begin(self, key: str, etag: str | None) -> BucketStream:
        stream = BucketStream(
            self.client(), key, etag=etag, options=self.options, sent=self.count.add
        )
        try:
            stream.begin()
        except ObjectChangedError:
            # Azure does not tell what is gone from what has changed.
            if self.scheme is Scheme.AZ and self.head(key) is None:
                raise ObjectMissingError(
                    f'object "{key}" could not be read: it does not exist'
                ) from None
            raise
        return stream

    def read_bytes(self, key: str) -> bytes:
        """Read a whole object."""
        self.count.add()
        with asking(f'object "{self.shown(key)}" could not be read', self.options):
            return bytes(obstore.get(self.client(), key).bytes())

    def write(self, key: str, content: bytes) -> None:
        """Replace or create the object."""
        self.count.add()
        with asking(f'object "{self.shown(key)}" could not be written', self.options):
            obstore.put(self.client(), key, content, use_multipart=False)

    def write_new(self, key: str, content: bytes) -> bool:
        """Create the object unless the key is taken.

        The library asks again when an answer is lost, and then takes our own object for
        another's: False may also mean that this call did it and was not told so.
        """
        self.count.add()
        with asking(f'object "{self.shown(key)}" could not be written', self.options):
            try:
                obstore.put(self.client(), key, content, mode="create")
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def make_folder(self, folder: str) -> None:
        """Do nothing: a bucket has no folders."""

    def create(self, folder: str, name: str) -> "BucketObject":
        """Begin an object; its parts are sent while it is being written."""
        return BucketObject(self, f"{folder}/{name}")

    def sync(self, keys: Iterable[str]) -> None:
        """Do nothing: an object that was put is there."""

    def head(self, key: str) -> ObjectMeta | None:
        """Answer what is known of the object."""
        self.count.add()
        with asking(f'object "{self.shown(key)}" could not be looked at', self.options):
            try:
                found = obstore.head(self.client(), key)
            except FileNotFoundError:
                return None
            return _meta(found) if found["size"] else None

    def is_folder(self, folder: str) -> bool:
        """Tell whether anything lies below a folder."""
        return self.holds(folder)

    def holds(self, folder: str) -> bool:
        """Tell whether anything lies below a folder."""
        self.count.add()
        with asking(f'bucket "{self.shown(folder)}" could not be listed', self.options):
            pages = obstore.list(self.client(), folder, chunk_size=_PAGE_KEYS)
            return any(found["size"] for page in pages for found in page)

    def delete_below(self, prefix: str, *, last: str = "") -> None:
        """Remove every object below a prefix."""
        with asking(f'objects of "{self.shown(prefix)}" could not be removed', self.options):
            self._delete(prefix, spared=last)
            if last:
                self._delete(last)

    def delete(self, key: str) -> None:
        """Remove one object; nothing happens if there is none."""
        self.count.add()
        with asking(f'object "{self.shown(key)}" could not be removed', self.options):
            obstore.delete(self.client(), key)

    def _delete(self, prefix: str, *, spared: str = "") -> None:
        client = self.client()
        for page in obstore.list(client, prefix, chunk_size=_DELETED_AT_ONCE):
            keys = [m["path"] for m in page if not spared or not m["path"].startswith(spared)]
            self.count.add()
            if keys:
                obstore.delete(client, keys)
                self.count.add()

    def client(self) -> Any:  # noqa: ANN401 - One class per kind of store.
        """Answer the client that all stores with the same options share."""
        return client_of(self.scheme, self.bucket, self.options)

    def shown(self, key: str = "") -> str:
        """Write a key of the bucket as a URI."""
        return str(Uri(scheme=self.scheme, bucket=self.bucket, key=key))


class BucketObject:
    """An object while it is being written; without ``finish`` it never appears."""

    def __init__(self, store: BucketStore, key: str) -> None:
        self._store = store
        self._key = key
        self._finished = False
        self._writer = obstore.open_writer(
            store.client(),
            key,
            buffer_size=_PART_BYTES,
            max_concurrency=_PARTS_AT_ONCE,
        )
        self._sink = _Sink(self._writer, store, key)

    @property
    def file(self) -> IO[bytes]:
        """Where the bytes go."""
        return self._sink  # type: ignore[return-value] # What pyarrow asks of a file is there.

    def finish(self) -> int:
        """Complete the object."""
        with self._sink.asking():
            self._writer.close()
        self._finished = True
        size_bytes = self._sink.tell()
        parts = -(-size_bytes // _PART_BYTES)
        # Several parts are begun and ended by a request of their own.
        self._store.count.add(parts + 2 if size_bytes >= _PART_BYTES else 1)
        return size_bytes

    def abort(self) -> None:
        """Let nobody see it; parts that were sent are left to the bucket's own rules."""
        if self._finished:
            self._store.delete(self._key)


class _Sink:
    """The part of a file object that a writer of Parquet needs."""

    closed = False

    def __init__(self, writer: Any, store: BucketStore, key: str) -> None:  # noqa: ANN401
        self._writer = writer
        self._store = store
        self._key = key
        self._written = 0

    @contextmanager
    def asking(self) -> Iterator[None]:
        shown = self._store.shown(self._key)
        with asking(f'object "{shown}" could not be written', self._store.options):
            yield

    def write(self, content: Any) -> int:  # noqa: ANN401 - Whatever is a buffer.
        with self.asking():
            self._writer.write(content)
        size_bytes = memoryview(content).nbytes
        self._written += size_bytes
        return size_bytes

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Keep it: parts are sent when they are full."""

    def close(self) -> None:
        """Keep it open: only ``finish`` completes the object."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def _meta(found: Any) -> ObjectMeta:  # noqa: ANN401 - A dictionary of obstore.
    return ObjectMeta(
        key=found["path"],
        etag=_etag(found),
        size_bytes=found["size"],
        modified_at=found["last_modified"],
    )


def _etag(found: Any) -> str:  # noqa: ANN401 - A dictionary of obstore.
    """Answer the tag in quotes, which Azure leaves away where it lists and nowhere else."""
    tag: str = found["e_tag"] or ""
    if not tag:
        return f"{found['last_modified'].timestamp()}-{found['size']}"
    return tag if '"' in tag else f'"{tag}"'
