"""Automatic resumes of jobs that a failure paused."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from penstock.errors import Code, ExternalError, UserError
from penstock.model.epoch import CommitKind
from penstock.model.events import Committed, Event, apply
from penstock.model.job import Desired, DesiredState, JobState, Reason
from penstock.model.job_kinds import ROUTINE_LOAD
from penstock.supervisor.restart import (
    NEVER_RESUMED,
    next_resumes,
    pause_for,
    resume_at,
)
from tests.contract.catalog.building import JOB, commit, created
from tests.error_values import assert_names

PAUSED_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
RESUMED_AT = PAUSED_AT - timedelta(seconds=2)
CREATED = apply(None, Event(job_id=JOB, number=1, at=PAUSED_AT, body=created()))
OUTAGE = ExternalError("the disk did not respond", detail="Two requests failed.")


def paused(
    code: Code = Code.STORAGE_ERR,
    *,
    resumes: int = 0,
    desired: DesiredState = DesiredState.PAUSE,
) -> JobState:
    """Return a paused job with a number of automatic resumes."""
    record = Desired(
        state=desired,
        reason=Reason(code=code, message="it failed"),
        event=10,
        changed_at=PAUSED_AT,
        auto_resumes=resumes,
        resumed_at=RESUMED_AT if resumes else None,
    )
    return replace(CREATED, desired=record)


def routine(state: JobState) -> JobState:
    """Return the same state as a routine load."""
    return replace(state, definition=replace(state.definition, job_kind="ROUTINE_LOAD"))


def test_the_first_resume_is_immediate() -> None:
    due = resume_at(paused())

    assert due == PAUSED_AT


@pytest.mark.parametrize(
    ("resumes", "seconds"),
    [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (7, 300), (9, 300)],
)
def test_the_delay_of_later_resumes_doubles_up_to_a_limit(resumes: int, seconds: int) -> None:
    due = resume_at(paused(resumes=resumes))

    assert due == RESUMED_AT + timedelta(seconds=seconds)


@pytest.mark.parametrize("resumes", [10, 11, 1000])
def test_a_job_that_still_fails_after_ten_resumes_stays_paused(resumes: int) -> None:
    assert resume_at(paused(resumes=resumes)) is None


@pytest.mark.parametrize("resumes", [10, 11, 1000])
def test_a_routine_load_is_resumed_without_a_limit(resumes: int) -> None:
    state = routine(paused(resumes=resumes))

    event = pause_for(OUTAGE, state=routine(paused(resumes=resumes, desired=DesiredState.RUN)))

    assert resume_at(state) == RESUMED_AT + ROUTINE_LOAD.resume_policy.delay_max
    assert event.reason is not None
    assert event.reason.code is OUTAGE.code
    assert event.auto_resumes == resumes


@pytest.mark.parametrize(
    ("minutes", "resumes"), [(1, 4), (10, 4), (10.1, 1), (600, 1)], ids=str
)
def test_the_resume_count_of_a_routine_load_restarts_after_ten_minutes_without_a_resume(
    minutes: float, resumes: int
) -> None:
    now = RESUMED_AT + timedelta(minutes=minutes)

    load = next_resumes(routine(paused(resumes=3)), now=now)
    job = next_resumes(paused(resumes=3), now=now)

    assert (load, job) == (resumes, 4)


def test_the_first_resume_of_a_routine_load_counts_as_one() -> None:
    assert next_resumes(routine(paused()), now=PAUSED_AT) == 1


@pytest.mark.parametrize("code", sorted(NEVER_RESUMED))
def test_an_error_that_a_user_must_fix_is_never_resumed(code: Code) -> None:
    assert resume_at(paused(code)) is None


def test_all_other_errors_are_resumed() -> None:
    others = set(Code) - NEVER_RESUMED

    assert {
        Code.MANUAL_PAUSE_ERR,
        Code.TOO_MANY_FAILURE_ROWS_ERR,
        Code.CANNOT_RESUME_ERR,
        Code.FILE_ERR,
        Code.NOT_SUPPORTED_ERR,
        Code.OPTION_ERR,
        Code.TYPE_ERR,
        Code.TABLE_CHANGED_ERR,
        Code.STREAM_CHANGED_ERR,
        Code.SOURCE_REWRITTEN_ERR,
        Code.CATALOG_BEHIND_ERR,
        Code.CHECKPOINT_LOST_ERR,
        Code.CHECKPOINT_FOREIGN_ERR,
        Code.CHECKPOINT_DAMAGED_ERR,
        Code.CHECKPOINT_BEHIND_ERR,
    } == NEVER_RESUMED
    assert all(resume_at(paused(code)) == PAUSED_AT for code in others)


@pytest.mark.parametrize("desired", [DesiredState.RUN, DesiredState.DROP, DesiredState.CLOSED])
def test_a_job_that_is_not_paused_is_not_resumed(desired: DesiredState) -> None:
    assert resume_at(paused(desired=desired)) is None


def test_a_pause_without_a_reason_is_never_resumed() -> None:
    state = paused()
    unexplained = replace(state, desired=replace(state.desired, reason=None))

    assert resume_at(unexplained) is None


def test_a_failure_pauses_the_job_with_its_code_message_and_detail() -> None:
    event = pause_for(OUTAGE, state=CREATED)

    assert event.state is DesiredState.PAUSE
    assert event.reason == Reason(
        code=OUTAGE.code, message="the disk did not respond. Two requests failed"
    )
    assert event.generation == CREATED.generation
    assert event.auto_resumes == 0


def test_a_failure_keeps_the_count_of_resumes() -> None:
    state = paused(resumes=3, desired=DesiredState.RUN)

    event = pause_for(OUTAGE, state=state)

    assert event.auto_resumes == 3
    assert event.resumed_at == RESUMED_AT


def test_a_success_after_the_last_resume_resets_the_count() -> None:
    state = replace(paused(resumes=3, desired=DesiredState.RUN), succeeded_event=11)

    event = pause_for(OUTAGE, state=state)

    assert event.auto_resumes == 0


def test_a_success_before_the_last_resume_keeps_the_count() -> None:
    state = replace(paused(resumes=3, desired=DesiredState.RUN), succeeded_event=9)

    event = pause_for(OUTAGE, state=state)

    assert event.auto_resumes == 3


def test_the_eleventh_failure_in_a_row_cannot_be_resumed_and_names_the_last_error() -> None:
    state = paused(resumes=10, desired=DesiredState.RUN)

    event = pause_for(OUTAGE, state=state)

    assert event.reason is not None
    assert event.reason.code is Code.CANNOT_RESUME_ERR
    assert_names(event.reason.message, 10, "the disk did not respond. Two requests failed")


def test_bad_rows_keep_their_own_code_after_many_resumes() -> None:
    bad = UserError("line 3: broken", code=Code.TOO_MANY_FAILURE_ROWS_ERR)

    event = pause_for(bad, state=paused(resumes=10, desired=DesiredState.RUN))

    assert event.reason == Reason(code=Code.TOO_MANY_FAILURE_ROWS_ERR, message="line 3: broken")


@pytest.mark.parametrize(
    ("kind", "succeeded"), [(CommitKind.EPOCH, 2), (CommitKind.FENCE, 0), (CommitKind.MOVE, 0)]
)
def test_only_the_commit_of_an_epoch_counts_as_a_success(
    kind: CommitKind, succeeded: int
) -> None:
    body = Committed(attachment=commit(2, kind=kind), table_version=2)

    state = apply(CREATED, Event(job_id=JOB, number=2, at=PAUSED_AT, body=body))

    assert state.succeeded_event == succeeded
