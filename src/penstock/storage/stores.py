"""Open the store that a URI names, behind one protocol."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from io import BufferedIOBase
from typing import IO, Protocol

from penstock.model.store_options import StoreOptions
from penstock.storage.local import LocalStore
from penstock.storage.objects import ObjectMeta, Selection
from penstock.storage.uris import Scheme, Uri, parse_uri


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
        return LocalStore(), place.key
    from penstock.storage.bucket import BucketStore

    store = BucketStore(
        scheme=place.scheme, bucket=place.bucket, options=options or StoreOptions()
    )
    return store, place.key
