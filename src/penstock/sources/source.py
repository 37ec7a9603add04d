"""What a source is: a contract that every kind fulfils, held to one suite of tests.

A source lives in the driver, belongs to one runner and remembers nothing durable: progress
comes from the job's state and goes back in the attachment of a commit. Reading happens in
tasks, from the plan alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from penstock.model.epoch import EpochPlan
from penstock.model.job import JobProperties
from penstock.model.position import SplitProgress
from penstock.model.sealed import Sealed

# Called with what a look has seen so far; it may raise to end the look.
Listed = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What is known to wait; ``complete`` says whether that is all there was at the look."""

    files: int
    size_bytes: int
    complete: bool


class Source(Protocol):
    """What the epoch loop asks of a source; called by one thread."""

    def discover(self, progress: tuple[SplitProgress, ...], *, listed: Listed) -> Backlog:
        """Look at the source anew and forget what an earlier look left unplanned."""
        ...

    def plan(
        self, progress: tuple[SplitProgress, ...], *, limits: JobProperties
    ) -> EpochPlan | None:
        """Take the next epoch's worth from the last look; None when it is used up."""
        ...

    def waiting(self) -> Backlog:
        """Answer what the last look found and no plan has taken."""
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
