"""Progress of a runner for observers; the table alone holds the truth."""

import threading
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from penstock.clock import Clock
from penstock.model.split import Amount


class Step(StrEnum):
    """What a runner does right now."""

    STARTING = "starting"
    TAKING_OVER = "taking over"
    LISTING = "looking"
    STARTING_SPARK = "starting Spark"
    LOADING = "loading"
    COMMITTING = "committing"
    RETRYING = "waiting to retry"
    IDLE = "waiting"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a runner does now; message and until belong to the step."""

    step: Step = Step.STARTING
    since: datetime
    # When a wait ends: the next look at the source, or the next attempt.
    until: datetime | None = None
    # Which attempt at the epoch comes next, while the runner waits to retry.
    attempt: int = 1
    # What the source found and no epoch has loaded.
    waiting: Amount = Amount(complete=False)  # noqa: RUF009 - It is frozen.
    caught_up: bool = False
    message: str = ""


class ProgressReporter:
    """Holds the newest progress of a runner, written by its thread and read by others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._progress = Progress(since=clock.now())

    def report(self, **changes: object) -> None:
        """Change the progress; a new step starts now and clears what the last one reported."""
        with self._lock:
            if changes.get("step", self._progress.step) is not self._progress.step:
                changes = {"since": self._clock.now(), "until": None, "message": "", **changes}
            self._progress = replace(self._progress, **changes)  # type: ignore[arg-type]

    @property
    def now(self) -> Progress:
        """The newest progress."""
        with self._lock:
            return self._progress
