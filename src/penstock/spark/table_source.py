"""A table's snapshot as a source of Spark, read without the table's log.

Spark gets the name of a folder and nothing else. The snapshot lies in it, and later the names
of the columns that the SELECT looks at; all others are read as NULL.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as pushed
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.arrow.types import arrow_schema
from penstock.model.codec import from_text, to_text
from penstock.spark.worker import freeze_once
from penstock.tables.pruning import Comparison, Condition, Pruning
from penstock.tables.scan import TableFiles, TableScan, read_file
from penstock.tables.table import SnapshotFile

FORMAT = "penstock"
FOLDER = "folder"
TASKS = "tasks"

_SNAPSHOT = "snapshot.json"
_NEEDED = "needed.json"
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
    """Leave a snapshot where the source looks for it."""
    folder.mkdir(parents=True)
    (folder / _SNAPSHOT).write_text(to_text(scan), "utf-8")


def write_needed(folder: Path, names: Iterable[str]) -> None:
    """Leave the names of the columns to read; before that all of them are read."""
    (folder / _NEEDED).write_text(json.dumps(sorted(names)), "utf-8")


class TableSource(DataSource):
    """The source that Spark knows by its format."""

    @classmethod
    def name(cls) -> str:
        """Answer the format."""
        return FORMAT

    def reader(self, schema: StructType) -> "TableReader":
        """Answer a reader of the snapshot in the folder."""
        del schema
        return TableReader(self.options[FOLDER], tasks=int(self.options[TASKS]))


@dataclass(frozen=True)
class FileGroup(InputPartition):
    """The files of one task, by their places in the snapshot."""

    places: tuple[int, ...]


class TableReader(DataSourceReader):
    """Reads the files of a snapshot that may hold a wanted row."""

    def __init__(self, folder: str, *, tasks: int) -> None:
        self._folder = folder
        self._tasks = tasks
        self._conditions: tuple[Condition, ...] = ()

    def pushFilters(self, filters: list[pushed.Filter]) -> Iterable[pushed.Filter]:  # noqa: N802
        """Remember what is asked for; Spark still looks at every row itself."""
        self._conditions = conditions_of(filters)
        return filters

    def partitions(self) -> list[FileGroup]:
        """Answer the files to read, shared out by their bytes."""
        scan = self._scan()
        files = scan.files
        kept = set(self._pruning(scan).files(files))
        places = [place for place, file in enumerate(files) if file in kept]
        groups = share_out([files[place] for place in places], tasks=self._tasks)
        return [FileGroup(tuple(places[at] for at in group)) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the files of one task."""
        scan = self._scan()
        pruning = self._pruning(scan)
        needed = self._needed()
        columns = tuple(c for c in scan.columns if needed is None or c.name in needed)
        schema = arrow_schema(scan.columns)
        files = TableFiles(scan.location, scan.access)
        for place in partition.places if isinstance(partition, FileGroup) else ():
            for batch in read_file(
                files,
                scan.files[place],
                # Rows without columns could not be counted, so one is read in any case.
                columns=columns or scan.columns[:1],
                pruning=pruning,
            ):
                yield _widened(batch, schema)
        freeze_once()

    def _scan(self) -> TableScan:
        return from_text(TableScan, (Path(self._folder) / _SNAPSHOT).read_text("utf-8"))

    def _pruning(self, scan: TableScan) -> Pruning:
        return Pruning(conditions=self._conditions, columns=scan.columns)

    def _needed(self) -> set[str] | None:
        path = Path(self._folder) / _NEEDED
        return set(json.loads(path.read_text("utf-8"))) if path.exists() else None


def conditions_of(filters: Iterable[pushed.Filter]) -> tuple[Condition, ...]:
    """Answer those of Spark's filters by which files can be left out."""
    found = (_condition(asked, negated=False) for asked in filters)
    return tuple(condition for condition in found if condition is not None)


def _condition(asked: pushed.Filter, *, negated: bool) -> Condition | None:
    if isinstance(asked, pushed.Not):
        return _condition(asked.child, negated=not negated)
    comparison = _COMPARISON_BY_FILTER.get(type(asked))
    path: tuple[str, ...] = getattr(asked, "attribute", ())
    if comparison is None or len(path) != 1:
        return None
    value: Any = getattr(asked, "value", None)
    if isinstance(asked, pushed.EqualNullSafe):
        # Negated it is also true for NULL, and so it may be for every file.
        if negated:
            return None
        comparison = Comparison.NULL if value is None else comparison
    values = tuple(value) if isinstance(asked, pushed.In) else (value,)
    return Condition(
        column=path[0],
        comparison=comparison,
        values=() if comparison is Comparison.NULL else values,
        negated=negated != isinstance(asked, pushed.IsNotNull),
    )


def share_out(files: Sequence[SnapshotFile], *, tasks: int) -> list[list[int]]:
    """Divide files, by their places, into at most so many groups of about the same bytes."""
    groups: list[list[int]] = [[] for _ in range(max(1, min(tasks, len(files))))]
    size_by_group = [0] * len(groups)
    for place in sorted(range(len(files)), key=lambda at: -files[at].size_bytes):
        smallest = size_by_group.index(min(size_by_group))
        groups[smallest].append(place)
        size_by_group[smallest] += files[place].size_bytes
    return [sorted(group) for group in groups]


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Put NULLs in the place of the columns that were not read."""
    columns = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
