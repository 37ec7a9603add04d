"""Run one job in one thread of the node, and report how the run ended."""

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
class RunnerExit:
    """The end of a runner: how it ended, and the error if there was one."""

    ending: Ending
    error: PenstockError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorParts:
    """The dependencies of a supervisor and its runners."""

    catalog: Catalog
    clock: Clock
    node_id: str
    start_thread: StartThread
    # The runner kinds by name; every job kind names its runner kind.
    runners: Mapping[str, RunnerKind] = field(default_factory=dict)
    # The installed libraries; a job that needs another one is not started.
    capabilities: frozenset[str] = frozenset()


class Runner:
    """One job in a thread, until it is stopped, caught up, paused or taken over."""

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
        self.last_exit: RunnerExit | None = None
        self._thread = parts.start_thread(self._run, f"runner-{job_id[:8]}")

    @property
    def ended(self) -> bool:
        """Whether the thread has ended and ``last_exit`` is set."""
        return self.last_exit is not None and not self._thread.is_alive()

    @property
    def generation(self) -> Generation | None:
        """The generation with which the runner owns the job; None before the takeover."""
        return self._loop.owned

    @property
    def progress(self) -> Progress:
        """The latest progress of the runner."""
        return self._reporter.now

    def stop(self, *, lost: LeaseLostError | None = None) -> None:
        """Request the end of the runner; abort an epoch whose commit has not started.

        ``lost`` is the reason why this node no longer owns the job; None if it still does.
        """
        self._lost = self._lost or lost
        self._stopping = True
        self._loop.stop()

    def wake(self) -> None:
        """Interrupt a wait of the loop."""
        self._loop.wake()

    def abort_attempt(self) -> None:
        """Cancel and retry the running epoch, because its tasks exceed their time limit."""
        self._loop.abort_attempt(f"tasks have run since {self.progress.since:%H:%M:%S}")

    def join(self, timeout: timedelta) -> bool:
        """Wait for the runner to end; return whether it ended within the timeout."""
        self._thread.join(timeout.total_seconds())
        return not self._thread.is_alive()

    def _run(self) -> None:
        # The exit must be set in every case. Otherwise the supervisor would assume that the
        # runner works, and renew its lease forever.
        result = RunnerExit(
            ending=Ending.LOST,
            error=InvariantError("the runner's thread ended unexpectedly; see the log"),
        )
        try:
            result = self._work()
        finally:
            self.last_exit = result
            self._reporter.report(step=Step.STOPPED)

    def _work(self) -> RunnerExit:
        try:
            self._loop.run(until_caught_up=self._until_caught_up)
        except StoppedError:
            return self._release_lease(self._stopped_exit())
        except LeaseLostError as error:
            return self._release_lease(self._lost_exit(error))
        except PenstockError as error:
            return self._pause(error)
        except Exception as error:
            log.exception("runner failed", job_id=self.job_id)
            unexpected = InvariantError(
                f"unexpected {type(error).__name__}: {error}", code=Code.INTERNAL_ERR
            )
            return self._pause(unexpected)
        if self._stopping:
            return self._release_lease(self._stopped_exit())
        return self._release_lease(RunnerExit(ending=Ending.CAUGHT_UP))

    def _stopped_exit(self) -> RunnerExit:
        lost = self._lost
        return RunnerExit(ending=Ending.STOPPED) if lost is None else self._lost_exit(lost)

    def _lost_exit(self, error: LeaseLostError) -> RunnerExit:
        log.info("lease lost", job_id=self.job_id, reason=error.message, detail=error.detail)
        return RunnerExit(ending=Ending.LOST, error=error)

    def _pause(self, error: PenstockError) -> RunnerExit:
        log.warning("job paused", job_id=self.job_id, code=error.code, reason=error.message)
        try:
            state = self._parts.catalog.job_by_id(self.job_id)
            assumed = self._loop.assumed
            if state is None or assumed is None:
                return RunnerExit(ending=Ending.LOST, error=error)
            desired = pause_for(error, state=state)
            self._parts.catalog.append(self.job_id, desired, expected=assumed)
            reached(CrashPoint.PAUSE_STORED)
        except LeaseLostError as lost:
            return RunnerExit(ending=Ending.LOST, error=lost)
        except PenstockError as second:
            # The catalog is not available. The lease expires, and a node takes the job over.
            log.warning("pause not stored", job_id=self.job_id, reason=second.message)
            return RunnerExit(ending=Ending.LOST, error=error)
        return self._release_lease(RunnerExit(ending=Ending.PAUSED, error=error))

    def _release_lease(self, result: RunnerExit) -> RunnerExit:
        """Release the lease unless a commit may be in flight."""
        if self._loop.outcome_unknown:
            return result
        try:
            self._parts.catalog.release_lease(self.job_id, self._parts.node_id)
        except PenstockError as error:
            log.warning("lease not released", job_id=self.job_id, reason=error.message)
        return result
