"""Checks of the jobs and of their sources."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread

from penstock.cli.doctor.report import Finding, Subject, failure, ok, problem, warning
from penstock.clock import Clock
from penstock.errors import Code, ExternalError, PenstockError
from penstock.model.job import DesiredState, JobState
from penstock.model.text import counted, format_duration
from penstock.settings.home import command_for
from penstock.sources.registry import Sources, source_kind, source_options
from penstock.supervisor.restart import resume_at

# A bucket that does not answer is retried for fifteen seconds.
WAIT_MAX = timedelta(seconds=20)
PARALLEL_MAX = 16


def check_jobs(subject: Subject) -> Iterator[Finding]:
    """Count running and paused jobs, and list every pause with its reason."""
    if subject.app is None:
        yield ok("jobs", "none yet", advice="To create one, see: penstock --help")
        return
    states = subject.app.catalog.jobs()
    leases = subject.app.catalog.leases()
    wanted = [state for state in states if state.desired.state is DesiredState.RUN]
    run = [state for state in wanted if state.id in leases and leases[state.id].live]
    paused = [state for state in states if state.desired.state is DesiredState.PAUSE]
    waiting = len(wanted) - len(run)
    counts = (len(run), "running"), (waiting, "not running"), (len(paused), "paused")
    found = ", ".join(f"{number:,} {word}" for number, word in counts if number)
    penstock = command_for(subject.home)
    advice = f"To run {counted(waiting, 'job')}: {penstock} run" if waiting else ""
    yield ok("jobs", found or "none yet", advice=advice)
    for state in paused:
        yield pause_finding(state, penstock=penstock)


def pause_finding(state: JobState, *, penstock: str) -> Finding:
    """Return why a job is paused, and how to resume it."""
    reason = state.desired.reason
    resume = f"{penstock} sql -e {shlex.quote(state.definition.resuming)}"
    if reason is None or reason.code is Code.MANUAL_PAUSE_ERR:
        manual = f"{state.name} is paused by a person"
        return warning("job", manual, advice=f"To resume it: {resume}")
    due = resume_at(state)
    found = f"{state.name} is paused: {reason.code}: {reason.message}"
    if due is not None:
        later = f"{found}; a run resumes it at {due:%Y-%m-%d %H:%M:%S} UTC or later"
        return warning("job", later, advice=reason.hint)
    return problem("job", found, advice=f"{reason.hint} Then: {resume}".strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A request to the source of a job; ``send`` raises if it fails."""

    state: JobState
    send: Callable[[], None]


def check_sources(subject: Subject) -> Iterator[Finding]:
    """Check that the credentials of remote sources resolve and, unless quick, are accepted."""
    states = () if subject.app is None else subject.app.catalog.jobs()
    remote = [state for state in states if _is_remote(state)]
    if subject.app is None or not remote:
        yield ok("sources", "only files of this machine" if states else "none yet")
        return
    send = partial(_request, sources=subject.app.sources, quick=subject.quick)
    probes = [Probe(state=state, send=partial(send, state)) for state in remote]
    failures = list(send_all(probes, wait=WAIT_MAX, clock=subject.clock))
    sources = counted(len(remote), "remote source")
    if subject.quick:
        yield ok("sources", f"{sources}, not asked (--quick)")
    elif not failures:
        yield ok("sources", f"{sources} answered")
    yield from failures


def _is_remote(state: JobState) -> bool:
    """Return whether a job is neither dropped nor reads files of this machine."""
    source = state.definition.source
    local = source_kind(source.kind).local(source_options(source))
    return not local and state.desired.state in (DesiredState.RUN, DesiredState.PAUSE)


def _request(state: JobState, *, sources: Sources, quick: bool) -> None:
    values = sources.values(state.definition)
    if not quick:
        sources.probe(state.definition, values)


def send_all(probes: Sequence[Probe], *, wait: timedelta, clock: Clock) -> Iterator[Finding]:
    """Send probes in parallel; yield the failures in order.

    A probe without an answer when time is up is a failure; its thread is abandoned.
    """
    todo: SimpleQueue[int] = SimpleQueue()
    done: SimpleQueue[tuple[int, Exception | None]] = SimpleQueue()
    for number in range(len(probes)):
        todo.put(number)
    for _ in range(min(PARALLEL_MAX, len(probes))):
        Thread(target=_send_next, args=(probes, todo, done), daemon=True).start()
    error_by_number: dict[int, Exception | None] = {}
    ends_at = clock.monotonic() + wait.total_seconds()
    for _ in probes:
        try:
            number, error = done.get(timeout=max(0.0, ends_at - clock.monotonic()))
        except Empty:
            break
        error_by_number[number] = error
    silent = ExternalError(
        f"no answer within {format_duration(wait)}",
        hint="Check the network, the endpoint and the region.",
    )
    for number, probe in enumerate(probes):
        found = error_by_number.get(number, silent)
        if found is not None:
            yield _source_finding(probe.state, found)


def _send_next(
    probes: Sequence[Probe],
    todo: SimpleQueue[int],
    done: SimpleQueue[tuple[int, Exception | None]],
) -> None:
    """Send probes until none is left."""
    while True:
        try:
            number = todo.get_nowait()
        except Empty:
            return
        try:
            probes[number].send()
        except Exception as error:  # noqa: BLE001 - Any error is a finding.
            done.put((number, error))
        else:
            done.put((number, None))


def _source_finding(state: JobState, error: Exception) -> Finding:
    definition = state.definition
    place = source_kind(definition.source.kind).place(source_options(definition.source))
    about = f'{definition.kind.noun} "{state.name}" cannot ask {place}: '
    if isinstance(error, PenstockError):
        return failure("source", error, about=about)
    # The message of a library may contain credentials.
    return problem("source", f"{about}{type(error).__name__}")
