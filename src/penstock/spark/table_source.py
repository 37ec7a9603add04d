"""A Spark data source for a table's snapshot, read without the table's log.

Spark plans a scan in a Python process of the driver. This process reads the snapshot from a
folder. The input partitions contain the list of files, so executors never open that folder.

The columns that the SELECT uses are known only after planning. So the names of these columns
are sent as a local property of the Spark job. All other columns are read as NULL.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as pushed
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.model.codec import from_text, to_text
from penstock.spark.worker import freeze_once, local_property
from penstock.tables.folder import open_sealed_folder
from penstock.tables.pruning import Comparison, Condition, Pruning
from penstock.tables.scan import TableScan, read_file
from penstock.tables.table import SnapshotFile

FORMAT = "penstock"
FOLDER = "folder"
TASKS = "tasks"

# Local property of a Spark job: the names of the needed columns by folder, as JSON.
NEEDED = "penstock.needed"

_SNAPSHOT = "snapshot.json"
_COMPARISON_BY_FILTER: dict[type[pushed.Filter], Comparison] = {
    pushed.EqualTo: Comparison.EQUAL,
    pushed.EqualNullSafe: Comparison.EQUAL,
    pushed.In: Comparison.EQUAL,
    pushed.LessThan: Comparison.LESS,
    pushed.LessThanOrEqual: Comparison.LESS_OR_EQUAL,
    pushed.GreaterThan: Comparison.GREATER,
    pushed.GreaterThanOrEqual: Comparison.GREATER_OR_EQUAL,
    pushed.IsNull: Comparison.NULL,
    pushed.IsNotNull: Comparison.NULL,
    pushed.StringStartsWith: Comparison.PREFIX,
}


def write_snapshot(folder: Path, scan: TableScan) -> None:
    """Write a snapshot to the folder from which Spark's planning reads it."""
    folder.mkdir(parents=True)
    (folder / _SNAPSHOT).write_text(to_text(scan), "utf-8")


class TableSource(DataSource):
    """The data source that is registered in Spark under its format name."""

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return FORMAT

    def reader(self, schema: StructType) -> "TableReader":
        """Return a reader of the snapshot in the folder."""
        del schema
        return TableReader(self.options[FOLDER], tasks=int(self.options[TASKS]))


@dataclass(frozen=True)
class FileGroup(InputPartition):
    """The input of one task: the snapshot with some of its files."""

    scan: TableScan


class TableReader(DataSourceReader):
    """A reader of the files of a snapshot; skips files that cannot have a matching row."""

    def __init__(self, folder: str, *, tasks: int) -> None:
        self._folder = folder
        self._tasks = tasks
        self._conditions: tuple[Condition, ...] = ()

    def pushFilters(self, filters: list[pushed.Filter]) -> Iterable[pushed.Filter]:  # noqa: N802
        """Store the conditions for pruning; Spark still checks every row."""
        self._conditions = conditions_of(filters)
        return filters

    def partitions(self) -> list[FileGroup]:
        """Return the files to read, in groups of about the same size."""
        scan = from_text(TableScan, (Path(self._folder) / _SNAPSHOT).read_text("utf-8"))
        kept = self._pruning(scan).files(scan.files)
        return [
            FileGroup(replace(scan, files=tuple(kept[at] for at in group)))
            for group in group_files(kept, tasks=self._tasks)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the files of one task."""
        if isinstance(partition, FileGroup):
            needed = json.loads(local_property(NEEDED) or "{}").get(self._folder)
            pruning = self._pruning(partition.scan)
            yield from read_scan(partition.scan, needed=needed, pruning=pruning)
        freeze_once()

    def _pruning(self, scan: TableScan) -> Pruning:
        return Pruning(conditions=self._conditions, columns=scan.columns)


def read_scan(
    scan: TableScan, *, needed: Sequence[str] | None, pruning: Pruning
) -> Iterator[pa.RecordBatch]:
    """Read the files of a scan; columns that are not ``needed`` are NULL.

    If ``needed`` is None, all columns are read.
    """
    folder = open_sealed_folder(scan.location, scan.access)
    for file in scan.files:
        yield from read_file(folder, file, columns=scan.columns, needed=needed, pruning=pruning)


def conditions_of(filters: Iterable[pushed.Filter]) -> tuple[Condition, ...]:
    """Convert the filters of Spark that can be used to skip files."""
    found = (_condition(given, negated=False) for given in filters)
    return tuple(condition for condition in found if condition is not None)


def _condition(given: pushed.Filter, *, negated: bool) -> Condition | None:
    if isinstance(given, pushed.Not):
        return _condition(given.child, negated=not negated)
    comparison = _COMPARISON_BY_FILTER.get(type(given))
    path: tuple[str, ...] = getattr(given, "attribute", ())
    if comparison is None or len(path) != 1:
        return None
    value: Any = getattr(given, "value", None)
    if isinstance(given, pushed.EqualNullSafe):
        # The negation is also true for NULL, so every file may match.
        if negated:
            return None
        comparison = Comparison.NULL if value is None else comparison
    values = tuple(value) if isinstance(given, pushed.In) else (value,)
    return Condition(
        column=path[0],
        comparison=comparison,
        values=() if comparison is Comparison.NULL else values,
        negated=negated != isinstance(given, pushed.IsNotNull),
    )


def group_files(files: Sequence[SnapshotFile], *, tasks: int) -> list[list[int]]:
    """Divide the files, by index, into at most ``tasks`` groups of about the same size."""
    groups: list[list[int]] = [[] for _ in range(max(1, min(tasks, len(files))))]
    size_by_group = [0] * len(groups)
    for index in sorted(range(len(files)), key=lambda at: -files[at].size_bytes):
        smallest = size_by_group.index(min(size_by_group))
        groups[smallest].append(index)
        size_by_group[smallest] += files[index].size_bytes
    return [sorted(group) for group in groups]
