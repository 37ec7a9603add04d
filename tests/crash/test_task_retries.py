"""A Spark task that fails after it wrote its files is tried again; its rows are loaded once."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.app import open_source
from penstock.engine.epoch_loop import LoadParts
from penstock.engine.run import Executor, Work
from penstock.spark.executor import SparkExecutor
from penstock.spark.session import SparkOptions
from penstock.supervisor.supervisor import Supervisor
from tests.crash.harness import Home, assert_exact, rows_of, until
from tests.node import start_thread

pytestmark = pytest.mark.crash

TRIES_MAX = 4


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkExecutor]:
    folder = tmp_path_factory.mktemp("spark")
    started = SparkExecutor(
        SparkOptions(
            master=f"local[2,{TRIES_MAX}]",
            scratch=folder / "tmp",
            log_file=folder / "spark.log",
            conf={"spark.driver.memory": "512m"},
        )
    )
    yield started
    started.stop()


@pytest.mark.parametrize("failures", [1, TRIES_MAX - 1])
def test_rows_of_a_task_that_failed_after_writing_are_loaded_once(
    home: Home, spark: SparkExecutor, failures: int
) -> None:
    home.write(1, 2)
    home.create()

    load(home, executor=spark, work=failing_after_writing(home.root, times=failures))

    shown = assert_exact(home, 1, 2)
    assert {row["attempt"] for row in shown.epochs if row["kind"] == "epoch"} == {1}
    assert home.tries_on_disk() == 2 * (1 + failures)


def test_files_of_a_failed_try_stay_outside_the_table(home: Home, spark: SparkExecutor) -> None:
    home.write(1)
    home.create()

    load(home, executor=spark, work=failing_after_writing(home.root, times=1))

    on_disk = {path.name for path in home.table_folder().glob("*.parquet")}
    in_table = {Path(uri).name for uri in DeltaTable(str(home.table_folder())).file_uris()}
    assert len(on_disk) == 2
    assert len(in_table) == 1
    assert in_table < on_disk


def test_rows_of_an_epoch_whose_task_used_up_its_tries_are_loaded_once_by_the_next_attempt(
    home: Home, spark: SparkExecutor
) -> None:
    home.write(1)
    home.create()

    load(home, executor=spark, work=failing_after_writing(home.root, times=TRIES_MAX))

    shown = assert_exact(home, 1)
    assert [
        (row["attempt"], row["outcome"]) for row in shown.epochs if row["kind"] == "epoch"
    ] == [(1, "FAILED"), (2, "COMMITTED")]
    assert "out of paper" in str(shown.epochs[-2]["reason"])


def test_tasks_of_one_epoch_fail_and_are_tried_again_on_their_own(
    home: Home, spark: SparkExecutor
) -> None:
    home.write(1, 2, 3, 4)
    home.create(**{"s3.max_batch_files": "4"})

    load(home, executor=spark, work=failing_after_writing(home.root, times=1))

    assert home.rows == rows_of(1, 2, 3, 4)
    assert home.shown().job["rows_loaded"] == 12
    assert home.tries_on_disk() == 4


def failing_after_writing(folder: Path, *, times: int) -> Work:
    """Answer work whose first tries write their files and then fail, for every task."""

    # Made inside a function, it travels to the workers whole; they do not know the tests.
    def work(text: str, try_id: str) -> str:
        import hashlib

        from penstock.engine.task import run_task_text

        answer = run_task_text(text, try_id)
        reads = text.partition('"reads":')[2]
        tried = folder / f"tried-{hashlib.sha256(reads.encode()).hexdigest()}"
        with tried.open("a") as file:
            file.write(f"{try_id}\n")
        if len(tried.read_text().splitlines()) <= times:
            raise OSError("the tray is out of paper")
        return answer

    return work


def load(home: Home, *, executor: Executor, work: Work) -> None:
    """Run the job until it is caught up."""
    node = home.node
    assert node.tables is not None
    parts = LoadParts(
        catalog=node.catalog,
        tables=node.tables,
        executor=executor,
        clock=node.clock,
        open_source=partial(open_source, catalog=node.catalog),
        work=work,
        node_id=node.node_id,
    )
    supervisor = Supervisor(
        parts=parts, clock=node.clock, start_thread=start_thread, until_caught_up=True
    )
    supervisor.start(sole_process=True)
    try:
        until(lambda: all(look.caught_up for look in supervisor.round()))
    finally:
        supervisor.stop()
