"""The contract of a store: list, ranged read, conditional write."""

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from io import BufferedIOBase
from typing import IO, Protocol, runtime_checkable

from penstock.errors import Code, ExternalError
from penstock.model.options import from_sealed_pairs
from penstock.model.secrets import Sealed
from penstock.storage.options import StoreOptions, without
from penstock.storage.uris import Scheme, Uri, parse_uri

_STATUS = re.compile(r"\b([45]\d\d [A-Z][A-Za-z ]{1,40}[a-z])")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,80})</Code>")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMeta:
    """One object as a listing saw it; the ETag changes whenever the content does."""

    key: str
    etag: str
    size_bytes: int
    modified_at: datetime


def read_ahead(stream: BufferedIOBase, begin: int, end: int) -> None:
    """Tell a stream what will be read next; one that is far away then fetches it early."""
    if isinstance(stream, ReadingAhead):
        stream.read_ahead(begin, end)


@runtime_checkable
class ReadingAhead(Protocol):
    """A stream to which it matters what will be read next."""

    def read_ahead(self, begin: int, end: int) -> None:
        """Take note that a range will be read."""
        ...


class Selection(Protocol):
    """Which keys a listing is about.

    A store asks before it looks closer, so that what is not wanted costs nothing and cannot
    fail the listing. Keys and folders are text; a name that is not UTF-8 arrives with its
    odd bytes as lone surrogates.
    """

    def matches(self, key: str) -> bool:
        """Answer whether the key is wanted."""
        ...

    def may_contain(self, folder: str) -> bool:
        """Answer whether a wanted key may lie below the folder, which ends with a slash."""
        ...


class ObjectChangedError(ExternalError):
    """The object is no longer the one that was planned; it is planned anew."""


class ObjectMissingError(ExternalError):
    """The object is gone; the plan is made anew without it."""


class FolderMissingError(ExternalError):
    """The folder to list does not exist, or is no folder."""


def told_by_server(text: str) -> str:
    """Answer status and code of a server's answer in a library's words; or nothing.

    Its message is left out: it may name the keys of whoever asked.
    """
    found = (pattern.search(text) for pattern in (_STATUS, _CODE))
    return ", ".join(dict.fromkeys(match[1].strip() for match in found if match))


def storage_error(
    fact: str, error: BaseException, *, hidden: tuple[str, ...] = ()
) -> ExternalError:
    """Wrap what the storage said, but for what is hidden, into an error that is tried again."""
    return ExternalError(
        fact,
        code=Code.STORAGE_ERR,
        detail=f"{said_by(error, hidden=hidden)}.",
        hint="Check the free space of the disk and the rights of the user that runs Penstock.",
    )


def said_by(error: BaseException, *, hidden: tuple[str, ...]) -> str:
    """Answer what the storage said, without what a server repeats of whoever asked."""
    said = told_by_server(str(error)) or str(error).strip().partition("\n")[0].rstrip(".")
    return without(said, hidden) or type(error).__name__


class NewObject(Protocol):
    """An object that is being written; nobody sees it before it is finished."""

    @property
    def file(self) -> IO[bytes]:
        """Where the bytes go; ``tell`` answers how many there are."""
        ...

    def finish(self) -> int:
        """Complete the object, durably, and answer its size."""
        ...

    def abort(self) -> None:
        """Let nobody see it, not even after it was finished."""
        ...


class Store(Protocol):
    """Files or a bucket: list, read, write.

    The driver lists and writes, tasks read; a store may be used from several threads at once.
    Every method raises ExternalError when the storage fails, and never anything of its library.
    """

    @property
    def requests(self) -> int:
        """How many requests this store has sent; 0 where asking costs nothing."""
        ...

    def list(
        self, prefix: str, *, selection: Selection, after: str = ""
    ) -> Iterator[ObjectMeta]:
        """Yield the selected objects below a prefix whose keys lie behind another key.

        They come in the byte order of their UTF-8 keys, unless the store is known not to keep
        it. The prefix is empty or ends with a slash. Memory does not grow with the number of
        objects, only with the largest folder. An object that comes or goes meanwhile may or
        may not be seen; every other one is seen exactly once.
        """
        ...

    def open(self, key: str, *, etag: str | None) -> AbstractContextManager[BufferedIOBase]:
        """Open exactly the object that was listed, to read and to seek; None for any.

        Raises ObjectMissingError or ObjectChangedError at once when the key names nothing or
        another object now. When the object changes while it is being read, reading or leaving
        the block raises ObjectChangedError, also in place of an error of the block itself. What
        is made of the bytes must not be kept before the block has been left.
        """
        ...

    def prepare(self, key: str, *, etag: str) -> None:
        """Begin to fetch an object that will be opened soon, where that takes its time."""
        ...

    def read_bytes(self, key: str) -> bytes:
        """Read a whole, small object; raise ObjectMissingError when there is none."""
        ...

    def write(self, key: str, content: bytes) -> None:
        """Put the object in place, durably; readers see the old one or all of the new one."""
        ...

    def write_new(self, key: str, content: bytes) -> bool:
        """Put the object in place unless the key is taken; answer whether this call did it.

        Of several writers at once one is answered True, and none but that one.
        """
        ...

    def make_folder(self, folder: str) -> None:
        """Make a folder where there are such things."""
        ...

    def create(self, folder: str, name: str) -> NewObject:
        """Begin an object below a folder, which exists where folders do; name may have slashes.

        InvariantError if the key is taken, where that can be told.
        """
        ...

    def sync(self, keys: Iterable[str]) -> None:
        """Return when objects, or the names in folders, survive a power cut."""
        ...

    def head(self, key: str) -> ObjectMeta | None:
        """Answer what a listing would say of the object; None if there is none."""
        ...

    def is_folder(self, folder: str) -> bool:
        """Tell whether there is such a folder; in a bucket, one that holds something."""
        ...

    def holds(self, folder: str) -> bool:
        """Tell whether anything lies below a folder."""
        ...

    def delete_below(self, prefix: str, *, last: str = "") -> None:
        """Remove every object below a prefix; those below the prefix ``last`` go last."""
        ...


def open_store(uri: str | Uri, options: StoreOptions | None = None) -> tuple[Store, str]:
    """Split a URI into its store and the pattern of keys in it.

    The options hold values, no references.
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
    """Open a store inside a task."""
    return open_store(uri, _unsealed(sealed))


@lru_cache(maxsize=64)
def _unsealed(sealed: Sealed) -> StoreOptions:
    if not sealed.text:
        return StoreOptions()
    from penstock.secrets.sealing import unsealed_with

    values = unsealed_with(sealed.key_file, sealed.text)
    return from_sealed_pairs(StoreOptions, values, what="a bucket")
