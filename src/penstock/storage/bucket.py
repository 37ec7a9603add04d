"""A bucket as a store; a key is the path of an object in it.

Invariant: every request names the ETag, so that no two pieces come from two objects. Memory
holds at most ``_PIECES_KEPT`` pieces of ``PIECE_BYTES``, and ``_PIECES_AHEAD`` that come.

Objects without a byte are no files: most are markers that some tool put in the place of a
folder, and the others hold no row. One that gets its content later is new then.

Whether listings come in byte order is the server's matter. Not every server keeps it, and one
that does not may also hide keys that lie behind the one from which a listing begins.
"""

import io
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from io import BufferedIOBase
from typing import IO, TYPE_CHECKING, Any, NoReturn

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.storage.bucket_clients import client_of
from penstock.storage.options import StoreOptions, hidden_texts, without
from penstock.storage.store import (
    FolderMissingError,
    ObjectChangedError,
    ObjectMeta,
    ObjectMissingError,
    Selection,
    told_by_server,
)
from penstock.storage.uris import Scheme, Uri

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from obstore import GetOptions

_REFUSED = re.compile(
    r"InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|ExpiredToken|InvalidToken"
    r"|40[13] (?:Forbidden|Unauthorized)"
)
_SKEWED = "RequestTimeTooSkewed"
_SIGNED_AT = re.compile(r"<RequestTime>([0-9TZ:.+-]{1,40})</RequestTime>")
_SERVER_TIME = re.compile(r"<ServerTime>([0-9TZ:.+-]{1,40})</ServerTime>")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound")
_UNREACHABLE = re.compile(r"[Cc]onnection refused|error trying to connect|dns error|timed out")
# What the function said that the client asked for keys.
_LENDER = re.compile(r"credential provider: (\w+): ([^\n]{1,300})")
# Whoever expects the JSON of a service account repeats the text that stands in its place.
_FOUND_INSTEAD = re.compile(r'string ".*')
# What the client of Azure says, followed by a part of the key.
_NO_BASE64 = "Invalid Access Key"
# What the client of Google says of a text that is no key file, or has no private key in it.
_NO_ACCOUNT = re.compile(r"decode service account|reading pem file|KeyRejected|InvalidEncoding")
_ODD_KEY = re.compile(r"Path \"([^\"]*)\" contained|Error parsing Path")

_HINT_KEYS = (
    'Check "s3.access_key", "s3.secret_key", the rights of that user, and "s3.region"; '
    "a secret is changed with ALTER SECRET."
)
_HINT_ACCOUNT = (
    'Check "gs.service_account", which is the JSON that Google gives for a key, and the rights '
    "of that account; a secret is changed with ALTER SECRET."
)
_HINT_LENT = (
    'Check who lends the keys: "s3.role_arn", or the environment, the profile, the container '
    "or the instance of this process."
)
_HINT_REACH = 'Check "s3.endpoint" and the network; penstock doctor tries the warehouse.'


@contextmanager
def asking(fact: str, options: StoreOptions) -> Iterator[None]:
    """Turn what the library raises inside the block into an error of ours.

    Its own error is left behind: it holds the server's whole answer, which may repeat keys.
    """
    try:
        yield
    except FileNotFoundError as error:
        if _NO_BUCKET.search(str(error)):
            raise _wrapped(fact, str(error), options) from None
        raise ObjectMissingError(f"{fact}: it does not exist") from None
    except PreconditionError:
        raise ObjectChangedError(
            f"{fact}: it was changed after it was listed",
            hint="Write objects under new keys instead of replacing them.",
        ) from None
    except (BaseError, OSError) as error:
        raise _wrapped(fact, str(error), options) from None


def _wrapped(fact: str, text: str, options: StoreOptions) -> PenstockError:
    said = _said(text, options)
    if _NO_BUCKET.search(text):
        return FolderMissingError(
            f"{fact}: the bucket does not exist", hint="Create it, or correct the uri."
        )
    if lender := _LENDER.search(text):
        kind = UserError if lender[1] == UserError.__name__ else ExternalError
        told = without(lender[2].rstrip("."), hidden_texts(options))
        return kind(f"{fact}: {told}", hint=_HINT_LENT)
    if _SKEWED in text:
        return ExternalError(
            f"{fact}: the clocks of this machine and of the store differ too much",
            detail=_both_times(text) or said,
            hint="Set the clock of this machine; penstock doctor looks at it.",
        )
    if _REFUSED.search(text):
        hint = _HINT_ACCOUNT if options.service_account else _HINT_KEYS
        return ExternalError(f"{fact}: access was refused", detail=said, hint=hint)
    if _NO_ACCOUNT.search(text):
        return ExternalError(
            f"{fact}: the service account's key cannot be read", hint=_HINT_ACCOUNT
        )
    if _NO_BASE64 in text:
        return ExternalError(f"{fact}: the account's key must be Base64", hint=_HINT_KEYS)
    if _ODD_KEY.search(text):
        return ExternalError(
            f"{fact}: a key in it cannot be named",
            detail=said,
            hint=(
                "Rename objects with two slashes in a row, with . or .. as a part, or with "
                "control characters."
            ),
        )
    hint = _HINT_REACH if _UNREACHABLE.search(text) else ""
    return ExternalError(fact, code=Code.GET_REMOTE_DATA_ERROR, detail=said, hint=hint)


def _both_times(text: str) -> str:
    signed, server = _SIGNED_AT.search(text), _SERVER_TIME.search(text)
    if signed is None or server is None:
        return ""
    return f"This machine signed at {signed[1]}, the clock of the store showed {server[1]}."


def _said(text: str, options: StoreOptions) -> str:
    """Answer status and code of the server, or the first line of the library."""
    said = told_by_server(text) or _FOUND_INSTEAD.sub("a text", text.partition("\n")[0])
    return f"{without(said, hidden_texts(options))[:300].rstrip('.')}."


PIECE_BYTES = 8 * 2**20
_PIECES_KEPT = 3
_PIECES_AHEAD = 4


class BucketStream(io.BufferedIOBase):
    """An object, to read and to seek."""

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - One class per kind of store.
        key: str,
        *,
        etag: str | None,
        options: StoreOptions,
        sent: Callable[[], None],
    ) -> None:
        self._client = client
        self._key = key
        self._etag = etag
        self._options = options
        self._sent = sent
        self._size = 0
        self._at = 0
        # Up to where it was said that all will be read.
        self._ahead_to = 0
        self._pool: ThreadPoolExecutor | None = None
        # The pieces in the order in which they were last used.
        self._pieces: dict[int, memoryview] = {}
        self._coming: dict[int, Future[memoryview]] = {}

    def begin(self) -> None:
        """Fetch the first piece, and with it the size."""
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
            number, begin = divmod(self._at, PIECE_BYTES)
            piece = self._piece(number)[begin : begin + wanted - done]
            target[done : done + len(piece)] = piece
            done += len(piece)
            self._at += len(piece)
        return done

    def readinto1(self, buffer: "WriteableBuffer", /) -> int:
        return self.readinto(buffer)

    def read_ahead(self, begin: int, end: int) -> None:
        """Take note that a range will be read; several pieces of it come at a time."""
        self._ahead_to = min(end, self._size)
        for number in list(self._coming):
            if not begin <= number * PIECE_BYTES < end:
                self._coming.pop(number).cancel()
        self._order_behind(begin // PIECE_BYTES - 1)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._pieces.clear()
        self._coming.clear()
        super().close()

    def _piece(self, number: int) -> memoryview:
        piece = self._pieces.pop(number, None)
        if piece is None:
            coming = self._coming.pop(number, None)
            self._order_behind(number)
            piece = coming.result() if coming is not None else self._fetch(number)
        self._pieces[number] = piece
        while len(self._pieces) > _PIECES_KEPT:
            self._pieces.pop(next(iter(self._pieces)))
        return piece

    def _order_behind(self, number: int) -> None:
        """Let the pieces behind one come that are known to be read."""
        for following in range(number + 1, number + 1 + _PIECES_AHEAD):
            known = following in self._pieces or following in self._coming
            if following * PIECE_BYTES >= self._ahead_to or known:
                continue
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_PIECES_AHEAD, thread_name_prefix="bucket")
            self._coming[following] = self._pool.submit(self._fetch, following)

    def _fetch(self, number: int) -> memoryview:
        """Get one piece; the client itself asks for the rest of a body that breaks off."""
        begin = number * PIECE_BYTES
        self._sent()
        with asking(f'object "{self._key}" could not be read', self._options):
            wanted: GetOptions = {"range": (begin, begin + PIECE_BYTES)}
            if self._etag is not None:
                wanted["if_match"] = self._etag
            answer = obstore.get(self._client, self._key, options=wanted)
            content = memoryview(answer.bytes())
        if number == 0:
            self._size = answer.meta["size"]
            self._etag = self._etag or answer.meta["e_tag"]
        due = min(PIECE_BYTES, self._size - begin)
        if len(content) != due:
            raise ExternalError(
                f'object "{self._key}" could not be read',
                detail=f"Of {due} bytes from {begin} on only {len(content)} arrived.",
            )
        return content


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
