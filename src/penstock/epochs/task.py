"""Run one task: read its splits, fit every row to the table, write Parquet.

It runs inside a Spark task, or in the test process, from the plan alone. A mistake in the data
or a file that is no longer the one listed is an answer, not a crash: running the task again
would find the same, so the epoch decides. Everything else is raised and the task is retried.

The reading half leaves a report when its last row was taken; the writing half, which runs in
the same try of the task, waits for it. Without a report nobody knows what was read, and the try
fails.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.arrow.types import arrow_schema
from penstock.crashpoints import CrashPoint, reached
from penstock.epochs.output import (
    Rejects,
    Stage,
    TaskOutput,
    TaskPlan,
    kept_rejects,
    strict_rejects,
)
from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.model.codec import from_data, from_text, to_text
from penstock.model.epoch import Ack, DataFile
from penstock.model.split import Note
from penstock.model.text import some_names
from penstock.sources.registry import source_kind
from penstock.sources.source import Place, RowBlock, TaskReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a task could not load its part; trying the same task again would not help."""

    kind: str
    code: Code
    message: str
    detail: str
    hint: str
    # How often a bucket was asked in vain.
    requests: int = 0


TaskResult = Ack | Refusal


def refused(error: PenstockError, *, requests: int = 0) -> Refusal:
    """Write an error down as a task's answer."""
    return Refusal(
        kind="user" if isinstance(error, UserError) else "external",
        code=error.code,
        message=error.message,
        detail=error.detail,
        hint=error.hint,
        requests=requests,
    )


def requests_of(result: TaskResult) -> int:
    """Count the requests that a task has sent to the source."""
    if isinstance(result, Refusal):
        return result.requests
    return sum(note.counts.requests for note in result.notes)


def error_of(refusal: Refusal) -> PenstockError:
    """Turn a task's answer back into the error it stands for."""
    kind = UserError if refusal.kind == "user" else ExternalError
    return kind(refusal.message, code=refusal.code, detail=refusal.detail, hint=refusal.hint)


def result_of(text: str) -> TaskResult:
    """Read a task's answer."""
    data = json.loads(text)
    kind: type[Ack] | type[Refusal] = Refusal if data["is"] == "Refusal" else Ack
    return from_data(kind, data)


def run_task_text(text: str, try_id: str) -> str:
    """Do the work of a task given as text, and answer with text."""
    return to_text(run_task(from_text(TaskPlan, text), try_id=try_id))


def run_task(plan: TaskPlan, *, try_id: str) -> TaskResult:
    """Load the task's part into Parquet files that nobody can see yet."""
    output = TaskOutput(plan, try_id=try_id)
    reader = open_reader(plan)
    try:
        for block in reader.blocks():
            keep_bad_rows(block, output.rejects)
            if block.batch.num_rows:
                output.write(block.batch, place_of=block.place)
        ack = output.close(tuple(reader.notes))
    except (UserError, ExternalError) as error:
        output.abort()
        return refused(error, requests=reader.requests)
    except BaseException:
        output.abort()
        raise
    finally:
        reader.close()
    reached(CrashPoint.TASK_WRITTEN)
    return ack


def open_reader(plan: TaskPlan) -> TaskReader:
    """Open what a task reads, by the kind of its source."""
    return source_kind(plan.read.source.kind).reader(plan.read)


def keep_bad_rows(block: RowBlock, rejects: Rejects) -> None:
    """Hand over the records that gave no row."""
    for bad in block.bad:
        rejects.add(stage=Stage.READER, place=bad.place, error=bad.error, raw=bad.raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReport:
    """What the reading half tells the writing half."""

    notes: tuple[Note, ...] = ()
    reject_files: tuple[DataFile, ...] = ()
    first_reject: str = ""
    refusal: Refusal | None = None


def read_half(text: str, try_id: str, leave: Callable[[str], None]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task's share in the columns that the SELECT sees."""
    plan = from_text(TaskPlan, text)
    kept = kept_rejects(plan, f"{plan.file_name(try_id)}-r")
    rejects: Rejects = kept or strict_rejects(plan)
    reader = open_reader(plan)
    schema = arrow_schema(plan.view_columns)
    try:
        for block in reader.blocks():
            keep_bad_rows(block, rejects)
            if block.batch.num_rows:
                yield _padded(block.batch, schema)
    except (UserError, ExternalError) as error:
        if kept is not None:
            kept.abort()
        # The rows that are on their way are thrown away with the refusal.
        refusal = refused(error, requests=reader.requests)
        leave(to_text(ReadReport(refusal=refusal)))
        return
    except BaseException:
        if kept is not None:
            kept.abort()
        raise
    finally:
        reader.close()
    leave(
        to_text(
            ReadReport(
                notes=tuple(reader.notes),
                reject_files=kept.close() if kept else (),
                first_reject=kept.first if kept else "",
            )
        )
    )


def write_half(
    text: str, try_id: str, batches: Iterator[pa.RecordBatch], report: Callable[[], str]
) -> str:
    """Write what the SELECT gives of a task's share, and answer its result."""
    plan = from_text(TaskPlan, text)
    output = TaskOutput(plan, try_id=try_id)
    place = _place_of(plan)
    try:
        for batch in batches:
            output.write(batch, place_of=lambda _: place)
        left = from_text(ReadReport, report())
        if left.refusal is not None:
            output.abort()
            return to_text(left.refusal)
        ack = output.close(left.notes)
    except (UserError, ExternalError) as error:
        output.abort()
        return to_text(refused(error))
    except BaseException:
        output.abort()
        raise
    reached(CrashPoint.TASK_WRITTEN)
    return to_text(
        replace(
            ack,
            reject_files=left.reject_files + ack.reject_files,
            first_reject=left.first_reject or ack.first_reject,
        )
    )


def _padded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Give a batch all columns of the view; columns that the SELECT does not need are NULL."""
    names = set(batch.schema.names)
    columns = [
        batch.column(field.name)
        if field.name in names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _place_of(plan: TaskPlan) -> Place:
    """Name everything that a task reads; Spark does not keep which part a row came from."""
    names = some_names([read.shown for read in plan.read.reads])
    return (names, *(None for _ in plan.place_columns[1:]))
