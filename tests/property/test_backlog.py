"""The backlog of a job under any order of polls, commits, crashes and statements.

The catalog, the keeper of the backlog and the merge are those of the product. Only the splits
and the table's log are in memory. A crash keeps the catalog, the log and the splits.
"""

import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from penstock.epochs.backlog import BacklogKeeper
from penstock.epochs.cadence import WakeRegistry, cadence_of, due_at, is_full
from penstock.model.backlog import (
    Backlog,
    Findings,
    LagMarks,
    LagUnit,
    fix_boundaries,
    merge,
    review,
)
from penstock.model.cadence import CadenceOptions
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import (
    Attachment,
    CommitKind,
    EpochLimits,
    EpochPlan,
    Generation,
)
from penstock.model.events import (
    BacklogEntered,
    BacklogFinished,
    BacklogLeft,
    BacklogReset,
    DefinitionChanged,
    DesiredStateChanged,
    apply,
)
from penstock.model.job import DesiredState, JobState
from penstock.model.job_kinds import STREAMING_TABLE, StreamingTableProperties
from penstock.model.split import (
    Amount,
    At,
    End,
    Note,
    Position,
    Progress,
    SplitProgress,
    SplitRead,
    SplitStatus,
)
from penstock.sources.source import EpochResult, Poll, ReportPoll, Source
from tests.contract.catalog.building import (
    JOB,
    START,
    TABLE,
    MovableClock,
    SqliteStore,
    commit,
    created,
)
from tests.property.backlogs import names, records

INTERVAL = timedelta(seconds=10)
HIGH, LOW = 6, 3
UPSTREAM = "job-up"
STREAM_ID = "table-up"
LEASE = timedelta(days=1)
rows = st.integers(0, 8)


@given(one=records, other=records, third=records)
def test_copies_are_merged_in_any_order(one: Backlog, other: Backlog, third: Backlog) -> None:
    assert merge(one, other) == merge(other, one)
    assert merge(merge(one, other), third) == merge(one, merge(other, third))
    assert merge(one, one) == one
    assert merge(merge(one, other), other) == merge(one, other)


@given(one=records, other=records)
def test_a_merge_never_opens_a_finished_split(one: Backlog, other: Backlog) -> None:
    merged = merge(one, other)

    newest = [copy for copy in (one, other) if copy.armed == merged.armed]
    done = {s.split for copy in newest for s in copy.splits if s.finished_at is not None}
    gone = {s.split for copy in newest for s in copy.splits if s.gone}
    assert {s.split for s in merged.splits if s.finished_at is not None} == done
    assert {s.split for s in merged.splits if s.gone} == gone


@given(amounts=st.lists(st.integers(0, 2 * HIGH), max_size=30))
def test_a_lag_between_the_marks_never_flips_the_backlog(amounts: list[int]) -> None:
    marks = LagMarks(unit=LagUnit.ROWS, high=HIGH, low=LOW)
    before, flips = False, []

    for amount in amounts:
        after = marks.lagging(Amount(rows=amount), before=before)
        flips += [(after, amount)] if after is not before else []
        before = after

    assert [after for after, _ in flips] == [index % 2 == 0 for index in range(len(flips))]
    assert all(amount > HIGH if after else amount < LOW for after, amount in flips)


@given(
    heads=st.dictionaries(names, rows),
    positions=st.fixed_dictionaries(dict.fromkeys("abc", rows)),
    later=st.fixed_dictionaries(dict.fromkeys("abc", rows)),
)
def test_t60_a_boundary_is_finished_if_and_only_if_its_split_has_reached_it(
    heads: dict[str, int], positions: dict[str, int], later: dict[str, int]
) -> None:
    boundaries: dict[str, Position] = {name: At(value=str(row)) for name, row in heads.items()}

    fixed = fix_boundaries(Backlog(), boundaries, _findings(positions))
    after = review(fixed, _findings(later), marks=None)

    unread = {name for name, row in heads.items() if positions[name] < row}
    reached = {name for name in unread if later[name] >= heads[name]}
    assert {split.split for split in fixed.splits if split.open} == unread
    assert {split.split for split in after.splits if split.open} == unread - reached
    assert bool(after.cause) == bool(unread - reached)


def _findings(positions: Mapping[str, int]) -> Findings:
    progress = tuple(_progress(name, At(value=str(row))) for name, row in positions.items())
    return Findings(
        progress=progress,
        passed=lambda name, boundary: positions[name] >= _row(boundary),
        remaining={},
        at=START,
    )


def _progress(name: str, position: Position) -> SplitProgress:
    return SplitProgress(split=name, floor=position, position=position, identity=STREAM_ID)


def _row(position: Position) -> int:
    assert isinstance(position, At)
    return int(position.value)


causes = st.sampled_from(["", "boundary", "lag", "upstream j"])
seconds = st.integers(0, 10**5).map(lambda value: timedelta(seconds=value))
backlog_intervals = (
    st.none() | st.just(timedelta(0)) | seconds.map(lambda more: INTERVAL + more)
)
amounts = st.builds(Amount, items=st.integers(0, 9), size_bytes=st.integers(0, 9))


@given(cause=causes, longer=backlog_intervals, since=seconds, waiting=amounts)
def test_an_epoch_is_never_due_later_than_an_effective_interval_after_the_last_one(
    cause: str, longer: timedelta | None, since: timedelta, waiting: Amount
) -> None:
    properties = StreamingTableProperties(
        checkpoint_interval=INTERVAL,
        epoch_files_max=5,
        epoch_bytes_max=5,
        cadence=CadenceOptions(interval_backlog=longer),
    )
    definition = replace(created().definition, properties=properties)
    cadence, now = cadence_of(definition, cause=cause), START + since

    due = due_at(cadence, last=START, waiting=waiting, now=now)

    effective = INTERVAL if not cause or longer is None else longer
    endless = not effective and cause.startswith("upstream")
    if endless and not is_full(cadence.limits, waiting):
        assert due is None
    else:
        assert due is not None
        assert due <= max(now, START + effective)


class Splits(Source):
    """Numbered rows in memory; a poll copies the number of rows of each split."""

    def __init__(self, world: "BacklogMachine", progress: Progress) -> None:
        self._world = world
        self._progress = progress
        self._known: dict[str, int] = {}

    def poll(self, progress: Progress, *, report: ReportPoll) -> Poll:
        report("rows")
        self._known = dict(self._world.rows)
        held = {split.split for split in progress}
        new = (
            _progress(name, At(value="0")) for name in sorted(self._known) if name not in held
        )
        kept = (split for split in progress if split.split in self._known)
        self._progress = (*kept, *new)
        return Poll(progress=self._progress, waiting=Amount())

    def heads(self) -> Mapping[str, Position]:
        known = self._known
        return {s.split: At(value=str(known[s.split])) for s in self._progress if known}

    def passed(
        self, split: str, boundary: Position, *, result: EpochResult | None = None
    ) -> bool:
        progress = self._progress if result is None else result.progress
        (found,) = (one for one in progress if one.split == split)
        return found.finished or _row(found.position) >= _row(boundary)

    def statuses(self) -> tuple[SplitStatus, ...]:
        return tuple(
            SplitStatus(split=split.split, remaining=Amount(rows=self._left(split)))
            for split in self._progress
        )

    def _left(self, split: SplitProgress) -> int:
        if split.finished:
            return 0
        return max(0, self._known.get(split.split, 0) - _row(split.position))

    def watched(self) -> tuple[str, ...]:
        return ("file:///up",)

    def waiting(self) -> Amount:
        return Amount(rows=sum(self._left(split) for split in self._progress))

    # The machine reads without plans.

    def plan(self, progress: Progress, *, limits: EpochLimits) -> EpochPlan | None:
        raise NotImplementedError

    def distribute(
        self, plan: EpochPlan, *, tasks: int, needed: Sequence[str]
    ) -> list[tuple[SplitRead, ...]]:
        raise NotImplementedError

    def advance(self, plan: EpochPlan, notes: Sequence[Note]) -> Progress:
        raise NotImplementedError

    def read(self, most: int) -> Progress:
        """Return the progress after an epoch that reads rows of each split."""
        return tuple(
            self._read(split, min(most, self._left(split))) for split in self._progress
        )

    def _read(self, split: SplitProgress, count: int) -> SplitProgress:
        if split.finished:
            return split
        row = _row(split.position) + count
        at_end = split.split in self._world.ended and row == self._world.rows[split.split]
        return replace(split, position=End() if at_end else At(value=str(row)))

    def committed(self, progress: Progress, notes: object) -> None:
        del notes
        self._progress = progress


class BacklogMachine(RuleBasedStateMachine):
    """A job with a catalog on disk, and the values that its backlog must have."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.wakes = WakeRegistry()
        self.clock = MovableClock()
        self.catalog = SqliteStore(self.folder, self.clock).open()
        # The truth: rows by split, and the splits that get no more rows.
        self.rows: dict[str, int] = {}
        self.ended: set[str] = set()
        self.table: list[Attachment] = []
        self.source: Splits | None = None
        self.state: JobState
        # The expected record: boundaries, their number, and the lagging splits.
        self.armed = 0
        self.arming = True
        self.boundaries: dict[str, int] = {}
        self.open: set[str] = set()
        self.lagging: set[str] = set()
        self.finished: Counter[tuple[int, str]] = Counter()
        self.upstream = False
        self.upstream_paused = False
        self.marks = (HIGH, LOW)

    @initialize(found=st.dictionaries(names, rows, max_size=2), longer=backlog_intervals)
    def create(self, found: dict[str, int], longer: timedelta | None) -> None:
        self.rows = dict(found)
        body = created()
        properties = StreamingTableProperties(
            checkpoint_interval=INTERVAL, cadence=_cadence(longer, self.marks)
        )
        definition = replace(
            body.definition, job_kind=STREAMING_TABLE.name, properties=properties
        )
        progress = tuple(_progress(name, At(value="0")) for name in sorted(found))
        opening = replace(body.opening, progress=progress)
        self.catalog.create_table(TABLE)
        self.table.append(opening)
        self.catalog.create_job(JOB, replace(body, definition=definition, opening=opening))
        self.create_upstream()
        self.state = self.stored

    def create_upstream(self) -> None:
        """Create a job that runs and writes the table that the splits read."""
        self.catalog.create_table(
            replace(TABLE, name="up", id=STREAM_ID, location="file:///up")
        )
        body = created("up", UPSTREAM)
        table = replace(body.definition.table, name="up", id=STREAM_ID, location="file:///up")
        definition = replace(body.definition, table=table)
        self.catalog.create_job(UPSTREAM, replace(body, definition=definition))
        self.take_lease(UPSTREAM)

    def teardown(self) -> None:
        self.catalog.close()
        shutil.rmtree(self.folder)

    @property
    def stored(self) -> JobState:
        """The state of the job in the catalog."""
        state = self.catalog.job_by_id(JOB)
        assert state is not None
        return state

    @property
    def keeper(self) -> BacklogKeeper:
        """A keeper without any memory."""
        return BacklogKeeper(catalog=self.catalog, clock=self.clock, wakes=self.wakes)

    def take_lease(self, job_id: str) -> JobState:
        """Raise the generation of a job, as a takeover does."""
        state = self.catalog.job_by_id(job_id)
        assert state is not None
        number = state.generation.number + 1
        return self.catalog.acquire_lease(
            job_id,
            node_id="node",
            duration=LEASE,
            expected=state.generation,
            generation=Generation(number=number, id=f"id of {number}"),
        )

    # The data.

    @rule(name=names, more=rows)
    def rows_arrive(self, name: str, more: int) -> None:
        if name not in self.ended:
            self.rows[name] = self.rows.get(name, 0) + more

    @rule(name=names)
    def a_split_ends(self, name: str) -> None:
        if name in self.rows:
            self.ended.add(name)

    @rule(name=names)
    def a_split_is_removed(self, name: str) -> None:
        # A name is never used again.
        if self.rows.pop(name, None) is not None:
            self.ended.add(name)

    # The runner.

    @precondition(lambda self: self.source is None and self.runs)
    @rule()
    def the_job_is_taken_over(self) -> None:
        self.take_lease(JOB)
        newest = self.table[-1]
        self.table.append(
            replace(newest, kind=CommitKind.FENCE, number=newest.number + 1, epoch=0)
        )
        for attachment in self.table[1:]:
            self.apply(attachment)
        self.state = self.stored
        self.source = Splits(self, self.state.progress)

    @property
    def runs(self) -> bool:
        """Whether the job is to run."""
        return self.stored.desired.state is DesiredState.RUN

    def apply(self, attachment: Attachment) -> JobState:
        """Apply a commit that the table's log returned."""
        written = from_text(Attachment, to_text(attachment))
        return self.catalog.apply_commit(
            JOB, written, table_version=attachment.number, commit_seconds=0.1
        )

    @precondition(lambda self: self.source is not None)
    @rule()
    def a_poll_fails(self) -> None:
        assert self.source is not None
        with suppress(TimeoutError):
            self.source.poll(self.state.progress, report=_fail)
        self.check_flag(self.stored)

    @precondition(lambda self: self.source is not None)
    @rule(killed=st.booleans(), reset_meanwhile=st.booleans())
    def a_poll_succeeds(self, *, killed: bool, reset_meanwhile: bool = False) -> None:
        assert self.source is not None
        self.clock.move(seconds=1)
        arm_event, arming = self.state.arm_event, self.arming
        polled = self.source.poll(self.state.progress, report=lambda _: None)
        if reset_meanwhile:
            self.a_user_resets_the_backlog()
        before, reader = bool(self.state.backlog_cause), threading.Event()
        with self.wakes.registered([TABLE.location], reader):
            self.state = self.keeper.after_poll(
                self.state, polled.progress, self.source, arm_event=arm_event
            )
        # T64: a reader waits no longer when the job leaves its backlog.
        assert reader.is_set() == (bool(self.state.backlog_cause) != before)

        if arming:
            self.expect_fixing(polled.progress)
        self.arming = reset_meanwhile
        assert self.state.boundaries_due is reset_meanwhile
        self.expect_review(polled.progress, self.source.statuses())
        self.check_flag(self.stored)
        if killed:
            self.source = None

    @precondition(lambda self: self.source is not None and self.source.heads())
    @rule(most=rows, killed_after=st.sampled_from(["", "table", "catalog"]))
    def an_epoch_is_committed(self, most: int, killed_after: str) -> None:
        assert self.source is not None
        # Every plan follows a poll, which fixes boundaries that are due.
        self.a_poll_succeeds(killed=False)
        result = EpochResult(progress=self.source.read(most), notes=())
        remaining = self.source.statuses()
        number = self.table[-1].number + 1
        attachment = commit(number, progress=result.progress)
        record = self.keeper.record_for_commit(
            self.state, self.source, result=result, epoch=attachment.epoch
        )
        self.table.append(replace(attachment, backlog=record))
        self.expect_review(result.progress, remaining)
        if killed_after == "table":
            self.source = None
            return
        self.state = self.apply(self.table[-1])
        if killed_after == "catalog":
            self.source = None
            return
        self.source.committed(result.progress, ())
        self.expect_review(result.progress, self.source.statuses())
        self.state = self.keeper.after_commit(self.state, self.source)
        self.check_flag(self.state)

    @rule()
    def the_process_is_killed(self) -> None:
        self.source = None

    # Statements and automatic changes of the state.

    @rule()
    def a_user_pauses_the_job(self) -> None:
        self.change_state(DesiredState.PAUSE)

    @rule(resumes=st.sampled_from([0, 1]))
    def the_job_is_resumed(self, resumes: int) -> None:
        if not self.runs:
            self.change_state(DesiredState.RUN, auto_resumes=resumes)
            self.arming = self.arming or not resumes

    def change_state(self, state: DesiredState, *, auto_resumes: int = 0) -> None:
        """Change the desired state, which ends the runner."""
        self.source = None
        number = self.stored.generation.number + 1
        self.catalog.append(
            JOB,
            DesiredStateChanged(
                state=state,
                reason=None,
                generation=Generation(number=number, id=f"id of {number}"),
                auto_resumes=auto_resumes,
            ),
            expected=None,
        )

    @precondition(lambda self: not self.runs)
    @rule(longer=backlog_intervals, marks=st.sampled_from([(HIGH, LOW), (4, 1), (8, 7)]))
    def a_user_alters_the_job(self, longer: timedelta | None, marks: tuple[int, int]) -> None:
        before = self.stored.definition
        properties = replace(before.properties, cadence=_cadence(longer, marks))
        after = replace(before, revision=before.revision + 1, properties=properties)
        self.catalog.append(JOB, DefinitionChanged(definition=after), expected=None)
        self.marks = marks

    @rule()
    def a_user_resets_the_backlog(self) -> None:
        self.catalog.append(JOB, BacklogReset(), expected=None)
        # The runner reads the state again when it wakes up.
        self.state = self.stored
        self.arming = True

    @precondition(lambda self: self.source is None and self.stored.progress)
    @rule(row=rows)
    def a_user_moves_the_positions(self, row: int) -> None:
        for attachment in self.table[1:]:
            self.apply(attachment)
        newest = self.table[-1]
        progress = tuple(
            replace(split, position=At(value=str(min(row, self.rows.get(split.split, 0)))))
            for split in newest.progress
        )
        moved = replace(
            newest, kind=CommitKind.MOVE, number=newest.number + 1, progress=progress
        )
        self.table.append(moved)
        self.apply(moved)
        self.arming = True

    @rule(entered=st.booleans())
    def the_upstream_job_changes_its_backlog(self, *, entered: bool) -> None:
        record = Backlog(armed=1)
        body = BacklogEntered(cause="boundary", record=record, since=START)
        self.catalog.append(
            UPSTREAM, body if entered else BacklogLeft(record=record), expected=None
        )
        self.upstream = entered

    @rule(paused=st.booleans())
    def the_upstream_job_is_paused_or_resumed(self, *, paused: bool) -> None:
        state = self.catalog.job_by_id(UPSTREAM)
        assert state is not None
        self.catalog.append(
            UPSTREAM,
            DesiredStateChanged(
                state=DesiredState.PAUSE if paused else DesiredState.RUN,
                reason=None,
                generation=state.generation,
            ),
            expected=None,
        )
        self.upstream_paused = paused

    # The expected values.

    def expect_fixing(self, progress: Progress) -> None:
        """Fix the expected boundaries."""
        self.armed += 1
        self.boundaries = {
            split.split: self.rows[split.split]
            for split in progress
            if not split.finished and _row(split.position) < self.rows[split.split]
        }
        self.open = set(self.boundaries)

    def expect_review(self, progress: Progress, statuses: tuple[SplitStatus, ...]) -> None:
        """Apply a poll or a commit to the expected values."""
        current = {split.split: split for split in progress}
        for name in sorted(self.open):
            split = current.get(name)
            if split is None or split.finished or _row(split.position) >= self.boundaries[name]:
                self.open.remove(name)
                self.finished[self.armed, name] += 1
        for status in statuses:
            left = status.remaining.rows or 0
            high, low = self.marks
            if left > high:
                self.lagging.add(status.split)
            elif left < low:
                self.lagging.discard(status.split)
        self.lagging &= set(current)

    def check_flag(self, state: JobState) -> None:
        """Require that the flag of a running job equals its definition."""
        if self.source is None or not self.armed:
            return
        own = "boundary" if self.open else "lag" if self.lagging else ""
        if own or state is not self.state:
            assert state.backlog.cause == own
        if own:
            assert state.backlog_cause == own
        elif state is not self.state:
            assert state.backlog_cause in ("", "upstream up")
        cadence = cadence_of(state.definition, cause=state.backlog_cause)
        now, waiting = self.clock.now(), Amount(items=1, size_bytes=1)
        due = due_at(cadence, last=START, waiting=waiting, now=now)
        assert due is None or due <= max(now, START + cadence.interval)

    @precondition(lambda self: self.source is not None)
    @rule()
    def the_flag_follows_the_upstream_job(self) -> None:
        self.a_poll_succeeds(killed=False)

        own = self.stored.backlog.cause
        fed = self.stored.progress and self.upstream and not self.upstream_paused
        assert self.stored.backlog_cause == (own or ("upstream up" if fed else ""))

    @invariant()
    def each_boundary_that_is_reached_has_one_event(self) -> None:
        found = Counter(
            (event.body.armed, event.body.split.split)
            for event in self.catalog.events(JOB)
            if isinstance(event.body, BacklogFinished)
        )
        # A commit that only the table has is applied by the next takeover.
        pending = self.table and self.stored.number < self.table[-1].number
        assert found <= self.finished
        assert pending or found == self.finished

    @invariant()
    def t61_only_a_user_moves_the_boundaries(self) -> None:
        record = self.stored.backlog
        boundaries = {
            split.split: _row(split.boundary)
            for split in record.splits
            if split.boundary is not None
        }
        assert record.armed == self.armed
        assert boundaries == self.boundaries

    @invariant()
    def the_state_is_the_fold_of_its_events(self) -> None:
        state: JobState | None = None
        for event in self.catalog.events(JOB):
            state = apply(state, event)
        assert state == self.stored


def _cadence(longer: timedelta | None, marks: tuple[int, int]) -> CadenceOptions:
    high, low = marks
    return CadenceOptions(
        lag_high=f"{high} rows", lag_low=f"{low} rows", interval_backlog=longer
    )


def _fail(text: str) -> None:
    raise TimeoutError(text)


TestBacklog: Any = BacklogMachine.TestCase
TestBacklog.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("found", [{}, {"a": 3}])
def test_a_reset_during_a_poll_is_fulfilled_by_the_next_poll(found: dict[str, int]) -> None:
    machine = BacklogMachine()
    machine.create(found, None)
    machine.the_job_is_taken_over()

    machine.a_poll_succeeds(killed=False, reset_meanwhile=True)
    machine.a_poll_succeeds(killed=False)

    assert machine.stored.backlog.armed == 2
    machine.t61_only_a_user_moves_the_boundaries()
    machine.teardown()
