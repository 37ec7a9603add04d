"""Output of the progress display, on a terminal and elsewhere."""

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
from penstock.model.job import DesiredState, JobState, Reason, SourceRef
from penstock.model.split import Amount
from penstock.supervisor.supervisor import RunnerReport
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WHY = "file /in/0.json, line 1: expected BIGINT, found a text that is rather long to be read"


class FakeClock:
    """A clock that changes only when a test moves it."""

    def __init__(self) -> None:
        self.at = NOON

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def wait(self, event: object, timeout: timedelta) -> bool:
        raise AssertionError(f"unexpected wait for {event} of {timeout}")

    def move(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def state(node: Node, folder: Path) -> JobState:
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    return node.job("j")


def shown_job(state: JobState, step: Step | None = None, **changes: Any) -> ShownJob:
    """Return a job whose runner has been in a step since noon; without a step, no runner."""
    progress = None if step is None else replace(Progress(step=step, since=NOON), **changes)
    report = RunnerReport(
        state=state,
        lease=Lease(node_id="n", expires_at=NOON, live=True) if progress else None,
        progress=progress,
        last_exit=None,
        resumes_at=None,
        caught_up=False,
    )
    return shown_jobs([report], at=NOON)[0]


def paused_job(state: JobState, *, resumes_at: datetime | None) -> ShownJob:
    reason = Reason(code=Code.GET_REMOTE_DATA_ERROR, message=WHY)
    desired = replace(state.desired, state=DesiredState.PAUSE, reason=reason)
    job = shown_job(replace(state, desired=desired))
    return replace(job, report=replace(job.report, resumes_at=resumes_at))


def loaded(state: JobState, *, files: int, rows: int) -> JobState:
    total = Statistics(files_read=files, rows_loaded=rows, bytes_read=rows * 100)
    return replace(state, cumulative=total)


def drawn(jobs: list[ShownJob], clock: FakeClock, *, width: int) -> list[str]:
    """Return the lines on a terminal of this width."""
    console = Console(width=width)
    display = LiveDisplay(Tally(clock), clock, None)
    with console.capture() as captured:
        console.print(display.drawn(jobs, width=width))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_narrow_terminal_shows_the_whole_reason_of_a_pause(
    state: JobState, clock: FakeClock
) -> None:
    text = " ".join(drawn([paused_job(state, resumes_at=None)], clock, width=80))

    assert f"j: GET_REMOTE_DATA_ERROR: {WHY}" in " ".join(text.split())
    assert "PAUSED" in text


def test_a_pause_with_an_automatic_resume_shows_the_time_of_the_resume(state: JobState) -> None:
    job = paused_job(state, resumes_at=NOON + timedelta(seconds=10))

    assert reason_text(job).endswith("(resumes at 12:00:10Z)")
    assert reason_text(job, NOON).endswith("(resumes in 10 s)")


def test_a_long_step_shows_its_duration(state: JobState, clock: FakeClock) -> None:
    job = shown_job(state, Step.LOADING)

    short = drawn([job], clock, width=120)[-1].split()
    clock.move(125)
    long = drawn([job], clock, width=120)[-1]

    assert short[:4] == ["j", "RUNNING", "loading", "0"]
    assert "RUNNING  loading 2 min 5 s" in long


def test_an_idle_job_shows_caught_up_and_the_time_to_the_next_poll(
    state: JobState, clock: FakeClock
) -> None:
    job = shown_job(state, Step.IDLE, until=NOON + timedelta(seconds=10))

    clock.move(3)

    assert "CAUGHT UP  next poll in 7 s" in drawn([job], clock, width=120)[-1]


def test_a_narrow_terminal_shows_whole_numbers(state: JobState, clock: FakeClock) -> None:
    job = shown_job(
        loaded(state, files=12_345, rows=123_456_789),
        Step.STARTING_SPARK,
        waiting=Amount(items=1234, size_bytes=10**12),
    )

    lines = drawn([job], clock, width=80)

    assert max(map(len, lines)) <= 80
    assert lines[-1].split() == ["j", "starting", "Spark", "0", "0", "1,234", "?", "0"]


def test_jobs_with_the_same_note_share_a_line(state: JobState, clock: FakeClock) -> None:
    second = replace(state, id="2", definition=replace(state.definition, name="k"))
    jobs = [
        shown_job(each, Step.STARTING_SPARK, message="the first start takes about 10 s")
        for each in (state, second)
    ]

    lines = drawn(jobs, clock, width=120)

    assert lines[-1] == "j, k: starting Spark (the first start takes about 10 s)"


def test_only_a_long_listing_shows_its_number_of_keys(
    state: JobState, clock: FakeClock
) -> None:
    job = shown_job(state, Step.POLLING, message="s3://lake/in: 12,000 keys so far")

    short = drawn([job], clock, width=120)
    clock.move(3)
    long = drawn([job], clock, width=120)

    assert "keys" not in " ".join(short)
    assert "polling 3 s" in long[-2]
    assert long[-1] == "j: listing s3://lake/in: 12,000 keys so far"


def test_a_retry_shows_the_time_left_and_the_reason(state: JobState, clock: FakeClock) -> None:
    soon = NOON + timedelta(seconds=0.8)

    lines = drawn(
        [shown_job(state, Step.RETRYING, until=soon, attempt=2, message="disk full")],
        clock,
        width=120,
    )

    assert "retry in 0.8 s" in lines[-2]
    assert lines[-1] == "j: attempt 2 of 4 in 0.8 s: disk full"


def test_the_summary_of_several_jobs_is_a_table_on_a_terminal(
    state: JobState, clock: FakeClock
) -> None:
    second = replace(state, id="2", definition=replace(state.definition, name="k"))
    console = Console(width=100)
    live = Live(console=console)
    display = LiveDisplay(Tally(clock), clock, live)
    display.show([shown_job(state), shown_job(second)])

    with console.capture() as captured:
        display.summarise([shown_job(loaded(state, files=2, rows=3_000)), shown_job(second)])

    lines = [line.split() for line in captured.get().splitlines() if line.strip()]
    assert lines[0][:7] == ["job", "state", "files", "bytes", "rows", "rejected", "rows/s"]
    assert lines[2] == ["j", "PENDING", "2", "300.0", "kB", "3,000", "0", "0", "3,000"]
    assert lines[3][:2] == ["k", "PENDING"]


class Printed:
    """A plain display whose clock moves by half a second in every round."""

    def __init__(self, clock: FakeClock, capsys: pytest.CaptureFixture[str]) -> None:
        self._clock = clock
        self._capsys = capsys
        self.display = PlainDisplay(Tally(clock), clock)

    def show(self, *jobs: ShownJob, seconds: float) -> list[str]:
        """Show the same jobs for some seconds; return the printed lines."""
        for _ in range(int(seconds * 2)):
            self.display.show(jobs)
            self._clock.move(0.5)
        return self._capsys.readouterr().out.splitlines()


@pytest.fixture
def printed(clock: FakeClock, capsys: pytest.CaptureFixture[str]) -> Printed:
    return Printed(clock, capsys)


def test_the_plain_display_prints_a_line_only_after_a_change(
    state: JobState, printed: Printed
) -> None:
    first = printed.show(shown_job(state, Step.LOADING, waiting=Amount(items=1)), seconds=5)
    again = printed.show(shown_job(state, Step.LOADING, waiting=Amount(items=1)), seconds=4)
    then = printed.show(shown_job(state, Step.COMMITTING, waiting=Amount()), seconds=4)

    assert first == ["12:00:00Z j RUNNING loading: 0 files, 0 rows done; 1 file, ? rows left"]
    assert again == []
    assert then == [
        "12:00:09Z j RUNNING committing: 0 files, 0 rows done; 0 files, 0 rows left"
    ]


def streaming(state: JobState, **counts: int) -> JobState:
    """Return a job that reads tables, with these counts."""
    definition = replace(state.definition, source=SourceRef(kind="TABLE_LOG", options=()))
    return replace(state, definition=definition, cumulative=Statistics(**counts))


@pytest.mark.parametrize(("rows", "shown"), [(1_200, "1,200"), (0, "~2,000")])
def test_the_rows_left_of_a_streaming_table_are_input_rows(
    state: JobState, printed: Printed, rows: int, shown: str
) -> None:
    waiting = Amount(items=3, rows=rows, size_bytes=5_000)
    printed.show(shown_job(streaming(state), Step.LOADING, waiting=waiting), seconds=1)

    read = streaming(state, files_read=2, records_read=400, rows_loaded=7, bytes_read=1_000)
    (line,) = printed.show(shown_job(read, Step.LOADING, waiting=waiting), seconds=1)

    assert f"400 input rows, 7 rows done; 3 files, {shown} rows left" in line


def test_the_plain_display_omits_a_short_listing_of_an_idle_job(
    state: JobState, printed: Printed
) -> None:
    idle = shown_job(state, Step.IDLE, waiting=Amount(), caught_up=True)
    printed.show(idle, seconds=2)

    listing = shown_job(state, Step.POLLING, message="/in: 3 keys so far", waiting=Amount())
    brief = printed.show(replace_since(listing, seconds=2), seconds=1)

    assert brief == []


def replace_since(job: ShownJob, *, seconds: float) -> ShownJob:
    """Return the job with a step that started later."""
    assert job.report.progress is not None
    progress = replace(job.report.progress, since=NOON + timedelta(seconds=seconds))
    return replace(job, report=replace(job.report, progress=progress))


def test_a_plain_line_shows_the_message_of_a_long_step(
    state: JobState, printed: Printed
) -> None:
    job = shown_job(state, Step.STARTING_SPARK, message="the first start takes about 10 s")

    (line,) = printed.show(job, seconds=1)

    assert line.endswith(
        "? files, ? rows left; starting Spark (the first start takes about 10 s)"
    )


def test_the_plain_display_explains_a_silence_after_ten_seconds_and_every_minute(
    state: JobState, printed: Printed
) -> None:
    job = shown_job(state, Step.LOADING)

    lines = printed.show(job, seconds=140)

    assert [line[:9] for line in lines] == ["12:00:00Z", "12:00:10Z", "12:01:10Z", "12:02:10Z"]
    assert lines[1] == "12:00:10Z waiting: j loading for 10 s"
    assert lines[2] == "12:01:10Z waiting: j loading for 1 min 10 s"


def test_a_run_without_jobs_prints_how_to_create_a_job(printed: Printed) -> None:
    lines = printed.show(seconds=11)

    assert lines == ["12:00:10Z waiting: no jobs to run; create one with penstock sql"]


def test_the_explanation_of_a_silence_names_working_jobs_first(
    state: JobState, printed: Printed
) -> None:
    idle = shown_job(state, Step.IDLE, until=NOON + timedelta(seconds=17))
    busy = shown_job(
        replace(state, id="2", definition=replace(state.definition, name="k")), Step.COMMITTING
    )

    lines = printed.show(idle, busy, seconds=12)

    assert lines[-1] == (
        "12:00:11Z waiting: k committing for 11 s; j caught up, next poll in 6 s"
    )


def test_a_job_without_a_runner_is_reported_as_not_running_in_this_process(
    state: JobState, printed: Printed
) -> None:
    lines = printed.show(shown_job(state), seconds=11)

    assert lines[-1].endswith(
        "j is not running in this process; another process may be running it"
    )


def test_the_summary_shows_rows_files_bytes_time_and_rejects(
    state: JobState, clock: FakeClock
) -> None:
    tally = Tally(clock)
    tally.update([shown_job(state)])
    clock.move(4)
    total = Statistics(files_read=2, rows_loaded=3_000, rows_rejected=1, bytes_read=45_600)

    (line,) = summary_lines([shown_job(replace(state, cumulative=total))], tally)

    assert line == (
        "j: pending; loaded 2 files, 3,000 rows (1 rejected) in this run "
        "(45.6 kB in 4.0 s, 750 rows/s); total 2 files, 3,000 rows (1 rejected)"
    )
