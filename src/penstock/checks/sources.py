"""Checks of what jobs load: whether the credentials are found, and whether they are taken."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread

from penstock.checks.finding import Finding, Outcome, Subject
from penstock.clock import Clock
from penstock.errors import ExternalError, PenstockError
from penstock.model.files import FilesOptions
from penstock.model.job import JobState, Wish
from penstock.nouns import counted, lasted
from penstock.storage.uris import Scheme, parse_uri
from penstock.vault import Vault

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
