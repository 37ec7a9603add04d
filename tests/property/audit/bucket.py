"""A bucket in memory that lists objects in the order of some real server, or in none."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import count
from typing import Any

from penstock.errors import ExternalError
from penstock.storage.store import ObjectMeta, Selection

PAGE_KEYS = 2


class Order(StrEnum):
    """The order in which a server lists keys, and which keys it returns after a key."""

    BYTES = "by the bytes of the whole key"
    FOLDERS = "by the names in every folder, as SeaweedFS does"
    ANY = "in no defined order"


_RANK_BY_ORDER: dict[Order, Callable[[str], Any]] = {
    Order.BYTES: lambda key: key.encode(),
    # Files of the folder a come before a-b, because the name a comes before a-b.
    Order.FOLDERS: lambda key: [part.encode() for part in key.split("/")],
    Order.ANY: lambda key: (zlib.crc32(key.encode()), key),
}


class ListingFailedError(ExternalError):
    """Raised if the server aborts a listing."""


class MemoryBucket:
    """Objects that are created and deleted, also during a listing."""

    def __init__(self, order: Order) -> None:
        self.rank = _RANK_BY_ORDER[order]
        self.objects: dict[str, ObjectMeta] = {}
        self._etags = count(1)
        # Called after the next listing has returned its first page.
        self.meanwhile: Callable[[], None] | None = None
        # The number of files that a listing returns before it fails.
        self.files_before_failure: int | None = None
        self.stores: list[MemoryStore] = []

    def put(self, key: str, *, modified_at: datetime, size_bytes: int = 1) -> None:
        """Write an object with a new ETag."""
        self.objects[key] = ObjectMeta(
            key=key,
            etag=f"v{next(self._etags)}",
            size_bytes=size_bytes,
            modified_at=modified_at,
        )

    def delete(self, key: str) -> None:
        """Remove an object."""
        self.objects.pop(key, None)

    def has_file(self, key: str) -> bool:
        """Return whether there is an object that is not empty."""
        return key in self.objects and self.objects[key].size_bytes > 0

    def files(self) -> dict[str, ObjectMeta]:
        """Return the objects that are not empty."""
        return {key: meta for key, meta in self.objects.items() if self.has_file(key)}

    def open(self) -> "MemoryStore":
        """Return a store for one poll."""
        self.stores.append(MemoryStore(self))
        return self.stores[-1]

    def page(self, prefix: str, *, after: str) -> list[ObjectMeta]:
        """Return the next objects below a prefix, after a key in the order of the server."""
        below = [key for key in self.objects if key.startswith(prefix)]
        if after:
            below = [key for key in below if self.rank(key) > self.rank(after)]
        return [self.objects[key] for key in sorted(below, key=self.rank)[:PAGE_KEYS]]

    def after_a_page(self) -> None:
        """Call ``meanwhile`` once."""
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()

    def before_a_file(self) -> None:
        """Raise ListingFailedError if the listing has to fail before this file."""
        if self.files_before_failure == 0:
            self.files_before_failure = None
            raise ListingFailedError("the server closed the connection")
        if self.files_before_failure is not None:
            self.files_before_failure -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRequest:
    """The arguments of one listing, and the files that were returned."""

    prefix: str
    after: str
    returned: list[str] = field(default_factory=list)


class MemoryStore:
    """The store of the bucket for one poll; it records the list requests."""

    def __init__(self, bucket: MemoryBucket) -> None:
        self._bucket = bucket
        self.list_requests: list[ListRequest] = []
        self.requests = 0

    def list(
        self, prefix: str, *, selection: Selection, after: str = ""
    ) -> Iterator[ObjectMeta]:
        """Yield the selected objects that are not empty, page by page."""
        request = ListRequest(prefix=prefix, after=after)
        self.list_requests.append(request)
        more = True
        while more:
            self.requests += 1
            page = self._bucket.page(prefix, after=after)
            for meta in page:
                if meta.size_bytes and selection.matches(meta.key):
                    self._bucket.before_a_file()
                    request.returned.append(meta.key)
                    yield meta
            more = len(page) == PAGE_KEYS
            after = page[-1].key if page else after
            self._bucket.after_a_page()
