"""Show the progress of a run: a live table on a terminal, plain lines elsewhere.

Counts come from the catalog, so they include only committed rows, even after a restart. Only
the step, the lag and the remaining files and rows come from the runner. Plain lines contain no
durations. A line therefore changes, and is printed, only when something happens.
"""

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from penstock.clock import Clock
from penstock.control.job_view import JobView
from penstock.epochs.progress import Progress, Step
from penstock.model.epoch import Statistics
from penstock.model.job import DesiredState
from penstock.model.job_kinds import FAILURES_MAX
from penstock.model.text import format_count, format_duration, format_size
from penstock.supervisor.supervisor import RunnerReport

NO_JOBS = "no jobs to run; create one with penstock sql"
LINE_PERIOD = timedelta(seconds=1)
SILENCE_FIRST = timedelta(seconds=10)
SILENCE_PERIOD = timedelta(seconds=60)
RATE_WINDOW = timedelta(seconds=10)
# The duration of a shorter step is not shown.
STEP_SHORT = timedelta(seconds=2)
WAITS_NAMED = 3
WIDE = 100
NAME_WIDTH_MIN = 8
STEP_WIDTH = len("starting Spark 10 s")
TEN_THOUSAND = 10_000
LARGE = (("G", 10**9), ("M", 10**6), ("k", 10**3))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownJob:
    """A job as users see it, with the report of its runner in this process."""

    view: JobView
    report: RunnerReport


def shown_jobs(reports: Sequence[RunnerReport], *, at: datetime) -> list[ShownJob]:
    """Return the jobs of a run as the display shows them."""
    return [
        ShownJob(view=JobView(job=report.state, lease=report.lease, at=at), report=report)
        for report in reports
    ]


class Display(Protocol):
    """Contract of a progress display."""

    def show(self, jobs: Sequence[ShownJob]) -> None:
        """Show the newest progress; called in every round."""
        ...

    def summarise(self, jobs: Sequence[ShownJob]) -> None:
        """Show the summary of the run; called once, at the end of the run."""
        ...


@contextmanager
def open_display(clock: Clock) -> Iterator[Display]:
    """Yield the display that fits standard output."""
    tally = Tally(clock)
    if not sys.stdout.isatty():
        yield PlainDisplay(tally, clock)
        return
    from rich.live import Live

    # Do not draw standard error on the terminal if it goes to a file.
    drawn = sys.stderr.isatty()
    with Live(
        "starting …", refresh_per_second=8, transient=True, redirect_stderr=drawn
    ) as live:
        yield LiveDisplay(tally, clock, live)


class Tally:
    """Rows and rates of each job since the start of the run."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first: dict[str, Statistics] = {}
        self._samples: dict[str, deque[tuple[datetime, int]]] = {}
        self._started_at = clock.now()

    def update(self, jobs: Sequence[ShownJob]) -> None:
        """Record the newest counts."""
        now = self._clock.now()
        for job in jobs:
            total = job.view.totals
            self._first.setdefault(job.view.job.id, total)
            samples = self._samples.setdefault(job.view.job.id, deque())
            samples.append((now, total.rows_loaded))
            while samples[0][0] < now - RATE_WINDOW:
                samples.popleft()

    @property
    def duration(self) -> timedelta:
        """Duration of the run so far."""
        return self._clock.now() - self._started_at

    def done(self, view: JobView) -> Statistics:
        """Return the counts that a job committed in this run."""
        first, total = self._first.get(view.job.id, view.totals), view.totals
        return Statistics(
            rows_loaded=total.rows_loaded - first.rows_loaded,
            rows_rejected=total.rows_rejected - first.rows_rejected,
            files_read=total.files_read - first.files_read,
            records_read=total.records_read - first.records_read,
            bytes_read=total.bytes_read - first.bytes_read,
        )

    def rate(self, view: JobView) -> float:
        """Return the rows per second within RATE_WINDOW."""
        samples = self._samples.get(view.job.id)
        if not samples:
            return 0.0
        (start, rows_then), (end, rows_now) = samples[0], samples[-1]
        return _per_second(rows_now - rows_then, end - start)

    def average_rate(self, view: JobView) -> float:
        """Return the rows per second of the whole run."""
        return _per_second(self.done(view).rows_loaded, self.duration)


def _per_second(rows: int, duration: timedelta) -> float:
    return rows / duration.total_seconds() if duration else 0.0


class LiveDisplay:
    """A table on a terminal, redrawn in place."""

    def __init__(self, tally: Tally, clock: Clock, live: Any) -> None:  # noqa: ANN401 - Rich is imported late.
        self._tally = tally
        self._clock = clock
        self._live = live

    def show(self, jobs: Sequence[ShownJob]) -> None:
        self._tally.update(jobs)
        self._live.update(self.drawn(jobs, width=self._live.console.width))

    def summarise(self, jobs: Sequence[ShownJob]) -> None:
        self._live.update("")
        console = self._live.console
        if len(jobs) > 1:
            rows = [_summary_cells(job, jobs, self._tally) for job in jobs]
            table = _table(("job", "state"), tuple(rows[0])[2:], rows, width=console.width)
            table.caption = (
                f"this run took {format_duration(self._tally.duration, tenths=True)}"
            )
            table.caption_justify = "left"
            console.print(table)
            return
        for line in summary_lines(jobs, self._tally):
            console.print(line, markup=False, highlight=False)

    def drawn(self, jobs: Sequence[ShownJob], *, width: int) -> object:
        """Return the table for a terminal of this width, with messages below the table."""
        from rich.console import Group
        from rich.text import Text

        if not jobs:
            return Text(NO_JOBS)
        now = self._clock.now()
        # A narrow table shows the step instead of the state.
        texts = ("job", "state", "step") if width >= WIDE else ("job", "step")
        streams = [_is_stream(job.view) for job in jobs]
        left = () if all(streams) else ("files left", "rows left")
        lag = ("lag",) if any(streams) else ()
        numbers = (_read_head(jobs), "rows", *left, *lag, "rows/s")
        rows = [self._cells(job, now, width) for job in jobs]
        table = _table(texts, numbers, rows, width=width)
        # A fixed width keeps the columns in place when the step changes.
        table.columns[len(texts) - 1].min_width = STEP_WIDTH
        return Group(table, *(Text(line) for line in _message_lines(jobs, now)))

    def _cells(self, job: ShownJob, now: datetime, width: int) -> dict[str, str]:
        done = self._tally.done(job.view)
        files_left, rows_left = _left_texts(job, done, brief=True)
        state = _state_name(job)
        return {
            "job": job.view.name,
            "state": state,
            "step": _step_text(job.report.progress, now) or (state if width < WIDE else ""),
            **dict.fromkeys(("files", "records", "read"), _read_count(job.view, done)),
            "rows": f"{done.rows_loaded:,}",
            "files left": files_left,
            "rows left": rows_left,
            "lag": lag_text(job),
            "rows/s": _brief_count(self._tally.rate(job.view)),
        }


def _table(
    texts: Sequence[str],
    numbers: Sequence[str],
    rows: Sequence[Mapping[str, str]],
    *,
    width: int,
) -> Any:  # noqa: ANN401 - Rich is imported late.
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for index, name in enumerate(texts):
        width_min = 0 if index else NAME_WIDTH_MIN
        table.add_column(name, overflow="fold", no_wrap=index > 0, min_width=width_min)
    for name in numbers:
        # On a narrow terminal the heading wraps, but numbers do not.
        head = name if width >= WIDE else name.replace(" ", "\n")
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(row[name]) for name in (*texts, *numbers)))
    return table


def _message_lines(jobs: Sequence[ShownJob], now: datetime) -> list[str]:
    """Return the lines below the table; jobs with the same message share a line."""
    names_by_message: dict[str, list[str]] = {}
    for job in jobs:
        names_by_message.setdefault(_message(job, now), []).append(job.view.name)
    names_by_message.pop("", None)
    return [f"{', '.join(names)}: {message}" for message, names in names_by_message.items()]


def _message(job: ShownJob, now: datetime) -> str:
    progress = job.report.progress
    if progress is None or job.view.reason is not None:
        return reason_text(job, now)
    shown = progress.message and not _brief_listing(job, now)
    return _activity(progress, now) if shown else _backlog_text(job)


def _backlog_text(job: ShownJob) -> str:
    """Return why a job is in backlog, and the time left; empty if it is not in backlog."""
    cause, progress = job.view.backlog_cause, job.report.progress
    if not cause or progress is None:
        return ""
    eta = "" if progress.eta is None else f", about {format_duration(progress.eta)} left"
    return f"in backlog ({cause}){eta}"


class PlainDisplay:
    """Plain lines, at most one per second: for a change, or after a long silence."""

    def __init__(self, tally: Tally, clock: Clock) -> None:
        self._tally = tally
        self._clock = clock
        self._line_by_job: dict[str, str] = {}
        self._printed_at: datetime | None = None
        self._silence_at = clock.now() + SILENCE_FIRST

    def show(self, jobs: Sequence[ShownJob]) -> None:
        self._tally.update(jobs)
        now = self._clock.now()
        if self._printed_at is not None and now < self._printed_at + LINE_PERIOD:
            return
        # Jobs without a line so far come first.
        for job in sorted(jobs, key=lambda job: job.view.job.id in self._line_by_job):
            line = self._line(job)
            if line != self._line_by_job.get(job.view.job.id) and not _brief_listing(job, now):
                self._line_by_job[job.view.job.id] = line
                rate = self._tally.rate(job.view)
                self._print(line + (f"; {rate:,.0f} rows/s" if rate >= 1 else ""), now)
                self._silence_at = now + SILENCE_FIRST
                return
        if now >= self._silence_at:
            self._print(f"waiting: {_silence_text(jobs, now)}", now)
            self._silence_at = now + SILENCE_PERIOD

    def summarise(self, jobs: Sequence[ShownJob]) -> None:
        for line in summary_lines(jobs, self._tally):
            _print(line)

    def _print(self, line: str, now: datetime) -> None:
        self._printed_at = now
        _print(f"{now:%H:%M:%S}Z {line}")

    def _line(self, job: ShownJob) -> str:
        done, progress = self._tally.done(job.view), job.report.progress
        step, left, reason = "", "", reason_text(job)
        if progress is not None:
            files_left, rows_left = _left_texts(job, done)
            noun = "file" if files_left == "1" else "files"
            left = f"; {files_left} {noun}, {rows_left} rows left"
            if _is_stream(job.view):
                left = f"; lag {lag_text(job)}"
            if progress.message:
                reason = _activity(progress)
            elif progress.step is not Step.IDLE:
                step = f" {progress.step}"
        reason = reason or _backlog_text(job)
        why = f"; {reason}" if reason else ""
        amount = _amount(job.view, done)
        return f"{job.view.name} {_state_name(job)}{step}: {amount} done{left}{why}"


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def summary_lines(jobs: Sequence[ShownJob], tally: Tally) -> list[str]:
    """Return a line for each job: the counts of this run and the totals."""
    duration = format_duration(tally.duration, tenths=True)
    return [
        f"{job.view.name}: {_state_name(job).lower()}; loaded "
        f"{_amount(job.view, tally.done(job.view))} in this run "
        f"({format_size(tally.done(job.view).bytes_read)} in {duration}, "
        f"{tally.average_rate(job.view):,.0f} rows/s); total "
        f"{_amount(job.view, job.view.totals)}"
        for job in jobs
    ]


def _summary_cells(job: ShownJob, jobs: Sequence[ShownJob], tally: Tally) -> dict[str, str]:
    done = tally.done(job.view)
    return {
        "job": job.view.name,
        "state": _state_name(job),
        _read_head(jobs): _read_count(job.view, done),
        "bytes": format_size(done.bytes_read),
        "rows": f"{done.rows_loaded:,}",
        "rejected": f"{done.rows_rejected:,}",
        "rows/s": _brief_count(tally.average_rate(job.view)),
        "total rows": f"{job.view.totals.rows_loaded:,}",
    }


def _is_stream(view: JobView) -> bool:
    """Return whether the source reports a lag instead of waiting bytes."""
    return "bytes" not in view.kind.measures


def _read_head(jobs: Sequence[ShownJob]) -> str:
    nouns = {job.view.kind.read_noun for job in jobs}
    return f"{nouns.pop()}s" if len(nouns) == 1 else "read"


def _items_read(view: JobView, done: Statistics) -> int:
    """Return how many files or records were read; a streaming table counts both."""
    return done.files_read if view.kind.read_noun == "file" else done.records_read


def _read_count(view: JobView, done: Statistics) -> str:
    return f"{_items_read(view, done):,}"


def _amount(view: JobView, done: Statistics) -> str:
    """Return the counts of files or records, rows and rejected rows as text."""
    read = format_count(_items_read(view, done), view.kind.read_noun)
    loaded = f"{read}, {format_count(done.rows_loaded, 'row')}"
    return loaded + (f" ({done.rows_rejected:,} rejected)" if done.rows_rejected else "")


def _state_name(job: ShownJob) -> str:
    """Return the state as SHOW JOBS shows it, or CAUGHT UP."""
    progress = job.report.progress
    idle = progress is not None and progress.step is Step.IDLE
    if job.view.job.desired.state is DesiredState.RUN and (job.report.caught_up or idle):
        return "CAUGHT UP"
    return str(job.view.state)


def _step_text(progress: Progress | None, now: datetime) -> str:
    """Return the step of a runner with its duration, or the time of the next attempt."""
    if progress is None:
        return ""
    if progress.step is Step.IDLE:
        return f"next poll{_until(progress, now)}"
    if progress.step is Step.RETRYING:
        return f"retry{_until(progress, now)}"
    duration = now - progress.since
    return str(progress.step) + (
        f" {format_duration(duration)}" if duration > STEP_SHORT else ""
    )


def _activity(progress: Progress, now: datetime | None = None) -> str:
    """Return the step of a runner with its message."""
    match progress.step:
        case Step.IDLE:
            return "caught up" + (f", next poll{_until(progress, now)}" if now else "")
        case Step.RETRYING:
            when = _until(progress, now) if now else ""
            return f"attempt {progress.attempt} of {FAILURES_MAX}{when}: {progress.message}"
        case Step.POLLING if progress.message:
            return f"listing {progress.message}"
        case _:
            more = f" ({progress.message})" if progress.message else ""
            return f"{progress.step}{more}"


def _until(progress: Progress, now: datetime) -> str:
    if progress.until is None or progress.until <= now:
        return " now"
    return f" in {format_duration(progress.until - now, tenths=progress.step is Step.RETRYING)}"


def _brief_listing(job: ShownJob, now: datetime) -> bool:
    """Return whether a job has just started a listing; idle jobs list repeatedly."""
    progress = job.report.progress
    if progress is None or progress.step is not Step.POLLING:
        return False
    return now - progress.since <= STEP_SHORT


def reason_text(job: ShownJob, now: datetime | None = None) -> str:
    """Return why a job does not run; empty if the job runs."""
    reason = job.view.reason
    if reason is not None:
        return f"{reason.code}: {reason.message}{_resume_time(job, now)}"
    if job.report.last_exit and job.report.last_exit.error and job.report.progress is None:
        return job.report.last_exit.error.message
    return ""


def _resume_time(job: ShownJob, now: datetime | None) -> str:
    if job.report.resumes_at is None:
        return ""
    if now is None:
        return f" (resumes at {job.report.resumes_at:%H:%M:%S}Z)"
    return f" (resumes in {format_duration(job.report.resumes_at - now)})"


def _left_texts(job: ShownJob, done: Statistics, *, brief: bool = False) -> tuple[str, str]:
    """Return the remaining files and input rows as texts; empty for a stream."""
    progress = job.report.progress
    if progress is None or _is_stream(job.view):
        return "", ""
    waiting = progress.waiting
    if not waiting.items:
        return ("0", "0") if waiting.complete else ("?", "?")
    files = f"{waiting.items:,}" + ("" if waiting.complete else "+")
    if waiting.rows:
        return files, _brief_count(waiting.rows) if brief else f"{waiting.rows:,}"
    if done.bytes_read == 0:
        return files, "?"
    # A streaming table writes other rows than it reads.
    rows_read = done.records_read or done.rows_loaded
    rows = (waiting.size_bytes or 0) * rows_read / done.bytes_read
    return files, f"~{_brief_count(rows) if brief else f'{rows:,.0f}'}"


def lag_text(job: ShownJob) -> str:
    """Return the lag of a stream; empty for files."""
    progress = job.report.progress
    if progress is None or not _is_stream(job.view):
        return ""
    waiting = progress.waiting
    if waiting.lag is None:
        return "0 s" if waiting.complete and not waiting.items else "?"
    return format_duration(waiting.lag)


def _brief_count(number: float) -> str:
    """Return a number in few characters: 950, 12.3k, 4.5M."""
    if number < TEN_THOUSAND:
        return f"{number:,.0f}"
    unit, factor = next(pair for pair in LARGE if number >= pair[1])
    return f"{number / factor:.1f}{unit}"


def _silence_text(jobs: Sequence[ShownJob], now: datetime) -> str:
    """Return why the jobs print no lines; working jobs come first."""
    if not jobs:
        return NO_JOBS
    ordered = sorted(
        jobs,
        key=lambda job: job.report.progress is None or job.report.progress.step is Step.IDLE,
    )
    named = [f"{job.view.name} {_wait(job, now)}" for job in ordered[:WAITS_NAMED]]
    more = len(jobs) - len(named)
    return "; ".join([*named, *([f"and {more:,} more"] if more else [])])


def _wait(job: ShownJob, now: datetime) -> str:
    progress = job.report.progress
    if job.view.job.desired.state is not DesiredState.RUN:
        return f"is {_state_name(job).lower()}{_resume_time(job, now)}"
    if job.report.caught_up:
        return "has caught up"
    if progress is None or progress.step is Step.STOPPED:
        return "is not running in this process; another process may be running it"
    if progress.step in (Step.IDLE, Step.RETRYING):
        return _activity(progress, now)
    return f"{_activity(progress)} for {format_duration(now - progress.since)}"
