"""Clients of a process: opened once, shared by threads, and closed when idle."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from io import BytesIO

import pytest

from penstock.aws.clients import IDLE_MAX, SharedClients
from penstock.clock import SystemClock

TIMEOUT_SECONDS = 60


@dataclass
class PassingClock(SystemClock):
    """A clock that only the test moves."""

    seconds: float = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def move(self, by: timedelta) -> None:
        self.seconds += by.total_seconds()


@dataclass
class Opened:
    """Opens closeable clients, and counts them by name."""

    before: Callable[[str], None] = lambda _name: None
    opened: Counter[str] = field(default_factory=Counter)

    def __call__(self, name: str) -> BytesIO:
        self.opened[name] += 1
        self.before(name)
        return BytesIO(name.encode())


def used(clients: SharedClients[str, BytesIO], name: str) -> BytesIO:
    with clients.borrow(name) as client:
        return client


def test_opening_a_client_does_not_block_other_clients() -> None:
    entered, released = threading.Event(), threading.Event()

    def hang(name: str) -> None:
        if name == "hanging":
            entered.set()
            assert released.wait(TIMEOUT_SECONDS)

    clients = SharedClients(Opened(hang), clock=SystemClock())
    before = used(clients, "open")
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(used, clients, "hanging")
        assert entered.wait(TIMEOUT_SECONDS)

        found = [used(clients, "open"), used(clients, "new")]

        assert not hanging.done()
        released.set()
    assert found[0] is before
    assert found[1].getvalue() == b"new"


def test_a_client_that_failed_to_open_is_opened_by_the_next_use() -> None:
    failing = [OSError("unreachable")]

    def fail(_name: str) -> None:
        if failing:
            raise failing.pop()

    clients = SharedClients(Opened(fail), clock=SystemClock())
    with pytest.raises(OSError, match="unreachable"):
        used(clients, "a")

    assert used(clients, "a").getvalue() == b"a"


def test_an_idle_client_is_closed() -> None:
    clock = PassingClock()
    clients = SharedClients(Opened(), clock=clock)
    old, busy = used(clients, "old"), used(clients, "busy")
    clock.move(IDLE_MAX)
    used(clients, "busy")

    clock.move(timedelta(seconds=1))
    used(clients, "busy")

    assert (old.closed, busy.closed) == (True, False)
    assert used(clients, "old") is not old


def test_a_client_in_use_is_never_closed_as_idle() -> None:
    clock = PassingClock()
    clients = SharedClients(Opened(), clock=clock)

    with clients.borrow("slow") as slow:
        clock.move(2 * IDLE_MAX)
        used(clients, "other")

        assert not slow.closed
    assert used(clients, "slow") is slow


def test_a_discarded_client_is_closed_by_its_last_user() -> None:
    clients = SharedClients(Opened(), clock=SystemClock())

    with clients.borrow("a") as before:
        clients.discard("a")
        after = used(clients, "a")
        closed = [before.closed]
    closed.append(before.closed)

    assert closed == [False, True]
    assert (after is before, after.closed) == (False, False)


def test_close_closes_all_clients() -> None:
    clients = SharedClients(Opened(), clock=SystemClock())
    found = [used(clients, name) for name in ("a", "b")]

    clients.close()

    assert [client.closed for client in found] == [True, True]
