"""Write what a task produced: rows that fit become Parquet, the others are rejected."""

from collections.abc import Callable

import pyarrow as pa

from penstock.engine.rejects import (
    Rejects,
    RowPlace,
    Stage,
    StrictRejects,
    kept_rejects,
    row_text,
)
from penstock.engine.task_plan import TaskPlan
from penstock.model.epoch import Ack, Note
from penstock.tables.folder import open_sealed_folder
from penstock.tables.misfits import sort_out
from penstock.tables.writer import TableWriter

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
