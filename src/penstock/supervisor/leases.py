"""Renew leases and detect their loss early; lock the home of this process.

Invariant: a node treats its leases as lost ``MARGIN`` before they expire in the catalog. The
node therefore starts no commit when another node may take over. No row is lost or loaded twice
even without leases: the chain of commits refuses a stale writer.
"""

import fcntl
import os
import threading
from datetime import timedelta
from pathlib import Path

from penstock.catalog.catalog import Catalog
from penstock.clock import Clock
from penstock.epochs.takeover import LEASE_DURATION
from penstock.errors import PenstockError

RENEWAL_PERIOD = timedelta(seconds=4)
MARGIN = timedelta(seconds=3)


class LeaseKeeper:
    """A thread that renews all leases of one node."""

    def __init__(self, *, node_id: str, catalog: Catalog, clock: Clock) -> None:
        self._node_id = node_id
        self._catalog = catalog
        self._clock = clock
        self._stop = threading.Event()
        self._renewed = clock.monotonic()
        self._thread = threading.Thread(
            target=self._renew_periodically, name="lease-keeper", daemon=True
        )
        self.last_error: PenstockError | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._stop.set()
        self._thread.join()

    @property
    def expired(self) -> bool:
        """Whether every lease counts as lost, because the last renewal is too long ago."""
        elapsed = self._clock.monotonic() - self._renewed
        return elapsed > (LEASE_DURATION - MARGIN).total_seconds()

    def renew(self) -> None:
        """Renew all leases once; store a failure in ``last_error``."""
        try:
            self._catalog.renew_leases(self._node_id, duration=LEASE_DURATION)
        except PenstockError as error:
            self.last_error = error
            return
        self._renewed = self._clock.monotonic()
        self.last_error = None

    def _renew_periodically(self) -> None:
        while not self._clock.wait(self._stop, RENEWAL_PERIOD):
            self.renew()


class HomeLock:
    """A lock file in the home. If the lock is free, the process that held it has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Acquire the lock if it is free; return whether this process holds it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
