"""Start, watch and stop the runners of this node.

Statements and supervisor communicate only through the catalog. A statement stores the desired
state of a job. In every round, the supervisor compares the desired states with its runners, and
starts or stops runners. A round never decides about rows or positions.
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
from penstock.supervisor.runner import Ending, Runner, RunnerExit, SupervisorParts
from penstock.tables.chain import next_generation

log = structlog.get_logger()

RESTART_PAUSE = timedelta(seconds=1)
POLL_PERIOD = timedelta(seconds=2)
STOP_PERIOD = timedelta(milliseconds=250)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerReport:
    """State and lease of a job, and progress or last exit of its runner on this node."""

    state: JobState
    lease: Lease | None
    progress: Progress | None
    last_exit: RunnerExit | None
    resumes_at: datetime | None
    caught_up: bool

    @property
    def user_stopped(self) -> bool:
        """Whether a user paused or dropped the job, so that ``penstock run`` ignores it."""
        desired = self.state.desired
        manual = desired.reason is not None and desired.reason.code is Code.MANUAL_PAUSE_ERR
        return desired.state in (DesiredState.DROP, DesiredState.CLOSED) or (
            desired.state is DesiredState.PAUSE and manual
        )

    @property
    def needs_resume(self) -> bool:
        """Whether the job stays paused until a user resumes it."""
        return self.state.desired.state is DesiredState.PAUSE and self.resumes_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class LostJob:
    """A job that this node ran and lost, with the reason."""

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
        self._last_exit_by_job: dict[str, RunnerExit] = {}
        self._ended_at: dict[str, datetime] = {}
        self._caught_up: set[str] = set()
        self._name_by_id: dict[str, str] = {}
        self._lost_jobs: list[LostJob] = []
        self._polled_at_by_job: dict[str, datetime] = {}
        # The newest request of a user that was passed on to the runner of a job.
        self._request_by_job: dict[str, int] = {}

    def start(self, *, sole_process: bool) -> None:
        """Start to renew leases.

        The sole process of a home first deletes the leases of other nodes, because their
        processes have ended.
        """
        if sole_process:
            self._parts.catalog.delete_leases_of_other_nodes(self._parts.node_id)
        self._keeper.start()

    def round(self) -> tuple[RunnerReport, ...]:
        """Start, stop and resume jobs as the catalog requires; return the state of all jobs."""
        self._reap()
        # Read the runners before the catalog. Otherwise a runner could take over a job in
        # between. The states read here would lack its new generation, and the runner would be
        # stopped.
        owned = {job_id: runner.generation for job_id, runner in self._runners.items()}
        states = {state.id: state for state in self._active_jobs()}
        leases = self._parts.catalog.leases()
        for job_id, generation in owned.items():
            self._stop_if_not_owned(
                self._runners[job_id], generation, states.get(job_id), leases.get(job_id)
            )
        for job_id, state in states.items():
            if job_id in self._runners:
                request = max(state.requested_event, state.arm_event)
                if request > self._request_by_job.get(job_id, 0):
                    self._runners[job_id].wake()
                self._request_by_job[job_id] = request
                continue
            lease = leases.get(job_id)
            foreign = lease is not None and lease.live and lease.node_id != self._parts.node_id
            if foreign and self._until_caught_up:
                self._poll_for_other_owner(state)
            self._start_or_resume(state, held_elsewhere=foreign)
        return tuple(
            self._report(state, leases.get(job_id)) for job_id, state in states.items()
        )

    def upstream_works(self, reader: JobState) -> bool:
        """Return whether a job that writes an input of the reader has not caught up yet.

        Paused jobs, and jobs that this supervisor does not run, do not count.
        """
        inputs = {split.identity for split in reader.progress}
        return any(
            state.definition.table.id in inputs
            and state.id != reader.id
            and state.id not in self._caught_up
            and (state.desired.state is DesiredState.RUN or resume_at(state) is not None)
            for state in self._active_jobs()
        )

    def pop_lost_jobs(self) -> tuple[LostJob, ...]:
        """Return the jobs that this node lost since the last call."""
        lost, self._lost_jobs = self._lost_jobs, []
        return tuple(lost)

    def reports(self) -> tuple[RunnerReport, ...]:
        """Return the state of all jobs, without starting or stopping a runner."""
        leases = self._parts.catalog.leases()
        return tuple(self._report(job, leases.get(job.id)) for job in self._active_jobs())

    def stop(self) -> None:
        """Stop all runners, wait for their end, and stop renewing leases."""
        for runner in self._runners.values():
            runner.stop()
        for runner in self._runners.values():
            # A Spark job may start after the first stop(), so stop() is repeated.
            while not runner.join(STOP_PERIOD):
                runner.stop()
        self._reap()
        self._keeper.stop()

    def _active_jobs(self) -> tuple[JobState, ...]:
        jobs = self._parts.catalog.jobs()
        living = (job for job in jobs if not job.stopped)
        return tuple(job for job in living if not self._only or job.name in self._only)

    def _reap(self) -> None:
        for job_id, runner in list(self._runners.items()):
            if not runner.ended or runner.last_exit is None:
                continue
            del self._runners[job_id]
            self._last_exit_by_job[job_id] = runner.last_exit
            self._ended_at[job_id] = self._clock.now()
            last_exit = runner.last_exit
            if last_exit.ending is Ending.LOST and last_exit.error is not None:
                error = last_exit.error
                if not self._should_run(job_id):
                    error = LeaseLostError("the job was paused or dropped")
                self._lost_jobs.append(LostJob(job=self._name_by_id[job_id], error=error))
            if self._until_caught_up and runner.progress.caught_up:
                self._caught_up.add(job_id)
            # A loop may wait for this job, which writes one of its inputs.
            for other in self._runners.values():
                other.wake()

    def _should_run(self, job_id: str) -> bool:
        """Return whether a job should run; True if the catalog is not available."""
        try:
            state = self._parts.catalog.job_by_id(job_id)
        except PenstockError:
            # The runner may have ended because the catalog is not available.
            return True
        return state is not None and state.desired.state is DesiredState.RUN

    def _stop_if_not_owned(
        self,
        runner: Runner,
        owned: Generation | None,
        state: JobState | None,
        lease: Lease | None,
    ) -> None:
        if state is not None and state.desired.state is DesiredState.PAUSE:
            runner.stop()
        elif (lost := self._lease_loss(owned, state, lease)) is not None:
            runner.stop(lost=lost)
        elif state is not None and overdue(state, runner.progress, now=self._clock.now()):
            runner.abort_attempt()

    def _lease_loss(
        self, owned: Generation | None, state: JobState | None, lease: Lease | None
    ) -> LeaseLostError | None:
        """Return the reason why a runner no longer owns its job; None if it still does."""
        if state is None or state.desired.state is not DesiredState.RUN:
            return LeaseLostError("the job was dropped")
        if self._keeper.expired:
            error = self._keeper.last_error
            return LeaseLostError(
                "the lease was not renewed in time", detail=error.message if error else ""
            )
        if owned is None:
            return None
        if state.generation != owned:
            numbers = f"{state.generation.number}, this node owned {owned.number}"
            return LeaseLostError(
                "the job was taken over", detail=f"The job's generation is {numbers}."
            )
        # An expired lease is not renewed, even if no other node has acquired it.
        held = lease is not None and lease.live and lease.node_id == self._parts.node_id
        return None if held else LeaseLostError("the lease has expired")

    def _start_or_resume(self, state: JobState, *, held_elsewhere: bool) -> None:
        due = resume_at(state)
        if due is not None and due <= self._clock.now():
            self._resume(state)
        elif state.desired.state is not DesiredState.RUN or held_elsewhere:
            return
        elif missing := set(state.definition.needs) - self._parts.capabilities:
            fields = (("node", self._parts.node_id), ("capability", min(missing)))
            status = Status(code=StatusCode.LACKS_CAPABILITY, fields=fields)
            if self._parts.catalog.report(state.id).status != status:
                self._parts.catalog.set_status(state.id, status)
        elif self._can_start(state.id):
            self._name_by_id[state.id] = state.name
            self._runners[state.id] = Runner(
                state.id,
                parts=self._parts,
                kind=self._runner_kind(state),
                until_caught_up=self._until_caught_up,
            )

    def _runner_kind(self, state: JobState) -> RunnerKind:
        return self._parts.runners[state.definition.kind.runner]

    def _poll_for_other_owner(self, state: JobState) -> None:
        """Poll the source of a job that another process runs; record if it is caught up."""
        polled_at = self._polled_at_by_job.get(state.id)
        now = self._clock.now()
        waits = polled_at is not None and now < polled_at + POLL_PERIOD
        if waits or state.id in self._caught_up or state.desired.state is not DesiredState.RUN:
            return
        # The job can be at the head of its input, and get more rows from another job.
        if self.upstream_works(state):
            return
        self._polled_at_by_job[state.id] = now
        try:
            caught_up = self._runner_kind(state).caught_up(state)
        except PenstockError as error:
            # The owner of the job reports its errors.
            log.debug("poll failed", job=state.name, code=error.code, reason=error.message)
            return
        if caught_up:
            self._caught_up.add(state.id)

    def _can_start(self, job_id: str) -> bool:
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
            # A statement changed the job first; the next round reads the change.
            return
        log.info("job resumed", job=state.name, resumes=body.auto_resumes)

    def _report(self, state: JobState, lease: Lease | None) -> RunnerReport:
        runner = self._runners.get(state.id)
        return RunnerReport(
            state=state,
            lease=lease,
            progress=runner.progress if runner else None,
            last_exit=self._last_exit_by_job.get(state.id),
            resumes_at=resume_at(state),
            caught_up=state.id in self._caught_up,
        )
