"""What a task is told."""

from dataclasses import dataclass

from penstock.model.epoch import FileRead
from penstock.model.formats import Payload
from penstock.model.job import TargetColumn
from penstock.model.schema import Column
from penstock.model.secrets import Sealed
from penstock.model.split import ShardRead
from penstock.sources.files.options import FilesOptions
from penstock.sources.kinesis.options import KinesisOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """Everything a task needs to know; it reaches the task by file."""

    task: int
    attempt_id: str
    number: int
    epoch: int
    table_root: str
    rejects_root: str
    # How the task reaches the tables, and the source.
    table_access: Sealed
    source_access: Sealed
    strict: bool
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    targets: tuple[TargetColumn, ...]
    source: FilesOptions | KinesisOptions
    # How the records of a stream become rows.
    payload: Payload | None
    source_columns: tuple[Column, ...]
    needed: tuple[str, ...]
    # What a SELECT that Spark runs sees of the source; empty if there is none.
    view_columns: tuple[Column, ...]
    # How the outputs of such a SELECT are called, in their order.
    output_names: tuple[str, ...]
    reads: tuple[FileRead, ...] = ()
    shards: tuple[ShardRead, ...] = ()

    def file_name(self, try_id: str) -> str:
        """Answer what the files of one try of the task are called by."""
        return f"{self.attempt_id}-{self.task:05d}-{try_id}"
