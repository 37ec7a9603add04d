"""Skip the files that cannot match the conditions of a scan."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.model.schema import Column, DataType, Decimal, Primitive
from penstock.tables.pruning import Comparison, Condition, Pruning
from penstock.tables.table import SnapshotFile

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def logged(
    low: Any, high: Any, *, nulls: int | None = None, rows: int | None = 10
) -> SnapshotFile:
    statistics = {
        "numRecords": rows,
        "minValues": {} if low is None else {"x": low},
        "maxValues": {} if high is None else {"x": high},
        "nullCount": {} if nulls is None else {"x": nulls},
    }
    return SnapshotFile(
        path="a", size_bytes=1, partition_values=(), statistics_json=json.dumps(statistics)
    )


def partition(value: str | None) -> SnapshotFile:
    return SnapshotFile(
        path="a", size_bytes=1, partition_values=(("x", value),), statistics_json=""
    )


def is_read(
    file: SnapshotFile,
    kind: DataType,
    comparison: Comparison,
    *values: Any,
    negated: bool = False,
) -> bool:
    condition = Condition(column="x", comparison=comparison, values=values, negated=negated)
    columns = (Column(name="x", type=kind),)
    return bool(Pruning(conditions=(condition,), columns=columns).files([file]))


@pytest.mark.parametrize(
    ("comparison", "value", "read"),
    [
        (Comparison.EQUAL, 2, False),
        (Comparison.EQUAL, 3, True),
        (Comparison.EQUAL, 7, True),
        (Comparison.EQUAL, 8, False),
        (Comparison.LESS, 3, False),
        (Comparison.LESS, 4, True),
        (Comparison.LESS_OR_EQUAL, 2, False),
        (Comparison.LESS_OR_EQUAL, 3, True),
        (Comparison.GREATER, 7, False),
        (Comparison.GREATER, 6, True),
        (Comparison.GREATER_OR_EQUAL, 8, False),
        (Comparison.GREATER_OR_EQUAL, 7, True),
    ],
)
def test_a_file_is_read_if_its_bounds_allow_a_match(
    comparison: Comparison, value: int, *, read: bool
) -> None:
    assert is_read(logged(3, 7), Primitive.BIGINT, comparison, value) == read


def test_one_of_several_values_is_enough() -> None:
    file = logged(3, 7)

    assert is_read(file, Primitive.INT, Comparison.EQUAL, 1, 5, None)
    assert not is_read(file, Primitive.INT, Comparison.EQUAL, 1, 9, None)


def test_nothing_equals_null() -> None:
    assert not is_read(logged(3, 7), Primitive.INT, Comparison.EQUAL, None)


@pytest.mark.parametrize(
    ("nulls", "with_null", "with_value"),
    [(0, False, True), (10, True, False), (None, True, True)],
)
def test_the_null_count_decides_about_null_conditions(
    nulls: int | None, *, with_null: bool, with_value: bool
) -> None:
    file = logged(None, None, nulls=nulls)

    assert is_read(file, Primitive.INT, Comparison.NULL) == with_null
    assert is_read(file, Primitive.INT, Comparison.NULL, negated=True) == with_value
    assert is_read(file, Primitive.INT, Comparison.EQUAL, 1) == with_value


def test_a_negated_condition_skips_a_file_in_which_all_rows_have_the_value() -> None:
    assert not is_read(logged(3, 3), Primitive.INT, Comparison.EQUAL, 3, negated=True)
    assert is_read(logged(3, 4), Primitive.INT, Comparison.EQUAL, 3, negated=True)
    assert not is_read(
        logged("ab", "ab"), Primitive.STRING, Comparison.PREFIX, "a", negated=True
    )


@pytest.mark.parametrize(
    ("prefix", "read"), [("a", False), ("b", True), ("ba", True), ("d", False)]
)
def test_a_file_is_read_if_its_bounds_allow_a_prefix(prefix: str, *, read: bool) -> None:
    assert is_read(logged("bx", "cx"), Primitive.STRING, Comparison.PREFIX, prefix) == (
        read and prefix != "ba"
    )


def test_the_bound_of_a_long_text_may_be_truncated() -> None:
    file = logged("a", "m" * 32)

    assert is_read(file, Primitive.STRING, Comparison.EQUAL, "m" * 32 + "z")
    assert is_read(file, Primitive.STRING, Comparison.GREATER, "m" * 32)
    assert not is_read(file, Primitive.STRING, Comparison.EQUAL, "n")


def test_a_timestamp_may_exceed_its_bound_by_less_than_a_millisecond() -> None:
    bound = NOON.isoformat(sep=" ")
    file = logged(bound, bound)

    assert is_read(file, Primitive.TIMESTAMP, Comparison.EQUAL, NOON.replace(microsecond=999))
    assert not is_read(file, Primitive.TIMESTAMP, Comparison.EQUAL, NOON.replace(second=1))
    assert is_read(file, Primitive.TIMESTAMP, Comparison.EQUAL, NOON, negated=True)


def test_the_latest_timestamp_has_no_upper_bound() -> None:
    last = "9999-12-31 23:59:59.999000+00:00"

    assert is_read(logged(None, last), Primitive.TIMESTAMP, Comparison.GREATER, NOON)


def test_a_nan_is_above_every_bound() -> None:
    file = logged(1.5, 2.5)

    assert is_read(file, Primitive.DOUBLE, Comparison.GREATER, 3.0)
    assert is_read(file, Primitive.DOUBLE, Comparison.EQUAL, math.nan)
    assert is_read(file, Primitive.DOUBLE, Comparison.LESS, math.nan)
    assert not is_read(file, Primitive.DOUBLE, Comparison.EQUAL, 3.0)
    assert not is_read(file, Primitive.DOUBLE, Comparison.LESS, 1.5)


def test_no_digit_of_a_decimal_is_lost() -> None:
    kind = Decimal(precision=38, scale=10)
    statistics = '{"maxValues":{"x":1234567890123456789012345678.0123456789}}'
    file = SnapshotFile(path="a", size_bytes=1, partition_values=(), statistics_json=statistics)
    value = Number("1234567890123456789012345678.0123456789")

    assert is_read(file, kind, Comparison.EQUAL, value)
    assert not is_read(file, kind, Comparison.GREATER, value)


@pytest.mark.parametrize(
    ("kind", "text", "value", "other"),
    [
        (Primitive.STRING, "a/b ü", "a/b ü", "a"),
        (Primitive.STRING, "", "", " "),
        (Primitive.DATE, "2026-11-15", date(2026, 11, 15), date(2026, 11, 16)),
        (Primitive.BIGINT, "-7", -7, 7),
        (Primitive.BOOLEAN, "true", True, False),
        (Decimal(precision=9, scale=2), "2.50", Number("2.5"), Number("2.51")),
        (Primitive.TIMESTAMP, "2026-11-15T12:00:00.000000Z", NOON, NOON.replace(hour=1)),
    ],
)
def test_a_partition_has_one_value(kind: DataType, text: str, value: Any, other: Any) -> None:
    file = partition(text)

    assert is_read(file, kind, Comparison.EQUAL, value)
    assert not is_read(file, kind, Comparison.EQUAL, other)
    assert not is_read(file, kind, Comparison.EQUAL, value, negated=True)
    assert not is_read(file, kind, Comparison.NULL)


def test_the_partition_of_null_has_no_value() -> None:
    assert is_read(partition(None), Primitive.STRING, Comparison.NULL)
    assert not is_read(partition(None), Primitive.STRING, Comparison.EQUAL, "a", negated=True)


@pytest.mark.parametrize("statistics", ["", "{}", '{"minValues":{"x":"never"}}'])
def test_a_file_without_statistics_is_read(statistics: str) -> None:
    file = SnapshotFile(path="a", size_bytes=1, partition_values=(), statistics_json=statistics)

    assert is_read(file, Primitive.DATE, Comparison.EQUAL, date(2026, 1, 1))


def test_a_bound_of_another_type_is_ignored() -> None:
    assert is_read(logged(3, 7), Primitive.BIGINT, Comparison.EQUAL, "9")


def test_the_bounds_of_a_struct_field_are_not_used_for_a_column_of_the_same_name() -> None:
    statistics = '{"minValues":{"a.b":5},"maxValues":{"a.b":5}}'
    file = SnapshotFile(path="a", size_bytes=1, partition_values=(), statistics_json=statistics)
    condition = Condition(column="a.b", comparison=Comparison.EQUAL, values=(1,))
    columns = (Column(name="a.b", type=Primitive.INT),)

    assert Pruning(conditions=(condition,), columns=columns).files([file]) == (file,)


def test_row_groups_are_skipped_by_their_own_bounds(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": list(range(100))}), path, row_group_size=10)
    condition = Condition(column="x", comparison=Comparison.GREATER_OR_EQUAL, values=(75,))
    pruning = Pruning(
        conditions=(condition,), columns=(Column(name="x", type=Primitive.BIGINT),)
    )

    assert pruning.row_groups(pq.read_metadata(path)) == [7, 8, 9]
