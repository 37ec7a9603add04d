"""The contract of executors: results in order, retries, and cancelling by group."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.clock import SystemClock
from penstock.engine.run import Executor, Work
from penstock.errors import Code, ExternalError, StoppedError
from penstock.model.query import Lookup, QueryRun, QueryText
from penstock.model.schema import Column, Primitive
from penstock.spark.executor import SparkExecutor
from penstock.spark.job_session import Halves
from penstock.spark.worker import Batches
from penstock.testing.executor import InProcessExecutor
from tests.error_values import raises

TIMEOUT_SECONDS = 60
# The same limit as in the settings of the tests' Spark.
TRIES_MAX = 4


@pytest.fixture(scope="module", params=["in process", "spark"])
def executor(request: pytest.FixtureRequest) -> Executor:
    """Every executor, one after the other."""
    if request.param == "in process":
        return InProcessExecutor(parallelism=2)
    spark: SparkExecutor = request.getfixturevalue("spark")
    return spark


def test_an_executor_returns_its_parallelism(executor: Executor) -> None:
    assert executor.parallelism == 2


def test_results_are_in_the_order_of_the_tasks(executor: Executor) -> None:
    tasks = [str(number) for number in range(9)]

    results = executor.run(tasks, work=slower_for_small_numbers(), group="g")

    assert results == [f"{task}!" for task in tasks]


@pytest.mark.parametrize(
    "text",
    ["", "größer ≠ 😀", "two\nlines\r\nand\rmore", 'a "quote" \\n', "\x00\x1c\u2028", "\udcff"],
    ids=["empty", "unicode", "line ends", "quotes", "separators", "not utf-8"],
)
def test_task_and_result_texts_are_sent_unchanged(executor: Executor, text: str) -> None:
    results = executor.run(["before", text, "after"], work=echo(), group="g")

    assert results == ["before", text, "after"]


def test_a_large_text_is_sent_unchanged(executor: Executor) -> None:
    text = "0123456789abcdéf" * 2**18

    results = executor.run([text], work=echo(), group="g")

    assert results == [text]


def test_a_failing_task_is_retried_with_another_id(executor: Executor, tmp_path: Path) -> None:
    work = failing(tmp_path, times=TRIES_MAX - 1)

    results = executor.run(["a"], work=work, group="g")

    assert results == [f"a by {tries(tmp_path, 'a')[-1]}"]
    assert len(set(tries(tmp_path, "a"))) == TRIES_MAX


def test_only_the_failing_task_is_retried(executor: Executor, tmp_path: Path) -> None:
    work = failing(tmp_path, times=1, only="b")

    executor.run(["a", "b", "c"], work=work, group="g")

    assert [len(tries(tmp_path, task)) for task in "abc"] == [1, 2, 1]


def test_a_task_that_always_fails_raises_external_error_after_four_attempts(
    executor: Executor, tmp_path: Path
) -> None:
    work = failing(tmp_path, times=100)

    with pytest.raises(ExternalError) as caught:
        executor.run(["a"], work=work, group="g")

    assert caught.value.code is Code.SPARK_ERR
    assert len(tries(tmp_path, "a")) == TRIES_MAX


def test_the_error_of_a_task_names_the_cause_in_one_line_without_a_stack(
    executor: Executor, tmp_path: Path
) -> None:
    with pytest.raises(ExternalError) as caught:
        executor.run(["a"], work=failing(tmp_path, times=100), group="g")

    message = caught.value.message
    assert "the tray is out of paper" in message
    assert "\n" not in message
    assert "org.apache" not in message
    assert "Traceback" not in message


def test_the_executor_still_works_after_a_task_that_always_fails(
    executor: Executor, tmp_path: Path
) -> None:
    with pytest.raises(ExternalError):
        executor.run(["a"], work=failing(tmp_path, times=100), group="g")

    results = executor.run(["a"], work=echo(), group="g")

    assert results == ["a"]


def test_cancelling_a_group_from_another_thread_raises_stopped_error_in_its_run(
    executor: Executor, tmp_path: Path
) -> None:
    with ThreadPoolExecutor() as threads:
        run = threads.submit(executor.run, ["a"] * 6, work=waiting(tmp_path), group="g")
        until((tmp_path / "started").exists)

        executor.cancel("g")
        (tmp_path / "released").touch()

        with pytest.raises(StoppedError):
            run.result(TIMEOUT_SECONDS)


def test_cancelling_one_group_does_not_affect_another(
    executor: Executor, tmp_path: Path
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    with ThreadPoolExecutor() as threads:
        stopped = threads.submit(executor.run, ["a"], work=waiting(one), group="one")
        running = threads.submit(executor.run, ["b"], work=waiting(other), group="other")
        until(lambda: (one / "started").exists() and (other / "started").exists())

        executor.cancel("one")
        (one / "released").touch()
        with pytest.raises(StoppedError):
            stopped.result(TIMEOUT_SECONDS)
        (other / "released").touch()

        assert running.result(TIMEOUT_SECONDS) == ["b"]


def test_a_group_runs_again_after_it_was_cancelled(executor: Executor) -> None:
    executor.cancel("g")

    results = executor.run(["a"], work=echo(), group="g")

    assert results == ["a"]


def test_no_file_of_the_driver_has_the_text_of_a_running_task(spark: SparkExecutor) -> None:
    work = searching(spark._options.scratch)

    found = spark.run(["gentian", "saxifrage"], work=work, group="g")

    assert found == ["", ""]


@pytest.fixture
def select() -> QueryRun:
    """A SELECT with a frame that is cached between epochs."""
    query = QueryText(
        text="SELECT text FROM source WHERE text <> 'no'",
        view="source",
        columns=(Column(name="text", type=Primitive.STRING),),
        strict=True,
        time_zone="UTC",
        python_udfs="",
    )
    return QueryRun(query=query, lookups=(), needed=("text",), reusable=True)


def test_a_select_reads_no_task_from_a_file_of_the_driver(
    spark: SparkExecutor, select: QueryRun
) -> None:
    halves = halves_of(searching(spark._options.scratch))

    found = spark.run_query(["gentian", "saxifrage"], run=select, halves=halves, group="s1")

    assert found == ["[''] for gentian", "[''] for saxifrage"]


@pytest.mark.parametrize("size", [1, 2**18], ids=["small", "large"])
def test_every_epoch_of_a_select_runs_its_own_tasks(
    spark: SparkExecutor, select: QueryRun, size: int
) -> None:
    epochs = [["a" * size, "b" * size], ["c" * size, "é\n"], ["d"], ["😀\u2028", "e" * size]]
    halves = halves_of(counting())

    results = [
        spark.run_query(e, run=select, halves=halves, group=f"own-{size}") for e in epochs
    ]

    assert results == [[f"['{len(t)}'] for {t[:9]}" for t in epoch] for epoch in epochs]


def test_a_task_of_a_select_is_retried_with_the_same_text(
    spark: SparkExecutor, select: QueryRun, tmp_path: Path
) -> None:
    halves = halves_of(failing(tmp_path, times=TRIES_MAX - 1))

    results = spark.run_query(["a"], run=select, halves=halves, group="s3")

    assert results == [f"['a by {tries(tmp_path, 'a')[-1]}'] for a"]
    assert len(set(tries(tmp_path, "a"))) == TRIES_MAX


def test_a_writer_without_the_report_of_its_reader_fails(
    spark: SparkExecutor, select: QueryRun
) -> None:
    halves = halves_of(counting(), reports=False)

    with raises(ExternalError, Code.SPARK_ERR, "report"):
        spark.run_query(["a"], run=select, halves=halves, group="s4")


# Work is defined inside functions, because such functions are sent to the workers by value.
# Functions of a module are sent by name, and workers cannot import the tests.


def echo() -> Work:
    def work(text: str, _: str) -> str:
        return text

    return work


def counting() -> Work:
    def work(text: str, _: str) -> str:
        return str(len(text))

    return work


def searching(folder: Path) -> Work:
    """Return work that lists the files below a folder that contain the task's text."""

    def work(text: str, _: str) -> str:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return " ".join(str(path) for path in files if text.encode() in path.read_bytes())

    return work


def halves_of(work: Work, *, reports: bool = True) -> Halves:
    """Return halves with a reader that yields the result of the work as its only row."""

    def read(text: str, try_id: str, store_report: Callable[[str], None]) -> Batches:
        yield pa.RecordBatch.from_pylist([{"text": work(text, try_id)}])
        if reports:
            store_report(text[:9])

    def write(text: str, _: str, batches: Batches, report: Callable[[], str]) -> str:
        rows = [str(row) for batch in batches for row in batch.column(0).to_pylist()]
        assert report() == text[:9]
        return f"{rows} for {text[:9]}"

    def read_lookup(_: Lookup) -> Batches:
        yield from ()

    return Halves(read=read, write=write, read_lookup=read_lookup)


def slower_for_small_numbers() -> Work:
    def work(text: str, _: str) -> str:
        threading.Event().wait(0.01 * (9 - int(text)))
        return f"{text}!"

    return work


def failing(folder: Path, *, times: int, only: str = "") -> Work:
    """Return work that fails a number of times, and logs the ids of its attempts."""

    def work(text: str, try_id: str) -> str:
        seen = folder / f"tries-{text}"
        with seen.open("a") as file:
            file.write(f"{try_id}\n")
        if text.startswith(only) and len(seen.read_text().splitlines()) <= times:
            raise ValueError("the tray is out of paper")
        return f"{text} by {try_id}"

    return work


def tries(folder: Path, task: str) -> list[str]:
    return (folder / f"tries-{task}").read_text().splitlines()


def waiting(folder: Path) -> Work:
    """Return work that reports its start and waits until it is released."""

    def work(text: str, _: str) -> str:
        (folder / "started").touch()
        never, released = threading.Event(), folder / "released"
        for _poll in range(100 * TIMEOUT_SECONDS):
            if released.exists():
                break
            never.wait(0.01)
        return text

    return work


def until(done: Callable[[], bool]) -> None:
    clock, never = SystemClock(), threading.Event()
    deadline = clock.monotonic() + TIMEOUT_SECONDS
    while not done():
        assert clock.monotonic() < deadline
        clock.wait(never, timedelta(milliseconds=10))
