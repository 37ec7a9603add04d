"""Read an object of a bucket in pieces, each of exactly the object that was listed.

Invariant: every request names the ETag, so that no two pieces come from two objects. Memory
holds at most ``_PIECES_KEPT`` pieces of ``PIECE_BYTES``, and ``_PIECES_AHEAD`` that come.
"""

import io
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import obstore

from penstock.errors import ExternalError
from penstock.model.store_options import StoreOptions
from penstock.storage.bucket_errors import asking

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from obstore import GetOptions

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
