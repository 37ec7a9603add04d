"""Functions of a streaming query in a Python worker of Spark."""

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext

from penstock.model.job import StreamView
from penstock.model.schema import Column, Primitive
from penstock.spark import worker
from penstock.spark.worker import Batches
from penstock.streaming.checkpoint import BatchPlan, CheckpointFolder, SourcePlan
from penstock.streaming.task import reader_function

BATCH = 3
FIRST = 6
VIEW = StreamView(
    split="s1",
    view="events__1",
    columns=(Column(name="ts", type=Primitive.TIMESTAMP),),
    event_time="ts",
    delay_ms=0,
)
PLAN = BatchPlan(
    epoch=1,
    batch=BATCH,
    first=FIRST,
    slots=2,
    moves=False,
    watermark_ms=0,
    pins={},
    sources={"s1": SourcePlan(table="t", begin="LOG 1.0", end="LOG 1.0")},
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[str]:
    """A checkpoint with a plan, in a process that runs a task of Spark."""
    CheckpointFolder(tmp_path).write_plan(PLAN)
    context = TaskContext._getOrCreate()
    context._localProperties = {"streaming.sql.batchId": str(BATCH)}
    yield str(tmp_path)
    TaskContext._setTaskContext(None)


def clock(*values: int) -> Batches:
    """Return the rows of Spark's clock."""
    return iter([pa.RecordBatch.from_pydict({"value": pa.array(values, pa.int64())})])


@pytest.mark.parametrize(("value", "markers"), [(FIRST, 1), (FIRST + 1, 0)])
def test_s5_the_slot_of_a_clock_row_is_its_distance_from_the_first_row_of_the_plan(
    checkpoint: str, value: int, markers: int
) -> None:
    read = reader_function(checkpoint, VIEW)

    rows = [batch.num_rows for batch in read(clock(value))]

    # Only slot 0 adds a marker row.
    assert sum(rows) == markers


@pytest.fixture
def unfrozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has frozen no objects yet."""
    monkeypatch.setattr(worker, "_frozen", threading.Event())
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("unfrozen")
def test_s12_a_worker_exempts_its_modules_from_garbage_collection(checkpoint: str) -> None:
    read = reader_function(checkpoint, VIEW)

    list(read(clock()))

    assert gc.get_freeze_count() > 0
