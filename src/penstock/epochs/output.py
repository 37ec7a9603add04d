"""Write the rows of a task: fitting rows to Parquet, the others to rejects."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Protocol

import pyarrow as pa

from penstock.arrow.types import arrow_schema
from penstock.epochs.task_plan import TaskPlan
from penstock.errors import Code, UserError
from penstock.model.epoch import Ack, DataFile, Note
from penstock.tables.fitting import sort_out
from penstock.tables.folder import TableFolder, open_sealed_folder
from penstock.tables.rejects import REJECT_COLUMNS
from penstock.tables.writer import TableWriter

_BATCH_ROWS = 1_000
_BATCH_BYTES = 16 * 2**20


class Stage(StrEnum):
    """Which half of a task did not want the row."""

    READER = "reader"
    WRITER = "writer"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlace:
    """Where a row came from: a line of a file, or a record of a shard, as far as is known."""

    file: str | None = None
    line: int | None = None
    shard: str | None = None
    sequence: str | None = None

    def __str__(self) -> str:
        if self.file is not None:
            return f'file "{self.file}"' + _told(", line", self.line)
        return f"shard {self.shard}" + _told(", record", self.sequence)


def _told(what: str, value: object) -> str:
    return "" if value is None else f"{what} {value}"


class Rejects(Protocol):
    """Where a task puts the rows that it cannot load."""

    def add(self, *, stage: Stage, place: RowPlace, error: str, raw: bytes) -> None:
        """Take a row; what is strict raises instead."""
        ...


class StrictRejects:
    """Lets no bad row pass: the first one ends the epoch."""

    def add(self, *, stage: Stage, place: RowPlace, error: str, raw: bytes) -> None:  # noqa: ARG002 - Part of the protocol.
        """Refuse the row's epoch."""
        raise UserError(
            f"{place}: {error}",
            code=Code.TOO_MANY_FAILURE_ROWS_ERR,
            detail="The epoch was not committed; nothing of it is in the table.",
            hint=(
                "Mend or remove the file, then RESUME the job; or set "
                '"session.enable_insert_strict" = "false" to keep such rows apart.'
            ),
        )


class KeptRejects:
    """Writes rejected rows into Parquet files that nobody can see yet."""

    def __init__(self, folder: TableFolder, name: str, *, number: int, epoch: int) -> None:
        self._folder = folder
        self._writer = TableWriter(folder, REJECT_COLUMNS, name)
        self._number = number
        self._epoch = epoch
        self._waiting: list[dict[str, Any]] = []
        self._waiting_bytes = 0
        self.first = ""

    def add(self, *, stage: Stage, place: RowPlace, error: str, raw: bytes) -> None:
        """Keep the row."""
        # An error may quote half a surrogate pair, which no text can hold.
        error = error.encode("utf-8", "backslashreplace").decode()
        self.first = self.first or f"{place}: {error}"
        self._waiting.append(
            {
                "commit_number": self._number,
                "epoch": self._epoch,
                "stage": str(stage),
                **asdict(place),
                "error": error,
                "raw": raw,
            }
        )
        self._waiting_bytes += len(raw)
        if len(self._waiting) >= _BATCH_ROWS or self._waiting_bytes >= _BATCH_BYTES:
            self._flush()

    def close(self) -> tuple[DataFile, ...]:
        """Finish the files and answer them; none if no row was rejected."""
        self._flush()
        return self._writer.close()

    def abort(self) -> None:
        """Remove everything that was written."""
        self._writer.abort()

    def _flush(self) -> None:
        if not self._waiting:
            return
        self._folder.store.make_folder(self._folder.root)
        batch = pa.RecordBatch.from_pylist(self._waiting, schema=arrow_schema(REJECT_COLUMNS))
        self._waiting.clear()
        self._waiting_bytes = 0
        self._writer.write(batch)


def kept_rejects(plan: TaskPlan, name: str) -> KeptRejects | None:
    """Answer where a task keeps its rejects; None if the first one ends the epoch."""
    if plan.strict:
        return None
    folder = open_sealed_folder(plan.rejects_root, plan.table_access)
    return KeptRejects(folder, name, number=plan.number, epoch=plan.epoch)


def row_text(batch: pa.RecordBatch, row: int, *, names: tuple[str, ...] = ()) -> bytes:
    """Write a row as JSON, which is what is kept of it when it does not fit."""
    columns = batch.slice(row, 1).columns
    keys = names or tuple(batch.schema.names)
    values = {key: column[0].as_py() for key, column in zip(keys, columns, strict=True)}
    return json.dumps(values, ensure_ascii=False, default=_text).encode(
        "utf-8", "backslashreplace"
    )


def _text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


PlaceOf = Callable[[int], RowPlace]


class TaskOutput:
    """The files of one try of a task; nobody can see them yet."""

    def __init__(self, plan: TaskPlan, *, try_id: str) -> None:
        self._plan = plan
        name = plan.file_name(try_id)
        folder = open_sealed_folder(plan.table_root, plan.table_access)
        self._writer = TableWriter(folder, plan.columns, name, partition_by=plan.partition_by)
        self._kept = kept_rejects(plan, name)
        self.rejects: Rejects = self._kept or StrictRejects()
        self._produced = 0
        self._misfit = 0

    def write(self, batch: pa.RecordBatch, *, place_of: PlaceOf) -> None:
        """Take rows of the source, or of the SELECT."""
        self._produced += batch.num_rows
        sorted_out = sort_out(
            batch,
            targets=self._plan.targets,
            columns=self._plan.columns,
            partition_by=self._plan.partition_by,
        )
        for misfit in sorted_out.misfits:
            self._misfit += 1
            self.rejects.add(
                stage=Stage.WRITER,
                place=place_of(misfit.row),
                error=str(misfit),
                raw=row_text(batch, misfit.row, names=self._plan.output_names),
            )
        for fitting in sorted_out.fitting:
            self._writer.write(fitting)

    def close(self, notes: tuple[Note, ...]) -> Ack:
        """Finish the files and answer the task's ack."""
        return Ack(
            task=self._plan.task,
            files=self._writer.close(),
            notes=notes,
            rows_produced=self._produced,
            rows_misfit=self._misfit,
            reject_files=self._kept.close() if self._kept else (),
            first_reject=self._kept.first if self._kept else "",
        )

    def abort(self) -> None:
        """Remove everything that was written."""
        self._writer.abort()
        if self._kept:
            self._kept.abort()
