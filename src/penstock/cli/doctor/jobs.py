"""Checks of the jobs and their sources."""

import concurrent.futures
import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread

from penstock.cli.doctor.report import Finding, Subject, failure, ok, problem, warning
from penstock.errors import Code, ExternalError, PenstockError
from penstock.model.job import DesiredState, JobState
from penstock.model.text import format_count, format_duration
from penstock.settings.home import command_for
from penstock.sources.registry import source_kind, source_options
from penstock.supervisor.restart import resume_at

# Requests to an unreachable bucket are retried for fifteen seconds.
WAIT_MAX = timedelta(seconds=20)
PARALLEL_MAX = 16


def check_jobs(subject: Subject) -> list[Finding]:
    """Count running and paused jobs; list every paused job with its reason."""
    if subject.app is None:
        return [ok("jobs", "none yet", advice="To create a job, see: penstock --help")]
    states = subject.app.catalog.jobs()
    leases = subject.app.catalog.leases()
    active = [state for state in states if state.desired.state is DesiredState.RUN]
    run = [state for state in active if state.id in leases and leases[state.id].live]
    paused = [state for state in states if state.desired.state is DesiredState.PAUSE]
    waiting = len(active) - len(run)
    counts = (len(run), "running"), (waiting, "not running"), (len(paused), "paused")
    found = ", ".join(f"{number:,} {word}" for number, word in counts if number)
    penstock = command_for(subject.home)
    advice = f"To run {format_count(waiting, 'job')}: {penstock} run" if waiting else ""
    pauses = [pause_finding(state, penstock=penstock) for state in paused]
    return [ok("jobs", found or "none yet", advice=advice), *pauses]


def pause_finding(state: JobState, *, penstock: str) -> Finding:
    """Return why a job is paused, and how to resume it."""
    reason = state.desired.reason
    resume = f"{penstock} sql -e {shlex.quote(state.definition.resume_statement)}"
    if reason is None or reason.code is Code.MANUAL_PAUSE_ERR:
        manual = f"{state.name} is paused by a user"
        return warning("job", manual, advice=f"To resume it: {resume}")
    due = resume_at(state)
    found = f"{state.name} is paused: {reason.code}: {reason.message}"
    if due is not None:
        later = f"{found}; penstock run resumes it after {due:%Y-%m-%d %H:%M:%S} UTC"
        return warning("job", later, advice=reason.hint)
    return problem("job", found, advice=f"{reason.hint} Then: {resume}".strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A request to the source of a job; ``send`` raises if it fails."""

    state: JobState
    send: Callable[[], None]


def check_sources(subject: Subject) -> list[Finding]:
    """Check that the credentials of remote sources resolve and, unless quick, are accepted."""
    states = () if subject.app is None else subject.app.catalog.jobs()
    remote = [state for state in states if _is_remote(state)]
    if subject.app is None or not remote:
        return [ok("sources", "only local files" if states else "none yet")]
    sources, quick = subject.app.sources, subject.quick

    def send(state: JobState) -> None:
        values = sources.values(state.definition)
        if not quick:
            sources.probe(state.definition, values)

    probes = [Probe(state=state, send=partial(send, state)) for state in remote]
    failures = send_all(probes, wait=WAIT_MAX)
    found = format_count(len(remote), "remote source")
    if quick:
        return [ok("sources", f"{found}, not checked (--quick)"), *failures]
    return failures or [ok("sources", f"{found} responded")]


def _is_remote(state: JobState) -> bool:
    """Return whether a job has not ended and its source is not on this machine."""
    source = state.definition.source
    local = source_kind(source.kind).local(source_options(source))
    return not local and state.desired.state in (DesiredState.RUN, DesiredState.PAUSE)


def send_all(probes: Sequence[Probe], *, wait: timedelta) -> list[Finding]:
    """Send probes in parallel; return the failures in order.

    A probe without a response after ``wait`` is a failure; its thread is abandoned.
    """
    todo: SimpleQueue[tuple[Probe, Future[None]]] = SimpleQueue()
    futures: list[Future[None]] = [Future() for _ in probes]
    for item in zip(probes, futures, strict=True):
        todo.put(item)
    # Python joins the threads of an executor at exit, but not daemon threads.
    for _ in range(min(PARALLEL_MAX, len(probes))):
        Thread(target=_send_next, args=(todo,), daemon=True).start()
    done, _ = concurrent.futures.wait(futures, timeout=wait.total_seconds())
    silent = ExternalError(
        f"no response within {format_duration(wait)}",
        hint="Check the network, the endpoint and the region.",
    )
    errors = [future.exception() if future in done else silent for future in futures]
    return [
        _source_finding(probe.state, error)
        for probe, error in zip(probes, errors, strict=True)
        if error is not None
    ]


def _send_next(todo: SimpleQueue[tuple[Probe, Future[None]]]) -> None:
    with suppress(Empty):
        while True:
            probe, future = todo.get_nowait()
            try:
                probe.send()
                future.set_result(None)
            except Exception as error:  # noqa: BLE001 - Any error is a finding.
                future.set_exception(error)


def _source_finding(state: JobState, error: BaseException) -> Finding:
    definition = state.definition
    place = source_kind(definition.source.kind).place(source_options(definition.source))
    about = f'{definition.kind.noun} "{state.name}" cannot read {place}: '
    if isinstance(error, PenstockError):
        return failure("source", error, about=about)
    # The message of a library may contain credentials.
    return problem("source", f"{about}{type(error).__name__}")
