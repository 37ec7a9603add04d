"""Run a job, epoch by epoch: plan, run, ack, commit, in that order.

Invariant: a position moves only in a commit. A failed attempt leaves only files that are not
part of the table. The next attempt plans again from the committed state.

The loop first takes over the job. Then the loop polls the source and runs epochs until the
source has no more rows. Then the loop waits, checks that this node still owns the job, and
polls again.

The loop is the same for all jobs. An ``EpochRunner`` plans and runs the epochs of one job.
"""

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from penstock.catalog.database import CommitGapError
from penstock.crashpoints import CrashPoint, reached
from penstock.epochs.ack import (
    check_reject_ratio,
    count,
    next_window,
    notes_of,
    too_many_errors,
)
from penstock.epochs.backlog import BacklogKeeper
from penstock.epochs.cadence import (
    Cadence,
    Pace,
    Sample,
    cadence_of,
    due_at,
    fresh_interval,
    poll_interval,
    retry_delay,
)
from penstock.epochs.commit import (
    CommitParts,
    EpochAbortedError,
    commit_epoch,
    draft_attachment,
    require_predecessor,
    require_unchanged,
)
from penstock.epochs.progress import Progress, ProgressReporter, Step
from penstock.epochs.runner import EpochRunner, LoopParts, Owned
from penstock.epochs.takeover import take_over
from penstock.errors import (
    Code,
    CommitOutcomeUnknownError,
    ExternalError,
    LeaseLostError,
    PenstockError,
    StoppedError,
)
from penstock.model.backlog import UPSTREAM, LagUnit
from penstock.model.epoch import Ack, Attachment, EpochPlan, Generation, Timings
from penstock.model.events import EpochEnded, EpochStarted, NoticesChanged, Outcome
from penstock.model.job import JobState, PaceReport, Reason, Status, StatusCode
from penstock.model.split import Position
from penstock.sources.source import EpochResult, OnFailure, Source
from penstock.tables.table import TableHandle

log = structlog.get_logger()

_PACE_PERIOD = timedelta(seconds=2)


class EpochLoop:
    """One run of a job; implements the supervisor's ``Loop``."""

    def __init__(
        self,
        job_id: str,
        *,
        parts: LoopParts,
        runner: EpochRunner,
        reporter: ProgressReporter,
    ) -> None:
        self._job_id = job_id
        self._parts = parts
        self._runner = runner
        self._stop = threading.Event()
        # Set by ``stop``, by requests of users, and by commits to the input tables.
        self._wake = threading.Event()
        self._reporter = reporter
        self._commits = CommitParts(
            catalog=parts.catalog, tables=parts.tables, clock=parts.clock
        )
        self.outcome_unknown = False
        self.owned: Generation | None = None
        self.assumed: Generation | None = None
        # A tuple with the last stored status, which can be None; None if none was stored.
        self._status: tuple[Status | None] | None = None
        self._overdue = threading.Event()
        # The positions that the splits must reach before the run counts as caught up.
        self._heads: Mapping[str, Position] | None = None
        # Whether an upstream job was still running when the heads were read.
        self._upstream_was_running = False
        # The start of the last epoch.
        self._epoch_at: datetime | None = None
        # The newest request of a user: handled by an epoch, and known at the last poll.
        self._request_handled = self._request_polled = 0
        self._pace = Pace()
        # The pace report that was stored last.
        self._reported: PaceReport | None = None
        self._backlog = BacklogKeeper(
            catalog=parts.catalog, clock=parts.clock, wakes=parts.wakes
        )
        self._state: JobState
        self._handle: TableHandle
        self._source: Source

    @property
    def progress(self) -> Progress:
        """The latest progress of the loop."""
        return self._reporter.now

    def run(self, *, until_caught_up: bool) -> None:
        """Take over the job and load until stopped or, if requested, until caught up."""
        self._start()
        try:
            self._with_retries(lambda _: self._open_runner())
            with self._parts.wakes.registered(self._source.watched(), self._wake):
                self._load(until_caught_up=until_caught_up)
        finally:
            self._runner.close()
            self._source.close()

    @property
    def _owned(self) -> Owned:
        return Owned(
            state=self._state,
            handle=self._handle,
            source=self._source,
            limits=self._pace.limits(self._cadence),
            fed=self._backlog.fed,
        )

    @property
    def _cadence(self) -> Cadence:
        """The cadence of the job now; it is computed at every use, and never stored."""
        return cadence_of(
            self._state.definition,
            cause=self._state.backlog_cause,
            normal=self._fresh_interval,
        )

    @property
    def _fresh_interval(self) -> timedelta | None:
        """The interval that follows from the target lag; None if there is no target."""
        target = self._backlog.target
        return target and fresh_interval(target, self._pace.epoch_seconds)

    def _load(self, *, until_caught_up: bool) -> None:
        while not self._stop.is_set():
            self._poll()
            while not self._stop.is_set() and not (until_caught_up and self._caught_up()):
                self._wait_until_due(until_caught_up=until_caught_up)
                if self._stop.is_set() or not self._load_epoch():
                    break
                # Poll between epochs too, so that no split waits for the backlog of others.
                # A user who resets the backlog gets new boundaries after the current epoch.
                due = self._source.poll_due(self._poll_interval) or self._state.boundaries_due
                if not self._stop.is_set() and due:
                    self._poll()
                self._reporter.report(waiting=self._source.waiting())
            if self._stop.is_set():
                break
            # Check again: a poll after a failed attempt can find more rows.
            if self._caught_up():
                if until_caught_up and not self._upstream_was_running:
                    self._reporter.report(caught_up=True)
                    break
                self._wait_for_records(until_caught_up=until_caught_up)

    def _wait_for_records(self, *, until_caught_up: bool) -> None:
        self._reporter.report(caught_up=not until_caught_up)
        if until_caught_up:
            # The next poll finds the rows that upstream jobs have added.
            self._heads = None
            if not self._parts.upstream_works(self._state):
                return
        if not self._requested():
            self._idle()

    def stop(self) -> None:
        """Request the end of the loop and cancel its Spark job; return at once."""
        self._stop.set()
        self._wake.set()
        if self.progress.step in (Step.LOADING, Step.STARTING_SPARK, Step.STARTING_QUERY):
            self._runner.cancel()

    def wake(self) -> None:
        """Interrupt a wait of the loop, after a user's request or the end of another runner."""
        self._wake.set()

    def abort_attempt(self, reason: str) -> None:
        """Cancel the running tasks; the loop then retries their epoch."""
        log.warning("epoch aborted", job_id=self._job_id, reason=reason)
        self._overdue.set()
        self._runner.cancel()

    @property
    def _poll_interval(self) -> timedelta:
        return poll_interval(self._state.definition, fresh=self._fresh_interval)

    def _caught_up(self) -> bool:
        heads = self._heads or {}
        passed = all(self._source.passed(split, head) for split, head in heads.items())
        return passed and not self._runner.pending(self._owned)

    def _wait_until_due(self, *, until_caught_up: bool) -> None:
        """Wait until the next epoch is due; poll meanwhile."""
        while not self._stop.is_set() and not self._requested():
            if until_caught_up and not self._waits_for_upstream:
                return
            waiting = self._source.waiting()
            idle = waiting.items == 0 and not self._runner.pending(self._owned)
            now = self._parts.clock.now()
            cadence = replace(self._cadence, limits=self._owned.limits)
            due = due_at(cadence, last=self._epoch_at, waiting=waiting, now=now)
            if idle or (due is not None and due <= now):
                return
            self._reporter.report(step=Step.IDLE, until=due)
            self._report_pace(next_epoch_at=due)
            # A wait is short, because other processes add rows and end their backlogs.
            self._wait(min(self._poll_interval, due - now) if due else self._poll_interval)
            if not self._stop.is_set():
                self._poll()

    @property
    def _waits_for_upstream(self) -> bool:
        """Whether epochs are started at the backlog interval because of an upstream job."""
        options = self._state.definition.properties.cadence
        upstream = self._cadence.cause.startswith(UPSTREAM)
        return upstream and options.interval_backlog is not None

    def _requested(self) -> bool:
        """Return whether a user requested an epoch since the last one was started."""
        return self._state.requested_event > self._request_handled

    def _wait(self, delay: timedelta) -> None:
        """Wait, at most until the loop is woken; then read the requests of users."""
        self._parts.clock.wait(self._wake, delay)
        if self._stop.is_set():
            return
        self._wake.clear()
        current = self._parts.catalog.job_by_id(self._job_id)
        require_unchanged(current, owner=self._state)
        if current is not None:
            self._state = current

    def _poll(self) -> None:
        self._reporter.report(step=Step.POLLING)
        self._request_polled, arm_event = self._state.requested_event, self._state.arm_event
        if self._state.boundaries_due:
            self._source.recheck()
        # Check the upstream jobs before the poll: this poll misses rows that they add later.
        running = self._heads is None and self._parts.upstream_works(self._state)
        try:
            poll = self._source.poll(self._state.progress, report=self._report_poll)
        finally:
            self._count_requests()
        if self._heads is None:
            self._heads, self._upstream_was_running = self._source.heads(), running
        # A notice that was never stored counts as zero.
        stored = dict(self._state.notices)
        changed = any(stored.get(name, 0) != found for name, found in poll.notices)
        if poll.waiting.complete and changed:
            self._state = self._parts.catalog.append(
                self._job_id,
                NoticesChanged(notices=poll.notices),
                expected=self._state.generation,
            )
        self._state = self._backlog.after_poll(
            self._state, poll.progress, self._source, arm_event=arm_event
        )
        self._reporter.report(waiting=self._source.waiting())
        last = self._reported
        self._report_pace(next_epoch_at=last.next_epoch_at if last else None)

    def _report_poll(self, text: str) -> None:
        """Report the progress of a poll; raise StoppedError after a stop request."""
        self._reporter.report(message=text)
        if self._stop.is_set():
            raise StoppedError("the runner was stopped while it polled the source")

    def _count_requests(self) -> None:
        sent = self._source.take_requests()
        if sent:
            self._parts.catalog.add_requests(self._job_id, sent)

    def _start(self) -> None:
        self._reporter.report(step=Step.TAKING_OVER)
        parts = self._parts
        self._state, self._handle = take_over(
            self._job_id,
            node_id=parts.node_id,
            catalog=parts.catalog,
            tables=parts.tables,
            clock=parts.clock,
            assume=self._assume,
        )
        self.owned = self._state.generation
        structlog.contextvars.bind_contextvars(job=self._state.name)
        self._check_error_window()
        log.info("job taken over", generation=self.owned.number, commit=self._state.number)
        self._source = parts.open_source(self._state, self._stop)
        # A request before the takeover is handled by the first epoch.
        self._request_handled = self._state.requested_event

    def _assume(self, generation: Generation) -> None:
        self.assumed = generation

    def _idle(self) -> None:
        """Wait until the next poll; then check that this node still owns the job."""
        delay = max(self._poll_interval, self._source.poll_delay())
        next_at = self._parts.clock.now() + delay
        self._reporter.report(step=Step.IDLE, until=next_at)
        fields = (("until", next_at.isoformat()),)
        self._set_status(Status(code=StatusCode.IDLE, fields=fields, pace=self._reported))
        self._wait(delay)
        self._reported = None
        self._set_status(None)
        if self._stop.is_set():
            return
        self._handle.refresh()
        require_predecessor(self._handle, owner=self._state)

    def _report_pace(self, *, next_epoch_at: datetime | None = None) -> None:
        """Store the amount left and the rate, at most every few seconds, while they matter."""
        now, target = self._parts.clock.now(), self._backlog.target
        if not self._state.backlog_cause and next_epoch_at is None and target is None:
            self._reported = None
            self._set_status(None)
            return
        last = self._reported
        if last and now - last.at < _PACE_PERIOD and last.next_epoch_at == next_epoch_at:
            return
        found = self._pace.report(self._source.statuses(), cadence=self._cadence, at=now)
        # This job cannot estimate when the backlog of an upstream job ends.
        eta = found.eta if self._state.backlog.cause else None
        self._reported = replace(found, eta=eta, next_epoch_at=next_epoch_at)
        self._reporter.report(rate=found.rate, rate_unit=found.rate_unit, eta=eta)
        self._set_status(Status(code=StatusCode.LOADING, pace=self._reported))

    def _set_status(self, status: Status | None) -> None:
        """Store the job's status for display; no decision depends on it."""
        if self._status != (status,):
            self._status = (status,)
            self._parts.catalog.set_status(self._job_id, status)

    def _load_epoch(self) -> bool:
        """Load the next epoch, with retries; return False if there is nothing to load."""
        epoch = self._state.epoch_newest + 1
        self._request_handled = self._request_polled

        def attempt_again(attempt: int) -> bool:
            if attempt > 1:
                self._open_runner()
                self._poll()
            return self._attempt(epoch, attempt)

        return bool(self._with_retries(attempt_again))

    def _with_retries(self, act: Callable[[int], bool | None]) -> bool | None:
        """Call ``act`` with the number of the attempt until it succeeds; None if stopped."""
        failures_max = self._state.definition.properties.failures_max
        for attempt in range(1, failures_max + 1):
            try:
                return act(attempt)
            except ExternalError as error:
                final = self._source.failed("", error) is OnFailure.RAISE
                if final or attempt == failures_max:
                    raise
                self._wait_to_retry(error, attempt=attempt + 1)
            if self._stop.is_set():
                break
        return None

    def _open_runner(self) -> None:
        with self._time_limited():
            self._runner.open(self._owned)

    @contextmanager
    def _time_limited(self) -> Iterator[None]:
        """Raise ExternalError if the attempt was aborted because of its time limit."""
        self._overdue.clear()
        try:
            yield
        except StoppedError as error:
            if self._stop.is_set() or not self._overdue.is_set():
                raise
            raise ExternalError(
                "the tasks of the epoch exceeded their time limit and were cancelled",
                code=Code.TASKS_ABORT_ERR,
                hint="Check that the source and the table's storage respond, and that the "
                "machine is not overloaded.",
            ) from error

    def _wait_to_retry(self, error: ExternalError, *, attempt: int) -> None:
        delay = retry_delay(attempt)
        next_at = self._parts.clock.now() + delay
        self._reporter.report(
            step=Step.RETRYING, attempt=attempt, until=next_at, message=error.message
        )
        log.warning("epoch failed", code=error.code, reason=error.message, attempt=attempt - 1)
        self._parts.clock.wait(self._stop, delay)

    def _attempt(self, epoch: int, attempt: int) -> bool:
        started = self._parts.clock.monotonic()
        with self._time_limited():
            plan = self._runner.plan(self._owned)
        if plan is None:
            return False
        self._report_pace()
        if plan.reads or not self._source.waiting().items:
            self._epoch_at = self._parts.clock.now()
        plan_seconds = self._parts.clock.monotonic() - started
        draft = draft_attachment(
            plan,
            owner=self._state,
            epoch=epoch,
            attempt=attempt,
            attempt_id=uuid.uuid4().hex,
            at=self._parts.clock.now(),
        )
        draft = replace(draft, timings=Timings(plan_seconds=plan_seconds))
        if plan.reads:
            self._store_attempt_start(plan, draft)
        reading_ahead = self._backlog.preparing(
            self._state, self._source, plan, stop=self._stop
        )
        try:
            with reading_ahead:
                self._run_and_commit(plan, draft)
        except PenstockError as error:
            ran = self._parts.clock.monotonic() - started - plan_seconds
            self._store_attempt_end(plan, draft, error, run_seconds=ran)
            raise
        self._check_error_window()
        return True

    def _store_attempt_start(self, plan: EpochPlan, draft: Attachment) -> None:
        self._state = self._parts.catalog.append(
            self._job_id,
            EpochStarted(
                attempt_id=draft.attempt_id,
                epoch=draft.epoch,
                attempt=draft.attempt,
                progress=self._state.progress,
                items=len(plan.items),
                size_bytes=plan.size_bytes,
                plan_seconds=draft.timings.plan_seconds,
            ),
            expected=self._state.generation,
        )
        reached(CrashPoint.EPOCH_STARTED)

    def _run_and_commit(self, plan: EpochPlan, draft: Attachment) -> None:
        started = self._parts.clock.monotonic()
        acks = self._run(plan, draft)
        reached(CrashPoint.RUN_FINISHED)
        if self._stop.is_set():
            raise StoppedError("the runner was stopped before the commit")
        if not plan.reads and not any(ack.files for ack in acks):
            self._runner.committed(None, owned=self._owned)
            return
        ran = replace(draft.timings, run_seconds=self._parts.clock.monotonic() - started)
        attachment = self._completed(plan, replace(draft, timings=ran), acks)
        self._reporter.report(step=Step.COMMITTING)
        cadence = self._cadence
        self._commit(attachment, acks)
        self._source.committed(attachment.progress, notes_of(acks))
        self._runner.committed(attachment, owned=self._owned)
        sample = Sample(
            rows=attachment.statistics.rows_read,
            size_bytes=plan.size_bytes,
            items=len(plan.reads),
            seconds=self._parts.clock.monotonic() - started,
            at=self._parts.clock.monotonic(),
            lag_seconds=LagUnit.TIME.of(self._source.waiting()),
        )
        self._pace = self._pace.after(sample, cadence)
        self._state = self._backlog.after_commit(self._state, self._source)
        self._report_pace()
        self._parts.wakes.wake(self._state.definition.table.location)

    def _completed(
        self, plan: EpochPlan, draft: Attachment, acks: tuple[Ack, ...]
    ) -> Attachment:
        """Check and count the acks; return the attachment to commit."""
        definition = self._state.definition
        query = definition.query
        row_wise = definition.streaming is None and (query is None or query.row_wise)
        statistics = count(plan, acks, row_wise=row_wise)
        ratio_max = definition.properties.filter_ratio_max
        check_reject_ratio(statistics, acks, ratio_max=ratio_max)
        reject_files = tuple(file for ack in acks for file in ack.reject_files)
        result = EpochResult(
            progress=self._source.advance(plan, notes_of(acks)), notes=notes_of(acks)
        )
        attachment = replace(
            draft,
            progress=result.progress,
            backlog=self._backlog.record_for_commit(
                self._state, self._source, result=result, epoch=draft.epoch
            ),
            window=next_window(
                self._state.window,
                statistics,
                first=next((ack.first_reject for ack in acks if ack.first_reject), ""),
                definition=definition,
            ),
            reject_files=reject_files,
            rejects_number=draft.number if reject_files else draft.rejects_number,
            statistics=statistics,
            cumulative=self._state.cumulative + statistics,
            committed_at=self._parts.clock.now(),
        )
        return self._runner.attach(attachment)

    def _check_error_window(self) -> None:
        """Raise UserError if the job's error window exceeded a limit."""
        if self._state.has_too_many_errors and self._state.tripped is not None:
            raise too_many_errors(self._state.tripped)

    def _run(self, plan: EpochPlan, draft: Attachment) -> tuple[Ack, ...]:
        try:
            with self._time_limited():
                return self._runner.run(plan, draft, owned=self._owned)
        finally:
            self._count_requests()

    def _commit(self, attachment: Attachment, acks: tuple[Ack, ...]) -> None:
        started = self._parts.clock.monotonic()
        try:
            self._state = commit_epoch(
                attachment, acks, owner=self._state, handle=self._handle, parts=self._commits
            )
        except EpochAbortedError:
            # A delayed write of this attempt may still succeed until the next commit.
            self.outcome_unknown = True
            raise
        except CommitOutcomeUnknownError as error:
            self.outcome_unknown = True
            raise LeaseLostError(error.message, detail=error.detail) from error
        except CommitGapError as error:
            raise LeaseLostError(
                "the catalog lacks commits of the table", detail=str(error)
            ) from error
        self.outcome_unknown = False
        log.debug(
            "epoch committed",
            epoch=attachment.epoch,
            rows=attachment.statistics.rows_loaded,
            files=attachment.statistics.files_read,
            rejected=attachment.statistics.rows_rejected,
            plan_ms=round(attachment.timings.plan_seconds * 1000),
            run_ms=round(attachment.timings.run_seconds * 1000),
            commit_ms=round((self._parts.clock.monotonic() - started) * 1000),
        )

    def _store_attempt_end(
        self, plan: EpochPlan, draft: Attachment, error: PenstockError, *, run_seconds: float
    ) -> None:
        """Store the end of the attempt in the ledger, even if another node owns the job now."""
        cancelled = isinstance(error, StoppedError | LeaseLostError)
        if not plan.reads:
            # An epoch without reads is in the ledger only if it fails.
            if cancelled:
                return
            self._store_attempt_start(plan, draft)
        ended = EpochEnded(
            attempt_id=draft.attempt_id,
            epoch=draft.epoch,
            attempt=draft.attempt,
            outcome=Outcome.CANCELLED if cancelled else Outcome.FAILED,
            reason=Reason(code=error.code, message=error.message, hint=error.hint),
            run_seconds=run_seconds,
        )
        try:
            state = self._parts.catalog.append(self._job_id, ended, expected=None)
        except LeaseLostError:
            # The job was deleted together with its ledger.
            return
        reached(CrashPoint.ATTEMPT_ENDED)
        self._state = replace(self._state, epoch_newest=state.epoch_newest)
