"""Functions of a streaming query that run inside Spark's Python workers.

Spark's own source is a clock: one row for each reader task of a batch. The number of the row
selects a share of the batch's plan, which is a file of the checkpoint. A shuffle can separate
the reader from the writer, so the reader writes its notes to files of the checkpoint.

All tasks of a batch receive the rest of their input as a local property of the Spark job.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from penstock.arrow.types import arrow_schema
from penstock.crashpoints import CrashPoint, reached
from penstock.epochs.output import TaskOutput, TaskPlan
from penstock.epochs.task import aborted_on_error, as_refusal, padded
from penstock.errors import ExternalError, PenstockError, UserError
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import Ack
from penstock.model.job import StreamView
from penstock.model.query import Lookup
from penstock.model.split import SplitRead
from penstock.sources.registry import source_kind
from penstock.sources.source import ReadTask
from penstock.sources.table_log.kind import untimed
from penstock.spark.worker import Batches, attempt, freeze_once, local_property
from penstock.streaming.checkpoint import BatchPlan, CheckpointFolder, ShareReport
from penstock.streaming.watermark import marker_microseconds
from penstock.tables.scan import read_lookup

# Local property of a Spark job: the input of all tasks of a batch.
TASK = "penstock.stream-task"
# Prefixes of the names of readers in a plan of Spark; the name of the view follows.
STREAM_FUNCTION = "read_stream:"
LOOKUP_FUNCTION = "read_static:"
# Local property that Spark sets: the number of the batch.
_BATCH = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTask:
    """The input of all tasks of a batch, in addition to the plan of the batch."""

    # This plan has no reads: the plan of the batch has the reads.
    output: TaskPlan
    # A replay rebuilds the state of a committed batch; its rows are discarded.
    replay: bool


def reader_function(checkpoint: str, view: StreamView) -> Callable[[Batches], Batches]:
    """Return the function that reads the shares of one stream."""

    def read_stream(clock: Batches) -> Batches:
        folder = CheckpointFolder(Path(checkpoint))
        plan = folder.require_plan(int(local_property(_BATCH) or -1))
        for rows in clock:
            for value in rows.column("value"):
                yield from _read_slot(folder, plan, view, int(value.as_py()) - plan.first)
        freeze_once()

    read_stream.__name__ = STREAM_FUNCTION + view.view
    return read_stream


def _read_slot(
    folder: CheckpointFolder, plan: BatchPlan, view: StreamView, slot: int
) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(view.columns)
    if slot == 0 and view.event_time is not None:
        yield _marker(schema, view.event_time, plan.watermark_ms)
    shares = plan.sources[view.split].shares
    reads = shares[slot] if slot < len(shares) else ()
    if not reads:
        return
    task = from_text(StreamTask, local_property(TASK) or "")
    reader = source_kind(task.output.read.source.kind).reader(_read_task(task, view, reads))
    report = ShareReport()
    try:
        with closing(reader):
            for block in reader.blocks():
                if block.batch.num_rows:
                    yield padded(block.batch, schema)
        report = ShareReport(notes=tuple(reader.notes))
    except (UserError, ExternalError) as error:
        # The loop discards the rows that were yielded so far.
        report = ShareReport(refusal=to_text(as_refusal(error, requests=reader.requests)))
    # The next plan needs the event times of files without statistics, also after a power loss.
    durable = view.event_time is not None and bool(untimed(reads))
    folder.write_report(plan.batch, view.split, slot, report, durable=durable)
    reached(CrashPoint.TASK_READ)


def _read_task(task: StreamTask, view: StreamView, reads: tuple[SplitRead, ...]) -> ReadTask:
    return replace(task.output.read, columns=view.columns, needed=view.needed, reads=reads)


def _marker(schema: pa.Schema, event_time: str, watermark_ms: int) -> pa.RecordBatch:
    """Return the row that sets Spark's watermark."""
    at = pa.array([marker_microseconds(watermark_ms)], pa.int64())
    columns = [
        at.cast(field.type) if field.name == event_time else pa.nulls(1, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def lookup_function(checkpoint: str, name: str) -> Callable[[Batches], Batches]:
    """Return the function that reads a static table at the version of the batch."""

    def read_static(batches: Batches) -> Batches:
        pins = CheckpointFolder(Path(checkpoint)).require_pins(
            int(local_property(_BATCH) or -1)
        )
        lookup: Lookup = pins[name]
        for _ in batches:
            yield from read_lookup(lookup)

    read_static.__name__ = LOOKUP_FUNCTION + name
    return read_static


def write_rows(batches: Batches) -> Batches:
    """Write the rows of one output partition, and yield the result of the task."""
    partition, try_id = attempt()
    task = from_text(StreamTask, local_property(TASK) or "")
    result = to_text(_written(task, partition, try_id, batches))
    yield pa.RecordBatch.from_pydict({"result": pa.array([result], pa.string())})
    freeze_once()


def _written(task: StreamTask, partition: int, try_id: str, batches: Batches) -> object:
    if task.replay:
        rows = sum(batch.num_rows for batch in batches)
        return Ack(task=partition, files=(), notes=(), rows_produced=rows)
    output = TaskOutput(replace(task.output, task=partition), try_id=try_id)
    try:
        with aborted_on_error(output):
            for batch in batches:
                output.write(batch, place_of=lambda _: ("", None))
            ack = output.close(())
    except (UserError, ExternalError) as error:
        return as_refusal(error)
    reached(CrashPoint.TASK_WRITTEN)
    return ack


def refusal_error(text: str) -> PenstockError:
    """Return the error of a refused share."""
    from penstock.epochs.task import Refusal

    return from_text(Refusal, text).error
