"""Casts of values to other types, and errors for the first value that does not fit."""

import datetime as dt
import math
import pickle
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.arrow.casts import CastError, can_cast, cast_array
from tests.error_values import assert_names

NAN, INFINITY = math.nan, math.inf
INT8, INT32, INT64 = pa.int8(), pa.int32(), pa.int64()
FLOAT, DOUBLE = pa.float32(), pa.float64()
STRING, BINARY, DATE, BOOLEAN = pa.string(), pa.binary(), pa.date32(), pa.bool_()
INSTANT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
MONEY = pa.decimal128(5, 2)
NOON = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)
LOCAL_NOON = NOON.replace(tzinfo=None)
STRICT = pa.struct([pa.field("a", INT8, nullable=False)])


@pytest.mark.parametrize(
    ("source", "value", "target", "expected"),
    [
        (INT8, 5, INT64, 5),
        (INT64, -128, INT8, -128),
        (pa.uint64(), 7, INT64, 7),
        (INT64, 2**53 + 1, DOUBLE, float(2**53)),
        (INT64, 7, FLOAT, 7.0),
        (INT64, 999, MONEY, Decimal("999.00")),
        (INT64, 2**63 - 1, pa.decimal128(38, 19), Decimal(2**63 - 1)),
        (DOUBLE, 1.005, MONEY, Decimal("1.01")),
        (DOUBLE, -1.005, MONEY, Decimal("-1.01")),
        (DOUBLE, 0.1 + 0.2, MONEY, Decimal("0.30")),
        (DOUBLE, 1e-300, MONEY, Decimal("0.00")),
        (FLOAT, 0.5, MONEY, Decimal("0.50")),
        (DOUBLE, 0.5, FLOAT, 0.5),
        (DOUBLE, INFINITY, FLOAT, INFINITY),
        (FLOAT, 0.5, DOUBLE, 0.5),
        (DOUBLE, 3.0, INT8, 3),
        (DOUBLE, -0.0, INT8, 0),
        (pa.decimal128(6, 3), Decimal("1.005"), MONEY, Decimal("1.01")),
        (pa.decimal128(6, 3), Decimal("-1.005"), MONEY, Decimal("-1.01")),
        (MONEY, Decimal("1.10"), pa.decimal128(38, 20), Decimal("1.10")),
        (pa.decimal128(38, 20), Decimal("0.1"), DOUBLE, 0.1),
        (MONEY, Decimal("7.00"), INT8, 7),
        (BOOLEAN, True, STRING, "true"),
        (INT64, -7, STRING, "-7"),
        (DOUBLE, 1.0, STRING, "1.0"),
        (DOUBLE, 1e20, STRING, "1e+20"),
        (DOUBLE, NAN, STRING, "NaN"),
        (DOUBLE, -INFINITY, STRING, "-Infinity"),
        (FLOAT, 0.1, STRING, "0.1"),
        (MONEY, Decimal("1.10"), STRING, "1.10"),
        (pa.decimal128(20, 9), Decimal("0.000000001"), STRING, "0.000000001"),
        (DATE, dt.date(2026, 11, 15), STRING, "2026-11-15"),
        (INSTANT, NOON, STRING, "2026-11-15 12:00:00"),
        (INSTANT, NOON.replace(microsecond=500_000), STRING, "2026-11-15 12:00:00.5"),
        (LOCAL, LOCAL_NOON.replace(microsecond=1), STRING, "2026-11-15 12:00:00.000001"),
        (BINARY, "ø".encode(), STRING, "ø"),
        (STRING, " 42 ", INT8, 42),
        (STRING, "+42", INT8, 42),
        (STRING, "1e3", DOUBLE, 1000.0),
        (STRING, ".5", FLOAT, 0.5),
        (STRING, "-Infinity", DOUBLE, -INFINITY),
        (STRING, "1.005", MONEY, Decimal("1.01")),
        (STRING, " 1.1e1 ", MONEY, Decimal("11.00")),
        (STRING, "0." + "0" * 99 + "1", MONEY, Decimal("0.00")),
        (STRING, "TRUE", BOOLEAN, True),
        (STRING, "0", BOOLEAN, False),
        (STRING, "ø ", BINARY, "ø ".encode()),
        (STRING, " 2026-11-15", DATE, dt.date(2026, 11, 15)),
        (STRING, "2026-11-15", INSTANT, NOON.replace(hour=0)),
        (STRING, "2026-11-15 12:00:00", INSTANT, NOON),
        (STRING, "2026-11-15T12:00:00Z", INSTANT, NOON),
        (STRING, "2026-11-15T14:00:00+02:00", INSTANT, NOON),
        (STRING, "2026-11-15T12:00:00.5", LOCAL, LOCAL_NOON.replace(microsecond=500_000)),
        (DATE, dt.date(2026, 11, 15), INSTANT, NOON.replace(hour=0)),
        (DATE, dt.date(2026, 11, 15), LOCAL, LOCAL_NOON.replace(hour=0)),
        (pa.timestamp("ms", "Europe/Oslo"), NOON, INSTANT, NOON),
        (pa.list_(INT64), [1, None], pa.list_(INT8), [1, None]),
        (pa.large_list(STRING), ["1"], pa.list_(INT64), [1]),
        (pa.map_(STRING, INT64), [("a", 1)], pa.map_(STRING, STRING), [("a", "1")]),
        (
            pa.list_(pa.struct([("key", STRING), ("value", INT64)])),
            [{"key": "a", "value": 1}],
            pa.map_(STRING, INT64),
            [("a", 1)],
        ),
        (pa.struct([("a", INT64)]), {"a": 1}, STRICT, {"a": 1}),
        (
            pa.struct([("b", STRING), ("a", INT64)]),
            {"b": "x", "a": 1},
            pa.struct([("a", STRING), ("new", INT64), ("b", STRING)]),
            {"a": "1", "new": None, "b": "x"},
        ),
    ],
)
def test_a_value_that_fits_is_cast(
    source: pa.DataType, value: object, target: pa.DataType, expected: object
) -> None:
    array = pa.array([None, value, None], source)

    result = cast_array(array.slice(1), target)

    assert can_cast(source, target)
    assert result.type == target
    assert result.to_pylist() == [expected, None]
    result.validate(full=True)


@pytest.mark.parametrize(
    ("source", "value", "target", "named"),
    [
        (INT64, 128, INT8, ("TINYINT", "128")),
        (pa.uint64(), 2**63, INT64, ("BIGINT", "9223372036854775808")),
        (INT64, 1000, MONEY, ("DECIMAL", "5", "2", "1000")),
        (DOUBLE, 1000.0, MONEY, ("DECIMAL", "5", "2", "1000.0")),
        (DOUBLE, 999.995, MONEY, ("DECIMAL", "5", "2", "999.995")),
        (DOUBLE, NAN, MONEY, ("DECIMAL(5,2)", "nan")),
        (DOUBLE, INFINITY, MONEY, ("DECIMAL(5,2)", "inf")),
        (DOUBLE, 1e39, FLOAT, ("FLOAT", "1e", "39")),
        (DOUBLE, 1.5, INT64, ("BIGINT", "1.5")),
        (DOUBLE, 2.0**63, INT64, ("BIGINT", "9.223372036854776e", "18")),
        (DOUBLE, NAN, INT64, ("BIGINT",)),
        (
            pa.decimal128(6, 3),
            Decimal("999.995"),
            MONEY,
            ("DECIMAL", "5", "2", "999.995"),
        ),
        (MONEY, Decimal("1.50"), INT8, ("TINYINT", "1.50")),
        (MONEY, Decimal("128.00"), INT8, ("TINYINT", "128.00")),
        (BINARY, b"\xff", STRING, ("STRING",)),
        (STRING, "0x1F", INT64, ("BIGINT", '"0x1F"')),
        (STRING, "1.0", INT64, ("BIGINT", '"1.0"')),
        (STRING, "", INT64, ("BIGINT", '""')),
        (STRING, "128", INT8, ("TINYINT", '"128"')),
        (STRING, "1e999", DOUBLE, ("DOUBLE", '"1e999"')),
        (STRING, "1e39", FLOAT, ("FLOAT", '"1e39"')),
        (STRING, "nan", DOUBLE, ("DOUBLE", '"nan"')),
        (STRING, "1_0", MONEY, ("DECIMAL", "5", "2", '"1_0"')),
        (STRING, "NaN", MONEY, ("DECIMAL", "5", "2", '"NaN"')),
        (STRING, "999.995", MONEY, ("DECIMAL", "5", "2", '"999.995"')),
        (STRING, "1e999999", MONEY, ("DECIMAL", "5", "2", '"1e999999"')),
        (STRING, "yes", BOOLEAN, ("BOOLEAN", '"yes"')),
        (STRING, "2026-02-30", DATE, ("DATE", '"2026-02-30"')),
        (STRING, "2026-11-15 12:00:00", DATE, ("DATE", '"2026-11-15 12:00:00"')),
        (STRING, "2026-11-15Z", INSTANT, ("TIMESTAMP", '"2026-11-15Z"')),
        (STRING, "x" * 200, INSTANT, ("TIMESTAMP", f"{'x' * 80}…")),
        (
            STRING,
            "2026-11-15T12:00:00Z",
            LOCAL,
            ("TIMESTAMP_NTZ", '"2026-11-15T12:00:00Z"'),
        ),
        (pa.timestamp("ns"), 1001, LOCAL, ("TIMESTAMP_NTZ",)),
        (pa.list_(INT64), [1, 128], pa.list_(INT8), ("TINYINT", "128")),
        (pa.map_(STRING, INT64), [("a", 128)], pa.map_(STRING, INT8), ("TINYINT",)),
        (pa.struct([("a", INT64)]), {"a": 128}, STRICT, ("TINYINT", "128")),
        (pa.struct([("a", INT64)]), {"a": None}, STRICT, ("TINYINT", "NULL")),
    ],
)
def test_the_first_row_that_does_not_fit_is_named(
    source: pa.DataType, value: object, target: pa.DataType, named: tuple[str, ...]
) -> None:
    array = pa.array([None, None, value, None, value], source)

    with pytest.raises(CastError) as raised:
        cast_array(array.slice(1), target)

    assert raised.value.row == 1
    assert_names(raised.value.reason, *named)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (BOOLEAN, INT64),
        (INT64, BOOLEAN),
        (INT64, DATE),
        (INT64, INSTANT),
        (INSTANT, LOCAL),
        (BINARY, INT64),
        (INT64, BINARY),
        (STRING, pa.list_(STRING)),
        (pa.list_(STRING), STRING),
        (pa.list_(BOOLEAN), pa.list_(INT64)),
        (pa.list_(INT64), pa.map_(STRING, INT64)),
        (pa.struct([("a", INT64), ("b", INT64)]), pa.struct([("a", INT64)])),
        (pa.struct([("b", INT64)]), STRICT),
        (pa.time64("us"), STRING),
    ],
)
def test_an_impossible_cast_is_detected_before_any_value(
    source: pa.DataType, target: pa.DataType
) -> None:
    assert not can_cast(source, target)


def test_the_first_misfit_of_a_struct_is_the_first_by_row() -> None:
    source = pa.struct([("a", INT64), ("b", INT64)])
    array = pa.array([{"a": 1, "b": 1}, {"a": 1, "b": 300}, {"a": 300, "b": 1}], source)

    with pytest.raises(CastError) as raised:
        cast_array(array, pa.struct([("a", INT8), ("b", INT8)]))

    assert (raised.value.row, raised.value.path) == (1, ("b",))
    assert_names(str(raised.value), "row 1", '"b"', "TINYINT", "300")


def test_a_value_under_a_null_struct_is_ignored() -> None:
    array = pa.StructArray.from_arrays(
        [pa.array([1, 300])], names=["a"], mask=pa.array([False, True])
    )

    assert cast_array(array, STRICT).to_pylist() == [{"a": 1}, None]


def test_nulls_without_a_type_and_dictionaries_are_cast_like_their_values() -> None:
    assert cast_array(pa.nulls(2), INT64).to_pylist() == [None, None]
    assert cast_array(pa.array(["1", "2", "1"]).dictionary_encode(), INT64).to_pylist() == [
        1,
        2,
        1,
    ]


def test_a_cast_error_survives_pickling() -> None:
    error = CastError(3, "expected INT, found 1.5", ("a", "b"))

    revived = pickle.loads(pickle.dumps(error))  # noqa: S301 - Our own bytes.

    assert (revived.row, revived.reason, revived.path) == (3, error.reason, ("a", "b"))
