"""Decide when a paused job is resumed automatically, and when an epoch is overdue.

All functions are pure. The first automatic resume is immediate. The following delays start at
ten seconds and double up to five minutes, measured from the last resume. A job that a user
paused is never resumed automatically. A job with an error that a user must fix, such as bad
rows, is not resumed either. The limits are part of the job kind.
"""

from datetime import datetime

from penstock.epochs.progress import Progress, Step
from penstock.errors import Code, PenstockError
from penstock.model.events import DesiredStateChanged
from penstock.model.job import DesiredState, JobState, Reason

NEVER_RESUMED = frozenset(
    {
        Code.MANUAL_PAUSE_ERR,
        Code.TOO_MANY_FAILURE_ROWS_ERR,
        Code.CANNOT_RESUME_ERR,
        Code.FILE_ERR,
        Code.NOT_SUPPORTED_ERR,
        Code.OPTION_ERR,
        Code.TYPE_ERR,
        Code.TABLE_CHANGED_ERR,
        Code.STREAM_CHANGED_ERR,
        Code.CATALOG_BEHIND_ERR,
        Code.SOURCE_REWRITTEN_ERR,
        Code.CHECKPOINT_LOST_ERR,
        Code.CHECKPOINT_FOREIGN_ERR,
        Code.CHECKPOINT_DAMAGED_ERR,
        Code.CHECKPOINT_BEHIND_ERR,
    }
)


def resumes_exhausted(state: JobState, resumes: int) -> bool:
    """Return whether a job has used up its automatic resumes."""
    resumes_max = state.definition.kind.resume_policy.resumes_max
    return resumes_max is not None and resumes >= resumes_max


def resume_at(state: JobState) -> datetime | None:
    """Return the time at which a paused job is resumed automatically; None if never."""
    desired = state.desired
    if desired.state is not DesiredState.PAUSE or desired.reason is None:
        return None
    if desired.reason.code in NEVER_RESUMED or resumes_exhausted(state, desired.auto_resumes):
        return None
    if desired.auto_resumes == 0 or desired.resumed_at is None:
        return desired.changed_at
    policy, waits = state.definition.kind.resume_policy, desired.auto_resumes - 1
    if waits >= policy.doublings_max:
        return desired.resumed_at + policy.delay_max
    return desired.resumed_at + policy.delay_first * (1 << waits)


def next_resumes(state: JobState, *, now: datetime) -> int:
    """Return the number of automatic resumes in a row, including the one at ``now``."""
    last = state.desired.resumed_at
    quiet_time = state.definition.kind.resume_policy.reset_after
    quiet = quiet_time is not None and last is not None and now - last > quiet_time
    return 1 if quiet else state.desired.auto_resumes + 1


def pause_for(error: PenstockError, *, state: JobState) -> DesiredStateChanged:
    """Return the event that pauses a job after a failure."""
    resumes = state.auto_resumes_in_a_row
    message = error.message
    if error.detail:
        message = f"{message}. {error.detail}".rstrip(". ")
    reason = Reason(code=error.code, message=message, hint=error.hint)
    if error.code not in NEVER_RESUMED and resumes_exhausted(state, resumes):
        reason = Reason(
            code=Code.CANNOT_RESUME_ERR,
            message=f"still failing after {resumes} resumes; last failure: {reason.message}",
            hint=error.hint,
        )
    return DesiredStateChanged(
        state=DesiredState.PAUSE,
        reason=reason,
        generation=state.generation,
        auto_resumes=resumes,
        resumed_at=state.desired.resumed_at,
    )


def overdue(state: JobState, progress: Progress, *, now: datetime) -> bool:
    """Return whether the tasks of an epoch exceed their time limit."""
    timeout = state.definition.properties.task_timeout
    if progress.step is not Step.LOADING or timeout is None:
        return False
    return now - progress.since > timeout
