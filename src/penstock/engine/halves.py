"""The two halves of a task when Spark stands between them: one reads, the other writes.

The reading half leaves a report when its last row was taken; the writing half, which runs in
the same try of the task, waits for it. Without a report nobody knows what was read, and the try
fails.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.crashpoints import CrashPoint, reached
from penstock.engine.output import TaskOutput
from penstock.engine.rejects import Rejects, RowPlace, StrictRejects, kept_rejects
from penstock.engine.share import open_share
from penstock.engine.task import Refusal, refused
from penstock.engine.task_plan import TaskPlan
from penstock.errors import ExternalError, UserError
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import DataFile, Note
from penstock.storage.arrow_types import arrow_schema

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
