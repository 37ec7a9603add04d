"""Show the progress of a run: a live table on a terminal, plain lines elsewhere.

Counts come from the catalog, so they are what was committed, also after a restart. Only the
step, the lag and what is left are reports of the runner. A text without a time stays the same
until something happens, so plain lines are printed only then.
"""

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Protocol

from penstock.clock import Clock
from penstock.epochs.cadence import ATTEMPTS_MAX
from penstock.epochs.progress import Progress, Step
from penstock.model.epoch import Statistics
from penstock.model.job import DesiredState, JobState
from penstock.model.text import counted, format_duration, sized
from penstock.sources.registry import source_kind
from penstock.supervisor.supervisor import JobLook

NO_JOBS = "no jobs yet; create one with penstock sql"
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


class Display(Protocol):
    """Where progress is shown."""

    def show(self, looks: Sequence[JobLook]) -> None:
        """Show the newest progress; called in every round."""
        ...

    def summarise(self, looks: Sequence[JobLook]) -> None:
        """Show what the run did; called once, at its end."""
        ...


@contextmanager
def open_display(clock: Clock) -> Iterator[Display]:
    """Yield the display that fits standard output."""
    tally = Tally(clock)
    if not sys.stdout.isatty():
        yield PlainDisplay(tally, clock)
        return
    from rich.live import Live

    # Standard error that goes to a file must not be drawn on the terminal.
    drawn = sys.stderr.isatty()
    with Live(
        "starting …", refresh_per_second=8, transient=True, redirect_stderr=drawn
    ) as live:
        yield LiveDisplay(tally, clock, live)


class Tally:
    """What each job did since the start of the run, and how fast."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first: dict[str, Statistics] = {}
        self._samples: dict[str, deque[tuple[datetime, int]]] = {}
        self._started_at = clock.now()

    def update(self, looks: Sequence[JobLook]) -> None:
        """Record the newest counts."""
        now = self._clock.now()
        for look in looks:
            total = look.state.cumulative
            self._first.setdefault(look.state.id, total)
            samples = self._samples.setdefault(look.state.id, deque())
            samples.append((now, total.rows_loaded))
            while samples[0][0] < now - RATE_WINDOW:
                samples.popleft()

    @property
    def duration(self) -> timedelta:
        """How long the run has format_duration."""
        return self._clock.now() - self._started_at

    def done(self, state: JobState) -> Statistics:
        """Return what a job committed in this run."""
        first, total = self._first.get(state.id, state.cumulative), state.cumulative
        return Statistics(
            rows_loaded=total.rows_loaded - first.rows_loaded,
            rows_rejected=total.rows_rejected - first.rows_rejected,
            files_read=total.files_read - first.files_read,
            records_read=total.records_read - first.records_read,
            bytes_read=total.bytes_read - first.bytes_read,
        )

    def rate(self, state: JobState) -> float:
        """Return the rows per second of the last seconds."""
        samples = self._samples.get(state.id)
        if not samples:
            return 0.0
        (start, rows_then), (end, rows_now) = samples[0], samples[-1]
        return _per_second(rows_now - rows_then, end - start)

    def average_rate(self, state: JobState) -> float:
        """Return the rows per second of the whole run."""
        return _per_second(self.done(state).rows_loaded, self.duration)


def _per_second(rows: int, duration: timedelta) -> float:
    return rows / duration.total_seconds() if duration else 0.0


class LiveDisplay:
    """A table that is redrawn in place."""

    def __init__(self, tally: Tally, clock: Clock, live: Any) -> None:  # noqa: ANN401 - Rich is imported late.
        self._tally = tally
        self._clock = clock
        self._live = live

    def show(self, looks: Sequence[JobLook]) -> None:
        self._tally.update(looks)
        self._live.update(self.drawn(looks, width=self._live.console.width))

    def summarise(self, looks: Sequence[JobLook]) -> None:
        self._live.update("")
        console = self._live.console
        if len(looks) > 1:
            rows = [_summary_cells(look, looks, self._tally) for look in looks]
            table = _table(("job", "state"), tuple(rows[0])[2:], rows, width=console.width)
            table.caption = (
                f"this run took {format_duration(self._tally.duration, tenths=True)}"
            )
            table.caption_justify = "left"
            console.print(table)
            return
        for line in summary_lines(looks, self._tally):
            console.print(line, markup=False, highlight=False)

    def drawn(self, looks: Sequence[JobLook], *, width: int) -> object:
        """Return the table for a terminal of some width, with notes below it."""
        from rich.console import Group
        from rich.text import Text

        if not looks:
            return Text(NO_JOBS)
        now = self._clock.now()
        # A narrow table has the step in place of the state.
        texts = ("job", "state", "step") if width >= WIDE else ("job", "step")
        streams = [_is_stream(look.state) for look in looks]
        left = () if all(streams) else ("files left", "rows left")
        lag = ("lag",) if any(streams) else ()
        numbers = (_read_head(looks), "rows", *left, *lag, "rows/s")
        rows = [self._cells(look, now, width) for look in looks]
        table = _table(texts, numbers, rows, width=width)
        # Columns must not jump with every step.
        table.columns[len(texts) - 1].min_width = STEP_WIDTH
        return Group(table, *(Text(note) for note in _notes(looks, now)))

    def _cells(self, look: JobLook, now: datetime, width: int) -> dict[str, str]:
        done = self._tally.done(look.state)
        files_left, rows_left = _left_texts(look, done, brief=True)
        state = _state_name(look)
        return {
            "job": look.state.name,
            "state": state,
            "step": _step_text(look.progress, now) or (state if width < WIDE else ""),
            **dict.fromkeys(("files", "records", "read"), _read_count(done)),
            "rows": f"{done.rows_loaded:,}",
            "files left": files_left,
            "rows left": rows_left,
            "lag": lag_text(look),
            "rows/s": _brief_count(self._tally.rate(look.state)),
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
        # On a narrow terminal the head takes two lines; a number never does.
        head = name if width >= WIDE else name.replace(" ", "\n")
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(row[name]) for name in (*texts, *numbers)))
    return table


def _notes(looks: Sequence[JobLook], now: datetime) -> list[str]:
    """Return the lines below the table; jobs with the same note share a line."""
    names_by_note: dict[str, list[str]] = {}
    for look in looks:
        names_by_note.setdefault(_note(look, now), []).append(look.state.name)
    names_by_note.pop("", None)
    return [f"{', '.join(names)}: {note}" for note, names in names_by_note.items()]


def _note(look: JobLook, now: datetime) -> str:
    progress = look.progress
    if progress is None or look.state.desired.reason is not None:
        return reason_text(look, now)
    shown = progress.message and not _brief_listing(look, now)
    return _activity(progress, now) if shown else ""


class PlainDisplay:
    """At most one line per second: when something changed, or after a long silence."""

    def __init__(self, tally: Tally, clock: Clock) -> None:
        self._tally = tally
        self._clock = clock
        self._line_by_job: dict[str, str] = {}
        self._printed_at: datetime | None = None
        self._silence_at = clock.now() + SILENCE_FIRST

    def show(self, looks: Sequence[JobLook]) -> None:
        self._tally.update(looks)
        now = self._clock.now()
        if self._printed_at is not None and now < self._printed_at + LINE_PERIOD:
            return
        # A job that was never shown comes first.
        for look in sorted(looks, key=lambda look: look.state.id in self._line_by_job):
            line = self._line(look)
            if line != self._line_by_job.get(look.state.id) and not _brief_listing(look, now):
                self._line_by_job[look.state.id] = line
                rate = self._tally.rate(look.state)
                self._print(line + (f"; {rate:,.0f} rows/s" if rate >= 1 else ""), now)
                self._silence_at = now + SILENCE_FIRST
                return
        if now >= self._silence_at:
            self._print(f"waiting: {_silence_text(looks, now)}", now)
            self._silence_at = now + SILENCE_PERIOD

    def summarise(self, looks: Sequence[JobLook]) -> None:
        for line in summary_lines(looks, self._tally):
            _print(line)

    def _print(self, line: str, now: datetime) -> None:
        self._printed_at = now
        _print(f"{now:%H:%M:%S}Z {line}")

    def _line(self, look: JobLook) -> str:
        done, progress = self._tally.done(look.state), look.progress
        step, left, reason = "", "", reason_text(look)
        if progress is not None:
            files_left, rows_left = _left_texts(look, done)
            noun = "file" if files_left == "1" else "files"
            left = f", left {files_left} {noun}, {rows_left} rows"
            if _is_stream(look.state):
                left = f", lag {lag_text(look)}"
            if progress.message:
                reason = _activity(progress)
            elif progress.step is not Step.IDLE:
                step = f" {progress.step}"
        why = f"; {reason}" if reason else ""
        amount = _amount(look.state, done)
        return f"{look.state.name} {_state_name(look)}{step}: {amount} done{left}{why}"


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def summary_lines(looks: Sequence[JobLook], tally: Tally) -> list[str]:
    """Return for each job what it loaded in this run and in all."""
    duration = format_duration(tally.duration, tenths=True)
    return [
        f"{look.state.name}: {_state_name(look).lower()}; loaded "
        f"{_amount(look.state, tally.done(look.state))} in this run "
        f"({sized(tally.done(look.state).bytes_read)} in {duration}, "
        f"{tally.average_rate(look.state):,.0f} rows/s); in all "
        f"{_amount(look.state, look.state.cumulative)}"
        for look in looks
    ]


def _summary_cells(look: JobLook, looks: Sequence[JobLook], tally: Tally) -> dict[str, str]:
    done = tally.done(look.state)
    return {
        "job": look.state.name,
        "state": _state_name(look),
        _read_head(looks): _read_count(done),
        "bytes": sized(done.bytes_read),
        "rows": f"{done.rows_loaded:,}",
        "rejected": f"{done.rows_rejected:,}",
        "rows/s": _brief_count(tally.average_rate(look.state)),
        "rows in all": f"{look.state.cumulative.rows_loaded:,}",
    }


def _is_stream(state: JobState) -> bool:
    """Return whether the source measures what waits by lag instead of bytes."""
    return "bytes" not in source_kind(state.definition.source.kind).measures


def _read_head(looks: Sequence[JobLook]) -> str:
    nouns = {source_kind(look.state.definition.source.kind).read_noun for look in looks}
    return f"{nouns.pop()}s" if len(nouns) == 1 else "read"


def _read_count(done: Statistics) -> str:
    return f"{done.files_read + done.records_read:,}"


def _amount(state: JobState, done: Statistics) -> str:
    """Return what was read, loaded and rejected."""
    noun = source_kind(state.definition.source.kind).read_noun
    read = counted(done.files_read + done.records_read, noun)
    loaded = f"{read}, {counted(done.rows_loaded, 'row')}"
    return loaded + (f" ({done.rows_rejected:,} rejected)" if done.rows_rejected else "")


def _state_name(look: JobLook) -> str:
    """Return the state as SHOW JOBS does, or CAUGHT UP."""
    step = look.progress.step if look.progress else Step.STOPPED
    match look.state.desired.state:
        case DesiredState.RUN if look.caught_up or step is Step.IDLE:
            return "CAUGHT UP"
        case DesiredState.RUN:
            return "PENDING" if step is Step.STOPPED else "RUNNING"
        case DesiredState.PAUSE:
            return "PAUSED"
        case DesiredState.DROP | DesiredState.CLOSED:
            return "DROPPED"


def _step_text(progress: Progress | None, now: datetime) -> str:
    """Return the step of a runner with its duration, or when its wait ends."""
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
            return f"attempt {progress.attempt} of {ATTEMPTS_MAX}{when}: {progress.message}"
        case Step.LISTING if progress.message:
            return f"listing {progress.message}"
        case _:
            more = f" ({progress.message})" if progress.message else ""
            return f"{progress.step}{more}"


def _until(progress: Progress, now: datetime) -> str:
    if progress.until is None or progress.until <= now:
        return " now"
    return f" in {format_duration(progress.until - now, tenths=progress.step is Step.RETRYING)}"


def _brief_listing(look: JobLook, now: datetime) -> bool:
    """Return whether a job has just started to list, as an idle job does again and again."""
    progress = look.progress
    if progress is None or progress.step is not Step.LISTING:
        return False
    return now - progress.since <= STEP_SHORT


def reason_text(look: JobLook, now: datetime | None = None) -> str:
    """Return why a job does not run; empty if it does."""
    reason = look.state.desired.reason
    if reason is not None:
        return f"{reason.code}: {reason.message}{_resume_time(look, now)}"
    if look.last_words and look.last_words.error and look.progress is None:
        return look.last_words.error.message
    return ""


def _resume_time(look: JobLook, now: datetime | None) -> str:
    if look.resumes_at is None:
        return ""
    if now is None:
        return f" (resumes at {look.resumes_at:%H:%M:%S}Z)"
    return f" (resumes in {format_duration(look.resumes_at - now)})"


def _left_texts(look: JobLook, done: Statistics, *, brief: bool = False) -> tuple[str, str]:
    """Return how many files are left, and about how many rows; empty for a stream."""
    progress = look.progress
    if progress is None or _is_stream(look.state):
        return "", ""
    waiting = progress.waiting
    if not waiting.items:
        return ("0", "0") if waiting.complete else ("?", "?")
    files = f"{waiting.items:,}" + ("" if waiting.complete else "+")
    if done.bytes_read == 0:
        return files, "?"
    rows = (waiting.size_bytes or 0) * done.rows_loaded / done.bytes_read
    return files, f"~{_brief_count(rows) if brief else f'{rows:,.0f}'}"


def lag_text(look: JobLook) -> str:
    """Return the lag of a stream; empty for files."""
    progress = look.progress
    if progress is None or not _is_stream(look.state):
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


def _silence_text(looks: Sequence[JobLook], now: datetime) -> str:
    """Return what the jobs of a run wait for; working jobs come first."""
    if not looks:
        return NO_JOBS
    ordered = sorted(
        looks, key=lambda look: look.progress is None or look.progress.step is Step.IDLE
    )
    named = [f"{look.state.name} {_wait(look, now)}" for look in ordered[:WAITS_NAMED]]
    more = len(looks) - len(named)
    return "; ".join([*named, *([f"and {more:,} more"] if more else [])])


def _wait(look: JobLook, now: datetime) -> str:
    progress = look.progress
    if look.state.desired.state is not DesiredState.RUN:
        return f"is {_state_name(look).lower()}{_resume_time(look, now)}"
    if look.caught_up:
        return "has caught up"
    if progress is None or progress.step is Step.STOPPED:
        return "does not run in this process; another process may run it"
    if progress.step in (Step.IDLE, Step.RETRYING):
        return _activity(progress, now)
    return f"{_activity(progress)} for {format_duration(now - progress.since)}"
