"""A streaming table whose process is killed at any point loses and doubles no row.

The thread of the runner ends at a crash point, and the home is opened again, inside one JVM.
Each test kills a window count, a left join and a keyed aggregate at the same point. Other tests
kill real processes, with and without their JVM.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pytest

from penstock.crashpoints import CrashPoint
from penstock.errors import Code
from penstock.spark.executor import SparkExecutor
from penstock.supervisor.restart import resume_at
from tests.crash.points import (
    CREATE_POINTS,
    CREATE_TABLE_POINTS,
    DROP_POINTS,
    DROP_TABLE_POINTS,
    QUERY_POINTS,
)
from tests.crash.queries import (
    COUNTS,
    INPUTS,
    JOINED,
    TABLES,
    TOTALS,
    PowerLoss,
    Prepared,
    append_rounds,
    checkpoint,
    create,
    empty,
    expected,
    kill_at,
    killed_workers,
    results,
    truncate,
    verdicts,
    write_no_statistics,
)
from tests.error_values import assert_reason
from tests.integration.driving import crash_inside
from tests.node import Node

pytestmark = pytest.mark.crash

# The point of each kill, and how the next process starts the query.
EPOCH_KILLS = {
    CrashPoint.BATCH_OPENED: "continue",
    CrashPoint.PLAN_WRITTEN: "continue",
    CrashPoint.EPOCH_STARTED: "continue",
    CrashPoint.BATCH_COLLECTED: "continue",
    CrashPoint.BATCH_SETTLED: "continue",
    CrashPoint.RUN_FINISHED: "continue",
    CrashPoint.COMMIT_CHECKED: "continue",
    CrashPoint.TABLE_COMMITTED: "replay",
    CrashPoint.CATALOG_APPLIED: "replay",
    CrashPoint.COPY_WRITTEN: "replay",
    CrashPoint.BATCH_RETURNED: "continue",
}
# The points that only the Python workers of Spark reach.
WORKER_KILLS = (CrashPoint.TASK_READ, CrashPoint.TASK_WRITTEN)
TAKEOVER_KILLS = (
    CrashPoint.TABLE_COMMITTED,
    CrashPoint.LEASE_TAKEN,
    CrashPoint.CHAIN_EXTENDED,
    CrashPoint.RECOVERY_FENCED,
    CrashPoint.RECOVERY_APPLIED,
    CrashPoint.ATTEMPTS_CANCELLED,
)
REPLAY_KILLS = (
    CrashPoint.BATCH_OPENED,
    CrashPoint.BATCH_COLLECTED,
    CrashPoint.BATCH_SETTLED,
    CrashPoint.BATCH_REPLAYED,
    CrashPoint.BATCH_RETURNED,
)
# After one round, the epoch without input closes a window. After two rounds, it does not.
EMPTY_EPOCH_KILLS = (
    (1, CrashPoint.PLAN_WRITTEN),
    (1, CrashPoint.BATCH_COLLECTED),
    (1, CrashPoint.TABLE_COMMITTED),
    (1, CrashPoint.COMMIT_RECORDED),
    (1, CrashPoint.BATCH_RETURNED),
    (2, CrashPoint.BATCH_COLLECTED),
    (2, CrashPoint.BATCH_RETURNED),
)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Files of Spark that a power loss takes, and how the streaming tables start after it."""

    below: tuple[str, ...]
    damage: Callable[[Path], None] = Path.unlink
    point: CrashPoint = CrashPoint.BATCH_RETURNED
    verdict: str = "replay"


OFFSETS, COMMITS, STATE, NOTES = "spark/offsets", "spark/commits", "spark/state", "notes"
EVERYTHING = (OFFSETS, COMMITS, STATE, NOTES)
EXACT_LOSSES = {
    "all unsynced files": Loss(below=EVERYTHING),
    "the content of all unsynced files": Loss(below=EVERYTHING, damage=empty),
    "half of each unsynced file": Loss(below=EVERYTHING, damage=truncate),
    "the content of the commit": Loss(below=(COMMITS,), damage=empty),
    "the next offset": Loss(below=(OFFSETS,), verdict="continue"),
    "half of the reports of the readers": Loss(
        below=(NOTES,), damage=truncate, verdict="continue"
    ),
    "all unsynced files before the return": Loss(
        below=EVERYTHING, point=CrashPoint.TABLE_COMMITTED
    ),
    "all unsynced files before the commit": Loss(
        below=EVERYTHING, point=CrashPoint.COMMIT_CHECKED, verdict="continue"
    ),
}
# Files without the earlier files of the same batch.
REFUSED_LOSSES = {
    "the commit": Loss(below=(COMMITS,)),
    "the state": Loss(below=(STATE,)),
    "the content of the state": Loss(below=(STATE,), damage=empty),
}


@pytest.fixture(scope="module")
def recorder() -> Iterator[PowerLoss]:
    with PowerLoss().recording() as recorder:
        yield recorder


@pytest.fixture(scope="module")
def prepared(
    spark: SparkExecutor, recorder: PowerLoss, tmp_path_factory: pytest.TempPathFactory
) -> Prepared:
    """A home whose streaming tables have read the rounds 0 to 2."""
    root = tmp_path_factory.mktemp("queries")
    node = Node(root / "home", spark=spark)
    node.sql(INPUTS)
    node.sql("; ".join(create(table) for table in TABLES))
    append_rounds(node, 0, 1, 2)
    node.run()
    assert results(node) == expected(rounds=3)
    return Prepared.of(node, root / "copy", synced=recorder.synced)


@pytest.fixture
def node(prepared: Prepared, spark: SparkExecutor) -> Node:
    return prepared.put_back(spark=spark)


@pytest.fixture
def power(prepared: Prepared, recorder: PowerLoss) -> PowerLoss:
    """A power loss that spares what was synced in the home of the test."""
    recorder.synced = set(prepared.synced)
    return recorder


def test_every_crash_point_of_a_query_has_a_test() -> None:
    empty_epochs = {point for _, point in EMPTY_EPOCH_KILLS}

    assert set(QUERY_POINTS) <= {*EPOCH_KILLS, *REPLAY_KILLS, *WORKER_KILLS, *empty_epochs}


def last_verdicts(node: Node) -> set[str]:
    """Return how the streaming tables were started last."""
    return {verdicts(node, table)[-1] for table in TABLES}


@pytest.mark.parametrize(("point", "verdict"), EPOCH_KILLS.items())
def test_t52_no_row_is_lost_or_doubled_by_a_kill_inside_an_epoch(
    node: Node, point: CrashPoint, verdict: str
) -> None:
    append_rounds(node, 3, 4)

    node = kill_at(node, point)
    append_rounds(node, 5)
    node.run()

    assert results(node) == expected(rounds=6)
    assert last_verdicts(node) == {verdict}


@pytest.mark.parametrize("point", WORKER_KILLS)
def test_no_row_is_lost_or_doubled_by_the_kill_of_a_worker_of_spark(
    node: Node, tmp_path: Path, point: CrashPoint
) -> None:
    append_rounds(node, 3, 4, 5)

    with killed_workers(point, tmp_path):
        node.run()

    killed = {path.name for path in tmp_path.iterdir()}
    assert killed == {node.job(table).id for table in TABLES}
    assert results(node) == expected(rounds=6)


@pytest.mark.parametrize(("rounds", "point"), EMPTY_EPOCH_KILLS)
def test_no_row_is_lost_or_doubled_by_a_kill_inside_an_epoch_without_input(
    node: Node, rounds: int, point: CrashPoint
) -> None:
    append_rounds(node, *range(3, 3 + rounds))
    # Epochs with input record no commit.
    count = 1 if point is CrashPoint.COMMIT_RECORDED else rounds + 1

    node = kill_at(node, point, count=count, tables=(COUNTS, JOINED))
    append_rounds(node, *range(3 + rounds, 6))
    node.run()

    assert results(node) == expected(rounds=6)


def test_t53_no_row_is_lost_or_doubled_by_two_kills_in_a_row_after_the_table_commit(
    node: Node,
) -> None:
    append_rounds(node, 3, 4)

    node = kill_at(node, CrashPoint.TABLE_COMMITTED)
    node = kill_at(node, CrashPoint.TABLE_COMMITTED)
    append_rounds(node, 5)
    node.run()

    assert results(node) == expected(rounds=6)
    assert {tuple(verdicts(node, table)[-2:]) for table in TABLES} == {("replay", "replay")}


def test_no_row_is_lost_or_doubled_by_a_kill_at_every_step_of_a_takeover(node: Node) -> None:
    append_rounds(node, 3, 4)

    node = reduce(kill_at, TAKEOVER_KILLS, node)
    append_rounds(node, 5)
    node.run()

    assert results(node) == expected(rounds=6)


@pytest.mark.parametrize("point", REPLAY_KILLS)
def test_no_row_is_lost_or_doubled_by_a_kill_inside_a_replay(
    node: Node, point: CrashPoint
) -> None:
    append_rounds(node, 3, 4)
    node = kill_at(node, CrashPoint.TABLE_COMMITTED)

    node = kill_at(node, point)
    append_rounds(node, 5)
    node.run()

    assert results(node) == expected(rounds=6)


@pytest.mark.parametrize("loss", EXACT_LOSSES.values(), ids=EXACT_LOSSES)
def test_no_row_is_lost_or_doubled_by_a_power_loss(
    node: Node, power: PowerLoss, loss: Loss
) -> None:
    append_rounds(node, 3, 4)

    node = kill_at(node, loss.point)
    lost = power.lose(node, below=loss.below, damage=loss.damage)
    append_rounds(node, 5)
    node.run()

    assert lost
    assert results(node) == expected(rounds=6)
    assert last_verdicts(node) == {loss.verdict}


@pytest.mark.parametrize("point", [CrashPoint.TABLE_COMMITTED, CrashPoint.BATCH_RETURNED])
@pytest.mark.parametrize("epochs", [1, 2])
def test_no_row_is_lost_or_doubled_by_a_power_loss_in_the_first_epochs(
    spark: SparkExecutor, recorder: PowerLoss, tmp_path: Path, epochs: int, point: CrashPoint
) -> None:
    node = Node(tmp_path / "home", spark=spark)
    node.sql(INPUTS)
    node.sql("; ".join(create(table) for table in TABLES))
    append_rounds(node, 0, 1)
    recorder.synced = set()
    with recorder.recording():
        node = kill_at(node, point, count=epochs)

    recorder.lose(node, below=EVERYTHING, damage=truncate)
    append_rounds(node, 2)
    node.run()

    assert results(node) == expected(rounds=3)
    assert last_verdicts(node) == {"replay"}


@pytest.mark.parametrize("loss", REFUSED_LOSSES.values(), ids=REFUSED_LOSSES)
def test_a_power_loss_that_keeps_a_file_without_the_earlier_ones_pauses_the_streaming_table(
    node: Node, power: PowerLoss, loss: Loss
) -> None:
    append_rounds(node, 3, 4)

    node = kill_at(node, loss.point)
    before = results(node)
    lost = power.lose(node, below=loss.below, damage=loss.damage)
    node.run()

    assert lost
    assert results(node) == before
    for table in TABLES:
        assert_reason(node.show(table)["reason"], Code.CHECKPOINT_DAMAGED_ERR)


def test_state_that_a_power_loss_truncated_pauses_the_streaming_table_and_changes_no_row(
    node: Node, power: PowerLoss
) -> None:
    append_rounds(node, 3, 4)

    node = kill_at(node, CrashPoint.BATCH_RETURNED)
    before = results(node)
    lost = power.lose(node, below=(STATE,), damage=truncate)
    node.run()

    assert lost
    assert results(node) == before
    for table in TABLES:
        assert_reason(
            node.show(table)["reason"],
            Code.CHECKPOINT_DAMAGED_ERR,
            "Spark cannot read the state",
        )
        paused = node.job(table).desired.reason
        assert paused is not None
        assert str(checkpoint(node, table).path) in paused.hint
        assert resume_at(node.job(table)) is None


def test_the_watermark_of_files_without_statistics_survives_a_kill(spark_node: Node) -> None:
    spark_node.sql(INPUTS)
    write_no_statistics(spark_node, "clicks")
    spark_node.sql(create(COUNTS))
    append_rounds(spark_node, 0, 1, 2, 3)

    # The epoch after round 3 is the first one that knows the event times of round 3.
    node = kill_at(spark_node, CrashPoint.BATCH_COLLECTED, count=5, tables=(COUNTS,))
    node.run()

    assert node.rows(COUNTS) == expected(rounds=4)[COUNTS]


# Statements


@pytest.mark.parametrize("point", [*DROP_POINTS, *DROP_TABLE_POINTS])
def test_a_killed_drop_of_a_streaming_table_can_be_repeated_and_its_name_used_again(
    node: Node, point: CrashPoint
) -> None:
    # As after DROP TABLE, the files stay if the kill is just before their deletion.
    job_id = node.job(TOTALS).id

    crash_inside(node, f"DROP STREAMING TABLE {TOTALS}", point)
    node = node.restart()
    node.sql(f"DROP STREAMING TABLE IF EXISTS {TOTALS}")

    assert (node.catalog.job(TOTALS), node.catalog.table(TOTALS)) == (None, None)
    assert not (node.checkpoints / job_id).exists()
    node.sql(create(TOTALS))
    assert node.rows(TOTALS) == []


@pytest.mark.parametrize("point", [*CREATE_TABLE_POINTS, *CREATE_POINTS])
def test_a_killed_create_of_a_streaming_table_leaves_no_table_and_can_be_repeated(
    spark_node: Node, point: CrashPoint
) -> None:
    spark_node.sql(INPUTS)
    append_rounds(spark_node, 0)

    crash_inside(spark_node, create(TOTALS), point)
    node = spark_node.restart()
    left = (node.catalog.job(TOTALS), node.catalog.table(TOTALS))
    node.sql(create(TOTALS))
    node.run()

    assert left == (None, None)
    assert node.rows(TOTALS) == expected(rounds=1)[TOTALS]
