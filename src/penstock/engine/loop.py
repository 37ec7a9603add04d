"""Load a job, epoch by epoch: plan, run, ack, commit, in that order.

Invariant: a position moves only in a commit. A failed attempt leaves only files that are not
part of the table. The next attempt plans again from the committed state.

The loop first takes over the job. Then the loop polls the source and loads epochs until the
source has no more to load. Then the loop waits, checks that this node still owns the job, and
polls again.
"""

import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from penstock.catalog.catalog import Catalog
from penstock.catalog.database import CommitGapError
from penstock.clock import Clock
from penstock.crashpoints import CrashPoint, reached
from penstock.engine.run import EpochTables, Executor, RunParts, Work, run_epoch
from penstock.epochs.ack import (
    check_cover,
    check_reject_ratio,
    count,
    next_window,
    notes_of,
    too_many_errors,
)
from penstock.epochs.cadence import ATTEMPTS_MAX, epoch_limits, poll_interval, retry_delay
from penstock.epochs.commit import (
    CommitParts,
    EpochAbortedError,
    commit_epoch,
    draft_attachment,
    require_predecessor,
    require_unchanged,
)
from penstock.epochs.progress import Progress, ProgressReporter, Step
from penstock.epochs.takeover import take_over
from penstock.errors import (
    Code,
    CommitOutcomeUnknownError,
    ExternalError,
    LeaseLostError,
    PenstockError,
    StoppedError,
)
from penstock.model.epoch import Ack, Attachment, EpochPlan, Generation, Timings
from penstock.model.events import EpochEnded, EpochStarted, NoticesChanged, Outcome
from penstock.model.job import JobDefinition, JobState, Reason, Status, StatusCode
from penstock.model.query import Lookup
from penstock.model.split import Position, SplitRead
from penstock.sources.source import OnFailure, Source
from penstock.tables.scan import pin
from penstock.tables.table import TableHandle, Tables

log = structlog.get_logger()

SPARK_START_MESSAGE = "the first start takes about 10 s"


class PinnedLookups:
    """The tables that a job joins, pinned to one version for all attempts of an epoch."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._pinned: tuple[int, tuple[Lookup, ...]] | None = None

    def of(self, definition: JobDefinition, *, epoch: int) -> tuple[Lookup, ...]:
        """Return the tables that the job's SELECT joins, at the versions of this epoch."""
        query = definition.query
        if query is None or not query.lookups:
            return ()
        if self._pinned is None or self._pinned[0] != epoch:
            limit = definition.properties.lookup_bytes_max
            found = (pin(t, tables=self._tables, bytes_max=limit) for t in query.lookups)
            self._pinned = (epoch, tuple(found))
        return self._pinned[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadParts:
    """The dependencies of every load loop."""

    catalog: Catalog
    tables: Tables
    executor: Executor
    clock: Clock
    # Setting the event interrupts the waits of the source.
    open_source: Callable[[JobState, threading.Event], Source]
    work: Work
    node_id: str


class LoadLoop:
    """One run of a load job by one runner; implements the supervisor's ``Loop``."""

    def __init__(self, job_id: str, *, parts: LoadParts, reporter: ProgressReporter) -> None:
        self._job_id = job_id
        self._parts = parts
        self._stop = threading.Event()
        self._reporter = reporter
        self._commits = CommitParts(
            catalog=parts.catalog, tables=parts.tables, clock=parts.clock
        )
        self.outcome_unknown = False
        self.owned: Generation | None = None
        self.assumed: Generation | None = None
        self._lookups = PinnedLookups(parts.tables)
        # The status that this runner stored last, in a tuple; None if it stored none.
        self._status: tuple[Status | None] | None = None
        self._overdue = threading.Event()
        # The positions that the splits must reach before the run counts as caught up.
        self._heads: Mapping[str, Position] | None = None
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
            self._load(until_caught_up=until_caught_up)
        finally:
            self._source.close()

    def _load(self, *, until_caught_up: bool) -> None:
        while not self._stop.is_set():
            self._poll()
            while not self._stop.is_set() and not (until_caught_up and self._caught_up()):
                if not self._load_epoch():
                    break
                # Poll between epochs too, so that no split waits for the backlog of others.
                if not self._stop.is_set() and self._source.poll_due(self._poll_interval):
                    self._poll()
                self._report_waiting()
            if self._stop.is_set():
                break
            # Decided by the last poll: a poll after a failed attempt may have found more.
            if self._caught_up():
                self._reporter.report(caught_up=True)
                if until_caught_up:
                    break
                self._idle()

    def stop(self) -> None:
        """Request the end of the loop and cancel its Spark job; return at once."""
        self._stop.set()
        if self.progress.step in (Step.LOADING, Step.STARTING_SPARK):
            self._parts.executor.cancel(self._job_id)

    def abort_attempt(self, reason: str) -> None:
        """Cancel the running tasks; the loop then retries their epoch."""
        log.warning("epoch aborted", job_id=self._job_id, reason=reason)
        self._overdue.set()
        self._parts.executor.cancel(self._job_id)

    @property
    def _poll_interval(self) -> timedelta:
        return poll_interval(self._state.definition)

    def _caught_up(self) -> bool:
        heads = self._heads or {}
        return all(self._source.passed(split, head) for split, head in heads.items())

    def _poll(self) -> None:
        self._reporter.report(step=Step.POLLING)
        try:
            poll = self._source.poll(self._state.progress, report=self._report_poll)
        finally:
            self._count_requests()
        if self._heads is None:
            self._heads = self._source.heads()
        # A notice that was never stored counts as zero.
        stored = dict(self._state.notices)
        changed = any(stored.get(name, 0) != found for name, found in poll.notices)
        if poll.waiting.complete and changed:
            self._state = self._parts.catalog.append(
                self._job_id,
                NoticesChanged(notices=poll.notices),
                expected=self._state.generation,
            )
        self._report_waiting()

    def _report_poll(self, text: str) -> None:
        """Report the progress of a poll; raise StoppedError if the loop was asked to stop."""
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
        # All further log lines of this thread have the job's name.
        structlog.contextvars.bind_contextvars(job=self._state.name)
        self._check_error_window()
        log.info("job taken over", generation=self.owned.number, commit=self._state.number)
        self._source = parts.open_source(self._state, self._stop)

    def _assume(self, generation: Generation) -> None:
        self.assumed = generation

    def _idle(self) -> None:
        """Wait until the next poll; then check that this node still owns the job."""
        delay = max(self._poll_interval, self._source.poll_delay())
        next_at = self._parts.clock.now() + delay
        self._reporter.report(step=Step.IDLE, until=next_at)
        self._set_status(Status(code=StatusCode.IDLE, fields=(("until", next_at.isoformat()),)))
        self._parts.clock.wait(self._stop, delay)
        self._set_status(None)
        require_unchanged(self._parts.catalog.job_by_id(self._job_id), owner=self._state)
        self._handle.refresh()
        require_predecessor(self._handle, owner=self._state)

    def _set_status(self, status: Status | None) -> None:
        """Store the job's status for display; no decision depends on it."""
        if self._status != (status,):
            self._status = (status,)
            self._parts.catalog.set_status(self._job_id, status)

    def _load_epoch(self) -> bool:
        """Load the next epoch, with retries; return False if there is nothing to load."""
        epoch = self._state.epoch_newest + 1
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return self._attempt(epoch, attempt)
            except ExternalError as error:
                final = self._source.failed("", error) is OnFailure.RAISE
                if final or attempt == ATTEMPTS_MAX:
                    raise
                self._wait_to_retry(error, attempt=attempt + 1)
            if self._stop.is_set():
                return False
            self._poll()
        return False

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
        limits = epoch_limits(self._state.definition)
        plan = self._source.plan(self._state.progress, limits=limits)
        if plan is None:
            return False
        self._set_status(None)
        attempt_id = uuid.uuid4().hex
        plan_seconds = self._parts.clock.monotonic() - started
        self._state = self._parts.catalog.append(
            self._job_id,
            EpochStarted(
                attempt_id=attempt_id,
                epoch=epoch,
                attempt=attempt,
                progress=self._state.progress,
                items=len(plan.items),
                size_bytes=plan.size_bytes,
                plan_seconds=plan_seconds,
            ),
            expected=self._state.generation,
        )
        reached(CrashPoint.EPOCH_STARTED)
        draft = draft_attachment(
            plan,
            owner=self._state,
            epoch=epoch,
            attempt=attempt,
            attempt_id=attempt_id,
            at=self._parts.clock.now(),
        )
        draft = replace(draft, timings=Timings(plan_seconds=plan_seconds))
        try:
            self._run_and_commit(plan, draft)
        except PenstockError as error:
            ran = self._parts.clock.monotonic() - started - plan_seconds
            self._store_attempt_end(draft, error, run_seconds=ran)
            raise
        self._check_error_window()
        return True

    def _run_and_commit(self, plan: EpochPlan, draft: Attachment) -> None:
        started = self._parts.clock.monotonic()
        shares = self._share(plan)
        acks = self._run(shares, draft)
        reached(CrashPoint.RUN_FINISHED)
        check_cover(shares, acks)
        definition, notes = self._state.definition, notes_of(acks)
        query = definition.query
        statistics = count(plan, acks, row_wise=query is None or query.row_wise)
        ratio_max = definition.properties.filter_ratio_max
        check_reject_ratio(statistics, acks, ratio_max=ratio_max)
        reject_files = tuple(file for ack in acks for file in ack.reject_files)
        attachment = replace(
            draft,
            progress=self._source.advance(plan, notes),
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
            timings=replace(draft.timings, run_seconds=self._parts.clock.monotonic() - started),
            committed_at=self._parts.clock.now(),
        )
        if self._stop.is_set():
            raise StoppedError("the runner was stopped before the commit")
        self._reporter.report(step=Step.COMMITTING)
        self._commit(attachment, acks)
        self._source.committed(attachment.progress, notes)

    def _share(self, plan: EpochPlan) -> list[tuple[SplitRead, ...]]:
        """Divide the plan into one share per parallel task; start Spark if necessary."""
        executor, definition = self._parts.executor, self._state.definition
        if not executor.ready:
            self._reporter.report(step=Step.STARTING_SPARK, message=SPARK_START_MESSAGE)
        tasks = min(executor.parallelism, definition.properties.tasks_max or 10**9)
        self._reporter.report(step=Step.LOADING)
        return self._source.distribute(plan, tasks=tasks, needed=definition.needed)

    def _check_error_window(self) -> None:
        """Raise UserError if the job's error window exceeded a limit."""
        if self._state.has_too_many_errors and self._state.tripped is not None:
            raise too_many_errors(self._state.tripped)

    def _run(self, shares: list[tuple[SplitRead, ...]], draft: Attachment) -> tuple[Ack, ...]:
        location = self._state.definition.table.location
        tables = EpochTables(
            columns=self._handle.columns(),
            partition_by=self._handle.partition_columns(),
            rejects_root=self._parts.tables.rejects_location(self._job_id),
            lookups=self._lookups.of(self._state.definition, epoch=draft.epoch),
            table_access=self._parts.tables.task_access(location),
            source_access=self._source.task_access(),
        )
        parts = RunParts(
            executor=self._parts.executor,
            work=self._parts.work,
            count_requests=self._source.count_requests,
        )
        self._overdue.clear()
        try:
            return run_epoch(shares, state=self._state, draft=draft, tables=tables, parts=parts)
        except StoppedError as error:
            if self._stop.is_set() or not self._overdue.is_set():
                raise
            raise ExternalError(
                "the tasks of the epoch exceeded their time limit and were cancelled",
                code=Code.TASKS_ABORT_ERR,
                hint=(
                    "Check that the source and the table's storage respond, and that the "
                    "machine is not overloaded."
                ),
            ) from error
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
        self, draft: Attachment, error: PenstockError, *, run_seconds: float
    ) -> None:
        """Store the end of the attempt in the ledger, even if another node owns the job now."""
        cancelled = isinstance(error, StoppedError | LeaseLostError)
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

    def _report_waiting(self) -> None:
        self._reporter.report(waiting=self._source.waiting())
