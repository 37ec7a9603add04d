"""Start, watch and stop the runners of this node.

Control and supervisor meet only in the catalog: a statement stores what is wanted, a round of
the supervisor compares that with what runs here. A round decides nothing about data.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from penstock.catalog.catalog import Lease
from penstock.epochs.progress import Progress
from penstock.errors import Code, LeaseLostError, PenstockError
from penstock.model.epoch import Generation
from penstock.model.events import DesiredStateChanged
from penstock.model.job import DesiredState, JobState, Status, StatusCode
from penstock.supervisor.leases import LeaseKeeper
from penstock.supervisor.loop import RunnerKind
from penstock.supervisor.restart import next_resumes, overdue, resume_at
from penstock.supervisor.runner import Ending, LastWords, Runner, SupervisorParts
from penstock.tables.chain import next_generation

log = structlog.get_logger()

RESTART_PAUSE = timedelta(seconds=1)
LOOK_PERIOD = timedelta(seconds=2)
STOP_PERIOD = timedelta(milliseconds=250)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerReport:
    """A job with its lease, and what its runner on this node does or did last."""

    state: JobState
    lease: Lease | None
    progress: Progress | None
    last_words: LastWords | None
    resumes_at: datetime | None
    caught_up: bool

    @property
    def left_out(self) -> bool:
        """Whether a person paused or dropped the job, so that nobody waits for it."""
        desired = self.state.desired
        manual = desired.reason is not None and desired.reason.code is Code.MANUAL_PAUSE_ERR
        return desired.state in (DesiredState.DROP, DesiredState.CLOSED) or (
            desired.state is DesiredState.PAUSE and manual
        )

    @property
    def paused_for_good(self) -> bool:
        """Whether the job is paused and will not resume by itself."""
        return self.state.desired.state is DesiredState.PAUSE and self.resumes_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A job that this node ran and lost, and why."""

    job: str
    error: PenstockError


class Supervisor:
    """The runners of one node."""

    def __init__(
        self,
        *,
        parts: SupervisorParts,
        only: frozenset[str] = frozenset(),
        until_caught_up: bool = False,
    ) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._only = only
        self._until_caught_up = until_caught_up
        self._keeper = LeaseKeeper(
            node_id=parts.node_id, catalog=parts.catalog, clock=parts.clock
        )
        self._runners: dict[str, Runner] = {}
        self._last_words: dict[str, LastWords] = {}
        self._ended_at: dict[str, datetime] = {}
        self._caught_up: set[str] = set()
        self._name_by_id: dict[str, str] = {}
        self._losses: list[Loss] = []
        self._looked_at: dict[str, datetime] = {}

    def start(self, *, sole_process: bool) -> None:
        """Start to renew leases; free those of a process that provably ended."""
        if sole_process:
            self._parts.catalog.free_leases_of_others(self._parts.node_id)
        self._keeper.start()

    def round(self) -> tuple[RunnerReport, ...]:
        """Compare what is wanted with what runs, act, and return what every job does."""
        self._reap()
        # Read before the catalog, which may not show yet what a runner takes meanwhile.
        owned = {job_id: runner.generation for job_id, runner in self._runners.items()}
        states = {state.id: state for state in self._wanted_jobs()}
        leases = self._parts.catalog.leases()
        for job_id, generation in owned.items():
            self._stop_unless_ours(
                self._runners[job_id], generation, states.get(job_id), leases.get(job_id)
            )
        for job_id, state in states.items():
            if job_id in self._runners:
                continue
            lease = leases.get(job_id)
            foreign = lease is not None and lease.live and lease.node_id != self._parts.node_id
            if foreign and self._until_caught_up:
                self._watch_other_owner(state)
            self._advance(state, held_elsewhere=foreign)
        return tuple(
            self._report(state, leases.get(job_id)) for job_id, state in states.items()
        )

    def take_losses(self) -> tuple[Loss, ...]:
        """Return the jobs that were lost since the last call."""
        losses, self._losses = self._losses, []
        return tuple(losses)

    def reports(self) -> tuple[RunnerReport, ...]:
        """Return what every job does, without acting."""
        leases = self._parts.catalog.leases()
        return tuple(self._report(job, leases.get(job.id)) for job in self._wanted_jobs())

    def stop(self) -> None:
        """Stop every runner, wait for them, and stop holding leases."""
        for runner in self._runners.values():
            runner.stop()
        for runner in self._runners.values():
            # A Spark job may start after the first stop(); ask again.
            while not runner.join(STOP_PERIOD):
                runner.stop()
        self._reap()
        self._keeper.stop()

    def _wanted_jobs(self) -> tuple[JobState, ...]:
        jobs = self._parts.catalog.jobs()
        living = (job for job in jobs if not job.stopped)
        return tuple(job for job in living if not self._only or job.name in self._only)

    def _reap(self) -> None:
        for job_id, runner in list(self._runners.items()):
            if not runner.ended or runner.last_words is None:
                continue
            del self._runners[job_id]
            self._last_words[job_id] = runner.last_words
            self._ended_at[job_id] = self._clock.now()
            words = runner.last_words
            if words.ending is Ending.LOST and words.error is not None:
                error = words.error
                if not self._is_wanted(job_id):
                    error = LeaseLostError("a statement has paused or ended it")
                self._losses.append(Loss(job=self._name_by_id[job_id], error=error))
            if self._until_caught_up and runner.progress.caught_up:
                self._caught_up.add(job_id)

    def _is_wanted(self, job_id: str) -> bool:
        """Return whether a job should run; False if a person paused or ended it."""
        try:
            state = self._parts.catalog.job_by_id(job_id)
        except PenstockError:
            # A catalog that is out of reach may be why the runner has ended.
            return True
        return state is not None and state.desired.state is DesiredState.RUN

    def _stop_unless_ours(
        self,
        runner: Runner,
        owned: Generation | None,
        state: JobState | None,
        lease: Lease | None,
    ) -> None:
        if state is not None and state.desired.state is DesiredState.PAUSE:
            runner.stop()
        elif (lost := self._loss(owned, state, lease)) is not None:
            runner.stop(lost=lost)
        elif state is not None and overdue(state, runner.progress, now=self._clock.now()):
            runner.abort_attempt()

    def _loss(
        self, owned: Generation | None, state: JobState | None, lease: Lease | None
    ) -> LeaseLostError | None:
        """Return why a runner no longer owns its job; None if it does."""
        if state is None or state.desired.state is not DesiredState.RUN:
            return LeaseLostError("the job was dropped")
        if self._keeper.expired:
            trouble = self._keeper.trouble
            return LeaseLostError(
                "the lease was not renewed in time", detail=trouble.message if trouble else ""
            )
        if owned is None:
            return None
        if state.generation != owned:
            numbers = f"{state.generation.number}, ours {owned.number}"
            return LeaseLostError(
                "the job was taken over", detail=f"Its generation is {numbers}."
            )
        # A lease that ran out is not renewed, even when nobody has taken it yet.
        held = lease is not None and lease.live and lease.node_id == self._parts.node_id
        return None if held else LeaseLostError("the lease has run out")

    def _advance(self, state: JobState, *, held_elsewhere: bool) -> None:
        due = resume_at(state)
        if due is not None and due <= self._clock.now():
            self._resume(state)
        elif state.desired.state is not DesiredState.RUN or held_elsewhere:
            return
        elif lacking := set(state.definition.needs) - self._parts.capabilities:
            fields = (("node", self._parts.node_id), ("capability", min(lacking)))
            status = Status(code=StatusCode.LACKS_CAPABILITY, fields=fields)
            if self._parts.catalog.report(state.id).status != status:
                self._parts.catalog.set_status(state.id, status)
        elif self._may_start(state.id):
            self._name_by_id[state.id] = state.name
            self._runners[state.id] = Runner(
                state.id,
                parts=self._parts,
                kind=self._runner_kind(state),
                until_caught_up=self._until_caught_up,
            )

    def _runner_kind(self, state: JobState) -> RunnerKind:
        return self._parts.runners[state.definition.kind.runner]

    def _watch_other_owner(self, state: JobState) -> None:
        """Notice that a job of another process is caught up, by polling its source."""
        looked_at = self._looked_at.get(state.id)
        now = self._clock.now()
        waits = looked_at is not None and now < looked_at + LOOK_PERIOD
        if waits or state.id in self._caught_up or state.desired.state is not DesiredState.RUN:
            return
        self._looked_at[state.id] = now
        try:
            caught_up = self._runner_kind(state).caught_up(state)
        except PenstockError as error:
            # The owner reports what is wrong with the job.
            log.debug("poll failed", job=state.name, code=error.code, reason=error.message)
            return
        if caught_up:
            self._caught_up.add(state.id)

    def _may_start(self, job_id: str) -> bool:
        if self._until_caught_up and job_id in self._caught_up:
            return False
        ended_at = self._ended_at.get(job_id)
        return ended_at is None or self._clock.now() >= ended_at + RESTART_PAUSE

    def _resume(self, state: JobState) -> None:
        now = self._clock.now()
        body = DesiredStateChanged(
            state=DesiredState.RUN,
            reason=None,
            generation=next_generation(state.generation),
            auto_resumes=next_resumes(state, now=now),
            resumed_at=now,
        )
        try:
            self._parts.catalog.append(state.id, body, expected=state.generation)
        except LeaseLostError:
            # A statement changed the job first; the next round sees the change.
            return
        log.info("job resumed", job=state.name, resumes=body.auto_resumes)

    def _report(self, state: JobState, lease: Lease | None) -> RunnerReport:
        runner = self._runners.get(state.id)
        return RunnerReport(
            state=state,
            lease=lease,
            progress=runner.progress if runner else None,
            last_words=self._last_words.get(state.id),
            resumes_at=resume_at(state),
            caught_up=state.id in self._caught_up,
        )
