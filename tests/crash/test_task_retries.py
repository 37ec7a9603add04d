"""A task that fails after writing its files is retried; its rows are loaded once."""

from pathlib import Path

import pytest

from penstock.engine.run import Work
from tests.crash.harness import Home, assert_exact, rows_of, until
from tests.crash.processes import SPARK
from tests.crash.variants import ON_SPARK, WITHOUT_SPARK
from tests.integration.driving import supervised

pytestmark = [
    pytest.mark.crash,
    pytest.mark.xdist_group("task retries"),
    pytest.mark.parametrize("home", [*WITHOUT_SPARK, *ON_SPARK], indirect=True),
]

TRIES_MAX = 4


@pytest.fixture(autouse=True)
def executor(request: pytest.FixtureRequest, home: Home) -> None:
    """Use Spark if the home's variant does."""
    if home.command == SPARK:
        home.node.spark = request.getfixturevalue("spark")


@pytest.mark.parametrize("failures", [1, TRIES_MAX - 1])
def test_rows_of_a_task_that_failed_after_writing_are_loaded_once(
    home: Home, failures: int
) -> None:
    home.write(1, 2)
    home.create()

    load(home, work=failing_after_writing(home.root, times=failures))

    shown = assert_exact(home, 1, 2)
    assert {row["attempt"] for row in shown.epochs if row["kind"] == "epoch"} == {1}
    assert len(home.written_files()) == 2 * (1 + failures)


def test_files_of_a_failed_try_are_not_in_the_table(home: Home) -> None:
    home.write(1)
    home.create()

    load(home, work=failing_after_writing(home.root, times=1))

    written, in_table = home.written_files(), home.files_at(home.location)
    assert len(written) == 2
    assert len(in_table) == 1
    assert in_table < written


def test_an_epoch_whose_task_failed_on_every_try_is_loaded_once_by_the_next_attempt(
    home: Home,
) -> None:
    home.write(1)
    home.create()

    load(home, work=failing_after_writing(home.root, times=TRIES_MAX))

    shown = assert_exact(home, 1)
    assert [
        (row["attempt"], row["outcome"]) for row in shown.epochs if row["kind"] == "epoch"
    ] == [(1, "FAILED"), (2, "COMMITTED")]
    assert "unplugged" in str(shown.epochs[-2]["reason"])


def test_each_failed_task_of_an_epoch_is_retried_alone(home: Home) -> None:
    home.write(1, 2, 3, 4)
    home.create(**{"s3.max_batch_files": "4"})

    load(home, work=failing_after_writing(home.root, times=1))

    assert home.rows == rows_of(1, 2, 3, 4)
    assert home.shown().job["rows_loaded"] == 12
    assert len(home.written_files()) == 4


def failing_after_writing(folder: Path, *, times: int) -> Work:
    """Return work whose first tries write their files and then fail, for every task."""

    # A nested function is pickled by value; the workers cannot import the tests.
    def work(text: str, try_id: str) -> str:
        import hashlib

        from penstock.epochs.task import run_task_text

        result = run_task_text(text, try_id)
        reads = text.partition('"reads":')[2]
        tried = folder / f"tried-{hashlib.sha256(reads.encode()).hexdigest()}"
        with tried.open("a") as file:
            file.write(f"{try_id}\n")
        if len(tried.read_text().splitlines()) <= times:
            raise OSError("the disk was unplugged")
        return result

    return work


def load(home: Home, *, work: Work) -> None:
    """Run the job until it is caught up."""
    home.node.work = work
    with supervised(home.node, until_caught_up=True) as supervisor:
        until(lambda: all(report.caught_up for report in supervisor.round()))
