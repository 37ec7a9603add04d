"""Show how a run gets on: a live table on a terminal, one plain line a second elsewhere.

Counts come from the catalog's cumulative statistics, so they are what was committed, also
after a restart; only the step and what waits are the runner's word.
"""

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Protocol

from penstock.clock import Clock
from penstock.engine.progress import Progress, Step
from penstock.model.job import JobState, Wish
from penstock.model.statistics import Statistics
from penstock.nouns import counted
from penstock.supervisor.supervisor import JobLook

LINE_PERIOD = timedelta(seconds=1)
RATE_WINDOW = timedelta(seconds=10)


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

    with Live(refresh_per_second=8, transient=True) as live:
        yield LiveDisplay(tally, live)


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

    def done(self, state: JobState) -> Statistics:
        """Answer what was committed since the run began."""
        first, total = self._first.get(state.id, state.cumulative), state.cumulative
        return Statistics(
            rows_loaded=total.rows_loaded - first.rows_loaded,
            rows_rejected=total.rows_rejected - first.rows_rejected,
            files_read=total.files_read - first.files_read,
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
        seconds = (self._clock.now() - self._begun_at).total_seconds()
        return self.done(state).rows_loaded / seconds if seconds > 0 else 0.0


def state_word(look: JobLook) -> str:
    """Name what a job is in, as SHOW JOBS does, and whether it has caught up."""
    match look.state.wish.wish:
        case Wish.RUN if look.caught_up:
            return "CAUGHT UP"
        case Wish.RUN:
            return (
                "RUNNING"
                if look.progress and look.progress.step is not Step.STOPPED
                else "PENDING"
            )
        case Wish.PAUSE:
            return "PAUSED"
        case Wish.DROP | Wish.CLOSED:
            return "DROPPED"


def left_words(progress: Progress | None, done: Statistics) -> tuple[str, str]:
    """Say how many files are left, and about how many rows."""
    if progress is None:
        return "", ""
    files = f"{progress.files_left:,}" + ("" if progress.all_seen else "+")
    if progress.files_left == 0:
        return files, "0"
    if done.bytes_read == 0:
        return files, "?"
    rows = progress.bytes_left * done.rows_loaded / done.bytes_read
    return files, f"~{rows:,.0f}"


def reason_words(look: JobLook) -> str:
    """Say why a job does not run, or what its runner waits for."""
    if look.state.wish.reason is not None:
        resumes = f" (resumes at {look.resumes_at:%H:%M:%S})" if look.resumes_at else ""
        return f"{look.state.wish.reason.code}: {look.state.wish.reason.message}{resumes}"
    if look.progress and look.progress.message:
        return look.progress.message
    if look.last_words and look.last_words.error and look.progress is None:
        return look.last_words.error.message
    return ""


class LiveDisplay:
    """A table that is drawn anew in place."""

    def __init__(self, tally: Tally, live: Any) -> None:  # noqa: ANN401 - Rich is imported late.
        self._tally = tally
        self._live = live

    def show(self, looks: Sequence[JobLook]) -> None:
        """Draw the table."""
        self._tally.update(looks)
        self._live.update(self._table(looks))

    def summarise(self, looks: Sequence[JobLook]) -> None:
        """Leave a line per job behind."""
        for line in summary_lines(looks, self._tally):
            self._live.console.print(line, markup=False, highlight=False)
        self._live.update("")

    def _table(self, looks: Sequence[JobLook]) -> object:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
        table.add_column("job", overflow="fold")
        for name in ("state", "step"):
            table.add_column(name, no_wrap=True)
        for name in ("files", "rows", "files left", "rows left", "rows/s"):
            table.add_column(name, justify="right")
        for look in looks:
            done = self._tally.done(look.state)
            files_left, rows_left = left_words(look.progress, done)
            cells = (
                look.state.name,
                state_word(look),
                str(look.progress.step) if look.progress else "",
                f"{done.files_read:,}",
                f"{done.rows_loaded:,}",
                files_left,
                rows_left,
                f"{self._tally.rate(look.state):,.0f}",
            )
            table.add_row(*(Text(cell) for cell in cells))
        if not looks:
            return Text("no jobs yet; create one with penstock sql")
        # Below the table a reason has the whole width to be read in.
        reasons = [(look.state.name, reason_words(look)) for look in looks]
        return Group(table, *(Text(f"{name}: {why}") for name, why in reasons if why))


class PlainDisplay:
    """At most one line a second, and only when something has changed."""

    def __init__(self, tally: Tally, clock: Clock) -> None:
        self._tally = tally
        self._clock = clock
        self._printed: dict[str, str] = {}
        self._printed_at: datetime | None = None

    def show(self, looks: Sequence[JobLook]) -> None:
        """Print the line of one job that has changed, if a second has passed."""
        self._tally.update(looks)
        now = self._clock.now()
        if self._printed_at is not None and now < self._printed_at + LINE_PERIOD:
            return
        for look in sorted(looks, key=lambda look: look.state.id in self._printed):
            line = self._line(look)
            if line != self._printed.get(look.state.id):
                self._printed.pop(look.state.id, None)
                self._printed[look.state.id] = line
                self._printed_at = now
                rate = self._tally.rate(look.state)
                _print(f"{now:%H:%M:%S} {line}" + (f"; {rate:,.0f} rows/s" if rate else ""))
                return

    def summarise(self, looks: Sequence[JobLook]) -> None:
        """Print a line per job."""
        for line in summary_lines(looks, self._tally):
            _print(line)

    def _line(self, look: JobLook) -> str:
        done = self._tally.done(look.state)
        files_left, rows_left = left_words(look.progress, done)
        step = f" {look.progress.step}" if look.progress else ""
        left = f", left {files_left} files, {rows_left} rows" if look.progress else ""
        reason = reason_words(look)
        return f"{look.state.name} {state_word(look)}{step}: {_amount(done)} done{left}" + (
            f"; {reason}" if reason else ""
        )


def summary_lines(looks: Sequence[JobLook], tally: Tally) -> list[str]:
    """Say per job what was loaded in this run and in all."""
    return [
        f"{look.state.name}: {state_word(look).lower()}; loaded "
        f"{_amount(tally.done(look.state))} in this run "
        f"({tally.average_rate(look.state):,.0f} rows/s); in all "
        f"{_amount(look.state.cumulative)}"
        for look in looks
    ]


def _amount(done: Statistics) -> str:
    """Say how much was loaded, and what was not."""
    loaded = f"{counted(done.files_read, 'file')}, {counted(done.rows_loaded, 'row')}"
    return loaded + (f" ({done.rows_rejected:,} rejected)" if done.rows_rejected else "")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
