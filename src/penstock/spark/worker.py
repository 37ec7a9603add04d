"""Functions that run inside Spark's Python workers, on any host.

Invariant: no function here opens a file of the driver. A task's text is sent with the Spark
job: as a row, as a local property of the job, or inside the closure. Spark may write all of
these to disk, so secrets in task texts are encrypted.

The reading half of a task writes its report to the local directory of its executor. The writing
half of the same task attempt reads the report there.
"""

import gc
import json
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from penstock.model.query import Lookup

# Local property of a Spark job: the texts of its tasks by partition, a JSON array.
TASKS = "penstock.tasks"

Batches = Iterator[pa.RecordBatch]
Work = Callable[[str, str], str]
ReadHalf = Callable[[str, str, Callable[[str], None]], Batches]
WriteHalf = Callable[[str, str, Batches, Callable[[], str]], str]
ReadLookup = Callable[[Lookup], Batches]

_frozen = threading.Event()


def run_tasks(work: Work, texts: Iterator[str]) -> Iterator[str]:
    """Run the tasks of one partition."""
    for text in texts:
        yield work(text, attempt()[1])
    freeze_once()


def source_function(
    read: ReadHalf, tasks: tuple[str, ...] | None
) -> Callable[[Batches], Batches]:
    """Return the function that reads the source in a plan; see ``_task_text``."""

    def read_source(batches: Batches) -> Batches:
        partition, try_id = attempt()
        for _ in batches:
            store_report = partial(_write_report, _report_path(try_id))
            yield from read(_task_text(tasks, partition), try_id, store_report)
        freeze_once()

    return read_source


def writer_function(
    write: WriteHalf, tasks: tuple[str, ...] | None
) -> Callable[[Batches], Batches]:
    """Return the function that writes the rows of a plan; see ``_task_text``."""

    def write_share(batches: Batches) -> Batches:
        partition, try_id = attempt()
        path = _report_path(try_id)
        try:
            text = _task_text(tasks, partition)
            result = write(text, try_id, batches, partial(_read_report, path))
        finally:
            path.unlink(missing_ok=True)
        yield pa.RecordBatch.from_pydict({"result": pa.array([result], pa.string())})
        freeze_once()

    return write_share


def lookup_function(read: ReadLookup, lookup: Lookup) -> Callable[[Batches], Batches]:
    """Return the function that reads a joined table in a plan."""

    def read_lookup(batches: Batches) -> Batches:
        for _ in batches:
            yield from read(lookup)

    return read_lookup


def local_property(key: str) -> str | None:
    """Return a local property of the Spark job; None outside of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(key)


def freeze_once() -> None:
    """Exempt loaded modules from the garbage collection that pyspark runs after every task.

    Only the first call has an effect.
    """
    if not _frozen.is_set():
        _frozen.set()
        gc.collect()
        gc.freeze()


def attempt() -> tuple[int, str]:
    """Return the partition and the id of the running task attempt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("not inside a Spark task")
    return context.partitionId(), str(context.taskAttemptId())


def _task_text(tasks: tuple[str, ...] | None, partition: int) -> str:
    """Return the text of a task: from the closure, else from the job's local property."""
    if tasks is None:
        tasks = tuple(json.loads(local_property(TASKS) or "[]"))
    return tasks[partition]


def _report_path(try_id: str) -> Path:
    # Spark sets this variable for its workers; the directory belongs to one executor.
    local_dir = os.environ["SPARK_LOCAL_DIRS"].split(",")[0]
    return Path(local_dir) / f"penstock-report-{try_id}"


def _write_report(path: Path, text: str) -> None:
    """Write a report atomically: a reader finds the whole text, or no report."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.write_text(text, "utf-8")
    unfinished.replace(path)


def _read_report(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError as error:
        raise RuntimeError("the reading half wrote no report") from error
