"""What the supervisor starts and watches: loops, of any kind of runner."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.epochs.progress import Progress, ProgressReporter
from penstock.model.epoch import Generation
from penstock.model.job import JobState


class Loop(Protocol):
    """One tenure of one job; ``run`` is called once, in a thread of its own."""

    # The generation under which a failure pauses the job; None before the first step.
    assumed: Generation | None
    # The generation under which the loop owns the job; compared with the catalog's.
    owned: Generation | None
    # Whether a commit may still land; then the lease is not released.
    outcome_unknown: bool

    @property
    def progress(self) -> Progress:
        """What the loop does now; read by other threads."""
        ...

    def run(self, *, until_caught_up: bool) -> None:
        """Own the job and work until stopped or, if asked, until caught up.

        Raises StoppedError when stopped in the middle of work, LeaseLostError when the job has
        another owner, and any other PenstockError to pause the job.
        """
        ...

    def stop(self) -> None:
        """Ask the loop to end and cancel its Spark work; return at once."""
        ...

    def abort_attempt(self, reason: str) -> None:
        """Cancel the running attempt; the loop tries again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerKind:
    """How jobs of one kind of runner are run; ``app`` passes one for each name."""

    open_loop: Callable[[str, ProgressReporter], Loop]
    # Whether a job that another node runs is caught up; raises PenstockError if unknown.
    caught_up: Callable[[JobState], bool]
