"""Load epoch after epoch for one job: plan, run, ack, commit, in that order.

Invariant: a position moves only in a commit. An attempt that fails leaves nothing behind but
files nobody sees; the next attempt plans anew from the committed state.
"""

import threading
import uuid
from collections.abc import Callable
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
    count,
    next_window,
    notes_of,
    require_few_rejects,
    too_many_errors,
)
from penstock.epochs.commit import (
    CommitParts,
    EpochAbortedError,
    commit_epoch,
    draft_of,
    require_predecessor,
    require_unchanged,
)
from penstock.epochs.progress import Step, Telling
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
from penstock.model.events import EpochEnded, EpochStarted, ModifiedFilesSeen, Outcome
from penstock.model.job import KINESIS_CAPABILITY, JobDefinition, JobState, Reason
from penstock.model.query import Lookup
from penstock.model.text import counted
from penstock.sources.source import Source
from penstock.tables.scan import pin
from penstock.tables.table import TableHandle, Tables


class PinnedLookups:
    """The tables of one job, pinned anew for every epoch; all attempts see the same."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._pinned: tuple[int, tuple[Lookup, ...]] | None = None

    def of(self, definition: JobDefinition, *, epoch: int) -> tuple[Lookup, ...]:
        """Answer the tables that the SELECT of a job joins with, as this epoch sees them."""
        query = definition.query
        if query is None or not query.lookups:
            return ()
        if self._pinned is None or self._pinned[0] != epoch:
            limit = definition.properties.lookup_bytes_max
            found = (pin(t, tables=self._tables, bytes_max=limit) for t in query.lookups)
            self._pinned = (epoch, tuple(found))
        return self._pinned[1]


log = structlog.get_logger()

ATTEMPTS_MAX = 4
RETRY_DELAY_FIRST = timedelta(milliseconds=200)
SPARK_PATIENCE = "first time takes about 10 s"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadParts:
    """What every load runs with."""

    catalog: Catalog
    tables: Tables
    executor: Executor
    clock: Clock
    # The event ends what a source waits for.
    open_source: Callable[[JobState, threading.Event], Source]
    work: Work
    node_id: str
    # What this node can do beside loading files.
    capabilities: frozenset[str] = frozenset({KINESIS_CAPABILITY})


class EpochLoop:
    """One runner's tenure of one job."""

    def __init__(
        self, job_id: str, *, parts: LoadParts, stop: threading.Event, telling: Telling
    ) -> None:
        self._job_id = job_id
        self._parts = parts
        self._stop = stop
        self._telling = telling
        self._commits = CommitParts(
            catalog=parts.catalog, tables=parts.tables, clock=parts.clock
        )
        self.outcome_unknown = False
        self.generation: Generation | None = None
        self.believed: Generation | None = None
        self._lookups = PinnedLookups(parts.tables)
        self._said: str | None = None
        self._overdue = threading.Event()
        self._state: JobState
        self._handle: TableHandle
        self._source: Source

    def run(self, *, until_caught_up: bool) -> None:
        """Own the job and load until told to stop, or until caught up if that was asked."""
        self._begin()
        while not self._stop.is_set():
            self._look()
            self._tell_backlog()
            while not self._done(until_caught_up) and self._load_epoch():
                self._look_if_due()
                self._tell_backlog()
            if self._stop.is_set():
                break
            # That of the last look: one behind a failed attempt may have found more.
            if self._source.caught_up():
                self._telling.tell(caught_up=True)
                if until_caught_up:
                    break
                self._idle()

    def abort_epoch(self) -> None:
        """Let the tasks that run now be given up, and their epoch be begun anew."""
        self._overdue.set()
        self._parts.executor.cancel(self._job_id)

    def _done(self, until_caught_up: bool) -> bool:  # noqa: FBT001 - Named where it is passed on.
        """Tell whether no further epoch is wanted, even if more waits."""
        return self._stop.is_set() or (until_caught_up and self._source.caught_up())

    def _look(self) -> None:
        self._telling.tell(step=Step.LISTING)
        try:
            backlog = self._source.discover(self._state.progress, listed=self._listed)
        finally:
            self._count_requests()
        if backlog.complete:
            self._note_modified_files()

    def _look_if_due(self) -> None:
        """Let no part of a source wait until everything else is loaded."""
        interval = self._state.definition.properties.max_interval
        if not self._stop.is_set() and self._source.look_due(interval):
            self._look()

    def _listed(self, keys: int) -> None:
        """Tell how far a look is, and end it when the runner is asked to stop."""
        definition = self._state.definition
        noun = "key" if definition.load is None else "shard"
        self._telling.tell_listed(definition.source_name, seen=counted(keys, noun))
        if self._stop.is_set():
            raise StoppedError("the runner was asked to stop while it looked at the source")

    def _count_requests(self) -> None:
        sent = self._source.take_requests()
        if sent:
            self._parts.catalog.add_requests(self._job_id, sent)

    def _begin(self) -> None:
        self._telling.tell(step=Step.TAKING_OVER)
        parts = self._parts
        self._state, self._handle = take_over(
            self._job_id,
            node_id=parts.node_id,
            catalog=parts.catalog,
            tables=parts.tables,
            clock=parts.clock,
            believe=self._believe,
        )
        self.generation = self._state.generation
        # Whatever this runner's thread logs from here on carries the job's name.
        structlog.contextvars.bind_contextvars(job=self._state.name)
        self._require_few_errors()
        log.info("job taken", generation=self.generation.number, commit=self._state.number)
        self._source = parts.open_source(self._state, self._stop)

    def _believe(self, generation: Generation) -> None:
        self.believed = generation

    def _idle(self) -> None:
        """Wait for the next look; an idle owner also checks that it still is one."""
        delay = max(self._state.definition.properties.max_interval, self._source.pause())
        next_at = self._parts.clock.now() + delay
        self._telling.tell(step=Step.IDLE, until=next_at)
        self._say(f"no data, next try at {next_at:%Y-%m-%d %H:%M:%S}")
        self._parts.clock.wait(self._stop, delay)
        self._say("")
        self._check_tenure()

    def _say(self, text: str) -> None:
        """Let observers know what the job is about; nothing depends on it."""
        if text != self._said:
            self._said = text
            self._parts.catalog.set_status(self._job_id, text)

    def _check_tenure(self) -> None:
        require_unchanged(self._parts.catalog.job_by_id(self._job_id), owner=self._state)
        self._handle.refresh()
        require_predecessor(self._handle, owner=self._state)

    def _load_epoch(self) -> bool:
        """Load the next epoch with a few attempts; answer whether there was one."""
        epoch = self._state.epoch_newest + 1
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return self._attempt(epoch, attempt)
            except ExternalError as error:
                if attempt == ATTEMPTS_MAX:
                    raise
                self._wait_to_retry(error, attempt=attempt + 1)
            if self._stop.is_set():
                return False
            self._look()
        return False

    def _wait_to_retry(self, error: ExternalError, *, attempt: int) -> None:
        delay = RETRY_DELAY_FIRST * 2 ** (attempt - 1)
        next_at = self._parts.clock.now() + delay
        self._telling.tell(
            step=Step.RETRYING, attempt=attempt, until=next_at, message=error.message
        )
        log.warning("epoch failed", code=error.code, reason=error.message, attempt=attempt - 1)
        self._parts.clock.wait(self._stop, delay)

    def _attempt(self, epoch: int, attempt: int) -> bool:
        started = self._parts.clock.monotonic()
        limits = self._state.definition.properties.limits
        plan = self._source.plan(self._state.progress, limits=limits)
        if plan is None:
            return False
        self._say("")
        attempt_id = uuid.uuid4().hex
        plan_seconds = self._parts.clock.monotonic() - started
        self._state = self._parts.catalog.append(
            self._job_id,
            EpochStarted(
                attempt_id=attempt_id,
                epoch=epoch,
                attempt=attempt,
                progress=self._state.progress,
                files=len(plan.files),
                size_bytes=plan.size_bytes,
                plan_seconds=plan_seconds,
            ),
            expected=self._state.generation,
        )
        reached(CrashPoint.EPOCH_STARTED)
        draft = draft_of(
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
            self._journal_end(draft, error, run_seconds=ran)
            raise
        self._require_few_errors()
        return True

    def _run_and_commit(self, plan: EpochPlan, draft: Attachment) -> None:
        started = self._parts.clock.monotonic()
        ready = self._parts.executor.ready
        if not ready:
            self._telling.tell(step=Step.STARTING_SPARK, message=SPARK_PATIENCE)
        # Asking how many tasks run at once starts Spark.
        if ready or self._parts.executor.parallelism:
            self._telling.tell(step=Step.LOADING)
        acks = self._run(plan, draft)
        reached(CrashPoint.RUN_FINISHED)
        check_cover(plan, acks)
        definition = self._state.definition
        query = definition.query
        statistics = count(plan, acks, row_wise=query is None or query.row_wise)
        ratio_max = definition.properties.filter_ratio_max
        require_few_rejects(statistics, acks, ratio_max=ratio_max)
        reject_files = tuple(file for ack in acks for file in ack.reject_files)
        attachment = replace(
            draft,
            progress=self._source.reached(plan, notes_of(acks)),
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
            raise StoppedError("the runner was asked to stop before the commit")
        self._telling.tell(step=Step.COMMITTING)
        self._commit(attachment, acks)
        self._source.committed(notes_of(acks))

    def _require_few_errors(self) -> None:
        """End the tenure of a routine load whose window of errors is too full."""
        if self._state.has_too_many_errors:
            raise too_many_errors(self._state)

    def _run(self, plan: EpochPlan, draft: Attachment) -> tuple[Ack, ...]:
        tables = EpochTables(
            columns=self._handle.columns(),
            partition_by=self._handle.partition_columns(),
            rejects_root=self._parts.tables.rejects_location(self._job_id),
            lookups=self._lookups.of(self._state.definition, epoch=draft.epoch),
            table_access=self._parts.tables.task_access(self._state.definition.table.location),
            source_access=self._source.task_access(),
        )
        parts = RunParts(
            executor=self._parts.executor,
            work=self._parts.work,
            charge=self._source.charge,
        )
        self._overdue.clear()
        try:
            return run_epoch(plan, state=self._state, draft=draft, tables=tables, parts=parts)
        except StoppedError as error:
            if self._stop.is_set() or not self._overdue.is_set():
                raise
            raise ExternalError(
                "the tasks of the epoch did not end in time and were given up",
                code=Code.TASKS_ABORT_ERR,
                hint="Look for a stream or a table that does not answer, or a full machine.",
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
            # A late write of this attempt could still land until somebody commits again.
            self.outcome_unknown = True
            raise
        except CommitOutcomeUnknownError as error:
            self.outcome_unknown = True
            raise LeaseLostError(error.message, detail=error.detail) from error
        except CommitGapError as error:
            raise LeaseLostError(
                "the catalog lags behind the table", detail=str(error)
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

    def _journal_end(
        self, draft: Attachment, error: PenstockError, *, run_seconds: float
    ) -> None:
        """Write into the ledger how the attempt ended, whoever owns the job now."""
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
            # The job is gone; so is its ledger.
            return
        reached(CrashPoint.ATTEMPT_ENDED)
        self._state = replace(self._state, epoch_newest=state.epoch_newest)

    def _note_modified_files(self) -> None:
        seen = self._source.modified_files
        if seen != self._state.modified_files:
            self._state = self._parts.catalog.append(
                self._job_id, ModifiedFilesSeen(files=seen), expected=self._state.generation
            )

    def _tell_backlog(self) -> None:
        waiting = self._source.waiting()
        self._telling.tell(
            files_left=waiting.files,
            bytes_left=waiting.size_bytes,
            all_seen=waiting.complete,
            behind=waiting.behind,
        )
