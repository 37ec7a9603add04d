"""Write the rows of a task: rows that fit the table to data files, the others to rejects."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from penstock.arrow.json_text import json_objects
from penstock.arrow.types import arrow_schema
from penstock.errors import Code, UserError
from penstock.model.epoch import Ack, DataFile
from penstock.model.job import TargetColumn
from penstock.model.schema import Column
from penstock.model.secrets import Sealed
from penstock.model.split import Note
from penstock.sources.registry import source_kind
from penstock.sources.source import Place, ReadTask
from penstock.tables.fitting import separate_misfits
from penstock.tables.folder import open_sealed_folder
from penstock.tables.rejects import reject_columns
from penstock.tables.writer import TableWriter

_BATCH_ROWS = 1_000
_BATCH_BYTES = 16 * 2**20


class Stage(StrEnum):
    """The half of a task that rejected a row."""

    READER = "reader"
    WRITER = "writer"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """The complete input of a task, sent with the Spark job."""

    task: int
    attempt_id: str
    number: int
    epoch: int
    table_root: str
    rejects_root: str
    # Sealed options with which the task opens the files of the tables.
    table_access: Sealed
    strict: bool
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    targets: tuple[TargetColumn, ...]
    place_columns: tuple[Column, ...]
    # The source columns that a SELECT in Spark reads; empty without such a SELECT.
    view_columns: tuple[Column, ...]
    # The output names of the SELECT in Spark, in order.
    output_names: tuple[str, ...]
    read: ReadTask
    # The folder of the table for files that are merged into it; empty for data files.
    staged_below: str = ""

    def file_name(self, try_id: str) -> str:
        """Return the name that the files of one task attempt have in common."""
        return f"{self.attempt_id}-{self.task:05d}-{try_id}"


class Rejects:
    """Writes the rejected rows of a task to Parquet files, which no commit contains yet.

    A strict task raises UserError at its first bad row instead, which fails the epoch.
    """

    def __init__(self, plan: TaskPlan, name: str) -> None:
        self._plan = plan
        self._columns = reject_columns(plan.place_columns)
        self._text = source_kind(plan.read.source.kind).place_text
        self._waiting: list[dict[str, Any]] = []
        self._waiting_bytes = 0
        self.first = ""
        if not plan.strict:
            self._folder = open_sealed_folder(plan.rejects_root, plan.table_access)
            self._writer = TableWriter(self._folder, self._columns, name)

    def add(self, *, stage: Stage, place: Place, error: str, raw: bytes) -> None:
        """Store the row, or raise UserError if the task is strict."""
        plan = self._plan
        if plan.strict:
            raise UserError(
                f"{self._text(place)}: {error}",
                code=Code.TOO_MANY_FAILURE_ROWS_ERR,
                detail="The epoch was not committed; none of its rows are in the table.",
                hint=(
                    "Fix or remove the file, then RESUME the job. To store such rows in "
                    'rejects(…), set "session.enable_insert_strict" = "false".'
                ),
            )
        # An error may quote half of a surrogate pair, which UTF-8 cannot encode.
        error = error.encode("utf-8", "backslashreplace").decode()
        self.first = self.first or f"{self._text(place)}: {error}"
        names = (column.name for column in plan.place_columns)
        self._waiting.append(
            {
                "commit_number": plan.number,
                "epoch": plan.epoch,
                "stage": str(stage),
                **dict(zip(names, place, strict=True)),
                "error": error,
                "raw": raw,
            }
        )
        self._waiting_bytes += len(raw)
        if len(self._waiting) >= _BATCH_ROWS or self._waiting_bytes >= _BATCH_BYTES:
            self._flush()

    def close(self) -> tuple[DataFile, ...]:
        """Complete the files and return them; empty if no row was rejected."""
        if self._plan.strict:
            return ()
        self._flush()
        return self._writer.close()

    def abort(self) -> None:
        """Delete all written files."""
        if not self._plan.strict:
            self._writer.abort()

    def _flush(self) -> None:
        if not self._waiting:
            return
        self._folder.store.create_folder(self._folder.root)
        batch = pa.RecordBatch.from_pylist(self._waiting, schema=arrow_schema(self._columns))
        self._waiting.clear()
        self._waiting_bytes = 0
        self._writer.write(batch)


def row_text(batch: pa.RecordBatch, row: int, *, names: tuple[str, ...] = ()) -> bytes:
    """Write a rejected row as JSON."""
    rows = batch.slice(row, 1)
    (text,) = json_objects(rows.rename_columns(list(names)) if names else rows, printed=True)
    return (text or "").encode()


PlaceOf = Callable[[int], Place]


class TaskOutput:
    """The files of one task attempt, invisible until the epoch is committed."""

    def __init__(self, plan: TaskPlan, *, try_id: str) -> None:
        self._plan = plan
        name = plan.file_name(try_id)
        folder = open_sealed_folder(plan.table_root, plan.table_access)
        self._writer = TableWriter(
            folder,
            plan.columns,
            name,
            partition_by=() if plan.staged_below else plan.partition_by,
            below=plan.staged_below,
        )
        self.rejects = Rejects(plan, name)
        self._produced = 0
        self._misfit = 0

    def write(self, batch: pa.RecordBatch, *, place_of: PlaceOf) -> None:
        """Write rows of the source or of the SELECT; rows that do not fit go to the rejects."""
        self._produced += batch.num_rows
        fitting, misfits = separate_misfits(
            batch,
            targets=self._plan.targets,
            columns=self._plan.columns,
            partition_by=self._plan.partition_by,
        )
        for misfit in misfits:
            self._misfit += 1
            self.rejects.add(
                stage=Stage.WRITER,
                place=place_of(misfit.row),
                error=str(misfit),
                raw=row_text(batch, misfit.row, names=self._plan.output_names),
            )
        for part in fitting:
            self._writer.write(part)

    def close(self, notes: tuple[Note, ...]) -> Ack:
        """Complete the files and return the task's ack."""
        return Ack(
            task=self._plan.task,
            files=self._writer.close(),
            notes=notes,
            rows_produced=self._produced,
            rows_misfit=self._misfit,
            reject_files=self.rejects.close(),
            first_reject=self.rejects.first,
        )

    def abort(self) -> None:
        """Delete all written files."""
        self._writer.abort()
        self.rejects.abort()
