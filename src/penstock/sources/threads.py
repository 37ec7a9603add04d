"""Read several iterators at once, each in a thread of its own."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

_T = TypeVar("_T")
_WAITING_MAX = 4
_LOOK_SECONDS = 0.2


def interleaved(
    streams: Sequence[Callable[[], Iterator[_T]]], *, threads: int, stop: threading.Event
) -> Iterator[_T]:
    """Yield what the streams give, each in its own order; the first failure is raised.

    ``stop`` is set when nobody wants more, and ends the threads.
    """
    if len(streams) == 1:
        yield from streams[0]()
        return
    readers = _Readers(streams, stop)
    readers.start(min(threads, len(streams)))
    try:
        for _ in streams:
            while not isinstance(item := readers.arrived.get(), _Ended):
                yield item
            if item.error is not None:
                raise item.error
    finally:
        stop.set()
        readers.join()


class _Ended:
    """The end of one iterator, and what it failed with."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class _Readers(Generic[_T]):
    """Threads that take one stream after the other."""

    def __init__(
        self, streams: Sequence[Callable[[], Iterator[_T]]], stop: threading.Event
    ) -> None:
        self.arrived: queue.Queue[_T | _Ended] = queue.Queue(_WAITING_MAX)
        self._streams = iter(streams)
        self._taking = threading.Lock()
        self._stop = stop
        self._threads: list[threading.Thread] = []

    def start(self, count: int) -> None:
        """Start so many threads."""
        for number in range(count):
            thread = threading.Thread(target=self._work, name=f"reader-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def join(self) -> None:
        """Wait for the threads to end."""
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while not self._stop.is_set():
            with self._taking:
                stream = next(self._streams, None)
            if stream is None:
                return
            self._put(_Ended(self._read(stream)))

    def _read(self, stream: Callable[[], Iterator[_T]]) -> BaseException | None:
        try:
            for item in stream():
                self._put(item)
                if self._stop.is_set():
                    return None
        except BaseException as error:  # noqa: BLE001 - Raised where the items are taken.
            return error
        return None

    def _put(self, item: "_T | _Ended") -> None:
        while not self._stop.is_set():
            try:
                self.arrived.put(item, timeout=_LOOK_SECONDS)
            except queue.Full:
                continue
            return
