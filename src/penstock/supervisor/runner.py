"""One job in one thread of the node: start, stop, last words."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

import structlog

from penstock.crashpoints import CrashPoint, reached
from penstock.engine.loop import EpochLoop, LoadParts
from penstock.epochs.progress import Progress, Step, Telling
from penstock.errors import Code, InvariantError, LeaseLostError, PenstockError, StoppedError
from penstock.model.epoch import Generation
from penstock.supervisor.restart import RestartPolicy, pause_for

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


class Runner:
    """Runs one job until it is stopped, caught up, paused or overtaken."""

    def __init__(
        self,
        job_id: str,
        *,
        parts: LoadParts,
        policy: RestartPolicy,
        until_caught_up: bool,
        start_thread: StartThread,
    ) -> None:
        self.job_id = job_id
        self._parts = parts
        self._policy = policy
        self._until_caught_up = until_caught_up
        self._stop = threading.Event()
        self._lost: LeaseLostError | None = None
        self._telling = Telling(parts.clock)
        self._loop = EpochLoop(job_id, parts=parts, stop=self._stop, telling=self._telling)
        self.last_words: LastWords | None = None
        self._thread = start_thread(self._run, f"runner-{job_id[:8]}")

    @property
    def ended(self) -> bool:
        """Whether the runner has said its last words and its thread is over."""
        return self.last_words is not None and not self._thread.is_alive()

    @property
    def generation(self) -> Generation | None:
        """The generation under which the runner owns the job, once it does."""
        return self._loop.generation

    @property
    def progress(self) -> Progress:
        """What the runner told last."""
        return self._telling.now

    def stop(self, *, lost: LeaseLostError | None = None) -> None:
        """Ask the runner to end; an epoch whose commit has not begun is aborted.

        ``lost`` says why the job is not ours any more, if that is the reason.
        """
        self._lost = self._lost or lost
        self._stop.set()
        if self.progress.step in (Step.LOADING, Step.STARTING_SPARK):
            self._parts.executor.cancel(self.job_id)

    def abort_epoch(self) -> None:
        """Let the running epoch be begun anew: its tasks take too long."""
        log.warning("epoch given up", job_id=self.job_id, since=self.progress.since)
        self._loop.abort_epoch()

    def join(self, timeout: timedelta) -> bool:
        """Wait until the runner has ended or the time has passed; answer whether it has."""
        self._thread.join(timeout.total_seconds())
        return not self._thread.is_alive()

    def _run(self) -> None:
        # Whatever ends the thread, it must be seen to have ended, or its lease is kept alive.
        words = LastWords(
            ending=Ending.LOST, error=InvariantError("the runner's thread died; see the log")
        )
        try:
            words = self._work()
        finally:
            self.last_words = words
            self._telling.tell(step=Step.STOPPED)

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
        if self._stop.is_set():
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
            believed = self._loop.believed
            if state is None or believed is None:
                return LastWords(ending=Ending.LOST, error=error)
            wish = pause_for(error, state=state, policy=self._policy)
            self._parts.catalog.append(self.job_id, wish, expected=believed)
            reached(CrashPoint.PAUSE_STORED)
        except LeaseLostError as lost:
            return LastWords(ending=Ending.LOST, error=lost)
        except PenstockError as second:
            # The catalog is what failed; the lease runs out and the job is taken up again.
            log.warning("pause not stored", job_id=self.job_id, reason=second.message)
            return LastWords(ending=Ending.LOST, error=error)
        return self._leave(LastWords(ending=Ending.PAUSED, error=error))

    def _leave(self, words: LastWords) -> LastWords:
        """Give the lease back, unless a write of ours may still be on its way."""
        if self._loop.outcome_unknown:
            return words
        try:
            self._parts.catalog.release_lease(self.job_id, self._parts.node_id)
        except PenstockError as error:
            log.warning("lease not released", job_id=self.job_id, reason=error.message)
        return words
