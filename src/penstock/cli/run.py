"""Run jobs in the foreground until told to stop, caught up, or out of time."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from importlib.metadata import version
from types import FrameType

import structlog

from penstock.app import App
from penstock.cli.display import Display, open_display
from penstock.clock import Clock
from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.logs import point_latest
from penstock.model.job import Wish
from penstock.supervisor.supervisor import JobLook, Supervisor

log = structlog.get_logger()

ROUND_PERIOD = timedelta(milliseconds=250)
EXIT_OK = 0
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


class Ending(StrEnum):
    """Why the rounds ended."""

    CAUGHT_UP = "caught up"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked of a run."""

    names: tuple[str, ...]
    until_caught_up: bool
    timeout: timedelta | None
    verbose: bool = False


def run_jobs(application: App, request: Request) -> int:
    """Run the named jobs, or all; answer the exit code."""
    known = _require_jobs(application, request.names)
    application.log(verbose=request.verbose)
    home = application.settings.home
    log.info("run started", version=version("penstock"), home=str(home), jobs=known)
    point_latest(application.logs)
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
            ending, last_looks = _rounds(
                supervisor, request, clock=application.clock, display=display, stop=interrupted
            )
        finally:
            end()
            _tell_losses(supervisor)
        looks = supervisor.looks()
        display.show(looks)
        display.summarise(looks)
    _tell_pauses(looks)
    if ending is Ending.TIMED_OUT and request.until_caught_up:
        _tell_open(looks, last_looks, request)
    code = _exit_code(ending, request)
    if code == EXIT_FAILED or any(_failed(look) for look in looks):
        _tell(f"log: {application.logs.product}")
    return code


def _require_jobs(application: App, names: tuple[str, ...]) -> list[str]:
    """Require that the named jobs exist; answer which will be run."""
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
) -> tuple[Ending, tuple[JobLook, ...]]:
    """Act until there is a reason to end; answer it with what was seen last."""
    deadline = None if request.timeout is None else clock.now() + request.timeout
    looks: tuple[JobLook, ...] = ()
    trouble = ""
    while True:
        try:
            looks = supervisor.round()
            trouble = ""
        except ExternalError as error:
            # A catalog that is locked or out of space for a while must not end a long run.
            if error.message != trouble:
                log.warning("catalog out of reach", code=error.code, reason=error.message)
                _tell(f"warning {error.code}: {error.message}; trying again")
            trouble = error.message
        _tell_losses(supervisor)
        display.show(looks)
        # What was seen before the trouble says nothing about now.
        ending = _ending(None if trouble else looks, request, late=_passed(deadline, clock))
        if ending is not None:
            return ending, looks
        if clock.wait(stop, ROUND_PERIOD):
            return Ending.INTERRUPTED, looks


def _tell_losses(supervisor: Supervisor) -> None:
    for loss in supervisor.take_losses():
        error = loss.error
        detail = f"; {error.detail}" if error.detail else ""
        _tell(f"notice {error.code}: this process lost job {loss.job}: {error.message}{detail}")


def _passed(deadline: datetime | None, clock: Clock) -> bool:
    return deadline is not None and clock.now() >= deadline


def _ending(looks: Sequence[JobLook] | None, request: Request, *, late: bool) -> Ending | None:
    if request.until_caught_up and looks is not None:
        waited_for = [look for look in looks if not look.left_out and not look.caught_up]
        if all(look.paused_for_good for look in waited_for):
            return Ending.FAILED if waited_for else Ending.CAUGHT_UP
    return Ending.TIMED_OUT if late else None


def _tell_pauses(looks: Sequence[JobLook]) -> None:
    for look in looks:
        if look.left_out:
            paused = look.state.wish.wish is Wish.PAUSE
            why = "paused by a person" if paused else "being dropped"
            _tell(f"job {look.state.name} is {why} and was left out")
        elif _failed(look) and look.state.wish.reason is not None:
            reason = look.state.wish.reason
            _tell(f"error {reason.code}: job {look.state.name} is paused: {reason.message}")
            if reason.hint:
                _tell(f"  hint: {reason.hint}")


def _failed(look: JobLook) -> bool:
    return look.paused_for_good and not look.left_out


def _tell_open(
    looks: Sequence[JobLook], last_looks: Sequence[JobLook], request: Request
) -> None:
    """Say what is still open; how much waited is known from before the runners ended."""
    progress_by_job = {look.state.id: look.progress for look in last_looks}
    for look in looks:
        if look.left_out or look.caught_up:
            continue
        progress = progress_by_job.get(look.state.id)
        known = "what waits is not known yet"
        if progress is not None and (progress.all_seen or progress.files_left):
            more = "" if progress.all_seen else "at least "
            what = "files wait" if look.state.definition.load is None else "shards hold records"
            known = f"{more}{progress.files_left} {what}"
        _tell(
            f"error {Code.TIMEOUT_ERR}: job {look.state.name} is not caught up after "
            f"{request.timeout}; {known}"
        )


def _exit_code(ending: Ending, request: Request) -> int:
    match ending:
        case Ending.CAUGHT_UP:
            return EXIT_OK
        case Ending.FAILED:
            return EXIT_FAILED
        case Ending.INTERRUPTED:
            return EXIT_INTERRUPTED
        case Ending.TIMED_OUT:
            return EXIT_FAILED if request.until_caught_up else EXIT_OK


def _tell(line: str) -> None:
    sys.stderr.write(line + "\n")


@contextmanager
def _signals(interrupted: threading.Event) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM end the run in order, and the second one at once."""

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        if interrupted.is_set():
            os._exit(EXIT_INTERRUPTED)
        interrupted.set()
        _tell("stopping; press Ctrl-C again to end at once")

    before = {sign: signal.signal(sign, handle) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
