"""Streaming tables in real processes: ``kill -9`` of Python, and of Python with its JVM.

Every crash point is tested inside one JVM by other tests. Here, each query is killed at a few
points. A JVM starts slowly, so every process recovers from the kill of the process before it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from penstock.crashpoints import CrashPoint
from penstock.spark.executor import SparkExecutor
from penstock.streaming.checkpoint import OWNER_LOCK
from tests.crash.harness import KILLED, Ended, Home, Process, crash, until
from tests.crash.places import LocalPlace
from tests.crash.processes import SPARK
from tests.crash.queries import (
    COUNTS,
    INPUTS,
    JOINED,
    TABLES,
    TOTALS,
    Rows,
    append_rounds,
    create,
    expected,
    opens_of,
    results,
    verdicts,
)
from tests.crash.variants import opened
from tests.integration.pipes import Pipe
from tests.node import Node

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

# The point of the first and of the third kill, before the commit to the table. The second kill
# is after it.
KILLS_BEFORE_COMMIT = {
    COUNTS: CrashPoint.BATCH_COLLECTED,
    JOINED: CrashPoint.BATCH_SETTLED,
    TOTALS: CrashPoint.COMMIT_CHECKED,
}


@contextmanager
def home_with(
    spark: SparkExecutor, folder: Path, *tables: str, statements: Sequence[str] = ()
) -> Iterator[Home]:
    """Yield a home with streaming tables that have to read the rounds 0 to 2."""
    with opened(folder, LocalPlace(folder / "in"), command=SPARK) as home:
        node = Node(home.path, spark=spark)
        node.sql(INPUTS)
        node.sql("; ".join([*map(create, tables), *statements]))
        node.catalog.close()
        append_rounds(home.node, 0, 1, 2)
        yield home


def start(home: Home, *tables: str, crash_at: str = "") -> Process:
    """Start a process that runs streaming tables, by default all, until they are caught up."""
    jobs = [text for table in tables for text in ("--job", table)]
    return home.start("run", *jobs, "--until-caught-up", "--timeout", "10m", crash_at=crash_at)


def jvm_of(process: Process) -> psutil.Process:
    """Return the JVM of a process."""
    children = psutil.Process(process._child.pid).children()
    (jvm,) = (child for child in children if child.name() == "java")
    return jvm


@contextmanager
def suspended(process: psutil.Process) -> Iterator[None]:
    """Stop a process for the duration of the block."""
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def kill_waiting(home: Home, table: str, pipe: Pipe) -> Rows:
    """Kill Python and its JVM while a task waits at a pipe; return the rows after the kill."""
    pipe.close()
    running = start(home, table)
    until(pipe.reached)
    psutil.Process(running._child.pid).suspend()
    running.kill_jvm()
    running.kill()
    pipe.open()
    return results(home.node, [table])


def kill_alone(home: Home, table: str) -> int:
    """Kill Python inside an epoch, before the commit; its JVM ends by itself."""
    point = crash(KILLS_BEFORE_COMMIT[table], count=2)
    return start(home, table, crash_at=point).wait().code


def kill_with_jvm(home: Home, table: str, point: CrashPoint, *, count: int) -> None:
    """Kill Python and its JVM together."""
    frozen = start(home, table, crash_at=crash(point, count=count, action="stop"))
    frozen.wait_until_frozen()
    frozen.kill_jvm()
    frozen.kill()


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The end of a home whose streaming tables were killed three times."""

    codes: dict[str, int]
    ended: Ended
    rows: Rows
    verdicts: dict[str, list[str]]


@pytest.fixture(scope="module")
def finished(spark: SparkExecutor, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    with home_with(spark, tmp_path_factory.mktemp("killed") / "home", *TABLES) as home:
        codes = {table: kill_alone(home, table) for table in TABLES}
        append_rounds(home.node, 3)
        for table in TABLES:
            kill_with_jvm(home, table, CrashPoint.TABLE_COMMITTED, count=2)
        append_rounds(home.node, 4)
        for table, point in KILLS_BEFORE_COMMIT.items():
            # The replay of a batch reaches all points but COMMIT_CHECKED.
            count = 1 if point is CrashPoint.COMMIT_CHECKED else 2
            kill_with_jvm(home, table, point, count=count)
        append_rounds(home.node, 5)
        ended = start(home).wait()
        return Finished(
            codes=codes,
            ended=ended,
            rows=results(home.node),
            verdicts={table: verdicts(home.node, table) for table in TABLES},
        )


@pytest.mark.xdist_group("killed queries")
@pytest.mark.parametrize("table", TABLES)
def test_t45_no_row_is_lost_or_doubled_by_kill_9(finished: Finished, table: str) -> None:
    assert finished.codes[table] == KILLED
    assert finished.ended.code == 0, finished.ended.output
    assert finished.rows[table] == expected(rounds=6)[table]
    assert finished.verdicts[table] == ["start", "continue", "replay", "continue"]


@pytest.mark.xdist_group("killed queries")
def test_t57b_the_run_reports_what_stays_open(finished: Finished) -> None:
    lines = finished.ended.output.splitlines()
    reported = [line for line in lines if "open windows or joins" in line]

    assert [line.split(" still has ")[0] for line in reported] == [
        "streaming table counts",
        "streaming table joined",
    ]


def test_no_row_is_lost_or_doubled_by_kill_9_while_a_task_reads_or_writes(
    spark: SparkExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The workers of the processes import the function that waits at a pipe.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    reading, writing = Pipe(tmp_path / "reading"), Pipe(tmp_path / "writing")
    select = (
        f"SELECT k, {writing.held('count(*)')} AS n, sum({reading.held('v')}) AS total "  # noqa: S608 - Our own SQL.
        "FROM STREAM clicks GROUP BY k"
    )
    udfs = {"session.python_udfs": "tests.integration.pipes"}
    with home_with(spark, tmp_path / "home", statements=[create(TOTALS, select, udfs)]) as home:
        Node(home.path, spark=spark).run()
        before = results(home.node, [TOTALS])
        append_rounds(home.node, 3)

        killed = [kill_waiting(home, TOTALS, pipe) for pipe in (reading, writing)]
        Node(home.path, spark=spark).run()

        assert before[TOTALS] == expected(rounds=3)[TOTALS]
        assert killed == [before, before]
        assert results(home.node, [TOTALS])[TOTALS] == expected(rounds=4)[TOTALS]
        assert verdicts(home.node, TOTALS) == ["start", "continue", "continue", "continue"]


def test_t57_streaming_tables_continue_with_a_new_spark_after_the_jvm_was_killed(
    spark: SparkExecutor, tmp_path: Path
) -> None:
    with home_with(spark, tmp_path, *TABLES) as home:
        append_rounds(home.node, 3)
        point = crash(CrashPoint.EPOCH_STARTED, count=5, action="stop")
        process = start(home, crash_at=point)
        process.wait_until_frozen()

        process.kill_jvm()
        process.thaw()
        ended = process.wait()

        assert ended.code == 0, ended.output
        assert "Traceback" not in ended.output
        assert results(home.node) == expected(rounds=4)


def test_a_successor_waits_until_the_jvm_of_a_killed_process_has_ended(
    spark: SparkExecutor, tmp_path: Path
) -> None:
    with home_with(spark, tmp_path, COUNTS) as home:
        point = crash(CrashPoint.TABLE_COMMITTED, count=2, action="stop")
        killed = start(home, crash_at=point)
        killed.wait_until_frozen()
        lock = home.node.checkpoints / home.node.job(COUNTS).id / OWNER_LOCK

        with suspended(jvm_of(killed)), opens_of(lock) as opens:
            killed.kill()
            append_rounds(home.node, 3)
            successor = start(home)
            # A second try shows that the first one found the lock taken.
            opens.wait()
            opens.wait()
            before = verdicts(home.node, COUNTS)
        ended = successor.wait()

        assert before == ["start"]
        assert ended.code == 0, ended.output
        assert verdicts(home.node, COUNTS) == ["start", "replay"]
        assert results(home.node, [COUNTS])[COUNTS] == expected(rounds=4)[COUNTS]
