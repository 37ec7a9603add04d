"""Read several iterators at once, each in a thread of its own."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

_T = TypeVar("_T")
_WAITING_MAX = 4
_STOP_CHECK_SECONDS = 0.2


def interleaved(
    streams: Sequence[Callable[[], Iterator[_T]]], *, threads: int, stop: threading.Event
) -> Iterator[_T]:
    """Yield the items of the streams, each in its own order; raise the first failure.

    ``stop`` is set when no more items are wanted, and ends the threads.
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
            while not isinstance(item := reader.arrived.get(), _Ended):
                yield item
            if item.error is not None:
                raise item.error
    finally:
        stop.set()
        for worker in workers:
            worker.join()


class _Ended:
    """The end of one iterator, and the error that ended it."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class _Reader(Generic[_T]):
    """Streams that several threads read, one stream after the other."""

    def __init__(
        self, streams: Sequence[Callable[[], Iterator[_T]]], stop: threading.Event
    ) -> None:
        self.arrived: queue.Queue[_T | _Ended] = queue.Queue(_WAITING_MAX)
        self._streams = iter(streams)
        self._taking = threading.Lock()
        self._stop = stop

    def work(self) -> None:
        """Read streams until none is left."""
        while not self._stop.is_set():
            with self._taking:
                stream = next(self._streams, None)
            if stream is None:
                return
            failure = None
            try:
                for item in stream():
                    self._put(item)
                    if self._stop.is_set():
                        return
            except BaseException as error:  # noqa: BLE001 - Raised where the items are taken.
                failure = error
            self._put(_Ended(failure))

    def _put(self, item: "_T | _Ended") -> None:
        while not self._stop.is_set():
            try:
                self.arrived.put(item, timeout=_STOP_CHECK_SECONDS)
            except queue.Full:
                continue
            return
