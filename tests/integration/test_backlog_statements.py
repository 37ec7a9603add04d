"""Statements about the backlog of a job: SHOW, RESET and events, and the progress display."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console

from penstock.cli.display import LiveDisplay, PlainDisplay, ShownJob, Tally, shown_jobs
from penstock.clock import Clock
from penstock.control.backlog import rate_text
from penstock.control.result import Cell
from penstock.crashpoints import CrashPoint, handle_in_this_thread
from penstock.errors import Code, UserError
from penstock.spark.executor import SparkExecutor
from tests.error_values import raises
from tests.integration.driving import (
    TIMEOUT_SECONDS,
    Crashed,
    Done,
    crash_at,
    idle,
    rounds_until,
    stored,
    supervised,
)
from tests.integration.job_worlds import NOON, StillClock
from tests.mirrored_node import OpenNode
from tests.node import CREATE_TABLE, Node, create_job, numbered, start_thread, write_rows

pytestmark = pytest.mark.integration

# The size of a file with one row, and the number of files.
FILE_BYTES = 27
FILES = 6
EPOCH_SECONDS = 2
JOBS = """SELECT * FROM jobs("type" = "insert")"""
GENERATED = (
    "CREATE ROUTINE LOAD r ON t "
    "PROPERTIES('max_batch_rows' = '100', 'checkpoint.interval-during-backlog' = '0') "
    "FROM DATAGEN('rows_total' = '1000', 'rows_per_second' = 'unlimited', 'splits' = '2', "
    "'fields.id.kind' = 'sequence')"
)


Cells = dict[str, Cell]


class SteppedClock(StillClock):
    """A clock that moves only when the test moves it; also the durations are exact."""

    def monotonic(self) -> float:
        return (self.now() - NOON).total_seconds()


class Run:
    """A run of a node whose runner waits at the start of every epoch; an epoch takes 2 s."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node.clock, SteppedClock)
        self._clock = node.clock
        self._entered, self._go = threading.Event(), threading.Event()
        self._free = self._killed = False
        self.supervisor = node.supervisor(until_caught_up=False, start_runner=self._start)

    def start(self) -> None:
        """Start the runner, and wait until its first epoch has started."""
        self.supervisor.start(sole_process=True)
        rounds_until(self.supervisor, lambda _: self._entered.is_set())

    def step(self) -> None:
        """Finish the epoch, and wait until the next one has started."""
        self._entered.clear()
        self._go.set()
        rounds_until(self.supervisor, lambda _: self._entered.is_set())

    def finish(self, done: Done = idle) -> None:
        """Run without waits until the reports satisfy a condition."""
        self._free = True
        self._go.set()
        rounds_until(self.supervisor, done)

    def end(self) -> None:
        """Kill the runner if it waits, and end the run."""
        self._killed = True
        self._go.set()
        self.supervisor.stop()

    def _start(self, run: Callable[[], None], name: str) -> threading.Thread:
        return start_thread(partial(self._run, run), name)

    def _run(self, run: Callable[[], None]) -> None:
        handle_in_this_thread(self._handle)
        # The thread ends as if its process had been killed.
        with suppress(Crashed):
            run()

    def _handle(self, point: CrashPoint) -> None:
        if point is CrashPoint.RUN_FINISHED:
            self._clock.move(seconds=EPOCH_SECONDS)
        if point is CrashPoint.EPOCH_STARTED and not self._free:
            self._entered.set()
            assert self._go.wait(TIMEOUT_SECONDS)
            self._go.clear()
            if self._killed:
                raise Crashed


@contextmanager
def held(node: Node, *, epoch: int = 1) -> Iterator[Run]:
    """Run the only running job until an epoch of the run has started."""
    run = Run(node)
    try:
        run.start()
        for _ in range(epoch - 1):
            run.step()
        yield run
    finally:
        run.end()


@pytest.fixture
def stepped(open_node: OpenNode) -> Node:
    """A node with a table, whose clock moves only when the test moves it."""
    node = open_node(clock=SteppedClock())
    node.sql(CREATE_TABLE)
    return node


def put(folder: Path, *numbers: int) -> None:
    """Add files with one row, all of the same size."""
    for number in numbers:
        path = write_rows(folder / f"{number}.json", numbered(number))
        assert path.stat().st_size == FILE_BYTES


def create(folder: Path, **properties: str) -> str:
    """Return a CREATE of the job j, which loads one file in each epoch."""
    given = {"s3.max_batch_files": "1", **properties}
    return create_job(folder, properties=list(given.items()))


@pytest.fixture
def loading(stepped: Node, folder: Path) -> Node:
    """A node with the job j and six files; without an interval during backlog."""
    put(folder, *range(1, FILES + 1))
    stepped.sql(create(folder, **{"checkpoint.interval-during-backlog": "0"}))
    return stepped


@pytest.fixture
def generating(stepped: Node) -> Node:
    """A node with the routine load r of 1,000 rows in two splits."""
    stepped.sql(GENERATED)
    return stepped


def backlog(node: Node, name: str = "j") -> Cells:
    """Return the job's row of SHOW BACKLOG."""
    return next(row for row in node.sql("SHOW BACKLOG") if row["job"] == name)


def split(node: Node, name: str = "j") -> Cells:
    """Return the first row of SHOW BACKLOG FOR the job."""
    return node.sql(f"SHOW BACKLOG FOR {name}")[0]


def events(node: Node, name: str = "j") -> list[tuple[Cell, Cell]]:
    """Return the events about the backlog that SHOW EVENTS lists, with their details."""
    rows = node.sql(f"SHOW EVENTS FOR {name}")
    return [(row["event"], row["detail"]) for row in rows if "Backlog" in str(row["event"])]


def at(seconds: int) -> str:
    """Return a time after the start of the test, as it is shown."""
    return f"2026-11-16 12:00:{seconds:02}"


# The columns about the backlog in every list of jobs.
NOT_IN_BACKLOG: Cells = {
    "in_backlog": False,
    "backlog_cause": "",
    "backlog_eta": None,
    "interval": "10s",
    "next_epoch_at": None,
}
IN_BACKLOG: Cells = {
    "in_backlog": True,
    "backlog_cause": "boundary",
    "backlog_eta": "6 s",
    "interval": "0s",
    "next_epoch_at": None,
}


def of(row: Cells, expected: Cells) -> Cells:
    """Return the expected columns of a row."""
    return {column: row[column] for column in expected}


def test_show_backlog_of_a_job_that_never_ran_has_no_amounts(loading: Node) -> None:
    shown = backlog(loading)

    assert shown == {
        "job": "j",
        "in_backlog": False,
        "since": None,
        "cause": "",
        "splits_left": 0,
        "remaining": None,
        "rate": None,
        "eta": None,
        "interval": "10s",
        "next_epoch_at": None,
        "target_lag": None,
        "lag": None,
        "measured_at": None,
    }


def test_show_backlog_lists_what_is_left_the_rate_and_the_time(loading: Node) -> None:
    with held(loading, epoch=4):
        shown = backlog(loading)

    assert shown == {
        "job": "j",
        "in_backlog": True,
        "since": at(0),
        "cause": "boundary",
        "splits_left": 1,
        "remaining": "3 files, 81 bytes",
        "rate": "14 bytes/s",
        "eta": "6 s",
        "interval": "0s",
        "next_epoch_at": None,
        "target_lag": None,
        "lag": "0 s",
        "measured_at": at(6),
    }


def test_show_backlog_for_a_job_lists_its_splits(loading: Node, folder: Path) -> None:
    with held(loading, epoch=4):
        (shown,) = loading.sql("SHOW BACKLOG FOR j")

    modified = datetime.fromtimestamp((folder / "6.json").stat().st_mtime_ns // 1000 / 1e6, UTC)
    assert shown == {
        "split": f"file://{folder}/*.json",
        "boundary": f"TIME {modified.isoformat(timespec='microseconds')}",
        "set_at": at(0),
        "position": f"AFTER {folder}/3.json",
        "remaining_files": 3,
        "remaining_rows": None,
        "remaining_bytes": 81,
        # The clock of the node is earlier than the time of the files.
        "remaining_seconds": 0.0,
        "lagging": False,
        "finished_at": None,
        "finished_epoch": None,
        "measured_at": at(6),
    }


def test_show_backlog_counts_the_rows_of_a_routine_load(generating: Node) -> None:
    with held(generating, epoch=4):
        shown = backlog(generating, "r")

    expected: Cells = {
        "in_backlog": True,
        "cause": "boundary",
        "splits_left": 2,
        "remaining": "700 rows",
        "rate": "50 rows/s",
        "eta": "14 s",
        "interval": "0s",
    }
    assert of(shown, expected) == expected


def test_show_backlog_for_a_routine_load_lists_every_split(generating: Node) -> None:
    with held(generating, epoch=4):
        shown = generating.sql("SHOW BACKLOG FOR r")

    expected: Cells = {"boundary": "AT 500", "position": "AT 150", "remaining_rows": 350}
    assert [row["split"] for row in shown] == ["0", "1"]
    assert [of(row, expected) for row in shown] == [expected, expected]


def test_a_rate_is_unknown_before_three_epochs(loading: Node) -> None:
    with held(loading, epoch=3):
        shown = backlog(loading)

    assert (shown["remaining"], shown["rate"], shown["eta"]) == (
        "4 files, 108 bytes",
        None,
        None,
    )


def test_show_backlog_after_a_backlog_shows_when_it_ended(loading: Node) -> None:
    with held(loading) as run:
        run.finish()
        shown, finished = backlog(loading), split(loading)

    expected: Cells = {
        "in_backlog": False,
        "since": None,
        "cause": "",
        "splits_left": 0,
        "eta": None,
    }
    assert of(shown, expected) == expected
    assert shown["interval"] == "10s"
    assert (finished["finished_at"], finished["finished_epoch"]) == (at(12), 6)
    assert finished["set_at"] == at(0)


def test_a_killed_run_leaves_the_remaining_amount_with_its_time(loading: Node) -> None:
    assert isinstance(loading.clock, SteppedClock)
    with held(loading, epoch=4):
        running = backlog(loading)

    # The lease of the killed run expires.
    loading.clock.move(minutes=1)
    again = backlog(loading.restart())

    assert (running["eta"], again["eta"]) == ("6 s", None)
    assert {**again, "eta": "6 s"} == running


def test_show_backlog_lists_the_jobs_of_every_kind_that_have_not_ended(
    loading: Node,
) -> None:
    loading.sql(f"{GENERATED}; {GENERATED.replace('LOAD r', 'LOAD s')}")

    loading.sql("STOP ROUTINE LOAD FOR s")

    assert [row["job"] for row in loading.sql("SHOW BACKLOG")] == ["j", "r"]


def test_a_paused_job_stays_in_its_backlog(loading: Node) -> None:
    with held(loading, epoch=4):
        loading.sql("PAUSE JOB j")

    assert of(loading.show("j"), IN_BACKLOG) == {**IN_BACKLOG, "backlog_eta": None}


@pytest.mark.parametrize(
    ("statement", "code", "name"),
    [
        ("SHOW BACKLOG FOR missing", Code.META_NOT_FOUND_ERR, "missing"),
        ("ALTER JOB missing RESET BACKLOG", Code.META_NOT_FOUND_ERR, "missing"),
        ("ALTER ROUTINE LOAD FOR missing RESET BACKLOG", Code.META_NOT_FOUND_ERR, "missing"),
        ("ALTER STREAMING TABLE missing RESET BACKLOG", Code.META_NOT_FOUND_ERR, "missing"),
        ("ALTER FLOW missing RESET BACKLOG", Code.META_NOT_FOUND_ERR, "missing"),
        ("ALTER ROUTINE LOAD FOR j RESET BACKLOG", Code.STATE_ERR, "j"),
        ("ALTER STREAMING TABLE j RESET BACKLOG", Code.STATE_ERR, "j"),
        ("ALTER FLOW j RESET BACKLOG", Code.STATE_ERR, "j"),
    ],
)
def test_a_statement_about_the_backlog_of_a_wrong_job_is_refused(
    loading: Node, statement: str, code: Code, name: str
) -> None:
    before = stored(loading)

    with raises(UserError, code, f'"{name}"'):
        loading.sql(statement)

    assert stored(loading) == before


def test_every_list_of_jobs_shows_that_a_job_is_in_backlog(loading: Node) -> None:
    with held(loading, epoch=4):
        listed, (viewed,) = loading.show("j"), loading.sql(JOBS)

    assert of(listed, IN_BACKLOG) == IN_BACKLOG
    # Columns of jobs() are texts, so that Doris clients can read them.
    assert of(viewed, IN_BACKLOG) == {**IN_BACKLOG, "in_backlog": "1"}


def test_every_list_of_jobs_shows_that_a_job_is_not_in_backlog(loading: Node) -> None:
    loading.run()

    listed, (viewed,) = loading.show("j"), loading.sql(JOBS)

    assert of(listed, NOT_IN_BACKLOG) == NOT_IN_BACKLOG
    assert of(viewed, NOT_IN_BACKLOG) == {**NOT_IN_BACKLOG, "in_backlog": "0"}


def test_show_routine_load_shows_the_backlog(generating: Node) -> None:
    with held(generating, epoch=4):
        (during,) = generating.sql("SHOW ROUTINE LOAD FOR r")
    generating.run()
    (after,) = generating.sql("SHOW ROUTINE LOAD FOR r")

    assert of(during, IN_BACKLOG) == {**IN_BACKLOG, "backlog_eta": "14 s"}
    assert of(after, NOT_IN_BACKLOG) == {**NOT_IN_BACKLOG, "interval": "60s"}


def test_show_events_lists_the_boundary_and_the_epoch_that_reached_it(
    generating: Node,
) -> None:
    generating.run()

    assert events(generating, "r") == [
        ("BacklogEntered", "boundary; boundaries 1: 0 AT 500, 1 AT 500"),
        ("BacklogFinished", "split 0, boundary AT 500, epoch 10"),
        ("BacklogFinished", "split 1, boundary AT 500, epoch 10"),
        ("BacklogLeft", "boundaries 1: none open"),
    ]


def test_reset_backlog_fixes_the_boundaries_at_the_current_heads(
    loading: Node, folder: Path
) -> None:
    loading.run()
    put(folder, 7, 8)
    loading.sql("ALTER JOB j RESET BACKLOG")
    message = loading.last_message

    with held(loading, epoch=2) as run:
        during = backlog(loading)
        run.finish()

    assert message == "job j: backlog reset requested"
    assert (during["cause"], during["splits_left"]) == ("boundary", 1)
    assert loading.job("j").backlog.armed == 2
    names = [name for name, _ in events(loading)]
    whole = ["BacklogEntered", "BacklogFinished", "BacklogLeft"]
    assert names == [*whole, "BacklogReset", *whole]
    assert str(events(loading)[-2][1]).endswith(", epoch 8")


def test_reset_backlog_inside_a_backlog_moves_the_boundary(loading: Node, folder: Path) -> None:
    with held(loading, epoch=2) as run:
        before = split(loading)["boundary"]
        put(folder, 7)
        loading.sql("ALTER JOB j RESET BACKLOG")
        run.finish()

    after = split(loading)
    assert (loading.job("j").backlog.armed, after["finished_epoch"]) == (2, 7)
    assert str(before) < str(after["boundary"])
    names = [name for name, _ in events(loading)]
    assert names == [
        "BacklogEntered",
        "BacklogReset",
        "BacklogEntered",
        "BacklogFinished",
        "BacklogLeft",
    ]


def test_a_file_after_the_boundary_does_not_move_it(loading: Node, folder: Path) -> None:
    with held(loading, epoch=2) as run:
        put(folder, FILES + 1)
        run.finish(lambda _: len(loading.rows("t")) > FILES)

    assert (loading.job("j").backlog.armed, split(loading)["finished_epoch"]) == (1, FILES)


def test_reset_backlog_without_unread_data_enters_no_backlog(loading: Node) -> None:
    loading.run()
    loading.sql("ALTER JOB j RESET BACKLOG")

    with supervised(loading) as supervisor:
        rounds_until(supervisor, idle)

    assert loading.job("j").backlog.armed == 2
    assert (split(loading)["boundary"], backlog(loading)["in_backlog"]) == (None, False)
    assert [detail for name, detail in events(loading) if name == "BacklogEntered"][1:] == []


def finishes(node: Node) -> int:
    """Return how many BacklogFinished events a job has."""
    return [name for name, _ in events(node)].count("BacklogFinished")


def test_t61_a_restart_after_a_reset_without_unread_data_finishes_no_split_again(
    loading: Node,
) -> None:
    loading.run()
    loading.sql("ALTER JOB j RESET BACKLOG")
    loading.run()

    loading.restart().run()

    assert finishes(loading) == 1


def test_t61_a_crash_after_new_boundaries_finishes_no_old_boundary_again(
    loading: Node, folder: Path
) -> None:
    loading.run()
    put(folder, FILES + 1)
    loading.sql("ALTER JOB j RESET BACKLOG")
    crash_at(loading, CrashPoint.BACKLOG_STORED)

    loading.restart().run()

    assert (loading.job("j").backlog.armed, finishes(loading)) == (2, 2)


def test_reset_backlog_of_a_paused_job_applies_once_at_resume(
    loading: Node, folder: Path
) -> None:
    loading.run()
    loading.sql("PAUSE JOB j; ALTER JOB j RESET BACKLOG")
    put(folder, 7)
    paused = loading.job("j").backlog.armed
    loading.sql("RESUME JOB j")

    loading.run()

    assert (paused, loading.job("j").backlog.armed) == (1, 2)
    assert split(loading)["finished_epoch"] == 7


def test_reset_backlog_of_a_routine_load_fixes_every_split(stepped: Node) -> None:
    stepped.sql(GENERATED.replace("'unlimited'", "'10'"))
    assert isinstance(stepped.clock, SteppedClock)
    stepped.run()
    stepped.clock.move(seconds=6)
    stepped.sql("ALTER ROUTINE LOAD FOR r RESET BACKLOG")

    stepped.run()

    assert events(stepped, "r")[1:] == [
        ("BacklogReset", ""),
        ("BacklogEntered", "boundary; boundaries 2: 0 AT 30, 1 AT 30"),
        ("BacklogFinished", "split 0, boundary AT 30, epoch 1"),
        ("BacklogFinished", "split 1, boundary AT 30, epoch 1"),
        ("BacklogLeft", "boundaries 2: none open"),
    ]


def test_t61_a_restart_fixes_no_boundaries(loading: Node, folder: Path) -> None:
    with held(loading, epoch=4):
        before = split(loading)["boundary"]
    put(folder, 7)
    again = loading.restart()

    again.run()

    assert (again.job("j").backlog.armed, split(again)["boundary"]) == (1, before)
    assert [name for name, _ in events(again)].count("BacklogFinished") == 1


@pytest.fixture
def lagging(stepped: Node, folder: Path) -> Node:
    """A node with the job j, which lags above 60 bytes; four files arrived after the first."""
    marks = {"backlog.lag-high": "60 bytes", "backlog.lag-low": "30 bytes"}
    put(folder, 1)
    stepped.sql(create(folder, **marks))
    stepped.run()
    put(folder, 2, 3, 4, 5)
    return stepped


def test_a_lagging_split_is_shown_with_its_cause(lagging: Node) -> None:
    with held(lagging) as run:
        during, lags = backlog(lagging), split(lagging)["lagging"]
        run.finish()

    assert (during["cause"], during["splits_left"], lags) == ("lag", 1, True)
    assert (backlog(lagging)["in_backlog"], split(lagging)["lagging"]) == (False, False)
    shown = [detail for name, detail in events(lagging) if name == "BacklogEntered"]
    assert shown[1:] == ["lag; boundaries 1: none open"]


def test_a_change_of_the_cause_keeps_the_start_of_the_backlog(lagging: Node) -> None:
    with held(lagging) as run:
        before = backlog(lagging)
        lagging.sql("ALTER JOB j RESET BACKLOG")
        run.step()
        after, boundary = backlog(lagging), split(lagging)

    start = before["since"]
    assert (before["cause"], after["cause"], after["since"]) == ("lag", "boundary", start)
    assert str(boundary["set_at"]) > str(start)


def displayed(run: Run, node: Node) -> list[ShownJob]:
    """Return the jobs as the progress display gets them."""
    return shown_jobs(run.supervisor.reports(), at=node.clock.now())


def test_the_live_display_shows_what_is_left_the_rate_and_the_time(
    stepped: Node, folder: Path
) -> None:
    for number in range(FILES):
        write_rows(folder / f"{number}.json", numbered(*range(100, 200)))
    stepped.sql(create(folder))
    tally = Tally(stepped.clock)
    with held(stepped) as run:
        tally.update(displayed(run, stepped))
        run.step()
        run.step()
        run.step()
        tally.update(displayed(run, stepped))
        head, job, message = drawn(tally, displayed(run, stepped), stepped.clock)

    assert head.split()[3:] == ["files", "rows", "files", "left", "rows", "left", "rows/s"]
    assert job.split()[-5:] == ["3", "300", "3", "~300", "50"]
    assert message == "j: in backlog (boundary), about 6 s left"


def drawn(tally: Tally, jobs: list[ShownJob], clock: Clock) -> list[str]:
    """Return the lines that the live display draws, without its rule."""
    console = Console(width=120)
    with console.capture() as captured:
        console.print(LiveDisplay(tally, clock, None).drawn(jobs, width=console.width))
    lines = [line.strip() for line in captured.get().splitlines()]
    return [line for line in lines if line.strip("─")]


def test_the_plain_display_shows_what_is_left_and_the_time(
    loading: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    with held(loading, epoch=4) as run:
        PlainDisplay(Tally(loading.clock), loading.clock).show(displayed(run, loading))

    printed = capsys.readouterr().out
    assert "; 3 files, ? rows left; in backlog (boundary), about 6 s left" in printed


def test_the_display_of_a_job_that_left_its_backlog_shows_no_backlog(
    loading: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    with held(loading) as run:
        run.finish()
        PlainDisplay(Tally(loading.clock), loading.clock).show(displayed(run, loading))

    assert "backlog" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rate", "unit", "text"),
    [
        (1_234.5, "rows", "1,234 rows/s"),
        (1.0, "rows", "1 row/s"),
        (1_500_000.4, "bytes", "1.5 MB/s"),
        (90.0, "time", "1 min 30 s of arrivals per second"),
    ],
)
def test_a_rate_is_shown_with_its_unit(rate: float, unit: str, text: str) -> None:
    assert rate_text(rate, unit) == text


@pytest.fixture
def streaming(open_node: OpenNode, spark: SparkExecutor) -> Node:
    """A node with a streaming table s, which reads two of three files in its first epoch."""
    node = open_node(clock=SteppedClock(), spark=spark)
    node.sql("CREATE TABLE t (id BIGINT)")
    append(node, 1, 2, 3)
    node.sql(
        "CREATE STREAMING TABLE s WITH ('checkpoint.interval' = '1h', "
        "'checkpoint.interval-during-backlog' = '2h', 'max_files_per_epoch' = '2') "
        "AS SELECT id FROM STREAM t"
    )
    return node


def append(node: Node, *ids: int) -> None:
    """Append a file with one row to the table t for each id."""
    record = node.catalog.table("t")
    assert record is not None
    for number in ids:
        rows = pa.table({"id": pa.array([number], pa.int64())})
        write_deltalake(record.location, rows, mode="append")


def table_shown(node: Node) -> Cells:
    """Return the only row of SHOW STREAMING TABLES."""
    (row,) = node.sql("SHOW STREAMING TABLES")
    return row


def test_reset_backlog_of_a_streaming_table_commits_the_rows_that_wait(
    streaming: Node,
) -> None:
    waiting: Cells = {}

    def waits(_reports: object) -> bool:
        waiting.update(table_shown(streaming))
        return waiting["next_epoch_at"] is not None

    with held(streaming, epoch=2) as run:
        during, left = table_shown(streaming), backlog(streaming, "s")["remaining"]
        run.finish()
        append(streaming, 4)
        run.finish(waits)
        streaming.sql("ALTER STREAMING TABLE s RESET BACKLOG")
        run.finish(lambda _: len(streaming.rows("s")) > FILES - 3)

    assert of(during, IN_BACKLOG) == {**IN_BACKLOG, "backlog_eta": None, "interval": "7200s"}
    assert str(left).startswith("1 file, 1 row, ")
    # The last epoch started after the first one, which took two seconds.
    due = "2026-11-16 13:00:02"
    expected = {**NOT_IN_BACKLOG, "interval": "3600s", "next_epoch_at": due}
    assert of(waiting, NOT_IN_BACKLOG) == expected
    assert events(streaming, "s") == [
        ("BacklogEntered", "boundary; boundaries 1: s1 AT LOG 4.0"),
        ("BacklogFinished", "split s1, boundary AT LOG 4.0, epoch 2"),
        ("BacklogLeft", "boundaries 1: none open"),
        ("BacklogReset", ""),
        ("BacklogEntered", "boundary; boundaries 2: s1 AT LOG 5.0"),
        ("BacklogFinished", "split s1, boundary AT LOG 5.0, epoch 3"),
        ("BacklogLeft", "boundaries 2: none open"),
    ]


def test_the_backlog_of_a_stopped_load_cannot_be_reset(generating: Node) -> None:
    generating.sql("STOP ROUTINE LOAD FOR r")

    with raises(UserError, Code.STATE_ERR, '"r"'):
        generating.sql("ALTER ROUTINE LOAD FOR r RESET BACKLOG")
