"""What one task does: read its parts, fit every row to the table, write Parquet.

It runs inside a Spark task, or in the test process, from the plan alone. A mistake in the data
or a file that is no longer the one listed is an answer, not a crash: running the task again
would find the same, so the epoch decides. Everything else is raised and the task is retried.
"""

import json
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path

import pyarrow as pa

from penstock.crashpoints import CrashPoint, reached
from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.model.codec import from_data, from_text, to_text
from penstock.model.epoch import Ack, Note, SplitRead
from penstock.model.job import TargetColumn
from penstock.model.schema import Column
from penstock.sources.formats.blocks import RecordBlock
from penstock.sources.formats.json_lines import read_json_lines
from penstock.sources.formats.lines import count_lines_before
from penstock.storage.arrow_types import arrow_schema
from penstock.storage.stores import Store, open_store
from penstock.tables.fitting import RowError, fit
from penstock.tables.writer import TableWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """Everything a task needs to know; it reaches the task by file."""

    task: int
    attempt_id: str
    uri: str
    table_root: str
    columns: tuple[Column, ...]
    targets: tuple[TargetColumn, ...]
    source_columns: tuple[Column, ...]
    reads: tuple[SplitRead, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a task could not load its part; trying the same task again would not help."""

    kind: str
    code: Code
    message: str
    detail: str
    hint: str


TaskResult = Ack | Refusal


def refused(error: PenstockError) -> Refusal:
    """Write an error down as a task's answer."""
    return Refusal(
        kind="user" if isinstance(error, UserError) else "external",
        code=error.code,
        message=error.message,
        detail=error.detail,
        hint=error.hint,
    )


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
    store, _ = open_store(plan.uri)
    name = f"{plan.attempt_id}-{plan.task:05d}-{try_id}"
    writer = TableWriter(Path(plan.table_root), plan.columns, name)
    try:
        notes = tuple(_load(read, plan=plan, store=store, writer=writer) for read in plan.reads)
        files = writer.close()
    except (UserError, ExternalError) as error:
        writer.abort()
        return refused(error)
    except BaseException:
        writer.abort()
        raise
    reached(CrashPoint.TASK_WRITTEN)
    return Ack(task=plan.task, files=files, notes=notes)


def _load(read: SplitRead, *, plan: TaskPlan, store: Store, writer: TableWriter) -> Note:
    schema = _needed_schema(plan)
    rows = skipped = 0
    with store.open(read.file.key, etag=read.file.etag) as stream:
        for block in read_json_lines(stream, schema=schema, start=read.start, end=read.end):
            if block.bad:
                raise _bad_row(stream, read, line=block.bad[0].line, reason=block.bad[0].error)
            writer.write(_fitted(block, read=read, plan=plan, stream=stream))
            rows += block.lines
            skipped += block.blank
    return Note(
        key=read.file.key,
        etag=read.file.etag,
        start=read.start,
        end=read.end,
        rows_read=rows,
        rows_skipped=skipped,
    )


def _needed_schema(plan: TaskPlan) -> pa.Schema:
    needed = {target.path[0] for target in plan.targets if target.path}
    return arrow_schema(tuple(c for c in plan.source_columns if c.name in needed))


def _fitted(
    block: RecordBlock, *, read: SplitRead, plan: TaskPlan, stream: BufferedIOBase
) -> pa.RecordBatch:
    try:
        return fit(block.batch, targets=plan.targets, columns=plan.columns)
    except RowError as error:
        line = block.first_line + block.line_of(error.row)
        raise _bad_row(stream, read, line=line, reason=str(error)) from error


def _bad_row(stream: BufferedIOBase, read: SplitRead, *, line: int, reason: str) -> UserError:
    # The lines of a range are counted from its first own line, which begins behind the first
    # line end at or after the byte before the range.
    earlier = count_lines_before(stream, read.start - 1) + 1 if read.start else 0
    return UserError(
        f'file "{read.file.key}", line {earlier + line + 1}: {reason}',
        code=Code.TOO_MANY_FAILURE_ROWS_ERR,
        detail="The epoch was not committed; nothing of it is in the table.",
        hint="Mend or remove the file, then RESUME the job.",
    )
