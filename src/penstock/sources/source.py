"""What a source is: a contract that every kind fulfils, held to one suite of tests.

A source lives in the driver, belongs to one runner and remembers nothing durable: progress
comes from the job's state and goes back in the attachment of a commit. Reading happens in
tasks, from the plan alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from penstock.model.epoch import EpochLimits, EpochPlan, Note
from penstock.model.secrets import Sealed
from penstock.model.split import SplitProgress

# Called with what a look has seen so far; it may raise to end the look.
Listed = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What is known to wait; ``complete`` says whether that is all there was at the look."""

    # Files, or shards of a stream that hold something new.
    files: int = 0
    size_bytes: int = 0
    complete: bool
    # How old the oldest is that waits in a stream; None where nobody knows.
    behind: timedelta | None = None


class Source(Protocol):
    """What the epoch loop asks of a source; called by one thread."""

    def discover(self, progress: tuple[SplitProgress, ...], *, listed: Listed) -> Backlog:
        """Look at the source anew and forget what an earlier look left unplanned."""
        ...

    def plan(
        self, progress: tuple[SplitProgress, ...], *, limits: EpochLimits
    ) -> EpochPlan | None:
        """Take the next epoch's worth from the last look; None when it is used up."""
        ...

    def reached(self, plan: EpochPlan, notes: Sequence[Note]) -> tuple[SplitProgress, ...]:
        """Answer where the splits stand once a plan is loaded, by what tasks have noted."""
        ...

    def committed(self, notes: Sequence[Note]) -> None:
        """Hear that what tasks have noted is in the table."""
        ...

    def look_due(self, interval: timedelta) -> bool:
        """Tell whether to look again although something is left to plan.

        ``interval`` is how often an idle source is looked at.
        """
        ...

    def waiting(self) -> Backlog:
        """Answer what the last look found and no plan has taken."""
        ...

    def caught_up(self) -> bool:
        """Tell whether everything is loaded that was there when the run looked."""
        ...

    @property
    def modified_files(self) -> int:
        """How many loaded files the last look at all of them found changed."""
        ...

    def task_access(self) -> Sealed:
        """Answer what tasks need to read, with the credentials of this moment."""
        ...

    def charge(self, requests: int) -> None:
        """Count requests that tasks have sent."""
        ...

    def take_requests(self) -> int:
        """Answer how many requests were sent since this was last asked."""
        ...

    def pause(self) -> timedelta:
        """Answer how long to wait at least before the next look."""
        ...
