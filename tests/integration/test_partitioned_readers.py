"""Partitioned tables in other readers, for every kind of partition value."""

from datetime import UTC, date, datetime
from decimal import Decimal as ExactNumber
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.arrow.types import arrow_schema
from penstock.model.job import TargetColumn
from penstock.model.schema import Column, DataType, Decimal, Primitive
from penstock.tables import writer as writer_module
from penstock.tables.delta import DeltaTables
from penstock.tables.fitting import fit
from penstock.tables.writer import OPEN_FILES_MAX, TableWriter
from tests.contract.table_building import attachment, folder_at, open_files
from tests.integration.table_readers import (
    READERS,
    Reader,
    Row,
    in_order,
    read_with_deltalake,
    read_with_duckdb,
    read_with_polars,
    written,
)

pytestmark = pytest.mark.integration

ODD_TEXTS = [
    None, "plain", "/", "a/b/../c", "%", "%2F", "a%20b", "a\nb", "\r", "\t", "\x00", "\x7f",
    "🙂", "é", "e\u0301", "..", ".", "=", "a=b", "end.", "end ", " begin", "a+b", "_hidden",
    "'\"\\`", "#?:*[]{}!&;|<>~", "null", "NULL", "2026-01-31", "007", "1e3", "true", "x" * 253,
    "🙂" * 21,
]  # fmt: skip


def partitioned(folder: Path, kind: DataType, values: list[object]) -> tuple[str, list[Row]]:
    columns = (Column(name="p", type=kind), Column(name="id", type=Primitive.BIGINT))
    rows: list[Row] = [{"p": value, "id": number} for number, value in enumerate(values)]
    return written(folder, columns, rows, partition_by=("p",)), rows


@pytest.mark.parametrize("reader", READERS)
def test_unusual_strings_are_read_as_they_were_written(reader: Reader, tmp_path: Path) -> None:
    location, rows = partitioned(tmp_path, Primitive.STRING, list(ODD_TEXTS))

    read = reader(location, "true")

    assert in_order(read) == in_order(rows)


@pytest.mark.parametrize(
    ("reader", "expected"),
    [(read_with_deltalake, ""), (read_with_polars, ""), (read_with_duckdb, None)],
)
def test_the_empty_string_stays_empty_but_duckdb_reads_null(
    reader: Reader, expected: str | None, tmp_path: Path
) -> None:
    location, _ = partitioned(tmp_path, Primitive.STRING, ["", None, "a"])

    read = reader(location, "true")

    assert {row["id"]: row["p"] for row in read} == {0: expected, 1: None, 2: "a"}


MOMENTS = [
    datetime.min.replace(tzinfo=UTC),
    datetime(1582, 10, 14, 1, 2, 3, 456_789, tzinfo=UTC),
    datetime(2026, 11, 15, tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
]
VALUES_BY_KIND: dict[DataType, list[object]] = {
    Primitive.BOOLEAN: [True, False, None],
    Primitive.TINYINT: [-(2**7), 0, 2**7 - 1, None],
    Primitive.SMALLINT: [-(2**15), 2**15 - 1],
    Primitive.INT: [-(2**31), 2**31 - 1],
    Primitive.BIGINT: [-(2**63), 2**63 - 1, None],
    Primitive.DATE: [date.min, date(1582, 10, 10), date(2026, 1, 31), date.max, None],
    Primitive.TIMESTAMP: [*MOMENTS, None],
    Primitive.TIMESTAMP_NTZ: [*(moment.replace(tzinfo=None) for moment in MOMENTS), None],
    Decimal(precision=9, scale=2): [ExactNumber("-9999999.99"), ExactNumber("0.00"), None],
    Decimal(precision=38, scale=0): [ExactNumber(10**38 - 1), ExactNumber(1 - 10**38)],
    Decimal(precision=38, scale=38): [ExactNumber("1e-38"), ExactNumber("-0." + "9" * 38)],
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", VALUES_BY_KIND, ids=lambda kind: kind.sql)
def test_values_of_every_kind_are_read_as_they_were_written(
    reader: Reader, kind: DataType, tmp_path: Path
) -> None:
    location, rows = partitioned(tmp_path, kind, VALUES_BY_KIND[kind])

    read = reader(location, "true")

    assert in_order(read) == in_order(rows)


DAYS = (
    Column(name="Day", type=Primitive.DATE, nullable=False),
    Column(name="value", type=Primitive.DOUBLE),
    Column(name="some city", type=Primitive.STRING),
    Column(name="id", type=Primitive.BIGINT),
)
VISITS: list[Row] = [
    {"Day": date(2026, 1, day), "value": day / 2, "some city": city, "id": number}
    for number, (day, city) in enumerate([(1, "Zürich"), (2, None), (1, "a/b"), (2, None)])
]


@pytest.mark.parametrize("reader", READERS)
def test_a_table_can_be_partitioned_by_two_columns_in_any_order(
    reader: Reader, tmp_path: Path
) -> None:
    location = written(tmp_path, DAYS, VISITS, VISITS, partition_by=("some city", "Day"))

    read = reader(location, "true")

    assert in_order(read) == in_order([*VISITS, *VISITS])


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("condition", ["id = 2", "value < 0.6"])
def test_statistics_of_the_other_columns_skip_no_row(
    reader: Reader, condition: str, tmp_path: Path
) -> None:
    location = written(tmp_path, DAYS, VISITS, partition_by=("Day", "some city"))

    read = reader(location, condition)

    assert {row["id"] for row in read} == ({2} if condition == "id = 2" else {0, 2})


def test_a_reader_opens_only_the_partitions_that_match_the_condition(tmp_path: Path) -> None:
    location = written(tmp_path, DAYS, VISITS, partition_by=("Day",))
    for path in Path(location).glob("Day=2026-01-01/*.parquet"):
        path.write_bytes(b"unreadable")

    read = read_with_duckdb(location, "\"Day\" = DATE '2026-01-02'")

    assert {row["id"] for row in read} == {1, 3}


def test_the_log_contains_partition_columns_and_values(
    tmp_path: Path,
) -> None:
    location = written(tmp_path, DAYS, VISITS, partition_by=("some city", "Day"))

    table = DeltaTable(location)
    actions = pa.table(table.get_add_actions(flatten=False)).to_pylist()

    assert table.metadata().partition_columns == ["some city", "Day"]
    assert DeltaTables(str(tmp_path)).open(location).partition_columns() == ("some city", "Day")
    assert {action["partition"]["some city"] for action in actions} == {None, "Zürich", "a/b"}


def test_deltalake_can_append_compact_and_delete_in_a_partitioned_table(tmp_path: Path) -> None:
    location = written(tmp_path, DAYS, VISITS, VISITS, partition_by=("Day", "some city"))

    DeltaTable(location).optimize.compact()
    DeltaTable(location).delete("\"Day\" = DATE '2026-01-02'")
    DeltaTable(location).vacuum(0, dry_run=False, enforce_retention_duration=False)
    DeltaTables(str(tmp_path)).open(location).commit(attachment(3), [])

    expected = [row for row in VISITS if row["Day"].day == 1]
    assert in_order(read_with_deltalake(location, "true")) == in_order(expected * 2)


def test_converted_rows_of_a_partitioned_table_equal_the_rows_that_are_read(
    tmp_path: Path,
) -> None:
    texts = pa.RecordBatch.from_pydict({"day": ["2026-01-31", "0001-01-01"], "n": ["1", "2"]})
    columns = (Column(name="day", type=Primitive.DATE), Column(name="n", type=Primitive.INT))
    targets = tuple(TargetColumn(name=name, path=(name,)) for name in ("day", "n"))

    fitted = fit(texts, targets=targets, columns=columns, partition_by=("day",))
    location = written(tmp_path, columns, fitted.to_pylist(), partition_by=("day",))

    assert fitted.schema == arrow_schema(columns)
    assert in_order(read_with_polars(location, "true")) == in_order(fitted.to_pylist())


def test_thousands_of_partitions_are_written_with_few_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_GROUP_ROWS_MAX", 5_000)
    columns = (Column(name="p", type=Primitive.STRING), Column(name="id", type=Primitive.INT))
    rows = [{"p": f"p{number}", "id": number} for number in range(5_000)]
    writer = TableWriter(folder_at(tmp_path), columns, "t", partition_by=("p",))

    writer.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(columns)))
    opened = len(open_files(tmp_path))
    files = writer.close()

    assert opened == OPEN_FILES_MAX
    assert len({file.partition_values for file in files}) == len(files) == 5_000
    assert open_files(tmp_path) == []
