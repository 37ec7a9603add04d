"""Restart of streaming tables: damaged checkpoints, hanging tasks, statements at any moment."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from penstock.crashpoints import CrashPoint, handle_in_this_thread
from penstock.epochs.progress import Step
from penstock.epochs.takeover import take_over
from penstock.errors import Code
from penstock.model.events import QueryStarted
from penstock.spark.executor import SparkExecutor
from penstock.streaming.checkpoint import CheckpointFolder
from penstock.supervisor.restart import resume_at
from penstock.supervisor.supervisor import RunnerReport, Supervisor
from tests.crash.queries import (
    COUNTS,
    INPUTS,
    TOTALS,
    Prepared,
    Rows,
    append_rounds,
    at,
    checkpoint,
    create,
    expected,
    kill_at,
    results,
)
from tests.error_values import assert_reason
from tests.integration.driving import (
    TIMEOUT_SECONDS,
    MovedClock,
    attempts,
    handling,
    idle,
    pass_minute,
    paused,
    rounds_until,
    stopped,
    supervised,
)
from tests.integration.pipes import Pipe
from tests.integration.small_disk import EXIT_NOT_ALLOWED
from tests.node import Node

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
BOTH = (COUNTS, TOTALS)
FOREIGN_ID = "11111111-2222-3333-4444-555555555555"


def rows(*, rounds: int) -> Rows:
    """Return the rows of both streaming tables after a number of rounds."""
    every = expected(rounds=rounds)
    return {table: every[table] for table in BOTH}


@pytest.fixture(scope="module")
def closable(tmp_path_factory: pytest.TempPathFactory) -> Pipe:
    return Pipe(tmp_path_factory.mktemp("pipe") / "pipe")


@pytest.fixture
def pipe(closable: Pipe) -> Iterator[Pipe]:
    """The pipe at which tasks of the totals wait while it is closed."""
    yield closable
    closable.open()


@pytest.fixture(scope="module")
def prepared(
    spark: SparkExecutor, closable: Pipe, tmp_path_factory: pytest.TempPathFactory
) -> Prepared:
    """A home whose streaming tables have read the rounds 0 to 2."""
    root = tmp_path_factory.mktemp("recovery")
    node = Node(root / "home", spark=spark)
    node.sql(INPUTS)
    create_both(node, closable)
    append_rounds(node, 0, 1, 2)
    node.run()
    assert results(node, BOTH) == rows(rounds=3)
    return Prepared.of(node, root / "copy")


def create_both(node: Node, pipe: Pipe) -> None:
    """Create the counts, whose batch 3 is empty, and the totals, whose tasks can be held."""
    options = {
        "session.python_udfs": "tests.integration.pipes",
        "checkpoint.timeout": "60s",
        "max_failures": "2",
    }
    select = (
        f"SELECT k, count(*) AS n, sum({pipe.held('v')}) AS total "  # noqa: S608 - Our own SQL.
        "FROM STREAM clicks GROUP BY k"
    )
    node.sql(f"{create(COUNTS)}; {create(TOTALS, select, options)}")


@pytest.fixture
def node(prepared: Prepared, spark: SparkExecutor) -> Node:
    return prepared.put_back(spark=spark, clock=MovedClock())


# Damaged checkpoints


@dataclass(frozen=True, kw_only=True)
class Damage:
    """A change of the folder of a checkpoint, and the error that it causes."""

    change: Callable[[Path], None]
    code: Code
    names: tuple[str, ...]


def deleted(*names: str) -> Callable[[Path], None]:
    """Return the change that deletes files."""

    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def newest_state_deleted(folder: Path) -> None:
    """Delete a state file that the newest commit needs."""
    commit = json.loads((folder / "spark/commits/3").read_text().splitlines()[1])
    (state_id,) = commit["stateUniqueIds"]["0"][0]
    for path in (folder / "spark/state/0/0").glob(f"4_{state_id}.*"):
        path.unlink()


def with_another_id(folder: Path) -> None:
    (folder / "spark/metadata").write_text(json.dumps({"id": FOREIGN_ID}))


# The newest commit of Spark is batch 3, the newest offset 4, and the table ends at batch 2.
NUMBERS = ("commit of Spark is batch 3", "offset is batch 4", "table ends at batch 2")
DAMAGES = {
    "the folder was deleted": Damage(
        change=shutil.rmtree,
        code=Code.CHECKPOINT_LOST_ERR,
        names=("checkpoint folder", "no batch", "table ends at batch 2"),
    ),
    "the metadata were deleted": Damage(
        change=deleted("spark/metadata"),
        code=Code.CHECKPOINT_LOST_ERR,
        names=("metadata", *NUMBERS),
    ),
    "the folder belongs to another checkpoint": Damage(
        change=with_another_id,
        code=Code.CHECKPOINT_FOREIGN_ERR,
        names=(f'"{FOREIGN_ID}"', *NUMBERS),
    ),
    "a state file was deleted": Damage(
        change=newest_state_deleted,
        code=Code.CHECKPOINT_DAMAGED_ERR,
        names=('"spark/state/0/0/4_', *NUMBERS),
    ),
    "a plan was deleted": Damage(
        change=deleted("plans/3.json"),
        code=Code.CHECKPOINT_DAMAGED_ERR,
        names=("plan of batch 3", *NUMBERS),
    ),
    "an offset was deleted": Damage(
        change=deleted("spark/offsets/3"),
        code=Code.CHECKPOINT_DAMAGED_ERR,
        names=('"spark/offsets/3"', *NUMBERS),
    ),
    "the newest offsets were deleted": Damage(
        change=deleted("spark/offsets/3", "spark/offsets/4"),
        code=Code.CHECKPOINT_DAMAGED_ERR,
        names=("offsets end at batch 2", "commits at batch 3"),
    ),
    "the newest commit was deleted": Damage(
        change=deleted("spark/commits/3"),
        code=Code.CHECKPOINT_DAMAGED_ERR,
        names=("offsets end at batch 4", "commits at batch 2"),
    ),
}


def assert_refused(node: Node, code: Code, *names: str) -> None:
    """Require that the counts are paused with this reason and stay paused."""
    events = node.catalog.events(node.job(COUNTS).id)
    started = [event.body for event in events if isinstance(event.body, QueryStarted)]
    assert node.show(COUNTS)["state"] == "PAUSED"
    assert_reason(node.show(COUNTS)["reason"], code, *names)
    assert resume_at(node.job(COUNTS)) is None
    assert started[-1].verdict == "refuse"


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_t57a_a_damaged_checkpoint_pauses_its_streaming_table_and_no_other(
    node: Node, damage: Damage
) -> None:
    damage.change(checkpoint(node, COUNTS).path)
    append_rounds(node, 3)

    node.run()

    assert_refused(node, damage.code, *damage.names)
    assert results(node, BOTH) == {
        COUNTS: rows(rounds=3)[COUNTS],
        TOTALS: rows(rounds=4)[TOTALS],
    }


def test_a_streaming_table_continues_when_its_checkpoint_is_put_back(
    node: Node, tmp_path: Path
) -> None:
    folder = checkpoint(node, COUNTS).path
    folder.rename(tmp_path / "away")
    append_rounds(node, 3, 4)
    node.run()
    assert_refused(node, Code.CHECKPOINT_LOST_ERR)

    (tmp_path / "away").rename(folder)
    node.sql("RESUME STREAMING TABLE counts")
    node.run()

    assert results(node, BOTH) == rows(rounds=5)


def test_a_checkpoint_that_is_older_than_the_table_pauses_the_streaming_table(
    node: Node, prepared: Prepared
) -> None:
    append_rounds(node, 3, 4)
    node.run()
    folder = checkpoint(node, COUNTS).path
    shutil.rmtree(folder)
    shutil.copytree(prepared.copy / folder.relative_to(node.home), folder)
    append_rounds(node, 5)

    node.run()

    # Round 3 was batch 4, and round 4 was batch 5.
    assert_refused(
        node,
        Code.CHECKPOINT_BEHIND_ERR,
        "checkpoint ends at batch 3",
        "table at batch 5",
        "offset is batch 4",
    )
    assert results(node, BOTH) == {
        COUNTS: rows(rounds=5)[COUNTS],
        TOTALS: rows(rounds=6)[TOTALS],
    }


def test_a_table_that_is_older_than_the_checkpoint_pauses_the_streaming_table(
    node: Node, prepared: Prepared, tmp_path: Path
) -> None:
    append_rounds(node, 3, 4)
    node.run()
    node = restored_without_checkpoints(node, prepared.copy, tmp_path)

    node.run()

    assert_refused(node, Code.TABLE_CHANGED_ERR, "ends at batch 2", "committed batch 5")
    assert results(node, BOTH) == rows(rounds=3)


def test_a_table_that_lacks_the_rows_of_an_epoch_without_input_pauses_the_streaming_table(
    node: Node, tmp_path: Path
) -> None:
    append_rounds(node, 3)
    # The epoch without input after round 3 writes the rows of a closed window.
    node = kill_at(node, CrashPoint.PLAN_WRITTEN, count=2, tables=(COUNTS,))
    older = shutil.copytree(node.home, tmp_path / "older")
    node.run()
    rows_written = results(node, (COUNTS,))
    node = restored_without_checkpoints(node, older, tmp_path)

    node.run()

    assert rows_written == {COUNTS: rows(rounds=4)[COUNTS]}
    assert_refused(node, Code.TABLE_CHANGED_ERR, "ends at batch 4", "committed batch 5")


def restored_without_checkpoints(node: Node, copy: Path, tmp_path: Path) -> Node:
    """Put an older copy of a home back, but keep the checkpoints."""
    newer = shutil.copytree(node.checkpoints, tmp_path / "newer")
    node.catalog.close()
    shutil.rmtree(node.home)
    shutil.copytree(copy, node.home)
    shutil.rmtree(node.checkpoints)
    shutil.copytree(newer, node.checkpoints)
    return Node(node.home, spark=node.spark, clock=MovedClock())


def test_t46_an_epoch_whose_checkpoint_cannot_be_synced_is_not_committed(node: Node) -> None:
    append_rounds(node, 3)
    folder = checkpoint(node, COUNTS).path
    counts = f"runner-{node.job(COUNTS).id[:8]}"

    def lose_offset(point: CrashPoint) -> None:
        if point is CrashPoint.PLAN_WRITTEN and threading.current_thread().name == counts:
            (folder / "spark/offsets/4").unlink()

    with supervised(node, start_runner=handling(lose_offset)) as supervisor:
        rounds_until(supervisor, lambda _: node.show(COUNTS)["state"] == "PAUSED")

    assert_reason(
        node.show(COUNTS)["reason"], Code.CHECKPOINT_DAMAGED_ERR, '"spark/offsets/4"', "synced"
    )
    assert results(node, (COUNTS,)) == {COUNTS: rows(rounds=3)[COUNTS]}
    assert attempts(node, COUNTS)[-1][-1] == "FAILED"


def test_an_incomplete_checkpoint_of_a_first_start_is_created_again(
    spark_node: Node, closable: Pipe
) -> None:
    spark_node.sql(INPUTS)
    create_both(spark_node, closable)
    append_rounds(spark_node, 0, 1, 2, 3)
    folder = checkpoint(spark_node, COUNTS).path
    (folder / "spark/offsets").mkdir(parents=True)
    (folder / "spark/offsets/7").write_text("v1")
    (folder / "frozen.json").write_text("{}")

    spark_node.run()

    assert results(spark_node, BOTH) == rows(rounds=4)
    assert not (folder / "spark/offsets/7").exists()


# Several operators with state


def test_t56_two_aggregates_of_one_streaming_table_continue_with_their_own_state(
    spark_node: Node,
) -> None:
    stream = "FROM STREAM clicks WATERMARK ts DELAY OF INTERVAL 5 MINUTES"
    halves = [
        f"SELECT '{size}' AS size, window(ts, '{size}').start AS start, count(*) AS n "
        f"{stream} GROUP BY window(ts, '{size}')"
        for size in ("1 hour", "30 minutes")
    ]
    spark_node.sql(f"{INPUTS}; {create('sizes', ' UNION ALL '.join(halves))}")
    append_rounds(spark_node, 0, 1, 2)

    node = kill_at(spark_node, CrashPoint.BATCH_COLLECTED, count=2, tables=("sizes",))
    node = kill_at(node, CrashPoint.TABLE_COMMITTED, tables=("sizes",))
    append_rounds(node, 3)
    node.run()

    # The watermark is one minute before round 3.
    whole = [("1 hour", at(0), 6)]
    half = [("30 minutes", at(30 * number), 3) for number in range(2)]
    found = [(row["size"], row["start"], row["n"]) for row in node.rows("sizes")]
    assert sorted(found) == [*whole, *half]


# Compacted state


def compact_state(folder: CheckpointFolder) -> None:
    """Write the whole state instead of its changes in every later batch."""
    changed = {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false"}
    (folder.path / "frozen.json").write_text(json.dumps({**folder.frozen(), **changed}))


def compacted(folder: CheckpointFolder) -> int:
    """Return the number of files that contain a whole state."""
    return len([*folder.spark.glob("state/0/*/*.zip")])


def test_t51_state_that_was_compacted_by_a_killed_epoch_is_not_used(node: Node) -> None:
    folders = [checkpoint(node, table) for table in BOTH]
    for folder in folders:
        compact_state(folder)
    append_rounds(node, 3, 4)

    node = kill_at(node, CrashPoint.COMMIT_CHECKED, tables=BOTH)
    killed = [compacted(folder) for folder in folders]
    append_rounds(node, 5)
    node.run()

    # Each of the two partitions has a file of the killed epoch, and one of its repetition.
    assert killed == [2, 2]
    assert [compacted(folder) >= 4 for folder in folders] == [True, True]
    assert results(node, BOTH) == rows(rounds=6)


# Tasks that hang


def failures(node: Node) -> list[Code]:
    """Return the reasons of the failed attempts of the totals."""
    ledger = node.catalog.ledger(node.job(TOTALS).id)
    return [entry.reason.code for entry in ledger if entry.reason]


def test_t47_tasks_that_hang_are_cancelled_and_their_epoch_is_repeated(
    node: Node, pipe: Pipe
) -> None:
    append_rounds(node, 3)
    pipe.close()
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda _: pipe.reached())
        pass_minute(node, supervisor)
        rounds_until(supervisor, lambda _: bool(failures(node)))
        pipe.open()

        rounds_until(supervisor, lambda _: node.rows(TOTALS) == rows(rounds=4)[TOTALS])

    assert failures(node) == [Code.TASKS_ABORT_ERR]
    assert attempts(node, TOTALS)[-2:] == [(4, 1, "FAILED"), (4, 2, "COMMITTED")]


def test_t47_a_streaming_table_whose_tasks_always_hang_is_paused(
    node: Node, pipe: Pipe
) -> None:
    append_rounds(node, 3)
    pipe.close()
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda _: pipe.reached())
        pass_minute(node, supervisor)
        rounds_until(supervisor, lambda _: len(failures(node)) == 1)
        rounds_until(supervisor, lambda reports: step_of(reports, TOTALS) is Step.LOADING)
        pass_minute(node, supervisor)
        reports = rounds_until(supervisor, totals_paused)
        pipe.open()

        rounds_until(supervisor, lambda _: results(node, BOTH) == rows(rounds=4))

    reason = next(r.state.desired.reason for r in reports if r.state.name == TOTALS)
    assert reason is not None
    assert reason.code is Code.TASKS_ABORT_ERR
    assert failures(node) == [Code.TASKS_ABORT_ERR, Code.TASKS_ABORT_ERR]


def test_t47_a_replay_whose_tasks_hang_is_cancelled_and_repeated(
    prepared: Prepared, spark: SparkExecutor, pipe: Pipe
) -> None:
    node = prepared.put_back(spark=spark)
    append_rounds(node, 3)
    node = replace(
        kill_at(node, CrashPoint.TABLE_COMMITTED, tables=BOTH), clock=MovedClock(), tables=None
    )
    pipe.close()

    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda _: pipe.reached())
        waited_at = node.job(TOTALS).query_started_at
        pass_minute(node, supervisor)
        rounds_until(supervisor, lambda _: node.job(TOTALS).query_started_at != waited_at)
        pipe.open()
        append_rounds(node, 4)
        rounds_until(supervisor, lambda _: results(node, BOTH) == rows(rounds=5))

    assert node.job(TOTALS).desired.auto_resumes == 0


def totals_paused(reports: tuple[RunnerReport, ...]) -> bool:
    """Return whether the totals are paused; Penstock resumes them at once."""
    return any(r.state.name == TOTALS and r.state.desired.reason is not None for r in reports)


def step_of(reports: tuple[RunnerReport, ...], table: str) -> Step | None:
    """Return the step of the runner of a streaming table."""
    progress = next(report.progress for report in reports if report.state.name == table)
    return None if progress is None else progress.step


# Statements and takeovers


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A moment of an epoch: where the runners wait, and whether the epoch is committed."""

    # None: the runners are idle, and the gate is shut.
    point: CrashPoint | None = None
    # Whether tasks of the totals wait instead.
    in_tasks: bool = False
    committed: bool = True


MOMENTS = {
    "while the gate is shut": Moment(),
    "before the run": Moment(point=CrashPoint.EPOCH_STARTED, committed=False),
    "during the run": Moment(in_tasks=True, committed=False),
    "before the table commit": Moment(point=CrashPoint.COMMIT_CHECKED, committed=False),
    "after the table commit": Moment(point=CrashPoint.TABLE_COMMITTED),
    "before the return": Moment(point=CrashPoint.COPY_WRITTEN),
}
at_each_moment = pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Runners that wait at a moment of an epoch."""

    supervisor: Supervisor
    released: threading.Event
    pipe: Pipe

    def release(self) -> None:
        """End the wait of the runners."""
        self.released.set()
        self.pipe.open()


@contextmanager
def waiting_at(node: Node, moment: Moment, pipe: Pipe) -> Iterator[Waiting]:
    """Run both streaming tables until they wait at a moment of the epoch of round 3."""
    waiting: set[str] = set()
    released = threading.Event()

    def handle(point: CrashPoint) -> None:
        if point is moment.point:
            waiting.add(threading.current_thread().name)
            assert released.wait(TIMEOUT_SECONDS)

    def run_handled(run: Callable[[], None]) -> None:
        handle_in_this_thread(handle)
        run()

    def start(run: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=run_handled, args=(run,), name=name, daemon=True)
        thread.start()
        return thread

    def arrived(reports: tuple[RunnerReport, ...]) -> bool:
        if moment.in_tasks:
            return pipe.reached()
        return len(waiting) == len(BOTH) if moment.point else idle(reports)

    if moment.in_tasks:
        pipe.close()
    supervisor = node.supervisor(until_caught_up=False, start_runner=start)
    supervisor.start(sole_process=True)
    try:
        rounds_until(supervisor, arrived)
        yield Waiting(supervisor=supervisor, released=released, pipe=pipe)
    finally:
        released.set()
        pipe.open()
        supervisor.stop()


@at_each_moment
def test_a_streaming_table_that_is_paused_and_resumed_at_any_moment_is_exact(
    node: Node, pipe: Pipe, moment: Moment
) -> None:
    append_rounds(node, 3)

    with waiting_at(node, moment, pipe) as waiting:
        node.sql("PAUSE STREAMING TABLE counts; PAUSE STREAMING TABLE totals")
        committed = node.rows(TOTALS)
        waiting.release()
        append_rounds(node, 4)
        rounds_until(waiting.supervisor, paused)
    while_paused = node.rows(TOTALS)
    node.sql("RESUME STREAMING TABLE counts; RESUME STREAMING TABLE totals")
    node.run()

    assert while_paused == committed == rows(rounds=3 + moment.committed)[TOTALS]
    assert results(node, BOTH) == rows(rounds=5)


@at_each_moment
def test_a_streaming_table_that_is_dropped_at_any_moment_leaves_nothing(
    node: Node, pipe: Pipe, moment: Moment
) -> None:
    append_rounds(node, 3)
    locations = [Path(node.job(table).definition.table.location) for table in BOTH]

    with waiting_at(node, moment, pipe) as waiting:
        node.sql("DROP STREAMING TABLE counts; DROP STREAMING TABLE totals")
        waiting.release()

    assert [path for path in (*locations, *node.checkpoints.iterdir()) if path.exists()] == []
    assert node.catalog.jobs() == ()


@at_each_moment
def test_a_streaming_table_that_is_taken_over_at_any_moment_is_exact(
    node: Node, pipe: Pipe, moment: Moment
) -> None:
    append_rounds(node, 3)
    other = replace(node, node_id="other", tables=None)
    assert other.tables is not None

    with waiting_at(node, moment, pipe) as waiting:
        other.catalog.delete_leases_of_other_nodes(other.node_id)
        for table in BOTH:
            take_over(
                other.job(table).id,
                node_id=other.node_id,
                catalog=other.catalog,
                tables=other.tables,
                clock=other.clock,
                assume=lambda _: None,
            )
        waiting.release()
        rounds_until(waiting.supervisor, stopped)
    append_rounds(other, 4)
    other.run()

    assert results(other, BOTH) == rows(rounds=5)
    other.catalog.close()


# Full disks


@dataclass(frozen=True, kw_only=True)
class FullDisk:
    """The error of a scenario of ``full_checkpoint_disk``."""

    code: Code
    names: tuple[str, ...] = ()


FULL_DISKS = {
    "plan": FullDisk(code=Code.STORAGE_ERR, names=("plans/4.json",)),
    "state": FullDisk(code=Code.SPARK_ERR),
    "commit of Spark": FullDisk(code=Code.SPARK_ERR),
    "rows": FullDisk(code=Code.STORAGE_ERR, names=("data file", "small/totals")),
    "commit of the table": FullDisk(code=Code.TABLE_ERR, names=('"totals"',)),
}


@pytest.fixture(scope="module")
def full_disks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The findings of all scenarios; they share one Spark, which starts slowly."""
    folder = tmp_path_factory.mktemp("full")
    command = [sys.executable, "-m", "tests.integration.full_checkpoint_disk", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False
    )
    if done.returncode == EXIT_NOT_ALLOWED:
        pytest.skip("this machine does not allow mounting a small disk")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(900)
@pytest.mark.xdist_group("full checkpoint disks")
@pytest.mark.parametrize("scenario", FULL_DISKS)
def test_t46_an_epoch_on_a_full_disk_fails_and_is_exact_after_the_disk_is_freed(
    full_disks: dict[str, Any], scenario: str
) -> None:
    found, case = full_disks[scenario], FULL_DISKS[scenario]

    assert_reason(found["reason"], case.code, *case.names)
    assert found["exact"]
