"""What a runner tells observers while it works; nothing here is the truth of progress."""

import threading
from dataclasses import dataclass, replace
from enum import StrEnum


class Step(StrEnum):
    """What a runner does right now."""

    STARTING = "starting"
    TAKING_OVER = "taking over"
    LISTING = "listing files"
    STARTING_SPARK = "starting Spark"
    LOADING = "loading"
    COMMITTING = "committing"
    RETRYING = "waiting to retry"
    IDLE = "waiting for files"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One look at a runner."""

    step: Step = Step.STARTING
    files_left: int = 0
    bytes_left: int = 0
    all_seen: bool = False
    caught_up: bool = False
    message: str = ""


class Telling:
    """The newest progress of a runner, written by its thread and read by others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress = Progress()

    def tell(self, **changes: object) -> None:
        """Change what is told."""
        with self._lock:
            self._progress = replace(self._progress, **changes)  # type: ignore[arg-type]

    @property
    def now(self) -> Progress:
        """What was told last."""
        with self._lock:
            return self._progress
