"""Clients that a process has opened, one for each configuration.

Invariant: a client is made once for all threads that want it, and whoever makes one holds up
nobody who wants another. One that nobody has used for a while is closed; one in use never is.
"""

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

from penstock.clock import Clock

# Longer than any load waits between two looks. The client of a load that was stopped, or of
# keys that were changed, takes 8 MB.
IDLE_MAX = timedelta(minutes=10)


class Closeable(Protocol):
    """What is open until it is closed."""

    def close(self) -> None:
        """Give back what it holds."""
        ...


Client = TypeVar("Client", bound=Closeable)
Configuration = TypeVar("Configuration", bound=Hashable)


@dataclass(slots=True, eq=False)
class _Place(Generic[Client]):
    """Where one client is, or will be."""

    making: threading.Lock = field(default_factory=threading.Lock)
    client: Client | None = None
    users: int = 0
    used_at: float = 0.0

    def close(self) -> None:
        if self.client is not None:
            self.client.close()


class Clients(Generic[Configuration, Client]):
    """Lends clients to any thread; a forked process must not use what its parent had opened."""

    def __init__(self, make: Callable[[Configuration], Client], *, clock: Clock) -> None:
        self._make = make
        self._clock = clock
        # Held for a moment, and never while anybody waits for a network.
        self._lock = threading.Lock()
        # The one that was used last comes last.
        self._places: dict[Configuration, _Place[Client]] = {}

    @contextmanager
    def lent(self, configuration: Configuration) -> Iterator[Client]:
        """Give the client of a configuration; it is not closed before it is given back."""
        place = self._taken(configuration)
        try:
            yield self._client_of(place, configuration)
        finally:
            self._give_back(configuration, place)

    def forget(self, configuration: Configuration) -> None:
        """Make another client when the configuration is asked for again."""
        with self._lock:
            place = self._places.pop(configuration, None)
            left = [place] if place is not None and not place.users else []
        _close(left)

    def close(self) -> None:
        """Forget all clients."""
        for configuration in list(self._places):
            self.forget(configuration)

    def _taken(self, configuration: Configuration) -> _Place[Client]:
        with self._lock:
            place = self._places.pop(configuration, None) or _Place()
            self._places[configuration] = place
            place.users += 1
            return place

    def _client_of(self, place: _Place[Client], configuration: Configuration) -> Client:
        if place.client is None:
            with place.making:
                if place.client is None:
                    place.client = self._make(configuration)
        return place.client

    def _give_back(self, configuration: Configuration, place: _Place[Client]) -> None:
        now = self._clock.monotonic()
        with self._lock:
            place.users -= 1
            place.used_at = now
            forgotten = self._places.get(configuration) is not place
            left = [place] if forgotten and not place.users else []
            left += [self._places.pop(old) for old in self._idle(now)]
        _close(left)

    def _idle(self, now: float) -> list[Configuration]:
        return [
            configuration
            for configuration, place in self._places.items()
            if not place.users and now - place.used_at > IDLE_MAX.total_seconds()
        ]


def _close(places: list[_Place[Client]]) -> None:
    for place in places:
        place.close()


class ClientsByProcess(Generic[Configuration, Client]):
    """The clients of whichever process asks; those of a parent stay as they were."""

    def __init__(self, open_clients: Callable[[], Clients[Configuration, Client]]) -> None:
        self._open_clients = open_clients
        self._by_process: dict[int, Clients[Configuration, Client]] = {}

    def of_this_process(self) -> Clients[Configuration, Client]:
        """Answer the clients of the calling process."""
        found = self._by_process.get(os.getpid())
        # If two threads come first at once, both get what one of them has set.
        return found or self._by_process.setdefault(os.getpid(), self._open_clients())
