"""What a runner tells observers while it works; nothing here is the truth of progress."""

import threading
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from penstock.clock import Clock


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
    """One look at a runner; message and until belong to the step."""

    step: Step = Step.STARTING
    since: datetime
    # When a wait ends: the next look at the source, or the next attempt.
    until: datetime | None = None
    # Which attempt at the epoch comes next, while the runner waits to retry.
    attempt: int = 1
    files_left: int = 0
    bytes_left: int = 0
    all_seen: bool = False
    # How old the oldest is that waits in a stream; None where nobody knows.
    behind: timedelta | None = None
    caught_up: bool = False
    message: str = ""


class Telling:
    """The newest progress of a runner, written by its thread and read by others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._progress = Progress(since=clock.now())

    def tell(self, **changes: object) -> None:
        """Change what is told; a new step begins now, and what was told of the last is over."""
        with self._lock:
            if changes.get("step", self._progress.step) is not self._progress.step:
                changes = {"since": self._clock.now(), "until": None, "message": "", **changes}
            self._progress = replace(self._progress, **changes)  # type: ignore[arg-type]

    def tell_listed(self, place: str, *, seen: str) -> None:
        """Tell how far a look is; cheap enough for every page of keys."""
        self.tell(message=f"{place}: {seen} so far")

    @property
    def now(self) -> Progress:
        """What was told last."""
        with self._lock:
            return self._progress
