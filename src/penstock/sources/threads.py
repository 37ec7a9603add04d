"""Read several iterators concurrently, each in a thread."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

_T = TypeVar("_T")
_QUEUED_MAX = 4
_STOP_CHECK_SECONDS = 0.2


def interleave(
    streams: Sequence[Callable[[], Iterator[_T]]], *, threads: int, stop: threading.Event
) -> Iterator[_T]:
    """Yield the items of all streams; raise the first failure.

    The items of one stream keep their order. Setting ``stop`` ends the threads. The iterator
    also sets ``stop`` when the caller stops iterating.
    """
    if len(streams) == 1:
        yield from streams[0]()
        return
    reader = _Reader(streams, stop)
    workers = [
        threading.Thread(target=reader.work, name=f"reader-{number}", daemon=True)
        for number in range(min(threads, len(streams)))
    ]
    for worker in workers:
        worker.start()
    try:
        for _ in streams:
            while not isinstance(item := reader.items.get(), _Ended):
                yield item
            if item.error is not None:
                raise item.error
    finally:
        stop.set()
        for worker in workers:
            worker.join()


class _Ended:
    """Marks the end of one stream, with the error that ended it."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class _Reader(Generic[_T]):
    """A queue of items that several threads fill, each from one stream at a time."""

    def __init__(
        self, streams: Sequence[Callable[[], Iterator[_T]]], stop: threading.Event
    ) -> None:
        self.items: queue.Queue[_T | _Ended] = queue.Queue(_QUEUED_MAX)
        self._streams = iter(streams)
        self._lock = threading.Lock()
        self._stop = stop

    def work(self) -> None:
        """Read streams until none is left."""
        while not self._stop.is_set():
            with self._lock:
                stream = next(self._streams, None)
            if stream is None:
                return
            failure = None
            try:
                for item in stream():
                    self._put(item)
                    if self._stop.is_set():
                        return
            except BaseException as error:  # noqa: BLE001 - ``interleave`` raises it.
                failure = error
            self._put(_Ended(failure))

    def _put(self, item: "_T | _Ended") -> None:
        while not self._stop.is_set():
            try:
                self.items.put(item, timeout=_STOP_CHECK_SECONDS)
            except queue.Full:
                continue
            return
