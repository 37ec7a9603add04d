"""A bucket as a store; a key is the path of an object in the bucket.

Invariant: every read request names the ETag, so all pieces come from the same object. Memory
holds at most ``_PIECES_CACHED`` cached and ``_PIECES_AHEAD`` prefetched pieces, each of
``PIECE_BYTES``.

Empty objects are ignored: most are markers that a tool wrote in place of a folder, and none
contains a row. An empty object that gets content later is a new object.

The server determines the order of a listing. If the order is not the byte order, a listing that
starts after a key may omit greater keys.
"""

import io
import os
import re
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from io import BufferedIOBase
from typing import IO, TYPE_CHECKING, Any, NoReturn

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from penstock.errors import ExternalError, PenstockError, UserError
from penstock.storage.bucket_clients import client_for
from penstock.storage.options import StoreOptions, hidden_values, mask
from penstock.storage.store import (
    FolderMissingError,
    ObjectChangedError,
    ObjectMeta,
    ObjectMissingError,
    Selection,
    error_text,
)
from penstock.storage.uris import Scheme, Uri

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer
    from obstore import GetOptions

PIECE_BYTES = 8 * 2**20
_PIECES_CACHED = 3
_PIECES_AHEAD = 4
_PAGE_KEYS = 1_000
_PART_BYTES = 8 * 2**20
_PARTS_AT_ONCE = 4
_OBJECTS_AT_ONCE = 8
_DETAIL_CHARACTERS_MAX = 300

_REFUSED = re.compile(
    r"InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|ExpiredToken|InvalidToken"
    r"|40[13] (?:Forbidden|Unauthorized)"
)
_SKEWED = "RequestTimeTooSkewed"
_SIGNED_AT = re.compile(r"<RequestTime>([0-9TZ:.+-]{1,40})</RequestTime>")
_SERVER_TIME = re.compile(r"<ServerTime>([0-9TZ:.+-]{1,40})</ServerTime>")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound")
_UNREACHABLE = re.compile(r"[Cc]onnection refused|error trying to connect|dns error|timed out")
# The class and message of an error that the credential provider raised.
_CREDENTIALS = re.compile(r"credential provider: (\w+): ([^\n]{1,300})")
# The client of Azure adds a part of the key to this message.
_NO_BASE64 = "Invalid Access Key"
# Messages of the client of Google if a text is not a key file or has no private key.
_NO_ACCOUNT = re.compile(r"decode service account|reading pem file|KeyRejected|InvalidEncoding")
_UNUSABLE_KEY = re.compile(r"Path \"([^\"]*)\" contained|Error parsing Path")

_HINT_KEYS = (
    'Check "s3.access_key", "s3.secret_key", "s3.region" and the permissions of the user. '
    "Use ALTER SECRET to change a secret."
)
_HINT_ACCOUNT = (
    'Check "gs.service_account", which must be a JSON key created by Google, and the '
    "permissions of the account. Use ALTER SECRET to change a secret."
)
_HINT_CREDENTIALS = (
    'Check the source of the credentials: "s3.role_arn", or the environment, the profile, '
    "the container or the instance of this process."
)
_HINT_UNUSABLE_KEY = (
    "Rename objects whose keys contain two slashes in a row, . or .. as a part, or control "
    "characters."
)
_HINT_REACH = 'Check "s3.endpoint" and the network. penstock doctor tests the warehouse.'


class RequestCount:
    """A thread-safe counter of requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.total = 0

    def add(self, requests: int = 1) -> None:
        """Increase the counter."""
        with self._lock:
            self.total += requests


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketStore:
    """The objects of one bucket; stores with equal options share a client."""

    scheme: Scheme
    bucket: str
    options: StoreOptions
    count: RequestCount = field(default_factory=RequestCount, compare=False, repr=False)
    prefetched: "dict[tuple[str, str | None], Future[BucketStream]]" = field(
        default_factory=dict, compare=False, repr=False
    )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a bucket store holds keys and cannot be pickled")

    @property
    def requests(self) -> int:
        return self.count.total

    def list(
        self, prefix: str, *, selection: Selection, after: str = ""
    ) -> Iterator[ObjectMeta]:
        """Yield the selected objects in the order of the server."""
        with self.request("listed", "", kind="bucket"):
            pages = obstore.list(
                self.client(), prefix or None, offset=after or None, chunk_size=_PAGE_KEYS
            )
            for number, page in enumerate(pages):
                if number:
                    self.count.add()
                for found in page:
                    key = found["path"]
                    # A server may list an object that has the name of the folder itself.
                    if found["size"] and key.startswith(prefix) and selection.matches(key):
                        yield _meta(found)

    @contextmanager
    def open(self, key: str, *, etag: str | None) -> Iterator[BufferedIOBase]:
        prefetched = self.prefetched.pop((key, etag), None)
        opened = prefetched.result() if prefetched is not None else self._open(key, etag)
        with opened as stream:
            yield stream

    def prefetch(self, key: str, *, etag: str) -> None:
        if (key, etag) not in self.prefetched:
            self.prefetched[key, etag] = _threads().submit(self._open, key, etag)

    def _open(self, key: str, etag: str | None) -> "BucketStream":
        try:
            return BucketStream(self, key, etag=etag)
        except ObjectChangedError:
            # Azure reports a missing object as a changed object.
            if self.scheme is Scheme.AZ and self.head(key) is None:
                raise ObjectMissingError(
                    f'object "{key}" could not be read: it does not exist'
                ) from None
            raise

    def read_bytes(self, key: str) -> bytes:
        with self.request("read", key):
            return bytes(obstore.get(self.client(), key).bytes())

    def write(self, key: str, content: bytes) -> None:
        with self.request("written", key):
            obstore.put(self.client(), key, content, use_multipart=False)

    def write_new(self, key: str, content: bytes) -> bool:
        """Create the object unless the key exists.

        If a response is lost, the library retries and finds the object of its first try. The
        result can therefore be False although this call created the object.
        """
        with self.request("written", key):
            try:
                obstore.put(self.client(), key, content, mode="create")
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def create_folder(self, folder: str) -> None:
        """Do nothing: a bucket has no folders."""

    def create(self, folder: str, name: str) -> "BucketObject":
        """Start an object; its parts are sent while it is being written."""
        return BucketObject(self, f"{folder}/{name}")

    def sync(self, keys: Iterable[str]) -> None:
        """Do nothing: an object is durable once it is written."""

    def head(self, key: str) -> ObjectMeta | None:
        with self.request("checked", key):
            try:
                found = obstore.head(self.client(), key)
            except FileNotFoundError:
                return None
            return _meta(found) if found["size"] else None

    def is_folder(self, folder: str) -> bool:
        return self.holds(folder)

    def holds(self, folder: str) -> bool:
        with self.request("listed", folder, kind="bucket"):
            pages = obstore.list(self.client(), folder, chunk_size=_PAGE_KEYS)
            return any(found["size"] for page in pages for found in page)

    def delete_below(self, prefix: str, *, last: str = "") -> None:
        fact = f'objects below "{self.shown(prefix)}" could not be deleted'
        with bucket_failures(fact, self.options):
            self._delete(prefix, excluded=last)
            if last:
                self._delete(last)

    def delete(self, key: str) -> None:
        """Delete one object, if it exists."""
        with self.request("deleted", key):
            obstore.delete(self.client(), key)

    def _delete(self, prefix: str, *, excluded: str = "") -> None:
        client = self.client()
        for page in obstore.list(client, prefix, chunk_size=_PAGE_KEYS):
            keys = [
                m["path"] for m in page if not excluded or not m["path"].startswith(excluded)
            ]
            self.count.add()
            if keys:
                obstore.delete(client, keys)
                self.count.add()

    def client(self) -> Any:  # noqa: ANN401 - One class per kind of store.
        """Return the shared client."""
        return client_for(self.scheme, self.bucket, self.options)

    @contextmanager
    def request(self, done: str, key: str, *, kind: str = "object") -> Iterator[None]:
        """Count one request, and convert its errors."""
        self.count.add()
        with bucket_failures(f'{kind} "{self.shown(key)}" could not be {done}', self.options):
            yield

    def shown(self, key: str) -> str:
        """Return the URI of a key."""
        return str(Uri(scheme=self.scheme, bucket=self.bucket, key=key))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_OBJECTS_AT_ONCE, thread_name_prefix="objects")


def _meta(found: Any) -> ObjectMeta:  # noqa: ANN401 - A dictionary of obstore.
    etag = found["e_tag"] or f"{found['last_modified'].timestamp()}-{found['size']}"
    # Azure omits the quotes in listings only.
    if found["e_tag"] and '"' not in etag:
        etag = f'"{etag}"'
    return ObjectMeta(
        key=found["path"],
        etag=etag,
        size_bytes=found["size"],
        modified_at=found["last_modified"],
    )


class BucketStream(io.BufferedIOBase):
    """A seekable stream of an object; creating the stream fetches the first piece."""

    def __init__(self, store: BucketStore, key: str, *, etag: str | None) -> None:
        # The store refers to prefetched streams. A reference back would keep both in memory.
        self._options, self._count = store.options, store.count
        self._client = store.client()
        self._key = key
        self._etag = etag
        self._size = 0
        self._at = 0
        # The end of the range to prefetch.
        self._prefetch_end = 0
        self._pool: ThreadPoolExecutor | None = None
        # The pieces, the least recently used one first.
        self._pieces: dict[int, memoryview] = {}
        self._pending: dict[int, Future[memoryview]] = {}
        self._pieces[0] = self._fetch(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._size - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        buffer = bytearray(wanted)
        self.readinto(buffer)
        return bytes(buffer)

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(min(size, PIECE_BYTES) if size >= 0 else PIECE_BYTES)

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        target = memoryview(buffer).cast("B")
        wanted = min(len(target), max(0, self._size - self._at))
        done = 0
        while done < wanted:
            number, start = divmod(self._at, PIECE_BYTES)
            piece = self._piece(number)[start : start + wanted - done]
            target[done : done + len(piece)] = piece
            done += len(piece)
            self._at += len(piece)
        return done

    def read_ahead(self, start: int, end: int) -> None:
        """Prefetch a range, several pieces at a time."""
        self._prefetch_end = min(end, self._size)
        for number in list(self._pending):
            if not start <= number * PIECE_BYTES < end:
                self._pending.pop(number).cancel()
        self._prefetch_after(start // PIECE_BYTES - 1)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._pieces.clear()
        self._pending.clear()
        super().close()

    def _piece(self, number: int) -> memoryview:
        piece = self._pieces.pop(number, None)
        if piece is None:
            pending = self._pending.pop(number, None)
            self._prefetch_after(number)
            piece = pending.result() if pending is not None else self._fetch(number)
        self._pieces[number] = piece
        while len(self._pieces) > _PIECES_CACHED:
            self._pieces.pop(next(iter(self._pieces)))
        return piece

    def _prefetch_after(self, number: int) -> None:
        """Start to fetch the next pieces of the range to prefetch."""
        for following in range(number + 1, number + 1 + _PIECES_AHEAD):
            known = following in self._pieces or following in self._pending
            if following * PIECE_BYTES >= self._prefetch_end or known:
                continue
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_PIECES_AHEAD, thread_name_prefix="bucket")
            self._pending[following] = self._pool.submit(self._fetch, following)

    def _fetch(self, number: int) -> memoryview:
        """Read one piece; the client itself resumes a truncated response."""
        start = number * PIECE_BYTES
        fact = f'object "{self._key}" could not be read'
        self._count.add()
        with bucket_failures(fact, self._options):
            request: GetOptions = {"range": (start, start + PIECE_BYTES)}
            if self._etag is not None:
                request["if_match"] = self._etag
            found = obstore.get(self._client, self._key, options=request)
            content = memoryview(found.bytes())
        if number == 0:
            self._size = found.meta["size"]
            self._etag = self._etag or found.meta["e_tag"]
        expected = min(PIECE_BYTES, self._size - start)
        if len(content) != expected:
            raise ExternalError(
                fact,
                detail=f"Received {len(content)} of {expected} bytes at offset {start}.",
            )
        return content


class BucketObject(io.RawIOBase):
    """A new object, and the file to write it; the object is invisible until ``finish``."""

    def __init__(self, store: BucketStore, key: str) -> None:
        self._store = store
        self._key = key
        self._fact = f'object "{store.shown(key)}" could not be written'
        self._finished = False
        self._written = 0
        self._writer = obstore.open_writer(
            store.client(), key, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
        )

    @property
    def file(self) -> IO[bytes]:
        return self  # type: ignore[return-value] # Has the methods that pyarrow needs.

    def finish(self) -> int:
        with bucket_failures(self._fact, self._store.options):
            self._writer.close()
        self._finished = True
        parts = -(-self._written // _PART_BYTES)
        # An upload of several parts needs two more requests, to start and to complete it.
        self._store.count.add(parts + 2 if self._written >= _PART_BYTES else 1)
        return self._written

    def abort(self) -> None:
        """Discard the object; the bucket's lifecycle rules delete uploaded parts."""
        if self._finished:
            self._store.delete(self._key)

    def writable(self) -> bool:
        return True

    def write(self, content: "ReadableBuffer", /) -> int:
        with bucket_failures(self._fact, self._store.options):
            self._writer.write(content)
        size_bytes = memoryview(content).nbytes
        self._written += size_bytes
        return size_bytes

    def tell(self) -> int:
        return self._written

    def close(self) -> None:
        """Do nothing: only ``finish`` completes the object."""


@contextmanager
def bucket_failures(fact: str, options: StoreOptions) -> Iterator[None]:
    """Convert errors of obstore inside the block to errors of Penstock.

    The original error is not chained: it holds the whole response, which may contain keys.
    """
    try:
        yield
    except (BaseError, OSError) as error:
        raise _converted(fact, error, options) from None


def _converted(fact: str, error: Exception, options: StoreOptions) -> PenstockError:
    text = str(error)
    if _NO_BUCKET.search(text):
        return FolderMissingError(
            f"{fact}: the bucket does not exist", hint="Create the bucket, or correct the uri."
        )
    if isinstance(error, FileNotFoundError):
        return ObjectMissingError(f"{fact}: it does not exist")
    if isinstance(error, PreconditionError):
        return ObjectChangedError(
            f"{fact}: it was changed after it was listed",
            hint="Write objects under new keys instead of replacing them.",
        )
    hidden = hidden_values(options)
    if found := _CREDENTIALS.search(text):
        kind = UserError if found[1] == UserError.__name__ else ExternalError
        return kind(f"{fact}: {mask(found[2].rstrip('.'), hidden)}", hint=_HINT_CREDENTIALS)
    detail = f"{error_text(error, hidden=hidden)[:_DETAIL_CHARACTERS_MAX]}."
    return _external_error(fact, text, detail=detail, options=options)


def _external_error(
    fact: str, text: str, *, detail: str, options: StoreOptions
) -> ExternalError:
    if _SKEWED in text:
        return ExternalError(
            f"{fact}: the clocks of this machine and of the store differ too much",
            detail=_both_times(text) or detail,
            hint="Correct the clock of this machine. penstock doctor checks the clock.",
        )
    if _REFUSED.search(text):
        hint = _HINT_ACCOUNT if options.service_account else _HINT_KEYS
        return ExternalError(f"{fact}: access was refused", detail=detail, hint=hint)
    if _NO_ACCOUNT.search(text):
        return ExternalError(
            f"{fact}: the service account's key cannot be read", hint=_HINT_ACCOUNT
        )
    if _NO_BASE64 in text:
        return ExternalError(f"{fact}: the account's key must be Base64", hint=_HINT_KEYS)
    if _UNUSABLE_KEY.search(text):
        return ExternalError(
            f"{fact}: the key of an object is not supported",
            detail=detail,
            hint=_HINT_UNUSABLE_KEY,
        )
    hint = _HINT_REACH if _UNREACHABLE.search(text) else ""
    return ExternalError(fact, detail=detail, hint=hint)


def _both_times(text: str) -> str:
    signed, server = _SIGNED_AT.search(text), _SERVER_TIME.search(text)
    if signed is None or server is None:
        return ""
    return f"This machine signed the request at {signed[1]}; the server time was {server[1]}."
