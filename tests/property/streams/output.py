"""Output of a task in memory instead of Parquet files."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock.epochs.output import Stage, TaskPlan
from penstock.model.epoch import Ack, DataFile
from penstock.model.split import Note
from penstock.sources.source import Place
from penstock.tables.fitting import separate_misfits
from penstock.testing.memory_tables import MemoryTables

_MODIFIED_AT = datetime(2026, 1, 1, tzinfo=UTC)


class MemoryOutput:
    """Files of one attempt of a task; ``closing`` may raise to simulate a failure."""

    def __init__(
        self,
        plan: TaskPlan,
        *,
        try_id: str,
        tables: MemoryTables,
        closing: Callable[[], None],
    ) -> None:
        self._plan = plan
        self._name = plan.file_name(try_id)
        self._tables = tables
        self._closing = closing
        self._rows: list[dict[str, Any]] = []
        self._produced = 0
        self._rejected: list[dict[str, Any]] = []
        self.rejects = self

    def add(self, *, stage: Stage, place: Place, error: str, raw: bytes) -> None:
        self._rejected.append({"stage": stage, "place": place, "error": error, "raw": raw})

    def write(self, batch: pa.RecordBatch, *, place_of: Callable[[int], Place]) -> None:
        del place_of
        self._produced += batch.num_rows
        fitting, misfits = separate_misfits(
            batch, targets=self._plan.targets, columns=self._plan.columns, partition_by=()
        )
        assert not misfits
        for part in fitting:
            self._rows += part.to_pylist()

    def close(self, notes: tuple[Note, ...]) -> Ack:
        self._closing()
        return Ack(
            task=self._plan.task,
            files=self._file(self._name, self._rows),
            notes=notes,
            rows_produced=self._produced,
            rows_misfit=0,
            reject_files=self._file(f"{self._name}-r", self._rejected),
            first_reject="a record" if self._rejected else "",
        )

    def abort(self) -> None:
        self._rows.clear()

    def _file(self, path: str, rows: list[dict[str, Any]]) -> tuple[DataFile, ...]:
        if not rows:
            return ()
        self._tables.register_rows(path, rows)
        return (
            DataFile(
                path=path,
                size_bytes=len(rows),
                rows=len(rows),
                modified_at=_MODIFIED_AT,
                statistics_json="{}",
            ),
        )
