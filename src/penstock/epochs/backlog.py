"""Keep the record of a job's backlog up to date: after polls, before and after commits.

Invariant: the boundaries are stored before the first plan that uses them. A split is marked
as finished in the transaction that applies a commit, or after a complete poll.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from penstock.catalog.catalog import Catalog
from penstock.clock import Clock
from penstock.crashpoints import CrashPoint, reached
from penstock.epochs.cadence import WakeRegistry
from penstock.errors import StoppedError
from penstock.model.backlog import (
    UPSTREAM,
    Backlog,
    Findings,
    fix_boundaries,
    newly_finished,
    review,
)
from penstock.model.cadence import DOWNSTREAM
from penstock.model.epoch import EpochPlan
from penstock.model.events import BacklogEntered, BacklogFinished, BacklogLeft, EventBody
from penstock.model.job import DesiredState, JobState
from penstock.model.split import Progress
from penstock.sources.source import EpochResult, Source

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class BacklogKeeper:
    """The backlog and the target lag of one job; called only in the thread of its loop."""

    catalog: Catalog
    clock: Clock
    wakes: WakeRegistry
    # The target lag at the last poll; None if the job has an interval.
    target: timedelta | None = None
    # The ids of the input tables that a running job in backlog writes, at the last poll.
    fed: frozenset[str] = frozenset()

    def after_poll(
        self, state: JobState, progress: Progress, source: Source, *, arm_event: int
    ) -> JobState:
        """Set requested boundaries, apply a successful poll, and store changes.

        ``arm_event`` is the newest request for boundaries before the poll. The next poll
        handles later requests.
        """
        self.target = self._target(state)
        found = self._findings(state, progress, source)
        record = state.backlog
        if arm_event > state.armed_event:
            record = fix_boundaries(record, source.heads(), found)
        return self._store(state, _reviewed(state, record, found), source, arm_event=arm_event)

    def record_for_commit(
        self, state: JobState, source: Source, *, result: EpochResult, epoch: int
    ) -> Backlog:
        """Return the backlog record for the attachment."""
        found = self._findings(state, result.progress, source, result=result)
        return _reviewed(state, state.backlog, replace(found, epoch=epoch))

    def after_commit(self, state: JobState, source: Source) -> JobState:
        """Apply the lag after an epoch, and store whether the job is still in backlog."""
        found = self._findings(state, state.progress, source)
        record = _reviewed(state, state.backlog, found)
        return self._store(state, record, source, arm_event=state.arm_event)

    @contextmanager
    def preparing(
        self, state: JobState, source: Source, plan: EpochPlan, *, stop: threading.Event
    ) -> Iterator[None]:
        """Read ahead in a second thread while an epoch of a job in backlog runs and commits."""
        if not state.backlog_cause or not plan.final:
            yield
            return
        failed = threading.Event()

        def check(_: str) -> None:
            if failed.is_set() or stop.is_set():
                raise StoppedError("the epoch ended before the next one was listed")

        with ThreadPoolExecutor(1) as second_thread:
            ahead = second_thread.submit(source.prepare, plan.progress, report=check)
            try:
                yield
            except BaseException:
                failed.set()
                raise
        if error := ahead.exception():
            # The next poll repeats the requests, and raises this error if it persists.
            log.debug("reading ahead failed", reason=str(error))

    def _findings(
        self,
        state: JobState,
        progress: Progress,
        source: Source,
        *,
        result: EpochResult | None = None,
    ) -> Findings:
        # Statuses can be slow, and only the lag rule needs them.
        ruled = state.definition.properties.cadence.marks is not None
        statuses = source.statuses() if ruled else ()
        return Findings(
            progress=progress,
            passed=lambda split, boundary: source.passed(split, boundary, result=result),
            remaining={status.split: status.remaining for status in statuses},
            at=self.clock.now(),
        )

    def _store(
        self, state: JobState, record: Backlog, source: Source, *, arm_event: int
    ) -> JobState:
        upstreams = self._upstreams(state, source)
        self.fed = frozenset(upstreams)
        cause = record.cause or next(iter(upstreams.values()), "")
        bodies: list[EventBody] = [
            BacklogFinished(armed=record.armed, split=split)
            for split in newly_finished(state.backlog, record)
        ]
        fixed = record.armed != state.backlog.armed
        lags_changed = _lags(record) != _lags(state.backlog)
        if fixed or lags_changed or cause != state.backlog_cause:
            since = state.backlog_since or self.clock.now()
            entered = BacklogEntered(
                cause=cause, record=record, since=since, arm_event=arm_event
            )
            was_in_backlog = bool(state.backlog_cause)
            left = BacklogLeft(record=record, entered=was_in_backlog, arm_event=arm_event)
            bodies.append(entered if cause else left)
        if not bodies:
            return state
        after = self.catalog.append(state.id, *bodies, expected=state.generation)
        reached(CrashPoint.BACKLOG_STORED)
        if bool(cause) != bool(state.backlog_cause):
            # The cadence of the jobs that read the table depends on this job.
            self.wakes.wake(state.definition.table.location)
        return after

    def _target(self, state: JobState) -> timedelta | None:
        """Return the target lag; with ``downstream``, the smallest target of the readers."""
        cadence = state.definition.properties.cadence
        if cadence.freshness != DOWNSTREAM:
            return cadence.target
        targets = downstream_targets(state, self.catalog.jobs())
        return min(targets, default=state.definition.properties.interval)

    def _upstreams(self, state: JobState, source: Source) -> dict[str, str]:
        """Return a backlog cause for each input that a running job in backlog writes, by id."""
        if not source.watched():
            return {}
        found = {}
        leases = self.catalog.leases()
        for writer in self.catalog.writers({split.identity for split in state.progress}):
            lease = leases.get(writer.id)
            runs = writer.desired.state is DesiredState.RUN and lease is not None and lease.live
            if runs and writer.backlog_cause and writer.id != state.id:
                found[writer.definition.table.id] = f"{UPSTREAM} {writer.name}"
        return found


def _reviewed(state: JobState, record: Backlog, found: Findings) -> Backlog:
    """Return a record after applying the findings and the lag limits of the job."""
    return review(record, found, marks=state.definition.properties.cadence.marks)


def downstream_targets(state: JobState, jobs: Sequence[JobState]) -> Iterator[timedelta]:
    """Yield the target lags of the running jobs that read a table, also through other tables.

    A job cannot read its own table, directly or through other tables, so the search ends.
    """
    for reader in jobs:
        inputs = {split.identity for split in reader.progress}
        runs = reader.desired.state is DesiredState.RUN
        if reader.id == state.id or not runs or state.definition.table.id not in inputs:
            continue
        properties = reader.definition.properties
        if properties.cadence.freshness == DOWNSTREAM:
            yield from downstream_targets(reader, jobs)
        else:
            yield properties.cadence.target or properties.interval


def _lags(record: Backlog) -> dict[str, int]:
    return {split.split: split.lag_changes for split in record.splits if split.lag_changes}
