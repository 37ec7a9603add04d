"""Run one task: read its splits, fit every row to the table, write Parquet.

The code runs inside a Spark task or inside the test process. The only input is the task plan.

Bad data, or a file that differs from the listing, is a result of the task and not a failure. A
retry would find the same data. The driver handles such an error. Every other error is raised,
and Spark retries the task.

If the job has a SELECT, a task has two halves with the SELECT between them. The reading half
stores a report after its last row. The writing half of the same attempt then reads that report.
Without a report it is unknown which rows were read, and the attempt fails.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.arrow.types import arrow_schema
from penstock.crashpoints import CrashPoint, reached
from penstock.epochs.output import Rejects, Stage, TaskOutput, TaskPlan
from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.model.codec import from_data, from_text, to_text
from penstock.model.epoch import Ack, DataFile
from penstock.model.split import Note
from penstock.model.text import format_names
from penstock.sources.registry import source_kind
from penstock.sources.source import Place, RowBlock, TaskReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The reason why a task cannot load its share; a retry of the task would not help."""

    kind: str
    code: Code
    message: str
    detail: str
    hint: str
    # Requests that the task sent to the source.
    requests: int = 0

    @property
    def error(self) -> PenstockError:
        """The error of the task, to be raised in the driver."""
        kind = UserError if self.kind == "user" else ExternalError
        return kind(self.message, code=self.code, detail=self.detail, hint=self.hint)


TaskResult = Ack | Refusal


def as_refusal(error: PenstockError, *, requests: int = 0) -> Refusal:
    """Convert an error to the result of a task."""
    return Refusal(
        kind="user" if isinstance(error, UserError) else "external",
        code=error.code,
        message=error.message,
        detail=error.detail,
        hint=error.hint,
        requests=requests,
    )


def requests_of(result: TaskResult) -> int:
    """Return the number of requests that a task sent to the source."""
    if isinstance(result, Refusal):
        return result.requests
    return sum(note.counts.requests for note in result.notes)


def result_of(text: str) -> TaskResult:
    """Parse the result of a task."""
    data = json.loads(text)
    kind: type[Ack] | type[Refusal] = Refusal if data["is"] == "Refusal" else Ack
    return from_data(kind, data)


@contextmanager
def aborted_on_error(output: TaskOutput | Rejects) -> Iterator[None]:
    """Delete the written files if the block fails."""
    try:
        yield
    except BaseException:
        output.abort()
        raise


def run_task_text(text: str, try_id: str) -> str:
    """Read and write all rows of a task, without a SELECT; return the task's result."""
    plan = from_text(TaskPlan, text)
    output = TaskOutput(plan, try_id=try_id)
    reader = open_reader(plan)
    try:
        with closing(reader), aborted_on_error(output):
            for block in reader.blocks():
                _store_bad_rows(block, output.rejects)
                if block.batch.num_rows:
                    output.write(block.batch, place_of=block.place)
            ack = output.close(tuple(reader.notes))
    except (UserError, ExternalError) as error:
        return to_text(as_refusal(error, requests=reader.requests))
    reached(CrashPoint.TASK_WRITTEN)
    return to_text(ack)


def open_reader(plan: TaskPlan) -> TaskReader:
    """Open the source of a task for reading."""
    return source_kind(plan.read.source.kind).reader(plan.read)


def _store_bad_rows(block: RowBlock, rejects: Rejects) -> None:
    for bad in block.bad:
        rejects.add(stage=Stage.READER, place=bad.place, error=bad.error, raw=bad.raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReport:
    """The report of a task's reading half to its writing half."""

    notes: tuple[Note, ...] = ()
    reject_files: tuple[DataFile, ...] = ()
    first_reject: str = ""
    refusal: Refusal | None = None


def read_half(
    text: str, try_id: str, store_report: Callable[[str], None]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task's share, in the columns that the SELECT reads."""
    plan = from_text(TaskPlan, text)
    rejects = Rejects(plan, f"{plan.file_name(try_id)}-r")
    reader = open_reader(plan)
    schema = arrow_schema(plan.view_columns)
    try:
        with closing(reader), aborted_on_error(rejects):
            for block in reader.blocks():
                _store_bad_rows(block, rejects)
                if block.batch.num_rows:
                    yield padded(block.batch, schema)
    except (UserError, ExternalError) as error:
        # The writing half discards the rows that were yielded so far.
        refusal = as_refusal(error, requests=reader.requests)
        store_report(to_text(ReadReport(refusal=refusal)))
        return
    report = ReadReport(
        notes=tuple(reader.notes), reject_files=rejects.close(), first_reject=rejects.first
    )
    store_report(to_text(report))


def write_half(
    text: str, try_id: str, batches: Iterator[pa.RecordBatch], report: Callable[[], str]
) -> str:
    """Write the rows that the SELECT returns for a task's share; return the task's result."""
    plan = from_text(TaskPlan, text)
    output = TaskOutput(plan, try_id=try_id)
    # Spark does not track the origin of a row, so the place names all reads of the task.
    names = format_names([read.shown for read in plan.read.reads])
    place: Place = (names, *(None for _ in plan.place_columns[1:]))
    try:
        with aborted_on_error(output):
            for batch in batches:
                output.write(batch, place_of=lambda _: place)
            read = from_text(ReadReport, report())
            if read.refusal is not None:
                output.abort()
                return to_text(read.refusal)
            ack = output.close(read.notes)
    except (UserError, ExternalError) as error:
        return to_text(as_refusal(error))
    reached(CrashPoint.TASK_WRITTEN)
    return to_text(
        replace(
            ack,
            reject_files=read.reject_files + ack.reject_files,
            first_reject=read.first_reject or ack.first_reject,
        )
    )


def padded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Add the missing columns of the view, as NULL; the SELECT does not need them."""
    names = set(batch.schema.names)
    columns = [
        batch.column(field.name)
        if field.name in names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
