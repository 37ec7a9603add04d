"""The words in which a run tells how its jobs get on; pure.

Words that are given no time stay the same until something happens, so that plain lines are
printed only then; with a time they count how long a step takes or when a wait ends.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from penstock.engine.epoch_loop import ATTEMPTS_MAX
from penstock.engine.progress import Progress, Step
from penstock.model.job import JobState, Wish
from penstock.model.statistics import Statistics
from penstock.nouns import counted, lasted
from penstock.supervisor.supervisor import JobLook

NO_JOBS = "no jobs yet; create one with penstock sql"
# A step that is over sooner needs no clock beside it.
STEP_SHORT = timedelta(seconds=2)
WAITS_NAMED = 3
TEN_THOUSAND = 10_000
LARGE = (("G", 10**9), ("M", 10**6), ("k", 10**3))


def state_word(look: JobLook) -> str:
    """Name what a job is in, as SHOW JOBS does, and whether it has caught up."""
    step = look.progress.step if look.progress else Step.STOPPED
    match look.state.wish.wish:
        case Wish.RUN if look.caught_up or step is Step.IDLE:
            return "CAUGHT UP"
        case Wish.RUN:
            return "PENDING" if step is Step.STOPPED else "RUNNING"
        case Wish.PAUSE:
            return "PAUSED"
        case Wish.DROP | Wish.CLOSED:
            return "DROPPED"


def step_words(progress: Progress | None, now: datetime) -> str:
    """Say briefly what a runner does, and how long it has, or when its wait ends."""
    if progress is None:
        return ""
    if progress.step is Step.IDLE:
        return f"next look{_until(progress, now)}"
    if progress.step is Step.RETRYING:
        return f"retry{_until(progress, now)}"
    lasts = now - progress.since
    return str(progress.step) + (f" {lasted(lasts)}" if lasts > STEP_SHORT else "")


def activity_words(progress: Progress, now: datetime | None = None) -> str:
    """Say in full what a runner does or waits for."""
    match progress.step:
        case Step.IDLE:
            return "caught up" + (f", next look{_until(progress, now)}" if now else "")
        case Step.RETRYING:
            return f"{_next_attempt(progress, now)}: {progress.message}"
        case Step.LISTING if progress.message:
            return f"looking at {progress.message}"
        case _:
            more = f" ({progress.message})" if progress.message else ""
            return f"{progress.step}{more}"


def reason_words(look: JobLook, now: datetime | None = None) -> str:
    """Say why a job does not run."""
    reason = look.state.wish.reason
    if reason is not None:
        return f"{reason.code}: {reason.message}{_resumes(look, now)}"
    if look.last_words and look.last_words.error and look.progress is None:
        return look.last_words.error.message
    return ""


def left_words(look: JobLook, done: Statistics, *, brief: bool = False) -> tuple[str, str]:
    """Say how many files are left, and about how many rows; of a stream nobody knows."""
    progress = look.progress
    if progress is None:
        return "", ""
    if look.state.definition.load is not None:
        return "", ""
    if progress.files_left == 0:
        return ("0", "0") if progress.all_seen else ("?", "?")
    files = f"{progress.files_left:,}" + ("" if progress.all_seen else "+")
    if done.bytes_read == 0:
        return files, "?"
    rows = progress.bytes_left * done.rows_loaded / done.bytes_read
    return files, f"~{brief_count(rows) if brief else f'{rows:,.0f}'}"


def behind_words(look: JobLook) -> str:
    """Say how far a job is behind its stream."""
    progress = look.progress
    if progress is None or look.state.definition.load is None:
        return ""
    if progress.behind is None:
        return "0 s" if progress.all_seen and progress.files_left == 0 else "?"
    return lasted(progress.behind)


def read_words(state: JobState, done: Statistics) -> str:
    """Say how much of its source a job has read."""
    if state.definition.load is not None:
        return counted(done.records_read, "record")
    return counted(done.files_read, "file")


def brief_count(number: float) -> str:
    """Write an estimate in few characters: 950, 12.3k, 4.5M."""
    if number < TEN_THOUSAND:
        return f"{number:,.0f}"
    unit, factor = next(pair for pair in LARGE if number >= pair[1])
    return f"{number / factor:.1f}{unit}"


def silence_words(looks: Sequence[JobLook], now: datetime) -> str:
    """Say what a run waits for that has had nothing to say for a while."""
    if not looks:
        return NO_JOBS
    # Whoever works is of more interest than whoever has caught up.
    by_interest = sorted(looks, key=lambda look: look.progress is None or _idle(look.progress))
    named = [f"{look.state.name} {_wait(look, now)}" for look in by_interest[:WAITS_NAMED]]
    more = len(looks) - len(named)
    return "; ".join([*named, *([f"and {more:,} more"] if more else [])])


def _wait(look: JobLook, now: datetime) -> str:
    progress = look.progress
    if look.state.wish.wish is not Wish.RUN:
        return f"is {state_word(look).lower()}{_resumes(look, now)}"
    if look.caught_up:
        return "has caught up"
    if progress is None or progress.step is Step.STOPPED:
        return "is not run by this process; another one may"
    if progress.step in (Step.IDLE, Step.RETRYING):
        return activity_words(progress, now)
    return f"{activity_words(progress)} for {lasted(now - progress.since)}"


def _idle(progress: Progress) -> bool:
    return progress.step is Step.IDLE


def _next_attempt(progress: Progress, now: datetime | None) -> str:
    soon = _until(progress, now) if now else ""
    return f"attempt {progress.attempt} of {ATTEMPTS_MAX}{soon}"


def _until(progress: Progress, now: datetime) -> str:
    if progress.until is None or progress.until <= now:
        return " now"
    return f" in {lasted(progress.until - now, tenths=progress.step is Step.RETRYING)}"


def _resumes(look: JobLook, now: datetime | None) -> str:
    if look.resumes_at is None:
        return ""
    if now is None:
        return f" (resumes at {look.resumes_at:%H:%M:%S}Z)"
    return f" (resumes in {lasted(look.resumes_at - now)})"
