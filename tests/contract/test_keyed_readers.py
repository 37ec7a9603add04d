"""Tables with keys in other readers: deltalake, Polars and DuckDB."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal as ExactNumber
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.arrow.types import arrow_schema
from penstock.model.epoch import DataFile
from penstock.model.schema import Array, Column, Decimal, Primitive, Struct
from penstock.tables.delta import DeltaTables
from penstock.tables.folder import staged_folder
from penstock.tables.writer import TableWriter
from tests.contract.table_building import JOB, attachment, folder_at
from tests.integration.table_readers import READERS, Reader, Row, in_order

pytestmark = pytest.mark.integration

COLUMNS = (
    Column(name="id", type=Primitive.BIGINT, nullable=False),
    Column(name="day", type=Primitive.DATE),
    Column(name="some text", type=Primitive.STRING),
    Column(name="ratio", type=Primitive.DOUBLE),
    Column(name="sum", type=Decimal(precision=38, scale=3)),
    Column(name="at", type=Primitive.TIMESTAMP),
    Column(name="tags", type=Array(element=Primitive.STRING)),
    Column(name="place", type=Struct(fields=(Column(name="x", type=Primitive.DOUBLE),))),
)
NULLS: Row = {column.name: None for column in COLUMNS}


def full_row(number: int, text: str) -> Row:
    return {
        "id": number,
        "day": date(2026, 1, number),
        "some text": text * 50,
        "ratio": math.nan,
        "sum": ExactNumber("9007199254740.993"),
        "at": datetime(2026, 1, number, 1, 2, 3, 456_789, tzinfo=UTC),
        "tags": [text, None],
        "place": {"x": math.nan},
    }


def written(folder: Path, name: str, rows: list[Row], *, below: str) -> tuple[DataFile, ...]:
    partition_by = () if below else ("day",)
    writer = TableWriter(
        folder_at(folder), COLUMNS, name, partition_by=partition_by, below=below
    )
    writer.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(COLUMNS)))
    return writer.close()


APPENDED = [full_row(1, "a"), full_row(2, "a"), full_row(3, "a")]
MERGED = [[full_row(2, "b"), full_row(4, "b")], [full_row(4, "ß"), NULLS | {"id": 5}]]
EXPECTED = [APPENDED[0], MERGED[0][0], APPENDED[2], *MERGED[1]]


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with an appended epoch and two keyed epochs."""
    tables = DeltaTables(str(tmp_path_factory.mktemp("keyed")))
    table = tables.create("t", COLUMNS, location=None, comment="", partition_by=("day",))
    folder = Path(table.location)
    tables.open(table.location).commit(attachment(1), written(folder, "1", APPENDED, below=""))
    for number, rows in enumerate(MERGED, start=2):
        staged = written(folder, f"{number}", rows, below=staged_folder(JOB, f"{number}"))
        tables.open(table.location).commit_keyed(attachment(number), staged, key=("id",))
    return table.location


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_sees_the_newest_row_of_each_key(reader: Reader, location: str) -> None:
    read = reader(location, "true")

    assert in_order(read) == in_order(EXPECTED)


CONDITIONS = {
    "id >= 4": {4, 5},
    "\"some text\" > 'b'": {2, 4},
    "ratio > 100": {1, 2, 3, 4},
    "sum > 9007199254740.992": {1, 2, 3, 4},
    "day IS NULL": {5},
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_finds_merged_rows_although_files_are_skipped(
    reader: Reader, condition: str, location: str
) -> None:
    read = reader(location, condition)

    assert {row["id"] for row in read} == CONDITIONS[condition]


def test_merged_files_have_no_bounds_that_could_be_wrong(location: str) -> None:
    files = DeltaTables("/unused").open(location).files()

    merged = [file.statistics_json for file in files if "part-1-" not in file.path]
    assert len(merged) == 3
    assert all('"id"' in text and '"at"' in text for text in merged)
    assert not any('"ratio"' in text or '"place' in text for text in merged)
    assert not any('"sum"' in text for text in merged)
