"""Decide when a paused job is resumed automatically, and when an epoch is overdue; pure.

The first resume is immediate; then the wait doubles from ten seconds up to five minutes,
measured from the last resume. A pause that a person made, bad rows and everything that a person
must look at first are never resumed. A streaming job is resumed so many times in a row, a
routine load for ever; its count begins anew behind a while without a resume.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.epochs.progress import Progress, Step
from penstock.errors import Code, PenstockError
from penstock.model.events import WishChanged
from penstock.model.job import JobState, Reason, Wish
from penstock.model.job_kinds import RoutineProperties

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
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How patiently a job is resumed."""

    delay_first: timedelta = timedelta(seconds=10)
    doublings_max: int = 5
    delay_max: timedelta = timedelta(seconds=300)
    # Of streaming jobs.
    resumes_max: int = 10
    # Of routine loads.
    forgotten_after: timedelta = timedelta(minutes=10)

    def gives_up(self, resumes: int, state: JobState) -> bool:
        """Tell whether a job that was resumed so often is not resumed any more."""
        return state.definition.load is None and resumes >= self.resumes_max


def resume_at(state: JobState, *, policy: RestartPolicy) -> datetime | None:
    """Answer when a paused job resumes by itself; None if never."""
    wish = state.wish
    if wish.wish is not Wish.PAUSE or wish.reason is None:
        return None
    if wish.reason.code in NEVER_RESUMED or policy.gives_up(wish.auto_resumes, state):
        return None
    if wish.auto_resumes == 0 or wish.resumed_at is None:
        return wish.changed_at
    return wish.resumed_at + _delay(wish.auto_resumes - 1, policy)


def next_resumes(state: JobState, *, now: datetime, policy: RestartPolicy) -> int:
    """Answer how many resumes in a row there were, with the one that comes now."""
    last = state.wish.resumed_at
    quiet = last is not None and now - last > policy.forgotten_after
    routine = state.definition.load is not None
    return 1 if routine and quiet else state.wish.auto_resumes + 1


def _delay(waits: int, policy: RestartPolicy) -> timedelta:
    if waits >= policy.doublings_max:
        return policy.delay_max
    doublings: int = 2**waits
    return policy.delay_first * doublings


def pause_for(error: PenstockError, *, state: JobState, policy: RestartPolicy) -> WishChanged:
    """Answer the event that pauses a job after a failure."""
    resumes = state.auto_resumes_in_a_row
    reason = Reason(code=error.code, message=_sentence(error), hint=error.hint)
    if error.code not in NEVER_RESUMED and policy.gives_up(resumes, state):
        reason = Reason(
            code=Code.CANNOT_RESUME_ERR,
            message=f"resumed {resumes} times in vain; the last failure was: {reason.message}",
            hint=error.hint,
        )
    return WishChanged(
        wish=Wish.PAUSE,
        reason=reason,
        generation=state.generation,
        auto_resumes=resumes,
        resumed_at=state.wish.resumed_at,
    )


def _sentence(error: PenstockError) -> str:
    return f"{error.message}. {error.detail}".rstrip(". ") if error.detail else error.message


def overdue(state: JobState, progress: Progress, *, now: datetime) -> bool:
    """Tell whether the tasks of a routine load should have ended.

    An epoch of files may be as large as the files are; one of a stream has a time to read.
    """
    properties = state.definition.properties
    if progress.step is not Step.LOADING or not isinstance(properties, RoutineProperties):
        return False
    return now - progress.since > properties.task_timeout
