"""One job in one thread of the node: start, stop, last words."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

import structlog

from penstock.catalog.catalog import Catalog
from penstock.clock import Clock
from penstock.crashpoints import CrashPoint, reached
from penstock.epochs.progress import Progress, ProgressReporter, Step
from penstock.errors import Code, InvariantError, LeaseLostError, PenstockError, StoppedError
from penstock.model.epoch import Generation
from penstock.supervisor.loop import RunnerKind
from penstock.supervisor.restart import pause_for

log = structlog.get_logger()

StartThread = Callable[[Callable[[], None], str], threading.Thread]


class Ending(StrEnum):
    """How a runner ended."""

    STOPPED = "stopped"
    CAUGHT_UP = "caught up"
    LOST = "lost"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWords:
    """What a runner leaves when it ends."""

    ending: Ending
    error: PenstockError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorParts:
    """What a node's supervisor and its runners work with."""

    catalog: Catalog
    clock: Clock
    node_id: str
    start_thread: StartThread
    # How jobs are run, by the runner that their kind names.
    runners: Mapping[str, RunnerKind] = field(default_factory=dict)
    # What this node can do; a job whose needs it lacks is not started.
    capabilities: frozenset[str] = frozenset()


class Runner:
    """Runs one job until it is stopped, caught up, paused or overtaken."""

    def __init__(
        self,
        job_id: str,
        *,
        parts: SupervisorParts,
        kind: RunnerKind,
        until_caught_up: bool,
    ) -> None:
        self.job_id = job_id
        self._parts = parts
        self._until_caught_up = until_caught_up
        self._stopping = False
        self._lost: LeaseLostError | None = None
        self._reporter = ProgressReporter(parts.clock)
        self._loop = kind.open_loop(job_id, self._reporter)
        self.last_words: LastWords | None = None
        self._thread = parts.start_thread(self._run, f"runner-{job_id[:8]}")

    @property
    def ended(self) -> bool:
        """Whether the runner has reported its exit and its thread has ended."""
        return self.last_words is not None and not self._thread.is_alive()

    @property
    def generation(self) -> Generation | None:
        """The generation under which the runner owns the job, once it does."""
        return self._loop.owned

    @property
    def progress(self) -> Progress:
        """The newest progress of the runner."""
        return self._reporter.now

    def stop(self, *, lost: LeaseLostError | None = None) -> None:
        """Ask the runner to end; an epoch whose commit has not started is aborted.

        ``lost`` is why this node no longer owns the job, if that is the reason.
        """
        self._lost = self._lost or lost
        self._stopping = True
        self._loop.stop()

    def abort_attempt(self) -> None:
        """Restart the running epoch: its tasks take too long."""
        self._loop.abort_attempt(f"tasks have run since {self.progress.since:%H:%M:%S}")

    def join(self, timeout: timedelta) -> bool:
        """Wait for the runner to end; return whether it has ended within the time."""
        self._thread.join(timeout.total_seconds())
        return not self._thread.is_alive()

    def _run(self) -> None:
        # The supervisor must see that the thread ended; otherwise it renews the lease forever.
        words = LastWords(
            ending=Ending.LOST, error=InvariantError("the runner's thread died; see the log")
        )
        try:
            words = self._work()
        finally:
            self.last_words = words
            self._reporter.report(step=Step.STOPPED)

    def _work(self) -> LastWords:
        try:
            self._loop.run(until_caught_up=self._until_caught_up)
        except StoppedError:
            return self._leave(self._stopped())
        except LeaseLostError as error:
            return self._leave(self._taken_away(error))
        except PenstockError as error:
            return self._pause(error)
        except Exception as error:
            log.exception("runner failed", job_id=self.job_id)
            unexpected = InvariantError(
                f"unexpected {type(error).__name__}: {error}", code=Code.INTERNAL_ERR
            )
            return self._pause(unexpected)
        if self._stopping:
            return self._leave(self._stopped())
        return self._leave(LastWords(ending=Ending.CAUGHT_UP))

    def _stopped(self) -> LastWords:
        lost = self._lost
        return LastWords(ending=Ending.STOPPED) if lost is None else self._taken_away(lost)

    def _taken_away(self, error: LeaseLostError) -> LastWords:
        log.info("lease lost", job_id=self.job_id, reason=error.message, detail=error.detail)
        return LastWords(ending=Ending.LOST, error=error)

    def _pause(self, error: PenstockError) -> LastWords:
        log.warning("job paused", job_id=self.job_id, code=error.code, reason=error.message)
        try:
            state = self._parts.catalog.job_by_id(self.job_id)
            assumed = self._loop.assumed
            if state is None or assumed is None:
                return LastWords(ending=Ending.LOST, error=error)
            desired = pause_for(error, state=state)
            self._parts.catalog.append(self.job_id, desired, expected=assumed)
            reached(CrashPoint.PAUSE_STORED)
        except LeaseLostError as lost:
            return LastWords(ending=Ending.LOST, error=lost)
        except PenstockError as second:
            # The catalog failed. The lease expires, and the job is taken over again.
            log.warning("pause not stored", job_id=self.job_id, reason=second.message)
            return LastWords(ending=Ending.LOST, error=error)
        return self._leave(LastWords(ending=Ending.PAUSED, error=error))

    def _leave(self, words: LastWords) -> LastWords:
        """Release the lease unless a commit may be in flight."""
        if self._loop.outcome_unknown:
            return words
        try:
            self._parts.catalog.release_lease(self.job_id, self._parts.node_id)
        except PenstockError as error:
            log.warning("lease not released", job_id=self.job_id, reason=error.message)
        return words
