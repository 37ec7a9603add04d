"""Hold leases by renewing them; notice loss before anyone else does.

Invariant: a node treats its leases as lost ``MARGIN`` before the catalog does, so that it has
stopped beginning commits when another node may take over. Rows stay exact even without that:
the chain of commits refuses whoever was overtaken.
"""

import threading
from datetime import timedelta

from penstock.catalog.catalog import Catalog
from penstock.clock import Clock
from penstock.epochs.takeover import LEASE_DURATION
from penstock.errors import PenstockError

RENEWAL_PERIOD = timedelta(seconds=4)
MARGIN = timedelta(seconds=3)


class LeaseKeeper:
    """Renews all leases of one node from a thread of its own."""

    def __init__(self, *, node_id: str, catalog: Catalog, clock: Clock) -> None:
        self._node_id = node_id
        self._catalog = catalog
        self._clock = clock
        self._stop = threading.Event()
        self._renewed = clock.monotonic()
        self._thread = threading.Thread(target=self._keep, name="lease-keeper", daemon=True)
        self.trouble: PenstockError | None = None

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def stop(self) -> None:
        """Renew no more."""
        self._stop.set()
        self._thread.join()

    @property
    def expired(self) -> bool:
        """Whether the last renewal is so long ago that every lease counts as lost."""
        silent = self._clock.monotonic() - self._renewed
        return silent > (LEASE_DURATION - MARGIN).total_seconds()

    def renew(self) -> None:
        """Renew once; a failure is remembered and tried again at the next period."""
        try:
            self._catalog.renew_leases(self._node_id, duration=LEASE_DURATION)
        except PenstockError as error:
            self.trouble = error
            return
        self._renewed = self._clock.monotonic()
        self.trouble = None

    def _keep(self) -> None:
        while not self._clock.wait(self._stop, RENEWAL_PERIOD):
            self.renew()
