"""Progress of a runner, for display only. The committed progress is in the table."""

import threading
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from penstock.clock import Clock
from penstock.model.split import Amount


class Step(StrEnum):
    """The current step of a runner."""

    STARTING = "starting"
    TAKING_OVER = "taking over"
    POLLING = "polling"
    STARTING_SPARK = "starting Spark"
    STARTING_QUERY = "starting the query"
    LOADING = "loading"
    COMMITTING = "committing"
    RETRYING = "waiting to retry"
    IDLE = "waiting"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The current state of a runner; ``message`` and ``until`` belong to the step."""

    step: Step = Step.STARTING
    since: datetime
    # The end of a wait: the time of the next poll or of the next attempt.
    until: datetime | None = None
    # The number of the next attempt, while the runner waits to retry.
    attempt: int = 1
    # The amount that the source has found and no epoch has loaded.
    waiting: Amount = Amount(complete=False)  # noqa: RUF009 - Amount is frozen.
    caught_up: bool = False
    message: str = ""
    # Rows or bytes per second, or seconds of arrival time per second, and the time left.
    rate: float | None = None
    rate_unit: str = ""
    eta: timedelta | None = None


class ProgressReporter:
    """The latest progress of a runner, written by its thread and read by other threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._progress = Progress(since=clock.now())

    def report(self, **changes: object) -> None:
        """Update the progress; a new step resets ``since``, ``until`` and ``message``."""
        with self._lock:
            if changes.get("step", self._progress.step) is not self._progress.step:
                changes = {"since": self._clock.now(), "until": None, "message": "", **changes}
            self._progress = replace(self._progress, **changes)  # type: ignore[arg-type]

    def report_spark_start(self) -> None:
        """Report that the runner starts Spark."""
        self.report(step=Step.STARTING_SPARK, message="the first start takes about 10 s")

    @property
    def now(self) -> Progress:
        """The latest progress."""
        with self._lock:
            return self._progress
