"""Tables in other readers: deltalake, Polars and DuckDB."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal as ExactNumber
from pathlib import Path

import polars as pl
import pytest

from penstock.model.schema import Array, Column, DataType, Decimal, Map, Primitive, Struct
from tests.integration.table_readers import (
    READERS,
    Reader,
    Row,
    in_order,
    read_with_duckdb,
    written,
)

pytestmark = pytest.mark.integration

KINDS: dict[str, DataType] = {
    "flag": Primitive.BOOLEAN,
    "tiny": Primitive.TINYINT,
    "small": Primitive.SMALLINT,
    "number": Primitive.INT,
    "big": Primitive.BIGINT,
    "single": Primitive.FLOAT,
    "double": Primitive.DOUBLE,
    "text": Primitive.STRING,
    "bytes": Primitive.BINARY,
    "day": Primitive.DATE,
    "at": Primitive.TIMESTAMP,
    "local": Primitive.TIMESTAMP_NTZ,
    "price": Decimal(precision=9, scale=2),
    "sum": Decimal(precision=18, scale=4),
    "total": Decimal(precision=38, scale=10),
    "tags": Array(element=Primitive.STRING),
    "marks": Map(key=Primitive.STRING, value=Primitive.BIGINT),
    "customer": Struct(
        fields=(
            Column(name="city", type=Primitive.STRING),
            Column(
                name="orders",
                type=Array(element=Struct(fields=(Column(name="id", type=Primitive.INT),))),
            ),
        )
    ),
    "dotted.name": Primitive.BIGINT,
    "name with spaces": Primitive.STRING,
}
COLUMNS = tuple(Column(name=name, type=kind) for name, kind in KINDS.items())

FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
LAST_MOMENT = datetime.max.replace(tzinfo=UTC)
LOWEST: Row = {
    "flag": False, "tiny": -(2**7), "small": -(2**15), "number": -(2**31), "big": -(2**63),
    "single": -(2.0**127), "double": -1.7976931348623157e308, "text": "", "bytes": b"",
    "day": date.min, "at": FIRST_MOMENT, "local": FIRST_MOMENT.replace(tzinfo=None),
    "price": ExactNumber("-9999999.99"), "sum": ExactNumber("-99999999999999.9999"),
    "total": ExactNumber("-9999999999999999999999999999.9999999999"),
    "tags": [], "marks": [], "customer": {"city": None, "orders": []},
    "dotted.name": -1, "name with spaces": "",
}  # fmt: skip
HIGHEST: Row = {
    "flag": True, "tiny": 2**7 - 1, "small": 2**15 - 1, "number": 2**31 - 1, "big": 2**63 - 1,
    "single": 2.0**127, "double": 1.7976931348623157e308, "text": "🙂" * 40,
    "bytes": b"\x00\xff", "day": date.max, "at": LAST_MOMENT,
    "local": LAST_MOMENT.replace(tzinfo=None), "price": ExactNumber("9999999.99"),
    "sum": ExactNumber("99999999999999.9999"),
    "total": ExactNumber("9999999999999999999999999999.9999999999"),
    "tags": ["🙂", None, ""], "marks": [("k", 1), ("", None)],
    "customer": {"city": "Zürich", "orders": [{"id": 1}, None, {"id": None}]},
    "dotted.name": 1, "name with spaces": "a\nb\x00c",
}  # fmt: skip
NULLS: Row = dict.fromkeys(KINDS)
NOT_NUMBERS: Row = NULLS | {"single": math.nan, "double": math.nan}
INFINITE: Row = NULLS | {
    "single": math.inf,
    "double": -math.inf,
    "at": datetime(1582, 10, 14, 1, 2, 3, 456_789, tzinfo=UTC),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_sees_the_values_that_were_written(reader: Reader, tmp_path: Path) -> None:
    rows = [LOWEST, HIGHEST, NULLS, NOT_NUMBERS, INFINITE]
    location = written(tmp_path, COLUMNS, rows)

    read = reader(location, "true")

    assert in_order(read) == in_order(rows)


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_sees_rows_that_are_alone_in_their_files(
    reader: Reader, tmp_path: Path
) -> None:
    rows = [LOWEST, HIGHEST, NULLS, NOT_NUMBERS, INFINITE]
    location = written(tmp_path, COLUMNS, *([row] for row in rows))

    read = reader(location, "true")

    assert in_order(read) == in_order(rows)


SKIPPING = (
    Column(name="id", type=Primitive.BIGINT),
    Column(name="value", type=Primitive.DOUBLE),
    Column(name="text", type=Primitive.STRING),
    Column(name="moment", type=Primitive.TIMESTAMP),
    Column(name="local", type=Primitive.TIMESTAMP_NTZ),
    Column(name="day", type=Primitive.DATE),
    Column(name="price", type=Decimal(precision=20, scale=3)),
)


def skipping_row(number: int, **others: object) -> Row:
    moment = datetime(2026, 11, number, 1, 2, 3, 456_789, tzinfo=UTC)
    return {
        "id": number,
        "value": float(number),
        "text": f"{'x' * 31}{number}🙂",
        "moment": moment,
        "local": moment.replace(tzinfo=None),
        "day": moment.date(),
        "price": ExactNumber(number) / 1000,
        **others,
    }


CONDITIONS = {
    "id = 2": {2},
    "id > 2": {3, 4},
    "id < 2": {1},
    "id IS NULL": {None},
    "text = 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx2🙂'": {2},
    "text > 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx3'": {3, 4},
    "price = 0.002": {2},
    "price >= 0.003": {3, 4},
    "value < 2": {1},
    "value > 100": {4},
}
TIME_CONDITIONS = {
    "moment = TIMESTAMPTZ '2026-11-02 01:02:03.456789+00'": {2},
    "moment > TIMESTAMPTZ '2026-11-03 01:02:03.456788+00'": {3, 4},
    "moment > TIMESTAMPTZ '2026-11-03 01:02:03.456789+00'": {4},
    "local = TIMESTAMP '2026-11-02 01:02:03.456789'": {2},
    "local > TIMESTAMP '2026-11-03 01:02:03.456788'": {3, 4},
    "day = DATE '2026-11-02'": {2},
}


@pytest.fixture(scope="module")
def skipped(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written_in_four_files(tmp_path_factory.mktemp("skipped"))


def written_in_four_files(folder: Path) -> str:
    empty: Row = {column.name: None for column in SKIPPING}
    files = [
        [skipping_row(1)],
        [skipping_row(2), empty],
        [skipping_row(3)],
        [skipping_row(4, value=math.nan), skipping_row(4, value=4.0)],
    ]
    return written(folder, SKIPPING, *files)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_finds_its_rows_although_files_are_skipped(
    reader: Reader, condition: str, skipped: str
) -> None:
    read = reader(skipped, condition)

    assert {row["id"] for row in read} == CONDITIONS[condition]


@pytest.mark.parametrize("condition", TIME_CONDITIONS)
def test_a_condition_on_time_finds_its_rows(condition: str, skipped: str) -> None:
    read = read_with_duckdb(skipped, condition)

    assert {row["id"] for row in read} == TIME_CONDITIONS[condition]


@pytest.mark.parametrize("zone", [UTC, None])
def test_rounded_bounds_of_time_skip_no_row_in_polars(zone: object, skipped: str) -> None:
    column = "moment" if zone is UTC else "local"
    moment = datetime(2026, 11, 3, 1, 2, 3, 456_789, tzinfo=UTC if zone is UTC else None)

    equal = pl.scan_delta(skipped).filter(pl.col(column) == moment).collect()
    later = pl.scan_delta(skipped).filter(pl.col(column) > moment).collect()

    assert equal["id"].to_list() == [3]
    assert later["id"].to_list() == [4, 4]


def test_a_reader_opens_only_the_files_whose_statistics_match_the_condition(
    tmp_path: Path,
) -> None:
    location = written_in_four_files(tmp_path)
    for path in Path(location).glob("part-[134]-*.parquet"):
        path.write_bytes(b"unreadable")

    read = read_with_duckdb(location, "id = 2")

    assert [row["id"] for row in read] == [2]
