"""The contract of a store: list, ranged read, conditional write."""

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from io import BufferedIOBase
from typing import IO, Protocol

from penstock.errors import Code, ExternalError
from penstock.model.options import from_sealed_pairs
from penstock.model.secrets import Sealed
from penstock.storage.options import StoreOptions, mask
from penstock.storage.uris import Scheme, Uri, parse_uri

_STATUS = re.compile(r"\b([45]\d\d [A-Z][A-Za-z ]{1,40}[a-z])")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,80})</Code>")
# If a service account is not JSON, the message of the parser contains the text itself.
_FOUND_INSTEAD = re.compile(r'string ".*')


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMeta:
    """One object in a listing; the ETag changes whenever the content does."""

    key: str
    etag: str
    size_bytes: int
    modified_at: datetime


class ObjectChangedError(ExternalError):
    """The object changed after it was planned; the next plan includes it again."""


class ObjectMissingError(ExternalError):
    """The object does not exist any more; the next plan omits it."""


class FolderMissingError(ExternalError):
    """The folder to list does not exist, or is not a folder."""


class Selection(Protocol):
    """The keys that a listing selects.

    A store selects keys before it reads the status of files. Files that are not selected
    therefore cost nothing and cannot fail the listing. In a name that is not UTF-8, the invalid
    bytes are lone surrogates.
    """

    def matches(self, key: str) -> bool:
        """Return whether the key is selected."""
        ...

    def may_contain(self, folder: str) -> bool:
        """Return whether the folder, which ends with a slash, may contain a selected key."""
        ...


class NewObject(Protocol):
    """An object that is being written; it is invisible until it is finished."""

    @property
    def file(self) -> IO[bytes]:
        """The file to write to; ``tell`` returns the number of bytes written."""
        ...

    def finish(self) -> int:
        """Complete the object durably and return its size."""
        ...

    def abort(self) -> None:
        """Discard the object, even if it was finished."""
        ...


class Store(Protocol):
    """Files or a bucket: list, read, write.

    The driver lists and writes; tasks read. Several threads may use one store. When the storage
    fails, every method raises ExternalError, never an exception of its library.
    """

    @property
    def requests(self) -> int:
        """Number of requests sent by this store, without retries inside the library."""
        ...

    def list(
        self, prefix: str, *, selection: Selection, after: str = ""
    ) -> Iterator[ObjectMeta]:
        """Yield the selected objects below a prefix whose keys are greater than ``after``.

        Keys are in the byte order of UTF-8, unless the store is known to use another order. The
        prefix is empty or ends with a slash. Memory grows with the largest folder, not with
        the number of objects. Objects that are created or deleted during the listing may be
        listed or not. Every other object is listed exactly once.
        """
        ...

    def open(self, key: str, *, etag: str | None) -> AbstractContextManager[BufferedIOBase]:
        """Open the object with this ETag to read and seek, or any object if the ETag is None.

        Raises ObjectMissingError at once if there is no object, and ObjectChangedError if its
        ETag differs. If the object changes during the read, reading or leaving the block raises
        ObjectChangedError. This error replaces any exception of the block. Callers must not use
        results before the block has ended.
        """
        ...

    def prefetch(self, key: str, *, etag: str) -> None:
        """Start to fetch an object that will be opened soon, if fetching takes time."""
        ...

    def read_bytes(self, key: str) -> bytes:
        """Read a whole, small object; raise ObjectMissingError if it does not exist."""
        ...

    def write(self, key: str, content: bytes) -> None:
        """Create or replace the object atomically and durably."""
        ...

    def write_new(self, key: str, content: bytes) -> bool:
        """Create the object unless the key exists; return whether this call created it.

        At most one of several concurrent writers gets True.
        """
        ...

    def create_folder(self, folder: str) -> None:
        """Create a folder and its parents durably, if the store has folders."""
        ...

    def create(self, folder: str, name: str) -> NewObject:
        """Start an object below a folder, which must exist; the name may contain slashes.

        Raises InvariantError if the key exists and the store can detect it.
        """
        ...

    def sync(self, keys: Iterable[str]) -> None:
        """Flush objects, or the names in folders, so that they survive a power failure."""
        ...

    def head(self, key: str) -> ObjectMeta | None:
        """Return the object as in a listing; None if it does not exist."""
        ...

    def is_folder(self, folder: str) -> bool:
        """Return whether the folder exists; in a bucket, whether it contains an object."""
        ...

    def holds(self, folder: str) -> bool:
        """Return whether the folder contains anything."""
        ...

    def delete_below(self, prefix: str, *, last: str = "") -> None:
        """Delete every object below a prefix; delete those below ``last`` at the end."""
        ...


def open_store(uri: str | Uri, options: StoreOptions | None = None) -> tuple[Store, str]:
    """Open the store of a URI; return the store and the URI's path, which may be a pattern.

    The options must hold values, not references.
    """
    place = parse_uri(uri) if isinstance(uri, str) else uri
    if place.scheme is Scheme.FILE:
        from penstock.storage.local import LocalStore

        return LocalStore(), place.key
    from penstock.storage.bucket import BucketStore

    store = BucketStore(
        scheme=place.scheme, bucket=place.bucket, options=options or StoreOptions()
    )
    return store, place.key


def open_sealed(uri: str, sealed: Sealed) -> tuple[Store, str]:
    """Open the store of a URI inside a task."""
    return open_store(uri, _unsealed(sealed))


@lru_cache(maxsize=64)
def _unsealed(sealed: Sealed) -> StoreOptions:
    if not sealed.text:
        return StoreOptions()
    from penstock.secrets.sealing import unsealed_with

    values = unsealed_with(sealed.key_file, sealed.text)
    return from_sealed_pairs(StoreOptions, values, what="a bucket")


def read_ahead(stream: BufferedIOBase, start: int, end: int) -> None:
    """Announce the range that is read next; the stream of a bucket prefetches the range."""
    announce = getattr(stream, "read_ahead", None)
    if announce is not None:
        announce(start, end)


def storage_error(
    fact: str, error: BaseException, *, hidden: tuple[str, ...] = ()
) -> ExternalError:
    """Convert a storage error to a retryable error without secret values."""
    return ExternalError(
        fact,
        code=Code.STORAGE_ERR,
        detail=f"{error_text(error, hidden=hidden)}.",
        hint="Check the free disk space and the permissions of the user that runs Penstock.",
    )


def error_text(error: BaseException, *, hidden: tuple[str, ...]) -> str:
    """Return status and code of a server's response, or the first line of another error.

    The message of a response is omitted, because it may contain keys.
    """
    found = (pattern.search(str(error)) for pattern in (_STATUS, _CODE))
    status = ", ".join(dict.fromkeys(match[1].strip() for match in found if match))
    line = str(error).strip().partition("\n")[0].rstrip(".")
    text = status or _FOUND_INSTEAD.sub("a text", line)
    return mask(text, hidden) or type(error).__name__
