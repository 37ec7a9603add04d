"""What the progress display shows, on a terminal and elsewhere."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live

from penstock.catalog.catalog import Lease
from penstock.cli.display import (
    LiveDisplay,
    PlainDisplay,
    ShownJob,
    Tally,
    reason_text,
    shown_jobs,
    summary_lines,
)
from penstock.epochs.progress import Progress, Step
from penstock.errors import Code
from penstock.model.epoch import Statistics
from penstock.model.job import DesiredState, JobState, Reason
from penstock.model.split import Amount
from penstock.supervisor.supervisor import RunnerReport
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WHY = "file /in/0.json, line 1: expected BIGINT, found a text that is rather long to be read"


class StandingClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.at = NOON

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def wait(self, event: object, timeout: timedelta) -> bool:
        raise AssertionError(f"nobody waits for {event} for {timeout}")

    def move(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def state(node: Node, folder: Path) -> JobState:
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    return node.job("j")


def look_of(state: JobState, step: Step | None = None, **changes: Any) -> ShownJob:
    """Return a job whose runner, if it has one, has been in a step since noon."""
    progress = None if step is None else replace(Progress(step=step, since=NOON), **changes)
    report = RunnerReport(
        state=state,
        lease=Lease(node_id="n", expires_at=NOON, live=True) if progress else None,
        progress=progress,
        last_words=None,
        resumes_at=None,
        caught_up=False,
    )
    return shown_jobs([report], at=NOON)[0]


def paused_look(state: JobState, *, resumes_at: datetime | None) -> ShownJob:
    reason = Reason(code=Code.GET_REMOTE_DATA_ERROR, message=WHY)
    desired = replace(state.desired, state=DesiredState.PAUSE, reason=reason)
    look = look_of(replace(state, desired=desired))
    return replace(look, report=replace(look.report, resumes_at=resumes_at))


def loaded(state: JobState, *, files: int, rows: int) -> JobState:
    total = Statistics(files_read=files, rows_loaded=rows, bytes_read=rows * 100)
    return replace(state, cumulative=total)


def drawn(looks: list[ShownJob], clock: StandingClock, *, width: int) -> list[str]:
    """Answer the lines that a terminal of some width shows."""
    console = Console(width=width)
    display = LiveDisplay(Tally(clock), clock, None)
    with console.capture() as captured:
        console.print(display.drawn(looks, width=width))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_reason_has_the_whole_width_of_a_narrow_terminal(
    state: JobState, clock: StandingClock
) -> None:
    text = " ".join(drawn([paused_look(state, resumes_at=None)], clock, width=80))

    assert f"j: GET_REMOTE_DATA_ERROR: {WHY}" in " ".join(text.split())
    assert "PAUSED" in text


def test_a_pause_that_heals_tells_when_it_resumes(state: JobState) -> None:
    look = paused_look(state, resumes_at=NOON + timedelta(seconds=10))

    assert reason_text(look).endswith("(resumes at 12:00:10Z)")
    assert reason_text(look, NOON).endswith("(resumes in 10 s)")


def test_a_step_that_takes_long_tells_how_long(state: JobState, clock: StandingClock) -> None:
    look = look_of(state, Step.LOADING)

    short = drawn([look], clock, width=120)[-1].split()
    clock.move(125)
    long = drawn([look], clock, width=120)[-1]

    assert short[:4] == ["j", "RUNNING", "loading", "0"]
    assert "RUNNING  loading 2 min 5 s" in long


def test_an_idle_job_has_caught_up_and_counts_down(
    state: JobState, clock: StandingClock
) -> None:
    look = look_of(state, Step.IDLE, until=NOON + timedelta(seconds=10))

    clock.move(3)

    assert "CAUGHT UP  next poll in 7 s" in drawn([look], clock, width=120)[-1]


def test_a_narrow_terminal_shows_whole_numbers(state: JobState, clock: StandingClock) -> None:
    look = look_of(
        loaded(state, files=12_345, rows=123_456_789),
        Step.STARTING_SPARK,
        waiting=Amount(items=1234, size_bytes=10**12),
    )

    lines = drawn([look], clock, width=80)

    assert max(map(len, lines)) <= 80
    assert lines[-1].split() == ["j", "starting", "Spark", "0", "0", "1,234", "?", "0"]


def test_what_many_jobs_wait_for_is_said_once(state: JobState, clock: StandingClock) -> None:
    second = replace(state, id="2", definition=replace(state.definition, name="k"))
    looks = [
        look_of(each, Step.STARTING_SPARK, message="first time takes about 10 s")
        for each in (state, second)
    ]

    lines = drawn(looks, clock, width=120)

    assert lines[-1] == "j, k: starting Spark (first time takes about 10 s)"


def test_a_listing_tells_how_far_it_is_only_when_it_takes_long(
    state: JobState, clock: StandingClock
) -> None:
    look = look_of(state, Step.LISTING, message="s3://lake/in: 12,000 keys so far")

    short = drawn([look], clock, width=120)
    clock.move(3)
    long = drawn([look], clock, width=120)

    assert "keys" not in " ".join(short)
    assert "looking 3 s" in long[-2]
    assert long[-1] == "j: listing s3://lake/in: 12,000 keys so far"


def test_a_retry_counts_down_and_tells_why(state: JobState, clock: StandingClock) -> None:
    soon = NOON + timedelta(seconds=0.8)

    lines = drawn(
        [look_of(state, Step.RETRYING, until=soon, attempt=2, message="disk full")],
        clock,
        width=120,
    )

    assert "retry in 0.8 s" in lines[-2]
    assert lines[-1] == "j: attempt 2 of 4 in 0.8 s: disk full"


def test_the_summary_of_several_jobs_is_a_table_on_a_terminal(
    state: JobState, clock: StandingClock
) -> None:
    second = replace(state, id="2", definition=replace(state.definition, name="k"))
    console = Console(width=100)
    live = Live(console=console)
    display = LiveDisplay(Tally(clock), clock, live)
    display.show([look_of(state), look_of(second)])

    with console.capture() as captured:
        display.summarise([look_of(loaded(state, files=2, rows=3_000)), look_of(second)])

    lines = [line.split() for line in captured.get().splitlines() if line.strip()]
    assert lines[0][:7] == ["job", "state", "files", "bytes", "rows", "rejected", "rows/s"]
    assert lines[2] == ["j", "PENDING", "2", "300.0", "kB", "3,000", "0", "0", "3,000"]
    assert lines[3][:2] == ["k", "PENDING"]


class Printed:
    """A plain display whose clock is moved by half seconds, as rounds do."""

    def __init__(self, clock: StandingClock, capsys: pytest.CaptureFixture[str]) -> None:
        self._clock = clock
        self._capsys = capsys
        self.display = PlainDisplay(Tally(clock), clock)

    def show(self, *looks: ShownJob, seconds: float) -> list[str]:
        """Show the same for some time; answer the lines that were printed."""
        for _ in range(int(seconds * 2)):
            self.display.show(looks)
            self._clock.move(0.5)
        return self._capsys.readouterr().out.splitlines()


@pytest.fixture
def printed(clock: StandingClock, capsys: pytest.CaptureFixture[str]) -> Printed:
    return Printed(clock, capsys)


def test_plain_lines_are_printed_only_when_something_changed(
    state: JobState, printed: Printed
) -> None:
    first = printed.show(look_of(state, Step.LOADING, waiting=Amount(items=1)), seconds=5)
    again = printed.show(look_of(state, Step.LOADING, waiting=Amount(items=1)), seconds=4)
    then = printed.show(look_of(state, Step.COMMITTING, waiting=Amount()), seconds=4)

    assert first == ["12:00:00Z j RUNNING loading: 0 files, 0 rows done, left 1 file, ? rows"]
    assert again == []
    assert then == [
        "12:00:09Z j RUNNING committing: 0 files, 0 rows done, left 0 files, 0 rows"
    ]


def test_a_short_look_of_an_idle_job_is_no_news(state: JobState, printed: Printed) -> None:
    idle = look_of(state, Step.IDLE, waiting=Amount(), caught_up=True)
    printed.show(idle, seconds=2)

    looking = look_of(state, Step.LISTING, message="/in: 3 keys so far", waiting=Amount())
    brief = printed.show(replace_since(looking, seconds=2), seconds=1)

    assert brief == []


def replace_since(look: ShownJob, *, seconds: float) -> ShownJob:
    """Return the job with a step that started later."""
    assert look.report.progress is not None
    progress = replace(look.report.progress, since=NOON + timedelta(seconds=seconds))
    return replace(look, report=replace(look.report, progress=progress))


def test_a_plain_line_says_what_takes_long(state: JobState, printed: Printed) -> None:
    look = look_of(state, Step.STARTING_SPARK, message="first time takes about 10 s")

    (line,) = printed.show(look, seconds=1)

    assert line.endswith("left ? files, ? rows; starting Spark (first time takes about 10 s)")


def test_a_silence_is_explained_after_ten_seconds_and_then_every_minute(
    state: JobState, printed: Printed
) -> None:
    look = look_of(state, Step.LOADING)

    lines = printed.show(look, seconds=140)

    assert [line[:9] for line in lines] == ["12:00:00Z", "12:00:10Z", "12:01:10Z", "12:02:10Z"]
    assert lines[1] == "12:00:10Z waiting: j loading for 10 s"
    assert lines[2] == "12:01:10Z waiting: j loading for 1 min 10 s"


def test_a_silence_without_jobs_tells_how_to_create_one(printed: Printed) -> None:
    lines = printed.show(seconds=11)

    assert lines == ["12:00:10Z waiting: no jobs yet; create one with penstock sql"]


def test_a_silence_names_those_who_work_first(state: JobState, printed: Printed) -> None:
    idle = look_of(state, Step.IDLE, until=NOON + timedelta(seconds=17))
    busy = look_of(
        replace(state, id="2", definition=replace(state.definition, name="k")), Step.COMMITTING
    )

    lines = printed.show(idle, busy, seconds=12)

    assert lines[-1] == (
        "12:00:11Z waiting: k committing for 11 s; j caught up, next poll in 6 s"
    )


def test_a_job_that_another_process_runs_is_told(state: JobState, printed: Printed) -> None:
    lines = printed.show(look_of(state), seconds=11)

    assert lines[-1].endswith("j does not run in this process; another process may run it")


def test_the_summary_tells_rows_files_bytes_time_and_rejects(
    state: JobState, clock: StandingClock
) -> None:
    tally = Tally(clock)
    tally.update([look_of(state)])
    clock.move(4)
    total = Statistics(files_read=2, rows_loaded=3_000, rows_rejected=1, bytes_read=45_600)

    (line,) = summary_lines([look_of(replace(state, cumulative=total))], tally)

    assert line == (
        "j: pending; loaded 2 files, 3,000 rows (1 rejected) in this run "
        "(45.6 kB in 4.0 s, 750 rows/s); in all 2 files, 3,000 rows (1 rejected)"
    )
