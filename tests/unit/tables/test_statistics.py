"""Statistics of a data file in the table's log."""

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as ExactNumber
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.arrow.types import arrow_schema
from penstock.model.schema import Array, Column, DataType, Decimal, Map, Primitive, Struct
from penstock.tables.writer import TableWriter
from tests.contract.table_building import folder_at

SOME_VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    Primitive.TINYINT: st.integers(-(2**7), 2**7 - 1),
    Primitive.SMALLINT: st.integers(-(2**15), 2**15 - 1),
    Primitive.INT: st.integers(-(2**31), 2**31 - 1),
    Primitive.BIGINT: st.integers(-(2**63), 2**63 - 1),
    Primitive.FLOAT: st.floats(width=32),
    Primitive.DOUBLE: st.floats(),
    Primitive.STRING: st.text(max_size=40) | st.just("\U0010ffff" * 33) | st.just("x" * 5000),
    Primitive.DATE: st.dates(),
    Primitive.TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    Primitive.TIMESTAMP_NTZ: st.datetimes(),
    Decimal(precision=9, scale=2): st.decimals(-9_999_999, 9_999_999, places=2),
    Decimal(precision=18, scale=0): st.integers(-(10**17), 10**17).map(ExactNumber),
    Decimal(precision=38, scale=10): st.decimals(-(10**25), 10**25, places=10),
}


def statistics_of(kind: DataType, values: list[Any]) -> dict[str, Any]:
    columns = (Column(name="v", type=kind),)
    with TemporaryDirectory() as folder:
        writer = TableWriter(folder_at(Path(folder)), columns, "t")
        writer.write(pa.RecordBatch.from_pydict({"v": values}, schema=arrow_schema(columns)))
        (file,) = writer.close()
    result: dict[str, Any] = json.loads(file.statistics_json, parse_float=ExactNumber)
    return result


def bound_value(kind: DataType, bound: Any) -> Any:
    match kind:
        case Primitive.DATE:
            return date.fromisoformat(bound)
        case Primitive.TIMESTAMP | Primitive.TIMESTAMP_NTZ:
            return datetime.fromisoformat(bound)
        case Decimal():
            return ExactNumber(bound)
        case Primitive.FLOAT | Primitive.DOUBLE:
            return float(bound)
        case _:
            return bound


def order(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("kind", SOME_VALUES, ids=lambda kind: kind.sql)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_bounds_hold_for_every_value(kind: DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | SOME_VALUES[kind], min_size=1, max_size=8))

    stated = statistics_of(kind, values)

    present = [value for value in values if value is not None]
    assert stated["numRecords"] == len(values)
    assert stated["nullCount"] == {"v": len(values) - len(present)}
    for bound in stated["minValues"].values():
        low = order(bound_value(kind, bound))
        assert present
        assert all(low <= order(value) for value in present)
    for bound in stated["maxValues"].values():
        high = order(bound_value(kind, bound))
        assert present
        assert all(order(value) <= high for value in present)


@pytest.mark.parametrize(
    ("kind", "values", "low", "high"),
    [
        (Primitive.BIGINT, [3, None, -(2**63)], -(2**63), 3),
        (Primitive.DOUBLE, [2.5, None, -1.25], ExactNumber("-1.25"), ExactNumber("2.5")),
        (Primitive.STRING, ["b", "a" * 33], "a" * 32, "b"),
        (Primitive.STRING, ["a" * 33], "a" * 32, "a" * 31 + "b"),
        (Primitive.STRING, ["\ud7ff" * 40], "\ud7ff" * 32, "\ud7ff" * 31 + "\ue000"),
        (Primitive.STRING, ["a" + "\U0010ffff" * 40], "a" + "\U0010ffff" * 31, "b"),
        (Primitive.DATE, [date(1, 1, 1), date(9999, 12, 31)], "0001-01-01", "9999-12-31"),
        (
            Primitive.TIMESTAMP,
            [datetime(2026, 11, 15, 1, 2, 3, 456_001, tzinfo=UTC)],
            "2026-11-15T01:02:03.456Z",
            "2026-11-15T01:02:03.457Z",
        ),
        (
            Primitive.TIMESTAMP_NTZ,
            [datetime(1969, 12, 31, 23, 59, 59, 999_999)],  # noqa: DTZ001
            "1969-12-31T23:59:59.999",
            "1970-01-01T00:00:00.000",
        ),
        (
            Decimal(precision=38, scale=2),
            [ExactNumber("123456789012345678901234567890.12"), ExactNumber("-0.01")],
            ExactNumber("-0.01"),
            ExactNumber("123456789012345678901234567890.12"),
        ),
        (Decimal(precision=9, scale=2), [ExactNumber("-0.05")],
         ExactNumber("-0.05"), ExactNumber("-0.05")),
    ],
)  # fmt: skip
def test_bounds_are_as_narrow_as_the_format_allows(
    kind: DataType, values: list[Any], low: object, high: object
) -> None:
    stated = statistics_of(kind, values)

    assert (stated["minValues"], stated["maxValues"]) == ({"v": low}, {"v": high})


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Primitive.DOUBLE, [1.0, math.nan, 2.0]),
        (Primitive.FLOAT, [math.nan]),
        (Primitive.BIGINT, [None, None]),
        (Primitive.BOOLEAN, [True, False]),
        (Primitive.BINARY, [b"a"]),
        (Primitive.STRING, ["a", "x" * 5000]),
        (Array(element=Primitive.BIGINT), [[1]]),
        (Map(key=Primitive.STRING, value=Primitive.BIGINT), [[("k", 1)]]),
    ],
)
def test_a_value_without_a_usable_bound_has_none(kind: DataType, values: list[Any]) -> None:
    stated = statistics_of(kind, values)

    assert (stated["minValues"], stated["maxValues"]) == ({}, {})


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_the_bounds_of_zero_hold_for_either_sign(zero: float) -> None:
    stated = statistics_of(Primitive.DOUBLE, [zero])

    assert str(stated["minValues"]["v"]) == "-0.0"
    assert str(stated["maxValues"]["v"]) == "0.0"


def test_only_the_bound_that_cannot_be_widened_is_omitted() -> None:
    latest = datetime.max.replace(tzinfo=UTC)

    of_time = statistics_of(Primitive.TIMESTAMP, [latest, latest - timedelta(days=1)])
    of_text = statistics_of(Primitive.STRING, ["\U0010ffff" * 40])
    of_number = statistics_of(Primitive.DOUBLE, [1.5, math.inf])

    assert of_time["minValues"] == {"v": "9999-12-30T23:59:59.999Z"}
    assert of_text["minValues"] == {"v": "\U0010ffff" * 32}
    assert of_number["minValues"] == {"v": ExactNumber("1.5")}
    assert [s["maxValues"] for s in (of_time, of_text, of_number)] == [{}, {}, {}]


def test_a_date_outside_the_calendar_has_no_bound(tmp_path: Path) -> None:
    columns = (Column(name="v", type=Primitive.DATE),)
    writer = TableWriter(folder_at(tmp_path), columns, "t")
    days = pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())
    writer.write(pa.RecordBatch.from_arrays([days], schema=arrow_schema(columns)))

    (file,) = writer.close()

    stated = json.loads(file.statistics_json)
    assert (stated["minValues"], stated["maxValues"]) == ({"v": "1970-01-01"}, {})


def test_only_the_first_32_leaf_columns_have_statistics(tmp_path: Path) -> None:
    pair = Struct(fields=tuple(Column(name=n, type=Primitive.INT) for n in "xy"))
    columns = (
        Column(name="pair", type=pair),
        *(Column(name=f"c{number}", type=Primitive.INT) for number in range(40)),
    )
    writer = TableWriter(folder_at(tmp_path), columns, "t")
    row = {"pair": {"x": 100, "y": 200}} | {f"c{number}": number for number in range(40)}
    writer.write(pa.RecordBatch.from_pylist([row], schema=arrow_schema(columns)))

    (file,) = writer.close()

    stated = json.loads(file.statistics_json)
    assert stated["minValues"] == {f"c{number}": number for number in range(30)}
    assert stated["nullCount"] == {f"c{number}": 0 for number in range(30)}


def test_s20_a_timestamp_has_statistics_in_any_place(tmp_path: Path) -> None:
    numbers = (Column(name=f"c{number}", type=Primitive.INT) for number in range(40))
    columns = (*numbers, Column(name="ts", type=Primitive.TIMESTAMP))
    writer = TableWriter(folder_at(tmp_path), columns, "t")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    writer.write(pa.RecordBatch.from_pylist([{"ts": at}], schema=arrow_schema(columns)))

    (file,) = writer.close()

    stated = json.loads(file.statistics_json)
    assert list(stated["minValues"]) == ["ts"]
    assert stated["nullCount"]["ts"] == 0


def test_bounds_and_counts_cover_all_row_groups(tmp_path: Path) -> None:
    columns = (Column(name="v", type=Primitive.BIGINT), Column(name="s", type=Primitive.STRING))
    writer = TableWriter(folder_at(tmp_path), columns, "t")
    rows_per_group = 2**20
    for first in (rows_per_group, 0):
        numbers = pa.array(range(first, first + rows_per_group), pa.int64())
        texts = pa.array([None], pa.string()).take(pa.array([0] * rows_per_group))
        writer.write(pa.RecordBatch.from_arrays([numbers, texts], schema=arrow_schema(columns)))

    (file,) = writer.close()

    stated = json.loads(file.statistics_json)
    assert stated["minValues"] == {"v": 0}
    assert stated["maxValues"] == {"v": 2 * rows_per_group - 1}
    assert stated["nullCount"] == {"v": 0, "s": 2 * rows_per_group}
