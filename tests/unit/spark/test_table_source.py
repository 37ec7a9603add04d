"""The data source with which Spark reads a table, tested without Spark."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import datasource as pushed

from penstock.model.schema import Column, Primitive
from penstock.spark.table_source import (
    FileGroup,
    TableReader,
    conditions_of,
    group_files,
    read_scan,
    write_snapshot,
)
from penstock.tables.pruning import Comparison, Condition, Pruning
from penstock.tables.scan import TableScan
from penstock.tables.table import SnapshotFile

COLUMNS = (
    Column(name="a", type=Primitive.BIGINT),
    Column(name="b", type=Primitive.STRING),
    Column(name="p", type=Primitive.INT),
)


def snapshot_file(path: str, size_bytes: int, *, part: str | None = None) -> SnapshotFile:
    return SnapshotFile(
        path=path,
        size_bytes=size_bytes,
        partition_values=(("p", part),),
        statistics_json="",
    )


@pytest.fixture
def scan(tmp_path: Path) -> TableScan:
    """A snapshot of two files of three rows each."""
    for name in ("x", "y"):
        pq.write_table(pa.table({"a": [1, 2, 3], "b": ["k", "l", None]}), tmp_path / name)
    files = (snapshot_file("x", 10, part="1"), snapshot_file("y", 20))
    return TableScan(name="t", location=str(tmp_path), version=3, columns=COLUMNS, files=files)


@pytest.fixture
def reader(tmp_path: Path, scan: TableScan) -> TableReader:
    """A reader of the snapshot."""
    write_snapshot(tmp_path / "select", scan)
    return TableReader(str(tmp_path / "select"), tasks=2)


def group(scan: TableScan, *places: int) -> FileGroup:
    return FileGroup(replace(scan, files=tuple(scan.files[place] for place in places)))


def read(reader: TableReader, group: FileGroup) -> list[dict[str, object]]:
    return [row for batch in reader.read(group) for row in batch.to_pylist()]


def test_all_columns_are_read_by_default(reader: TableReader, scan: TableScan) -> None:
    assert read(reader, group(scan, 0)) == [
        {"a": 1, "b": "k", "p": 1},
        {"a": 2, "b": "l", "p": 1},
        {"a": 3, "b": None, "p": 1},
    ]


@pytest.mark.parametrize("needed", [["p"], ["b"], []])
def test_columns_that_are_not_needed_are_null_and_no_row_is_lost(
    scan: TableScan, needed: list[str]
) -> None:
    pruning = Pruning(conditions=(), columns=COLUMNS)

    batches = list(read_scan(scan, needed=needed, pruning=pruning))

    rows = [row for batch in batches for row in batch.to_pylist()]
    assert len(rows) == 6
    assert {name for row in rows for name in row if row[name] is not None} >= set(needed)
    assert all(row["a"] is None for row in rows)


def test_a_task_reads_its_files_without_the_folder_of_the_snapshot(
    reader: TableReader, tmp_path: Path
) -> None:
    groups = reader.partitions()
    shutil.rmtree(tmp_path / "select")

    rows = [row for group in groups for row in read(reader, group)]

    assert len(rows) == 6


def test_filters_select_files_and_spark_still_applies_them(
    reader: TableReader, scan: TableScan
) -> None:
    filters: list[pushed.Filter] = [pushed.EqualTo(("p",), 1)]

    assert reader.pushFilters(filters) == filters
    assert reader.partitions() == [group(scan, 0)]


def test_a_table_without_a_matching_file_has_one_empty_partition(
    reader: TableReader, scan: TableScan
) -> None:
    reader.pushFilters([pushed.EqualTo(("p",), 7)])

    assert reader.partitions() == [group(scan)]
    assert read(reader, group(scan)) == []


@pytest.mark.parametrize(
    ("pushed_filter", "condition"),
    [
        (
            pushed.In(("a",), (1, None)),
            Condition(column="a", comparison=Comparison.EQUAL, values=(1, None)),
        ),
        (pushed.EqualNullSafe(("a",), None), Condition(column="a", comparison=Comparison.NULL)),
        (
            pushed.IsNotNull(("a",)),
            Condition(column="a", comparison=Comparison.NULL, negated=True),
        ),
        (
            pushed.Not(pushed.EqualTo(("a",), 1)),
            Condition(column="a", comparison=Comparison.EQUAL, values=(1,), negated=True),
        ),
        (
            pushed.Not(pushed.IsNotNull(("a",))),
            Condition(column="a", comparison=Comparison.NULL),
        ),
        (pushed.Not(pushed.EqualNullSafe(("a",), 1)), None),
        (pushed.StringContains(("a",), "x"), None),
        (pushed.EqualTo(("a", "b"), 1), None),
    ],
)
def test_a_filter_of_spark_becomes_a_condition(
    pushed_filter: pushed.Filter, condition: Condition | None
) -> None:
    assert conditions_of([pushed_filter]) == (() if condition is None else (condition,))


def test_files_are_grouped_by_size() -> None:
    files = [snapshot_file(str(size), size) for size in (5, 1, 1, 9, 4)]

    assert group_files(files, tasks=2) == [[1, 3], [0, 2, 4]]
    assert group_files(files[:1], tasks=4) == [[0]]
    assert group_files([], tasks=4) == [[]]
