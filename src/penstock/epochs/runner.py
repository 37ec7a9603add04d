"""The contract between the loop of a job and the runner of its epochs."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from penstock.catalog.catalog import Catalog
from penstock.clock import Clock
from penstock.epochs.cadence import WakeRegistry
from penstock.model.epoch import Ack, Attachment, EpochLimits, EpochPlan
from penstock.model.job import JobState
from penstock.sources.source import Source
from penstock.tables.table import TableHandle, Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A job that this node owns: its state, a handle of its table, and its source."""

    state: JobState
    handle: TableHandle
    source: Source
    # The limits of the next epoch.
    limits: EpochLimits
    # The ids of the input tables that a running job in backlog writes.
    fed: frozenset[str] = frozenset()


class EpochRunner(Protocol):
    """Plans and runs the epochs of one job; the loop decides, commits and retries.

    Only the loop's thread calls the methods, except ``cancel``.
    """

    def open(self, owned: Owned) -> None:
        """Prepare the next attempts; called after the takeover and after a failed attempt."""
        ...

    def pending(self, owned: Owned) -> bool:
        """Return whether an epoch is due although the source has no unread rows."""
        ...

    def plan(self, owned: Owned) -> EpochPlan | None:
        """Return a plan of the next epoch from the last poll; None if no epoch is due.

        A plan without reads changes no position. It is committed only if it produced rows.
        """
        ...

    def run(self, plan: EpochPlan, draft: Attachment, *, owned: Owned) -> tuple[Ack, ...]:
        """Run the tasks of an epoch; return their acks, with the notes of all reads.

        Raise StoppedError soon after ``cancel``.
        """
        ...

    def attach(self, attachment: Attachment) -> Attachment:
        """Add the runner's own text to an attachment before the commit."""
        ...

    def committed(self, attachment: Attachment | None, *, owned: Owned) -> None:
        """Complete the epoch; ``attachment`` is None if there was nothing to commit."""
        ...

    def cancel(self) -> None:
        """Cancel the running tasks and every wait; other threads call this."""
        ...

    def close(self) -> None:
        """Release everything; called once, also after an error."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopParts:
    """The dependencies of every loop."""

    catalog: Catalog
    tables: Tables
    clock: Clock
    # Setting the event interrupts the waits of the source.
    open_source: Callable[[JobState, threading.Event], Source]
    node_id: str
    wakes: WakeRegistry = field(default_factory=WakeRegistry)
    # Whether a job that writes one of the input tables has not caught up in this run.
    upstream_works: Callable[[JobState], bool] = lambda _: False
