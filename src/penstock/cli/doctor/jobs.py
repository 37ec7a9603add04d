"""Check the jobs and their sources, and suggest what to do about them."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread

from penstock.cli.doctor.finding import Finding, Outcome, Subject
from penstock.clock import Clock
from penstock.errors import Code, ExternalError, PenstockError
from penstock.model.job import JobState, Wish
from penstock.model.text import counted, lasted
from penstock.secrets.vault import Vault
from penstock.settings.home import command_for
from penstock.sources.files.options import FilesOptions
from penstock.storage.uris import Scheme, parse_uri
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


# A bucket that is away is asked again for fifteen seconds before it is given up.
WAIT_MAX = timedelta(seconds=20)
AT_ONCE_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked about a job: it raises an error where something is wrong."""

    state: JobState
    ask: Callable[[], None]


def check_sources(subject: Subject) -> Iterator[Finding]:
    """Look whether the credentials of jobs are there and, with time, whether they are taken."""
    states = () if subject.app is None else subject.app.catalog.jobs()
    remote = [state for state in states if _asked_for(state)]
    if subject.app is None or not remote:
        yield Finding(
            check="sources", found="none but files of this machine" if states else "none yet"
        )
        return
    ask = partial(_look_up if subject.quick else _try, vault=subject.app.vault)
    questions = [Question(state=state, ask=partial(ask, state)) for state in remote]
    failures = list(ask_all(questions, wait=WAIT_MAX, clock=subject.clock))
    told = counted(len(remote), "remote source")
    if subject.quick:
        yield Finding(check="sources", found=f"{told}, not asked (--quick)")
    elif not failures:
        yield Finding(check="sources", found=f"{told} answered")
    yield from failures


def _asked_for(state: JobState) -> bool:
    """Tell whether a job is alive and its source is not on this machine."""
    source = state.definition.source
    local = isinstance(source, FilesOptions) and parse_uri(source.uri).scheme is Scheme.FILE
    return not local and state.wish.wish in (Wish.RUN, Wish.PAUSE)


def _look_up(state: JobState, *, vault: Vault) -> None:
    from penstock.job_source import source_values

    source_values(state.definition, vault=vault)


def _try(state: JobState, *, vault: Vault) -> None:
    from penstock.job_source import ask_source, source_values

    ask_source(state.definition, source_values(state.definition, vault=vault))


def ask_all(
    questions: Sequence[Question], *, wait: timedelta, clock: Clock
) -> Iterator[Finding]:
    """Ask several questions at once; yield what is wrong, in their order.

    What has no answer when time is up is left behind: nobody waits for it.
    """
    todo: SimpleQueue[int] = SimpleQueue()
    done: SimpleQueue[tuple[int, Exception | None]] = SimpleQueue()
    for number in range(len(questions)):
        todo.put(number)
    for _ in range(min(AT_ONCE_MAX, len(questions))):
        Thread(target=_answer, args=(questions, todo, done), daemon=True).start()
    answers: dict[int, Exception | None] = {}
    ends_at = clock.monotonic() + wait.total_seconds()
    for _ in questions:
        try:
            number, error = done.get(timeout=max(0.0, ends_at - clock.monotonic()))
        except Empty:
            break
        answers[number] = error
    silent = ExternalError(
        f"no answer within {lasted(wait)}",
        hint="Check the network, the endpoint and the region.",
    )
    for number, question in enumerate(questions):
        failure = answers.get(number, silent)
        if failure is not None:
            yield _finding(question.state, failure)


def _answer(
    questions: Sequence[Question],
    todo: SimpleQueue[int],
    done: SimpleQueue[tuple[int, Exception | None]],
) -> None:
    """Take one question after the other until there is none left."""
    while True:
        try:
            number = todo.get_nowait()
        except Empty:
            return
        try:
            questions[number].ask()
        except Exception as error:  # noqa: BLE001 - Whoever looks for trouble must not fail on it.
            done.put((number, error))
        else:
            done.put((number, None))


def _finding(state: JobState, error: Exception) -> Finding:
    """Say which job cannot ask what, and why; the words of a library may hold keys."""
    definition = state.definition
    reason, hint = type(error).__name__, ""
    if isinstance(error, PenstockError):
        reason, hint = f"{error.message}. {error.detail}".rstrip(". "), error.hint
    return Finding(
        check="source",
        outcome=Outcome.PROBLEM,
        found=f'{definition.kind} "{state.name}" cannot ask {definition.source_name}: {reason}',
        advice=hint,
    )
