"""A job's state is the fold of its events, also if events are repeated or reordered."""

from dataclasses import replace
from datetime import timedelta
from functools import reduce
from random import Random

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.model.backlog import Backlog
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import Attachment, BatchRecord, CommitKind, Generation, Statistics
from penstock.model.events import (
    BacklogEntered,
    BacklogFinished,
    BacklogLeft,
    BacklogReset,
    Committed,
    DefinitionChanged,
    DesiredStateChanged,
    EpochEnded,
    EpochRequested,
    Event,
    EventBody,
    GenerationRaised,
    NoticesChanged,
    Outcome,
    QueryStarted,
    WatermarkApplied,
    apply,
)
from penstock.model.job import DesiredState, JobState, Reason
from penstock.model.split import SplitProgress
from tests.contract.catalog.building import (
    DEFINITION,
    JOB,
    START,
    commit,
    created,
    started,
)
from tests.property.backlogs import records
from tests.property.reflection import values_of

# A small range, so that numbers repeat, and smaller numbers follow larger ones.
numbers = st.integers(min_value=2, max_value=12)
positions = st.lists(values_of(SplitProgress), max_size=2).map(tuple)
instants = st.integers(0, 10_000).map(lambda seconds: START + timedelta(seconds=seconds))


def generation(number: int) -> Generation:
    """Return the only generation with this number; compare-and-set prevents a second one."""
    return Generation(number=number, id=f"id of {number}")


def fold(state: JobState | None, events: list[Event]) -> JobState:
    """Return the state after the events."""
    for event in events:
        state = apply(state, event)
    assert state is not None
    return state


class Journal(RuleBasedStateMachine):
    """The events of a job, with a snapshot of its state after each event."""

    def __init__(self) -> None:
        super().__init__()
        self.events = [Event(job_id=JOB, number=1, at=START, body=created())]
        self.snapshots = [to_text(apply(None, self.events[0]))]
        self.attachments: dict[int, Attachment] = {}

    @property
    def live(self) -> JobState:
        """The state after all events so far."""
        return from_text(JobState, self.snapshots[-1])

    def append(self, body: EventBody) -> None:
        """Store one more event."""
        number = len(self.events) + 1
        at = START + timedelta(seconds=number)
        self.events.append(Event(job_id=JOB, number=number, at=at, body=body))
        self.snapshots.append(to_text(apply(self.live, self.events[-1])))

    @rule(revision=numbers)
    def alter(self, revision: int) -> None:
        definition = replace(DEFINITION, revision=revision, comment=f"revision {revision}")
        self.append(DefinitionChanged(definition=definition))

    @rule(
        state=st.sampled_from(DesiredState),
        reason=st.none() | values_of(Reason),
        number=numbers,
        resumes=st.integers(0, 5),
        resumed_at=st.none() | instants,
        rejected_before=st.none() | st.integers(0, 9),
    )
    def want(self, number: int, resumes: int, **record: object) -> None:
        body = {**record, "generation": generation(number), "auto_resumes": resumes}
        self.append(DesiredStateChanged(**body))  # type: ignore[arg-type]

    @rule(number=numbers)
    def take_over(self, number: int) -> None:
        self.append(GenerationRaised(generation=generation(number), cause="lease"))

    @rule(epoch=numbers)
    def start_epoch(self, epoch: int) -> None:
        self.append(started(epoch))

    @rule(epoch=numbers, outcome=st.sampled_from([Outcome.CANCELLED, Outcome.FAILED]))
    def end_epoch(self, epoch: int, outcome: Outcome) -> None:
        self.append(
            EpochEnded(
                attempt_id=f"{epoch}", epoch=epoch, attempt=1, outcome=outcome, reason=None
            )
        )

    @rule(
        number=numbers,
        kind=st.sampled_from(CommitKind),
        progress=positions,
        cumulative=values_of(Statistics),
        epoch=numbers,
        committed_at=instants,
    )
    def commit(self, number: int, **parts: object) -> None:
        attachment = self.attachments.setdefault(number, commit(number, **parts))
        self.append(Committed(attachment=attachment, table_version=number))

    @rule(files=st.integers(0, 9))
    def notice_modified_files(self, files: int) -> None:
        self.append(NoticesChanged(notices=(("files_modified", files),)))

    @rule(advance_ms=st.none() | st.integers(0, 9))
    def request_an_epoch(self, advance_ms: int | None) -> None:
        self.append(EpochRequested(advance_ms=advance_ms))

    @rule(batch=numbers)
    def start_a_query(self, batch: int) -> None:
        self.append(
            QueryStarted(committed=batch, opened=batch, in_table=batch, verdict="continue")
        )

    @rule(batch=numbers)
    def apply_a_watermark(self, batch: int) -> None:
        record = BatchRecord(checkpoint_id="c", batch=batch, watermark_ms=batch)
        self.append(WatermarkApplied(batch=record))

    @rule(record=records, cause=st.sampled_from(["boundary", "lag"]))
    def enter_the_backlog(self, record: Backlog, cause: str) -> None:
        self.append(BacklogEntered(cause=cause, record=record, since=START))

    @rule(record=records)
    def finish_the_splits(self, record: Backlog) -> None:
        for split in record.splits:
            self.append(BacklogFinished(armed=record.armed, split=split))

    @rule(record=records)
    def leave_the_backlog(self, record: Backlog) -> None:
        self.append(BacklogLeft(record=record))

    @rule()
    def reset_the_backlog(self) -> None:
        self.append(BacklogReset())

    @rule(random=st.randoms(use_true_random=False))
    def any_event_again_changes_nothing(self, random: Random) -> None:
        again = random.choice(self.events)

        assert apply(self.live, again) == self.live

    @rule(random=st.randoms(use_true_random=False))
    def any_order_after_the_first_gives_the_same_state(self, random: Random) -> None:
        shuffled = random.sample(self.events[1:], len(self.events) - 1)
        twice = shuffled + random.sample(shuffled, len(shuffled) // 2)

        assert to_text(fold(None, [self.events[0], *twice])) == self.snapshots[-1]

    @rule(random=st.randoms(use_true_random=False))
    def replay_from_any_snapshot_gives_the_same_state(self, random: Random) -> None:
        taken_after = random.randrange(len(self.events))
        kept_from = random.randrange(taken_after + 1)
        snapshot = from_text(JobState, self.snapshots[taken_after])

        assert to_text(fold(snapshot, self.events[kept_from:])) == self.snapshots[-1]

    @precondition(lambda self: self.attachments)
    @invariant()
    def progress_is_that_of_the_newest_commit(self) -> None:
        newest = self.attachments[max(self.attachments)]

        assert self.live.number == newest.number
        assert self.live.progress == newest.progress
        assert self.live.cumulative == newest.cumulative

    @invariant()
    def the_highest_requested_watermark_is_stored(self) -> None:
        requests = [e.body for e in self.events if isinstance(e.body, EpochRequested)]
        marks = [body.advance_ms for body in requests if body.advance_ms is not None]

        assert self.live.advance_ms == max(marks, default=None)

    @invariant()
    def the_newest_desired_state_is_current(self) -> None:
        changes = [
            event.body for event in self.events if isinstance(event.body, DesiredStateChanged)
        ]

        expected = (
            (changes[-1].state, changes[-1].reason) if changes else (DesiredState.RUN, None)
        )
        assert (self.live.desired.state, self.live.desired.reason) == expected

    @invariant()
    def rows_rejected_before_the_last_resume_are_stored(self) -> None:
        changes = [
            event.body for event in self.events if isinstance(event.body, DesiredStateChanged)
        ]
        counts = [one.rejected_before for one in changes if one.rejected_before is not None]

        assert self.live.rejected_before == (counts[-1] if counts else 0)

    @invariant()
    def replay_from_scratch_gives_the_same_bytes(self) -> None:
        from_scratch = reduce(apply, self.events[1:], apply(None, self.events[0]))

        assert to_text(from_scratch) == self.snapshots[-1]


TestJournal = Journal.TestCase
TestJournal.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
