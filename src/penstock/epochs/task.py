"""Run one task: read its splits, fit every row to the table, write Parquet.

It runs inside a Spark task, or in the test process, from the plan alone. A mistake in the data
or a file that is no longer the one listed is an answer, not a crash: running the task again
would find the same, so the epoch decides. Everything else is raised and the task is retried.

The reading half leaves a report when its last row was taken; the writing half, which runs in
the same try of the task, waits for it. Without a report nobody knows what was read, and the try
fails.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.arrow.types import arrow_schema
from penstock.crashpoints import CrashPoint, reached
from penstock.epochs.output import Rejects, RowPlace, StrictRejects, TaskOutput, kept_rejects
from penstock.epochs.share import open_share
from penstock.epochs.task_plan import TaskPlan
from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.model.codec import from_data, from_text, to_text
from penstock.model.epoch import Ack, DataFile, Note


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
    return sum(note.requests for note in result.notes)


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
    reader = open_share(plan, output.rejects)
    try:
        for arrived in reader.blocks():
            output.write(arrived.batch, place_of=arrived.place_of)
        ack = output.close(tuple(reader.notes))
    except (UserError, ExternalError) as error:
        output.abort()
        return refused(error, requests=reader.requests)
    except BaseException:
        output.abort()
        raise
    reached(CrashPoint.TASK_WRITTEN)
    return ack


_NAMES_SHOWN_MAX = 3


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
    rejects: Rejects = kept or StrictRejects()
    reader = open_share(plan, rejects)
    schema = arrow_schema(plan.view_columns)
    try:
        for arrived in reader.blocks():
            yield _padded(arrived.batch, schema)
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
    """Give a batch all columns of the view; those that nobody looks at are NULL."""
    names = set(batch.schema.names)
    columns = [
        batch.column(field.name)
        if field.name in names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _place_of(plan: TaskPlan) -> RowPlace:
    """Name what a share is made of; which part of it a row came from is not known any more."""
    if plan.shards:
        return RowPlace(shard=_some([read.shard.id for read in plan.shards]))
    return RowPlace(file=_some([read.file.key for read in plan.reads]))


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN_MAX
    return ", ".join(names[:_NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
