"""A partitioned table contains every row exactly once, in the folder of its values."""

from collections import Counter
from decimal import Decimal as ExactNumber
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.arrow.types import arrow_schema
from penstock.model.epoch import DataFile
from penstock.model.schema import Column, Decimal, Primitive
from penstock.tables import writer as writer_module
from penstock.tables.writer import TableWriter
from tests.contract.table_building import folder_at

KEYS = (
    Column(name="text", type=Primitive.STRING),
    Column(name="number", type=Primitive.TINYINT),
    Column(name="flag", type=Primitive.BOOLEAN),
    Column(name="day", type=Primitive.DATE),
    Column(name="price", type=Decimal(precision=4, scale=2)),
)
COLUMNS = (*KEYS[:2], Column(name="id", type=Primitive.BIGINT), *KEYS[2:])

texts = st.sampled_from(["", "a", "/", "%", "..", "\n", "🙂", "a=b"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=8
)
keys = st.fixed_dictionaries(
    {
        "text": st.none() | texts,
        "number": st.none() | st.integers(-2, 2),
        "flag": st.none() | st.booleans(),
        "day": st.none() | st.dates(),
        "price": st.none() | st.decimals(-99, 99, places=2),
    }
)
batches = st.lists(st.lists(keys, max_size=12), max_size=4)
partitionings = st.lists(
    st.sampled_from([column.name for column in KEYS]), min_size=1, unique=True
).map(tuple)


def numbered(drawn: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    ids = iter(range(10**6))
    return [[{**row, "id": next(ids)} for row in rows] for rows in drawn]


@settings(deadline=None, max_examples=100)
@given(drawn=batches, partition_by=partitionings, group_rows=st.integers(1, 20))
def test_every_row_is_written_once_in_the_folder_of_its_values(
    drawn: list[list[dict[str, Any]]], partition_by: tuple[str, ...], group_rows: int
) -> None:
    written = numbered(drawn)
    with TemporaryDirectory() as folder:
        files = write(Path(folder), written, partition_by=partition_by, group_rows=group_rows)

        read = [row for file in files for row in rows_of(Path(folder), file)]

    expected = [expected_row(row, partition_by) for rows in written for row in rows]
    assert Counter(read) == Counter(expected)
    assert sum(file.rows for file in files) == len(expected)


def write(
    folder: Path,
    written: list[list[dict[str, Any]]],
    *,
    partition_by: tuple[str, ...],
    group_rows: int,
) -> tuple[DataFile, ...]:
    usual, writer_module._GROUP_ROWS_MAX = writer_module._GROUP_ROWS_MAX, group_rows
    try:
        writer = TableWriter(folder_at(folder), COLUMNS, "t", partition_by=partition_by)
        for rows in written:
            writer.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(COLUMNS)))
        return writer.close()
    finally:
        writer_module._GROUP_ROWS_MAX = usual


Placed = tuple[tuple[tuple[str, str | None], ...], tuple[tuple[str, object], ...]]


def rows_of(root: Path, file: DataFile) -> list[Placed]:
    """Return the rows of a file, each with the partition values of the file's folders."""
    folders = Path(file.path).parts[:-1]
    values = tuple(value_of(folder) for folder in folders)
    assert values == file.partition_values
    rows = pq.ParquetFile(root / file.path).read().to_pylist()
    return [(values, tuple(sorted(row.items()))) for row in rows]


def value_of(folder: str) -> tuple[str, str | None]:
    name, _, encoded = folder.partition("=")
    return name, None if encoded == "__HIVE_DEFAULT_PARTITION__" else unquote(encoded)


def expected_row(row: dict[str, Any], partition_by: tuple[str, ...]) -> Placed:
    column_by_name = {column.name: column for column in KEYS}
    values = tuple((name, text_of(row[name], column_by_name[name])) for name in partition_by)
    stored = {name: value for name, value in row.items() if name not in partition_by}
    return values, tuple(sorted(stored.items()))


def text_of(value: object, column: Column) -> str | None:
    if value is None:
        return None
    if column.type is Primitive.BOOLEAN:
        return "true" if value else "false"
    if isinstance(column.type, Decimal):
        # Adding zero removes the sign of a negative zero, which Arrow does not have.
        return f"{ExactNumber(str(value)) + 0:.2f}"
    return str(value)
