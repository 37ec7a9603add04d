"""The contract of loops, which the supervisor starts, watches and stops."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.epochs.progress import Progress, ProgressReporter
from penstock.model.epoch import Generation
from penstock.model.job import JobState


class Loop(Protocol):
    """One run of one job; ``run`` is called once, in its own thread."""

    # The generation of the current step; None before the first step. A failure pauses the job
    # only if the job still has this generation.
    assumed: Generation | None
    # The generation with which the loop owns the job; None before the takeover. The supervisor
    # compares this generation with the catalog.
    owned: Generation | None
    # Whether a commit may still appear in the table; then the lease must not be released.
    outcome_unknown: bool

    @property
    def progress(self) -> Progress:
        """The latest progress; other threads read it."""
        ...

    def run(self, *, until_caught_up: bool) -> None:
        """Take over the job and work until stopped or, if requested, until caught up.

        Raise StoppedError when stopped during work, and LeaseLostError when the job has another
        owner. Raise any other PenstockError to pause the job.
        """
        ...

    def stop(self) -> None:
        """Request the end of the loop and cancel its Spark job; return at once."""
        ...

    def wake(self) -> None:
        """Interrupt a wait of the loop; called after a request or the end of another runner."""
        ...

    def abort_attempt(self, reason: str) -> None:
        """Cancel the running attempt; the loop retries the epoch."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerKind:
    """The functions that run one kind of job; ``app`` passes one value for each kind."""

    open_loop: Callable[[str, ProgressReporter], Loop]
    # Whether a job that another node runs is caught up; raises PenstockError if unknown.
    caught_up: Callable[[JobState], bool]
