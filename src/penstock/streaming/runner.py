"""Run the epochs of a streaming table: recover its checkpoint, plan batches, run them.

Invariant: every batch has one plan, which is durable before the batch runs. A batch is settled
before the next batch is committed to the table. So after a crash, the table is at most one
batch ahead of the checkpoint. This batch can be replayed.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import structlog

from penstock.crashpoints import CrashPoint, reached
from penstock.epochs.loop import EpochLoop
from penstock.epochs.output import TaskPlan
from penstock.epochs.progress import ProgressReporter, Step
from penstock.epochs.runner import LoopParts, Owned
from penstock.epochs.task import Refusal, result_of
from penstock.errors import (
    Code,
    ExternalError,
    InvariantError,
    PenstockError,
    StoppedError,
)
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import Ack, Attachment, BatchRecord, EpochPlan
from penstock.model.events import QueryStarted, WatermarkApplied
from penstock.model.job import JobState
from penstock.model.job_kinds import OutputMode
from penstock.model.query import Lookup
from penstock.model.split import Note
from penstock.sources.source import ReadTask
from penstock.sources.table_log.kind import FileResult, untimed
from penstock.spark.executor import SparkExecutor
from penstock.streaming.analysis import prepare
from penstock.streaming.checkpoint import (
    OWNER_LOCK,
    BatchPlan,
    CheckpointFolder,
    delete_unused,
    parse_plan,
)
from penstock.streaming.planning import (
    BatchPlanner,
    epoch_plan,
    positions,
    query_of,
    with_shares,
)
from penstock.streaming.query import (
    OwnerLock,
    QuerySettings,
    RunningQuery,
    StreamSession,
    checkpoint_in_use,
)
from penstock.streaming.recovery import (
    NO_BATCH,
    PUT_BACK_HINT,
    Continue,
    Found,
    Refuse,
    Replay,
    Start,
    Verdict,
    decide,
)
from penstock.streaming.task import StreamTask, refusal_error
from penstock.tables.chain import newest_commit
from penstock.tables.folder import staged_folder
from penstock.tables.scan import pin

log = structlog.get_logger()

_LOCK_WAIT = timedelta(milliseconds=200)
_LOCK_TRIES_MAX = 150
# The maximum age of the timestamp that a query uses as the current time.
_NOW_AGE_MAX = timedelta(seconds=1)
# Texts in errors of Spark: a state file cannot be read; the disk is full, which is no damage.
_STATE_UNREADABLE = "[CANNOT_LOAD_STATE_STORE"
_DISK_FULL = "No space left on device"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParts:
    """The dependencies of every streaming table."""

    loop: LoopParts
    executor: SparkExecutor
    # The folder of all checkpoints of the node.
    checkpoints: Path
    state_memory_mb: int


def open_query_loop(job_id: str, *, parts: QueryParts, reporter: ProgressReporter) -> EpochLoop:
    """Return the loop of a streaming table."""
    runner = QueryRunner(job_id, parts=parts, reporter=reporter)
    return EpochLoop(job_id, parts=parts.loop, runner=runner, reporter=reporter)


class QueryRunner:
    """Runs every epoch as a batch of a Structured Streaming query; an ``EpochRunner``."""

    def __init__(self, job_id: str, *, parts: QueryParts, reporter: ProgressReporter) -> None:
        self._job_id = job_id
        self._parts = parts
        self._clock = parts.loop.clock
        self._reporter = reporter
        self._cancelled = threading.Event()
        self._lock: OwnerLock | None = None
        self._query: RunningQuery | None = None
        # The number of the open batch; None if no batch is open.
        self._open: int | None = None
        self._planner = BatchPlanner(parts.loop.clock)
        # Whether the last batch was run only because its time or static tables were old.
        self._refreshing = False
        # The plan of the open batch.
        self._plan: BatchPlan | None = None
        self._folder: CheckpointFolder
        self._pins: Mapping[str, Lookup] = {}

    # Recovery

    def open(self, owned: Owned) -> None:
        """Start the query; first compare its checkpoint with the table."""
        self._end_query()
        self._cancelled.clear()
        # The last attempt may have failed to replace a stale batch, so this one may try again.
        self._refreshing = False
        if not self._parts.executor.ready:
            self._reporter.report_spark_start()
            self._parts.executor.running()
        self._reporter.report(step=Step.STARTING_QUERY)
        self._acquire_lock()
        record = newest_commit(owned.handle, job_id=self._job_id).attachment.batch
        found, verdict = self._decide(owned, record)
        match verdict:
            case Refuse():
                raise verdict.error(self._folder.path)
            case Start():
                if verdict.delete:
                    self._folder.delete()
                checkpoint_id = query_of(owned.state).checkpoint_id
                self._folder.create(checkpoint_id, frozen=self._settings(owned.state).frozen)
                self._start(owned, batch=0, last=None)
            case Continue():
                self._folder.delete_truncated(found)
                self._start(owned, batch=verdict.batch, last=self._stored_plan(verdict, record))
            case Replay():
                self._folder.delete_truncated(found)
                self._replay(owned, record)

    def _decide(self, owned: Owned, record: BatchRecord | None) -> tuple[Found, Verdict]:
        """Compare the checkpoint with the table, and store the verdict as an event."""
        query = query_of(owned.state)
        self._folder = CheckpointFolder(
            self._parts.checkpoints / self._job_id / query.checkpoint_id
        )
        if query.output is OutputMode.UPDATE:
            location = owned.state.definition.table.location
            self._parts.loop.tables.delete_staged(location, self._job_id)
        batch = NO_BATCH if record is None else record.batch
        checkpoint_id = query.checkpoint_id if record is None else record.checkpoint_id
        found = self._folder.find()
        verdict = decide(found, checkpoint_id=checkpoint_id, batch=batch)
        started = QueryStarted(
            committed=found.committed,
            opened=found.opened,
            in_table=batch,
            verdict=type(verdict).__name__.lower(),
        )
        self._parts.loop.catalog.append(self._job_id, started, expected=owned.state.generation)
        return found, verdict

    def _acquire_lock(self) -> None:
        spark = self._parts.executor.running()
        # The lock ends with the JVM that holds it.
        if self._lock is not None and self._lock.spark is spark:
            return
        path = self._parts.checkpoints / self._job_id / OWNER_LOCK
        lock = OwnerLock(spark, path)
        for _ in range(_LOCK_TRIES_MAX):
            if lock.acquire():
                self._lock = lock
                return
            if self._clock.wait(self._cancelled, _LOCK_WAIT):
                raise StoppedError("the runner was stopped while it waited for the checkpoint")
        raise checkpoint_in_use(path.parent)

    def _stored_plan(self, verdict: Continue, record: BatchRecord | None) -> BatchPlan | None:
        """Return the plan of the newest batch of the checkpoint; None before the first one."""
        if verdict.batch == 0:
            return None
        stored = self._folder.plan(verdict.batch - 1)
        if stored is None and record is not None and record.batch == verdict.batch - 1:
            stored = parse_plan(record.plan)
        if stored is None:
            raise InvariantError(f"the plan of batch {verdict.batch - 1} is missing")
        return stored

    def _start(self, owned: Owned, *, batch: int, last: BatchPlan | None) -> None:
        """Start the query at a batch; ``last`` is the plan of the batch before it."""
        definition, query = owned.state.definition, query_of(owned.state)
        self._open, self._plan = None, None
        found = {} if last is None else self._reported_high(last)
        self._planner.follow(last, found_high=found)
        self._pins = self._folder.pins(batch) or {}
        names = {lookup.table.name for lookup in self._pins.values()}
        stored = names == {table.name for table in query.lookups}
        if not stored or self._folder.plan(batch) is None:
            self._pin(owned.state, batch)
        settings = replace(self._settings(owned.state), overrides=self._folder.frozen())
        spark = self._parts.executor.running()
        session = StreamSession(spark.sessions(), settings, checkpoint=self._folder.path)
        columns = {name: lookup.columns for name, lookup in self._pins.items()}
        frame = prepare(session, query, lookups=columns)
        self._query = RunningQuery(
            frame,
            mode=query.output,
            folder=self._folder,
            explain=self._explained,
        )
        log.info("query started", job=definition.name, batch=batch)

    def _explained(self, error: Exception) -> PenstockError:
        """Convert an error of the query; an unreadable state is damage of the checkpoint."""
        known = self._parts.executor.convert_error(error)
        text = str(error)
        if _STATE_UNREADABLE not in text or _DISK_FULL in text:
            return known
        return ExternalError(
            "checkpoint is damaged: Spark cannot read the state",
            code=Code.CHECKPOINT_DAMAGED_ERR,
            detail=f"{known.message}.",
            hint=f"{PUT_BACK_HINT} The folder is {self._folder.path}.",
        )

    def _settings(self, state: JobState) -> QuerySettings:
        properties = state.definition.properties
        return QuerySettings(
            parallelism=query_of(state).parallelism,
            time_zone=properties.time_zone,
            python_udfs=properties.python_udfs,
            state_memory_mb=self._parts.state_memory_mb,
        )

    def _replay(self, owned: Owned, record: BatchRecord | None) -> None:
        """Run a committed batch again without a commit, to rebuild its state."""
        if record is None:
            raise InvariantError("a batch without a commit cannot be replayed")
        committed, plan = parse_plan(record.plan), self._folder.plan(record.batch)
        # A restored checkpoint may contain another plan, which a failed attempt stored.
        if plan is None or plan.without_shares() != committed:
            plan = with_shares(committed, owned)
            self._folder.write_plan(plan)
        if _versions(self._folder.pins(record.batch) or {}) != dict(plan.pins):
            self._pin(owned.state, record.batch, versions=plan.pins)
        last = self._folder.plan(record.batch - 1) if record.batch else None
        self._start(owned, batch=record.batch, last=last)
        # The time limit of an epoch applies to a replay, too.
        self._reporter.report(step=Step.LOADING)
        self._wait_for_batch()
        self._run_batch(plan, self._task(owned, staged="", replay=True))
        reached(CrashPoint.BATCH_REPLAYED)
        self._finish(plan, owned.state)
        log.info("batch replayed", batch=plan.batch)

    # Plans

    def pending(self, owned: Owned) -> bool:
        """Return whether a watermark must still be applied to the state."""
        return self._planner.pending(owned)

    def plan(self, owned: Owned) -> EpochPlan | None:
        """Return the next epoch; None if no rows wait and no watermark must be applied."""
        waiting = bool(owned.source.waiting().items)
        if not waiting and not self.pending(owned):
            return None
        self._reporter.report(step=Step.LOADING)
        batch = self._wait_for_batch()
        self._plan = self._reusable(batch, owned)
        if self._plan is not None:
            return epoch_plan(self._plan, owned.state.progress)
        planned: EpochPlan | None = None
        # Run at most one epoch without rows to replace a stale batch. On a slow machine, the
        # new batch may already be stale when it is open.
        self._refreshing = waiting and not self._refreshing and self._stale(owned.state)
        if waiting and not self._refreshing:
            planned = owned.source.plan(owned.state.progress, limits=owned.limits)
        if planned is None:
            planned = EpochPlan(reads=(), progress=owned.state.progress, final=True)
        pins = _versions(self._pins)
        self._plan = self._planner.batch_plan(batch, planned, owned=owned, pins=pins)
        self._folder.write_plan(self._plan)
        reached(CrashPoint.PLAN_WRITTEN)
        return epoch_plan(self._plan, owned.state.progress)

    def _wait_for_batch(self) -> int:
        """Wait until Spark has opened a batch, and return its number."""
        if self._open is None:
            self._open = self._running.opened(self._cancelled)
            reached(CrashPoint.BATCH_OPENED)
        return self._open

    @property
    def _running(self) -> RunningQuery:
        if self._query is None:
            raise InvariantError("the query is not started")
        return self._query

    def _reusable(self, batch: int, owned: Owned) -> BatchPlan | None:
        """Return the plan of a batch that a failed attempt stored, if it still applies."""
        stored = self._folder.plan(batch)
        if stored is None or not stored.moves:
            return None
        starts = {name: source.begin for name, source in stored.sources.items()}
        pinned = _versions(self._pins) == dict(stored.pins)
        return stored if pinned and starts == positions(owned.state.progress) else None

    def _stale(self, state: JobState) -> bool:
        """Return whether the open batch has an old current time or old static tables."""
        if self._open is None:
            return False
        # Spark sets the current time when it first opens a batch: soon after the last batch,
        # or before a restart.
        if query_of(state).uses_now:
            age = self._clock.now() - self._folder.opened_at(self._open)
            if age > _NOW_AGE_MAX:
                return True
        tables = self._parts.loop.tables
        return any(
            tables.open(lookup.table.location).version != lookup.version
            for lookup in self._pins.values()
        )

    # Runs

    def run(self, plan: EpochPlan, draft: Attachment, *, owned: Owned) -> tuple[Ack, ...]:
        """Run the open batch, and settle the batch before it."""
        if self._plan is None or self._plan.moves is not bool(plan.reads):
            raise InvariantError("a batch must be planned before it runs")
        keyed = query_of(owned.state).output is OutputMode.UPDATE
        staged = staged_folder(self._job_id, draft.attempt_id) if keyed else ""
        output = self._task(owned, staged=staged, replay=False)
        output = replace(
            output,
            output=replace(
                output.output,
                attempt_id=draft.attempt_id,
                number=draft.number,
                epoch=draft.epoch,
            ),
        )
        acks = self._run_batch(self._plan, output)
        notes = self._notes(self._plan)
        owned.source.count_requests(sum(note.counts.requests for note in notes))
        # One ack carries the notes of all readers.
        return (replace(acks[0], notes=notes), *acks[1:])

    def _task(self, owned: Owned, *, staged: str, replay: bool) -> StreamTask:
        definition, tables = owned.state.definition, self._parts.loop.tables
        return StreamTask(
            output=TaskPlan(
                task=0,
                attempt_id="",
                number=0,
                epoch=0,
                table_root=definition.table.location,
                rejects_root=tables.rejects_location(self._job_id),
                table_access=tables.task_access(definition.table.location),
                strict=True,
                columns=owned.handle.columns(),
                partition_by=owned.handle.partition_columns(),
                targets=definition.targets,
                place_columns=definition.place_columns,
                view_columns=(),
                output_names=tuple(column.name for column in query_of(owned.state).outputs),
                read=ReadTask(
                    source=definition.source,
                    access=owned.source.task_access(),
                    payload=None,
                    columns=(),
                    needed=(),
                    reads=(),
                ),
                staged_below=staged,
            ),
            replay=replay,
        )

    def _run_batch(self, plan: BatchPlan, task: StreamTask) -> list[Ack]:
        """Run the open batch with a plan; return the acks of its writers."""
        self._folder.clear_reports(plan.batch)
        with ThreadPoolExecutor(1) as second_thread:
            settled = second_thread.submit(self._folder.settle, plan.batch - 1)
            texts = self._running.run(to_text(task))
        reached(CrashPoint.BATCH_COLLECTED)
        results = [result_of(text) for text in texts]
        for result in results:
            if isinstance(result, Refusal):
                raise result.error
        acks = sorted((r for r in results if isinstance(r, Ack)), key=lambda ack: ack.task)
        if [ack.task for ack in acks] != list(range(len(acks))) or not acks:
            raise _declined(f"tasks reported the partitions {[ack.task for ack in acks]}")
        settled.result()
        reached(CrashPoint.BATCH_SETTLED)
        self._notes(plan)
        return acks

    def _notes(self, plan: BatchPlan) -> tuple[Note, ...]:
        """Return the notes of all readers; raise if a reader reported none."""
        notes: list[Note] = []
        for split, source in plan.sources.items():
            for slot, reads in enumerate(source.shares):
                if not reads:
                    continue
                report = self._folder.report(plan.batch, split, slot)
                if report is None:
                    raise _declined(f"reader {slot} of {split} reported no result")
                if report.refusal:
                    raise refusal_error(report.refusal)
                notes += report.notes
        return tuple(notes)

    def _reported_high(self, plan: BatchPlan) -> dict[str, int]:
        """Return the highest event time that the readers of a batch found, by split.

        The result includes only files without usable statistics. The plan contains the event
        times of the other files.
        """
        found: dict[str, int] = {}
        for split, source in plan.sources.items():
            for slot, reads in enumerate(source.shares):
                report = self._folder.report(plan.batch, split, slot)
                unknown = untimed(reads)
                for note in report.notes if report else ():
                    high = from_text(FileResult, note.result).high_ms
                    if note.read in unknown and high is not None:
                        found[split] = max(high, found.get(split, high))
        return found

    # Commits

    def attach(self, attachment: Attachment) -> Attachment:
        """Add the batch, the watermark and the size of the state."""
        if self._plan is None:
            raise InvariantError("a batch must be run before it is committed")
        self._plan = replace(self._plan, in_table=not self._plan.moves)
        plan = to_text(self._plan.without_shares())
        record = replace(self._record(self._plan), plan=plan)
        return replace(attachment, runner=to_text(record))

    def _record(self, plan: BatchPlan) -> BatchRecord:
        """Return the record of a batch that was run; it contains no plan."""
        rows, size_bytes = self._running.state_totals()
        return BatchRecord(
            checkpoint_id=self._folder.path.name,
            batch=plan.batch,
            watermark_ms=plan.watermark_ms,
            held_by=plan.held_by,
            state_rows=rows,
            state_bytes=size_bytes,
        )

    def committed(self, attachment: Attachment | None, *, owned: Owned) -> None:
        """Allow Spark to commit the batch to its checkpoint."""
        plan = self._plan
        if plan is None:
            raise InvariantError("a batch must be run before it is finished")
        if attachment is not None and query_of(owned.state).output is OutputMode.UPDATE:
            location = owned.state.definition.table.location
            self._parts.loop.tables.delete_staged(location, self._job_id)
        if attachment is None:
            self._store_batch(plan, owned.state)
        elif plan.in_table:
            # Without this record, a table that is older than the checkpoint would be accepted.
            self._folder.write_plan(plan)
            reached(CrashPoint.COMMIT_RECORDED)
        self._finish(plan, owned.state)
        if attachment is not None:
            self._folder.prune(plan.batch)

    def _store_batch(self, plan: BatchPlan, state: JobState) -> None:
        """Store the watermark and the state after a batch that the table has no commit of."""
        found, known = self._record(plan), state.batch
        same = known is not None and replace(found, batch=known.batch, plan=known.plan) == known
        if not same:
            self._parts.loop.catalog.append(
                self._job_id, WatermarkApplied(batch=found), expected=state.generation
            )

    def _finish(self, plan: BatchPlan, state: JobState) -> None:
        self._planner.follow(plan, found_high=self._reported_high(plan))
        # Spark reads the static tables as soon as it opens the next batch.
        self._pin(state, plan.batch + 1)
        self._running.finish()
        self._plan, self._open = None, None
        reached(CrashPoint.BATCH_RETURNED)

    def _pin(
        self, state: JobState, batch: int, *, versions: Mapping[str, int] | None = None
    ) -> None:
        """Pin the static tables of a batch to these versions, or to their newest ones."""
        limit = state.definition.properties.lookup_bytes_max
        tables = self._parts.loop.tables
        known = versions or {}
        self._pins = {
            table.name: pin(
                table, tables=tables, bytes_max=limit, version=known.get(table.name)
            )
            for table in query_of(state).lookups
        }
        if self._pins:
            self._folder.write_pins(batch, self._pins)

    def cancel(self) -> None:
        """Cancel the running tasks and every wait."""
        self._cancelled.set()
        query = self._query
        if query is not None:
            query.cancel()

    def close(self) -> None:
        """End the query and release the lock."""
        self._end_query()
        if self._lock is None:
            return
        self._lock.release()
        self._lock = None
        if self._parts.loop.catalog.job_by_id(self._job_id) is None:
            delete_unused(self._parts.checkpoints / self._job_id)

    def _end_query(self) -> None:
        query, self._query, self._open = self._query, None, None
        if query is not None:
            query.stop()


def _declined(detail: str) -> ExternalError:
    """Return the error of an epoch that lacks reports of its tasks; the epoch is retried."""
    return ExternalError(
        "the tasks of the epoch did not report all results",
        code=Code.TASKS_ABORT_ERR,
        detail=f"{detail}.",
        hint="The epoch is retried. If it fails again, read the log of Spark.",
    )


def _versions(pins: Mapping[str, Lookup]) -> dict[str, int]:
    """Return the versions of static tables, by name."""
    return {name: lookup.version for name, lookup in pins.items()}
