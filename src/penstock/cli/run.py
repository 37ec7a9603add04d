"""Run jobs in the foreground until Ctrl-C, until they are caught up, or for a time."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from importlib.metadata import version
from types import FrameType

import structlog

from penstock.app import App
from penstock.cli.display import Display, open_display, shown_jobs
from penstock.clock import Clock
from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.logs import link_latest
from penstock.model.job import DesiredState
from penstock.model.job_kinds import OutputMode
from penstock.model.text import (
    FINAL_WATERMARK_MS,
    format_count,
    format_duration,
    quoted_name,
)
from penstock.sources.registry import source_kind
from penstock.supervisor.supervisor import RunnerReport, Supervisor

log = structlog.get_logger()

ROUND_PERIOD = timedelta(milliseconds=250)
EXIT_OK = 0
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


class Ending(StrEnum):
    """Why a run ended."""

    CAUGHT_UP = "caught up"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Jobs and end conditions of a run."""

    names: tuple[str, ...]
    until_caught_up: bool
    timeout: timedelta | None
    verbose: bool = False


def run_jobs(application: App, request: Request) -> int:
    """Run the named jobs, or all jobs; return the exit code."""
    known = _require_jobs(application, request.names)
    application.log(verbose=request.verbose)
    home = application.settings.home
    log.info("run started", version=version("penstock"), home=str(home), jobs=known)
    link_latest(application.logs)
    try:
        code = _run(application, request)
    except PenstockError as error:
        log.exception("run failed", code=error.code, reason=error.message)
        raise
    log.info("run ended", code=code)
    return code


def _run(application: App, request: Request) -> int:
    interrupted = threading.Event()
    with _signals(interrupted), open_display(application.clock) as display:
        supervisor, end = application.supervisor(
            only=frozenset(request.names), until_caught_up=request.until_caught_up
        )
        try:
            ending, last_reports = _rounds(
                supervisor, request, clock=application.clock, display=display, stop=interrupted
            )
        finally:
            end()
            _report_losses(supervisor)
        reports = supervisor.reports()
        jobs = shown_jobs(reports, at=application.clock.now())
        display.show(jobs)
        display.summarise(jobs)
    _report_pauses(reports)
    if ending is Ending.TIMED_OUT and request.until_caught_up:
        _report_unfinished(reports, last_reports, request)
    if ending is Ending.CAUGHT_UP:
        _report_open_state(reports)
    code = _exit_code(ending, request)
    if code == EXIT_FAILED or any(_failed(report) for report in reports):
        _report(f"log: {application.logs.product}")
    return code


def _require_jobs(application: App, names: tuple[str, ...]) -> list[str]:
    """Return the names of the jobs to run; raise UserError if one does not exist."""
    known = [job.name for job in application.catalog.jobs()]
    for name in names:
        if name not in known:
            raise UserError(
                f'job "{name}" does not exist',
                code=Code.META_NOT_FOUND_ERR,
                hint=f"Known jobs: {', '.join(known) or 'none'}.",
            )
    return list(names) or known


def _rounds(
    supervisor: Supervisor,
    request: Request,
    *,
    clock: Clock,
    display: Display,
    stop: threading.Event,
) -> tuple[Ending, tuple[RunnerReport, ...]]:
    """Run rounds until there is a reason to end; return the reason and the last reports."""
    deadline = None if request.timeout is None else clock.now() + request.timeout
    reports: tuple[RunnerReport, ...] = ()
    failure = ""
    while True:
        try:
            reports = supervisor.round()
            failure = ""
        except ExternalError as error:
            # A long run tolerates a catalog that is locked or out of space for a while.
            if error.message != failure:
                log.warning("catalog unreachable", code=error.code, reason=error.message)
                _report(f"warning {error.code}: {error.message}; retrying")
            failure = error.message
        _report_losses(supervisor)
        display.show(shown_jobs(reports, at=clock.now()))
        # After a failure, the reports are stale.
        ending = _ending(
            None if failure else reports,
            request,
            late=deadline is not None and clock.now() >= deadline,
        )
        if ending is not None:
            return ending, reports
        if clock.wait(stop, ROUND_PERIOD):
            return Ending.INTERRUPTED, reports


def _report_losses(supervisor: Supervisor) -> None:
    for loss in supervisor.pop_lost_jobs():
        error = loss.error
        detail = f"; {error.detail}" if error.detail else ""
        _report(
            f"notice {error.code}: job {loss.job} stopped in this process: "
            f"{error.message}{detail}"
        )


def _ending(
    reports: Sequence[RunnerReport] | None, request: Request, *, late: bool
) -> Ending | None:
    if request.until_caught_up and reports is not None:
        waited_for = [
            report for report in reports if not report.user_stopped and not report.caught_up
        ]
        if all(report.needs_resume for report in waited_for):
            return Ending.FAILED if waited_for else Ending.CAUGHT_UP
    return Ending.TIMED_OUT if late else None


def _report_pauses(reports: Sequence[RunnerReport]) -> None:
    for report in reports:
        if report.user_stopped:
            paused = report.state.desired.state is DesiredState.PAUSE
            why = "paused by a user" if paused else "being dropped"
            _report(f"job {report.state.name} is {why} and was skipped")
        elif _failed(report) and report.state.desired.reason is not None:
            reason = report.state.desired.reason
            _report(f"error {reason.code}: job {report.state.name} is paused: {reason.message}")
            if reason.hint:
                _report(f"  hint: {reason.hint}")


def _failed(report: RunnerReport) -> bool:
    return report.needs_resume and not report.user_stopped


def _report_unfinished(
    reports: Sequence[RunnerReport], last_reports: Sequence[RunnerReport], request: Request
) -> None:
    """Report jobs that are not caught up; only reports of the last round have counts."""
    progress_by_job = {report.state.id: report.progress for report in last_reports}
    for report in reports:
        if report.user_stopped or report.caught_up:
            continue
        progress = progress_by_job.get(report.state.id)
        known = "the remaining work is unknown"
        if progress is not None and (progress.waiting.complete or progress.waiting.items):
            more = "" if progress.waiting.complete else "at least "
            noun = source_kind(report.state.definition.source.kind).waiting_noun
            state = "left" if noun == "file" else "with unread records"
            known = f"{more}{format_count(progress.waiting.items or 0, noun)} {state}"
        _report(
            f"error {Code.TIMEOUT_ERR}: job {report.state.name} is not caught up after "
            f"{format_duration(request.timeout or timedelta(0))}; {known}"
        )


def _report_open_state(reports: Sequence[RunnerReport]) -> None:
    """Report streaming tables with windows or joined rows that no watermark has closed."""
    for report in reports:
        state = report.state
        query = state.definition.streaming
        if query is None or state.batch is None or query.output is OutputMode.UPDATE:
            continue
        final = state.batch.watermark_ms >= FINAL_WATERMARK_MS
        if state.batch.state_rows and query.writes_late and not final:
            rows = format_count(state.batch.state_rows, "row")
            kind = state.definition.kind.noun
            _report(
                f"{kind} {state.name} still has {rows} of open windows or joins in its state; "
                f"to write their results, run ALTER {kind.upper()} {quoted_name(state.name)} "
                "ADVANCE WATERMARK TO FINAL"
            )


def _exit_code(ending: Ending, request: Request) -> int:
    if ending is Ending.INTERRUPTED:
        return EXIT_INTERRUPTED
    late = ending is Ending.TIMED_OUT and request.until_caught_up
    return EXIT_FAILED if late or ending is Ending.FAILED else EXIT_OK


def _report(line: str) -> None:
    sys.stderr.write(line + "\n")


@contextmanager
def _signals(interrupted: threading.Event) -> Iterator[None]:
    """Set the event at the first Ctrl-C or SIGTERM; exit at once at the second."""

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        if interrupted.is_set():
            os._exit(EXIT_INTERRUPTED)
        interrupted.set()
        _report("stopping; press Ctrl-C again to stop at once")

    before = {sign: signal.signal(sign, handle) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
