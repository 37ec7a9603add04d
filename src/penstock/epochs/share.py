"""A task's share of an epoch: rows with where they came from, and a note for each part."""

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from penstock.epochs.output import Rejects, RowPlace
from penstock.epochs.task_plan import TaskPlan
from penstock.model.epoch import Note
from penstock.sources.files.options import FilesOptions
from penstock.sources.kinesis.options import KinesisOptions


class Arrived(Protocol):
    """Some rows, and where they came from."""

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows, in the columns that are needed."""
        ...

    def place_of(self, row: int) -> RowPlace:
        """Answer where a row came from."""
        ...


class ShareReader(Protocol):
    """Reads the parts of one task."""

    notes: list[Note]

    def blocks(self) -> Iterator[Arrived]:
        """Yield the rows of all parts; the notes are complete once the last one was taken."""
        ...

    @property
    def requests(self) -> int:
        """How often the source was asked so far."""
        ...


def open_share(plan: TaskPlan, rejects: Rejects) -> ShareReader:
    """Open what a task reads, by the kind of its source."""
    match plan.source:
        case FilesOptions():
            from penstock.epochs.file_share import FileShare

            return FileShare(plan, plan.source, rejects)
        case KinesisOptions():
            from penstock.epochs.shard_share import ShardShare

            return ShardShare(plan, plan.source, rejects)
