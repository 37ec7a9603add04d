"""A bucket in memory that lists its objects as real servers do, also those without order."""

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
    """In which order a server lists keys, and so what lies behind one of them to it."""

    BYTES = "by the bytes of the whole key"
    FOLDERS = "by the names in every folder, as SeaweedFS does"
    ANY = "by nothing that can be told"


_RANK_BY_ORDER: dict[Order, Callable[[str], Any]] = {
    Order.BYTES: lambda key: key.encode(),
    # What lies in the folder a comes before a-b, because a comes before a-b.
    Order.FOLDERS: lambda key: [part.encode() for part in key.split("/")],
    Order.ANY: lambda key: (zlib.crc32(key.encode()), key),
}


class ListingFailedError(ExternalError):
    """The server breaks a listing off."""


class MemoryBucket:
    """Objects that come and go, also while they are listed."""

    def __init__(self, order: Order) -> None:
        self.rank = _RANK_BY_ORDER[order]
        self.objects: dict[str, ObjectMeta] = {}
        self._etags = count(1)
        # What happens once the next listing has answered its first page.
        self.meanwhile: Callable[[], None] | None = None
        # How many files are answered before a listing breaks off.
        self.files_before_failure: int | None = None
        self.stores: list[MemoryStore] = []

    def put(self, key: str, *, modified_at: datetime, size_bytes: int = 1) -> None:
        """Write an object; whatever it replaces had another ETag."""
        self.objects[key] = ObjectMeta(
            key=key,
            etag=f"v{next(self._etags)}",
            size_bytes=size_bytes,
            modified_at=modified_at,
        )

    def delete(self, key: str) -> None:
        """Remove an object."""
        self.objects.pop(key, None)

    def holds(self, key: str) -> bool:
        """Tell whether there is an object with something in it."""
        return key in self.objects and self.objects[key].size_bytes > 0

    def files(self) -> dict[str, ObjectMeta]:
        """Answer the objects that hold anything."""
        return {key: meta for key, meta in self.objects.items() if self.holds(key)}

    def open(self) -> "MemoryStore":
        """Open the bucket for a look."""
        self.stores.append(MemoryStore(self))
        return self.stores[-1]

    def page(self, prefix: str, *, behind: str) -> list[ObjectMeta]:
        """Answer the next objects below a prefix; those that hide behind a key stay hidden."""
        below = [key for key in self.objects if key.startswith(prefix)]
        if behind:
            below = [key for key in below if self.rank(key) > self.rank(behind)]
        return [self.objects[key] for key in sorted(below, key=self.rank)[:PAGE_KEYS]]

    def after_a_page(self) -> None:
        """Let happen what was to happen in the middle of a listing."""
        happen, self.meanwhile = self.meanwhile, None
        if happen is not None:
            happen()

    def before_a_file(self) -> None:
        """Break the listing off if it is time."""
        if self.files_before_failure == 0:
            self.files_before_failure = None
            raise ListingFailedError("the server closed the connection")
        if self.files_before_failure is not None:
            self.files_before_failure -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One listing: what was asked, and which files were answered."""

    prefix: str
    after: str
    answered: list[str] = field(default_factory=list)


class MemoryStore:
    """What a source sees of the bucket during one look; it remembers what it was asked."""

    def __init__(self, bucket: MemoryBucket) -> None:
        self._bucket = bucket
        self.asked: list[Asked] = []
        self.requests = 0

    def list(
        self, prefix: str, *, selection: Selection, after: str = ""
    ) -> Iterator[ObjectMeta]:
        """Yield the selected objects that hold anything, page by page."""
        asked = Asked(prefix=prefix, after=after)
        self.asked.append(asked)
        behind, more = after, True
        while more:
            self.requests += 1
            page = self._bucket.page(prefix, behind=behind)
            for meta in page:
                if meta.size_bytes and selection.matches(meta.key):
                    self._bucket.before_a_file()
                    asked.answered.append(meta.key)
                    yield meta
            more = len(page) == PAGE_KEYS
            behind = page[-1].key if page else behind
            self._bucket.after_a_page()
