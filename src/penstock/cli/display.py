"""Render the progress of a run, live or as lines.

Words that are given no time stay the same until something happens, so that plain lines are
printed only then; with a time they count how long a step takes or when a wait ends.

Counts come from the catalog's cumulative statistics, so they are what was committed, also
after a restart; only the step and what waits are the runner's word.
"""

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Protocol

from penstock.clock import Clock
from penstock.engine.loop import ATTEMPTS_MAX
from penstock.epochs.progress import Progress, Step
from penstock.model.epoch import Statistics
from penstock.model.job import JobState, Wish
from penstock.model.text import counted, lasted, sized
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


LINE_PERIOD = timedelta(seconds=1)
SILENCE_FIRST = timedelta(seconds=10)
SILENCE_PERIOD = timedelta(seconds=60)
RATE_WINDOW = timedelta(seconds=10)
WIDE = 100
NAME_WIDTH_MIN = 8
STEP_WIDTH = len("starting Spark 10 s")


class Display(Protocol):
    """Where progress is shown."""

    def show(self, looks: Sequence[JobLook]) -> None:
        """Show the newest look."""
        ...

    def summarise(self, looks: Sequence[JobLook]) -> None:
        """Say at the end what was done."""
        ...


@contextmanager
def open_display(clock: Clock) -> Iterator[Display]:
    """Answer the display that fits standard output, until the block is left."""
    tally = Tally(clock)
    if not sys.stdout.isatty():
        yield PlainDisplay(tally, clock)
        return
    from rich.live import Live

    # Standard error that goes elsewhere must not be drawn between the tables.
    drawn = sys.stderr.isatty()
    with Live(
        "starting …", refresh_per_second=8, transient=True, redirect_stderr=drawn
    ) as live:
        yield LiveDisplay(tally, clock, live)


class Tally:
    """What was done since the run began, per job, and how fast."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first: dict[str, Statistics] = {}
        self._samples: dict[str, deque[tuple[datetime, int]]] = {}
        self._begun_at = clock.now()

    def update(self, looks: Sequence[JobLook]) -> None:
        """Take the newest counts in."""
        now = self._clock.now()
        for look in looks:
            total = look.state.cumulative
            self._first.setdefault(look.state.id, total)
            samples = self._samples.setdefault(look.state.id, deque())
            samples.append((now, total.rows_loaded))
            while samples[0][0] < now - RATE_WINDOW:
                samples.popleft()

    @property
    def lasts(self) -> timedelta:
        """How long the run has lasted."""
        return self._clock.now() - self._begun_at

    def done(self, state: JobState) -> Statistics:
        """Answer what was committed since the run began."""
        first, total = self._first.get(state.id, state.cumulative), state.cumulative
        return Statistics(
            rows_loaded=total.rows_loaded - first.rows_loaded,
            rows_rejected=total.rows_rejected - first.rows_rejected,
            files_read=total.files_read - first.files_read,
            records_read=total.records_read - first.records_read,
            bytes_read=total.bytes_read - first.bytes_read,
        )

    def rate(self, state: JobState) -> float:
        """Answer the rows per second of the last seconds."""
        samples = self._samples.get(state.id)
        if not samples:
            return 0.0
        (start, rows_then), (end, rows_now) = samples[0], samples[-1]
        seconds = (end - start).total_seconds()
        return (rows_now - rows_then) / seconds if seconds > 0 else 0.0

    def average_rate(self, state: JobState) -> float:
        """Answer the rows per second over the whole run."""
        seconds = self.lasts.total_seconds()
        return self.done(state).rows_loaded / seconds if seconds > 0 else 0.0


class LiveDisplay:
    """A table that is drawn anew in place."""

    def __init__(self, tally: Tally, clock: Clock, live: Any) -> None:  # noqa: ANN401 - Rich is imported late.
        self._tally = tally
        self._clock = clock
        self._live = live

    def show(self, looks: Sequence[JobLook]) -> None:
        """Draw the table."""
        self._tally.update(looks)
        self._live.update(self.drawn(looks, width=self._live.console.width))

    def summarise(self, looks: Sequence[JobLook]) -> None:
        """Leave a line behind for one job, a table for several."""
        self._live.update("")
        if len(looks) > 1:
            self._live.console.print(self._summary(looks))
            return
        for line in summary_lines(looks, self._tally):
            self._live.console.print(line, markup=False, highlight=False)

    def drawn(self, looks: Sequence[JobLook], *, width: int) -> object:
        """Answer what is drawn on a terminal of some width."""
        from rich.console import Group
        from rich.text import Text

        if not looks:
            return Text(NO_JOBS)
        now = self._clock.now()
        # Where there is little room, the step stands in the place of the state.
        texts = ("job", "state", "step") if width >= WIDE else ("job", "step")
        streams = [look.state.definition.load is not None for look in looks]
        left = () if all(streams) else ("files left", "rows left")
        behind = ("behind",) if any(streams) else ()
        numbers = (_read_head(looks), "rows", *left, *behind, "rows/s")
        rows = [self._cells(look, now, width) for look in looks]
        table = _table(texts, numbers, rows, width=width)
        # A table whose columns jump with every step is hard to read.
        table.columns[len(texts) - 1].min_width = STEP_WIDTH
        # Below the table a reason has the whole width to be read in.
        return Group(table, *(Text(note) for note in note_lines(looks, now)))

    def _cells(self, look: JobLook, now: datetime, width: int) -> dict[str, str]:
        done = self._tally.done(look.state)
        files_left, rows_left = left_words(look, done, brief=True)
        state = state_word(look)
        return {
            "job": look.state.name,
            "state": state,
            "step": step_words(look.progress, now) or (state if width < WIDE else ""),
            **_read_cells(done),
            "rows": f"{done.rows_loaded:,}",
            "files left": files_left,
            "rows left": rows_left,
            "behind": behind_words(look),
            "rows/s": brief_count(self._tally.rate(look.state)),
        }

    def _summary(self, looks: Sequence[JobLook]) -> object:
        rows = [summary_cells(look, looks, self._tally) for look in looks]
        width = self._live.console.width
        table = _table(("job", "state"), tuple(rows[0])[2:], rows, width=width)
        table.caption = f"this run took {lasted(self._tally.lasts, tenths=True)}"
        table.caption_justify = "left"
        return table


def _read_head(looks: Sequence[JobLook]) -> str:
    """Name the column of what was read."""
    kinds = {look.state.definition.load is not None for look in looks}
    return {False: "files", True: "records"}[kinds.pop()] if len(kinds) == 1 else "read"


def _read_cells(done: Statistics) -> dict[str, str]:
    read = f"{done.files_read + done.records_read:,}"
    return dict.fromkeys(("files", "records", "read"), read)


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
        # Where there is little room the head takes two lines; a number never does.
        head = name if width >= WIDE else name.replace(" ", "\n")
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(row[name]) for name in (*texts, *numbers)))
    return table


def note_lines(looks: Sequence[JobLook], now: datetime) -> list[str]:
    """Say what is worth lines of their own below the table, once for all whom it concerns."""
    names_by_note: dict[str, list[str]] = {}
    for look in looks:
        names_by_note.setdefault(_note(look, now), []).append(look.state.name)
    names_by_note.pop("", None)
    return [f"{', '.join(names)}: {note}" for note, names in names_by_note.items()]


def _note(look: JobLook, now: datetime) -> str:
    progress = look.progress
    if progress is None or look.state.wish.reason is not None:
        return reason_words(look, now)
    told = progress.message and not _brief_listing(look, now)
    return activity_words(progress, now) if told else ""


def _brief_listing(look: JobLook, now: datetime) -> bool:
    """Tell whether a look at the source has just begun, as an idle job does again and again."""
    progress = look.progress
    if progress is None or progress.step is not Step.LISTING:
        return False
    return now - progress.since <= STEP_SHORT


class PlainDisplay:
    """At most one line a second, when something has changed or has not for long."""

    def __init__(self, tally: Tally, clock: Clock) -> None:
        self._tally = tally
        self._clock = clock
        self._printed: dict[str, str] = {}
        self._printed_at: datetime | None = None
        self._silence_at = clock.now() + SILENCE_FIRST

    def show(self, looks: Sequence[JobLook]) -> None:
        """Print the line of one job that has changed, or what a long silence is about."""
        self._tally.update(looks)
        now = self._clock.now()
        if self._printed_at is not None and now < self._printed_at + LINE_PERIOD:
            return
        told = [look for look in looks if not _brief_listing(look, now)]
        for look in sorted(told, key=lambda look: look.state.id in self._printed):
            line = self._line(look)
            if line != self._printed.get(look.state.id):
                self._printed.pop(look.state.id, None)
                self._printed[look.state.id] = line
                rate = self._tally.rate(look.state)
                self._print(line + (f"; {rate:,.0f} rows/s" if rate >= 1 else ""), now)
                self._silence_at = now + SILENCE_FIRST
                return
        if now >= self._silence_at:
            self._print(f"waiting: {silence_words(looks, now)}", now)
            self._silence_at = now + SILENCE_PERIOD

    def summarise(self, looks: Sequence[JobLook]) -> None:
        """Print a line per job."""
        for line in summary_lines(looks, self._tally):
            _print(line)

    def _print(self, line: str, now: datetime) -> None:
        self._printed_at = now
        _print(f"{now:%H:%M:%S}Z {line}")

    def _line(self, look: JobLook) -> str:
        done, progress = self._tally.done(look.state), look.progress
        files_left, rows_left = left_words(look, done)
        noun = "file" if files_left == "1" else "files"
        left = f", left {files_left} {noun}, {rows_left} rows" if progress else ""
        if look.state.definition.load is not None:
            left = f", {behind_words(look)} behind" if progress else ""
        doing, reason = "", reason_words(look)
        if progress and progress.message:
            reason = activity_words(progress)
        elif progress and progress.step is not Step.IDLE:
            doing = f" {progress.step}"
        why = f"; {reason}" if reason else ""
        amount = _amount(look.state, done)
        return f"{look.state.name} {state_word(look)}{doing}: {amount} done{left}{why}"


def summary_lines(looks: Sequence[JobLook], tally: Tally) -> list[str]:
    """Say per job what was loaded in this run and in all."""
    lasts = lasted(tally.lasts, tenths=True)
    return [
        f"{look.state.name}: {state_word(look).lower()}; loaded "
        f"{_amount(look.state, tally.done(look.state))} in this run "
        f"({sized(tally.done(look.state).bytes_read)} in {lasts}, "
        f"{tally.average_rate(look.state):,.0f} rows/s); in all "
        f"{_amount(look.state, look.state.cumulative)}"
        for look in looks
    ]


def summary_cells(look: JobLook, looks: Sequence[JobLook], tally: Tally) -> dict[str, str]:
    """Say the same in the cells of a table."""
    done = tally.done(look.state)
    return {
        "job": look.state.name,
        "state": state_word(look),
        _read_head(looks): f"{done.files_read + done.records_read:,}",
        "bytes": sized(done.bytes_read),
        "rows": f"{done.rows_loaded:,}",
        "rejected": f"{done.rows_rejected:,}",
        "rows/s": brief_count(tally.average_rate(look.state)),
        "rows in all": f"{look.state.cumulative.rows_loaded:,}",
    }


def _amount(state: JobState, done: Statistics) -> str:
    """Say how much was loaded, and what was not."""
    loaded = f"{read_words(state, done)}, {counted(done.rows_loaded, 'row')}"
    return loaded + (f" ({done.rows_rejected:,} rejected)" if done.rows_rejected else "")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
