"""Checks of the jobs: which are run, which are paused, and what to do about them."""

import shlex
from collections.abc import Iterator

from penstock.checks.finding import Finding, Outcome, Subject
from penstock.errors import Code
from penstock.model.job import JobState, Wish
from penstock.nouns import counted
from penstock.setting_words import command_for
from penstock.supervisor.restart import RestartPolicy, resume_at


def check_jobs(subject: Subject) -> Iterator[Finding]:
    """Tell who runs, and every pause with its reason."""
    if subject.app is None:
        yield Finding(
            check="jobs", found="none yet", advice="To create one, see: penstock --help"
        )
        return
    states = subject.app.catalog.jobs()
    leases = subject.app.catalog.leases()
    wanted = [state for state in states if state.wish.wish is Wish.RUN]
    run = [state for state in wanted if state.id in leases and leases[state.id].live]
    paused = [state for state in states if state.wish.wish is Wish.PAUSE]
    waiting = len(wanted) - len(run)
    words = (len(run), "run by a process"), (waiting, "not run"), (len(paused), "paused")
    told = [f"{number:,} {word}" for number, word in words if number]
    penstock = command_for(subject.home)
    yield Finding(
        check="jobs",
        found=", ".join(told) or "none yet",
        advice=f"To run {counted(waiting, 'job')}: {penstock} run" if waiting else "",
    )
    for state in paused:
        yield about_pause(state, penstock=penstock)


def about_pause(state: JobState, *, penstock: str) -> Finding:
    """Say why a job is paused, and what makes it run again."""
    reason = state.wish.reason
    resume = f"{penstock} sql -e {shlex.quote(state.definition.resuming)}"
    if reason is None or reason.code is Code.MANUAL_PAUSE_ERR:
        return Finding(
            check="job",
            outcome=Outcome.WARNING,
            found=f"{state.name} is paused by a person",
            advice=f"To let it run: {resume}",
        )
    due = resume_at(state, policy=RestartPolicy())
    found = f"{state.name} is paused: {reason.code}: {reason.message}"
    if due is not None:
        return Finding(
            check="job",
            outcome=Outcome.WARNING,
            found=f"{found}; a run resumes it from {due:%Y-%m-%d %H:%M:%S} UTC on",
            advice=reason.hint,
        )
    advice = f"{reason.hint} Then: {resume}".strip()
    return Finding(check="job", outcome=Outcome.PROBLEM, found=found, advice=advice)
