"""The backlog of a job that is killed, and of a catalog that was restored from a copy."""

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.crashpoints import CrashPoint
from penstock.errors import Code
from penstock.spark.executor import SparkExecutor
from tests.crash.harness import assert_boundaries_kept
from tests.crash.queries import (
    COUNTS,
    INPUTS,
    Prepared,
    append_rounds,
    create,
    expected,
    kill_at,
)
from tests.error_values import assert_reason
from tests.integration.driving import crash_at
from tests.integration.routine_loads import create as create_load
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import StreamUnderTest, kinesis_client, new_stream

pytestmark = pytest.mark.crash

ROUNDS = 3
KILLS = (
    (CrashPoint.BACKLOG_STORED, 1),
    (CrashPoint.EPOCH_STARTED, 1),
    # The third epoch reaches the boundary.
    (CrashPoint.TABLE_COMMITTED, ROUNDS),
    (CrashPoint.CATALOG_APPLIED, ROUNDS),
)
# The boundary of a stream is a time. A poll reaches it, after the second storing.
STREAM_KILLS = (
    (CrashPoint.BACKLOG_STORED, 1),
    (CrashPoint.EPOCH_STARTED, 1),
    (CrashPoint.TABLE_COMMITTED, 1),
    (CrashPoint.CATALOG_APPLIED, 1),
    (CrashPoint.BACKLOG_STORED, 2),
)


@pytest.fixture(scope="module")
def waiting(spark: SparkExecutor, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A home whose streaming table has rows to read and was never started."""
    root = tmp_path_factory.mktemp("backlog")
    node = Node(root / "home", spark=spark)
    node.sql(f"{INPUTS}; {create(COUNTS)}")
    append_rounds(node, *range(ROUNDS))
    return Prepared.of(node, root / "copy")


@pytest.mark.parametrize(("point", "count"), KILLS)
def test_t61_a_killed_streaming_table_keeps_its_boundary_and_finishes_it_once(
    waiting: Prepared, spark: SparkExecutor, point: CrashPoint, count: int
) -> None:
    node = kill_at(waiting.put_back(spark=spark), point, count=count, tables=(COUNTS,))
    append_rounds(node, ROUNDS)

    node.run()

    assert node.rows(COUNTS) == expected(rounds=ROUNDS + 1)[COUNTS]
    assert_boundaries_kept(node, COUNTS)


def test_t63_the_boundary_is_stored_before_the_first_row_is_read(
    node: Node, folder: Path
) -> None:
    write_rows(folder / "1.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")

    crash_at(node, CrashPoint.BACKLOG_STORED)

    (split,) = node.job("j").backlog.splits
    assert split.open
    assert node.job("j").backlog_cause == "boundary"
    assert (node.rows("t"), node.job("j").epoch_newest) == ([], 0)


def test_t63_a_record_that_arrives_after_a_kill_before_the_first_read_is_loaded(
    own_kinesis: KinesisServer, tmp_path: Path
) -> None:
    with kinesis_client(own_kinesis.endpoint) as client:
        stream = new_stream(client)
        node = stream_node(tmp_path, stream, property__kinesis_default_pos="LATEST")
        crash_at(node, CrashPoint.BACKLOG_STORED)
        stream.put(b'{"id": 2}')
        node = node.restart()

        node.run()

    assert [row["id"] for row in node.rows("t")] == [2]


@pytest.mark.parametrize(("point", "count"), STREAM_KILLS)
def test_t61_a_killed_routine_load_keeps_its_boundary_in_time_and_finishes_it_once(
    own_kinesis: KinesisServer, tmp_path: Path, point: CrashPoint, count: int
) -> None:
    with kinesis_client(own_kinesis.endpoint) as client:
        stream = new_stream(client)
        stream.put_all(b'{"id": 1}', b'{"id": 2}')
        node = stream_node(tmp_path, stream)
        crash_at(node, point, count=count)
        stream.put(b'{"id": 3}')
        node = node.restart()

        node.run()

    assert sorted(row["id"] for row in node.rows("t")) == [1, 2, 3]
    assert node.job("j").backlog_cause == ""
    assert_boundaries_kept(node)


def stream_node(tmp_path: Path, stream: StreamUnderTest, **options: Any) -> Node:
    """Return a node with a routine load of the stream."""
    node = Node(tmp_path / "home", read_interval=timedelta(0))
    node.sql(f"{CREATE_TABLE}; {create_load(stream, name='j', **options)}")
    return node


def test_a_catalog_restored_from_before_the_backlog_gets_it_back_from_the_table(
    node: Node, folder: Path, tmp_path: Path
) -> None:
    for number in range(5):
        write_rows(folder / f"{number}.json", numbered(number))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=[('s3.max_batch_files', '1')])}")
    node.catalog.close()
    copy = shutil.copyfile(node.home / "catalog.db", tmp_path / "catalog.db")
    node = node.restart()
    crash_at(node, CrashPoint.COPY_WRITTEN)
    before = node.job("j").backlog

    node.catalog.close()
    shutil.copyfile(copy, node.home / "catalog.db")
    node = node.restart()
    node.run()
    refused = node.show("j")["reason"]
    node.sql("RESUME JOB j")
    node.run()

    assert_reason(refused, Code.CATALOG_BEHIND_ERR, '"j"')
    after = node.job("j").backlog
    assert before.splits[0].open
    assert (after.armed, after.fixed_at) == (before.armed, before.fixed_at)
    assert [s.boundary for s in after.splits] == [s.boundary for s in before.splits]
    assert len(node.rows("t")) == 5
    assert_boundaries_kept(node)
