"""Values of Spark as cells of a result, in every output format."""

import io
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.cli.printing import print_result
from penstock.control.queries import result_of
from penstock.control.result import Cell, result_columns

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
FRACTION = NOON.replace(microsecond=5)
INNER = pa.struct(
    [("at", pa.timestamp("us")), ("by", pa.map_(pa.string(), pa.decimal128(9, 2)))]
)


def cell(value: Any, kind: pa.DataType) -> Cell:
    return result_of(pa.table({"a": pa.array([value], kind)})).rows[0][0]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (True, pa.bool_(), True),
        (-(2**63), pa.int64(), -(2**63)),
        (0.1, pa.float32(), 0.1),
        (5e-324, pa.float64(), 5e-324),
        (float("nan"), pa.float64(), "NaN"),
        (float("-inf"), pa.float32(), "-Infinity"),
        (Decimal("2.50"), pa.decimal128(9, 2), "2.50"),
        (Decimal("1E-38"), pa.decimal128(38, 38), "0." + "0" * 37 + "1"),
        ("a\nb", pa.string(), "a\nb"),
        ("🙂".encode(), pa.binary(), "🙂"),
        (b"\x00\xff", pa.binary(), "0x00ff"),
        (date(1, 1, 1), pa.date32(), "0001-01-01"),
        (NOON, pa.timestamp("us", "UTC"), "2026-11-15 12:00:00"),
        (FRACTION, pa.timestamp("us", "UTC"), "2026-11-15 12:00:00.000005"),
        (NOON.replace(tzinfo=None), pa.timestamp("us"), "2026-11-15 12:00:00"),
        ([], pa.list_(pa.int32()), "[]"),
        ([1, None], pa.list_(pa.int32()), "[1, null]"),
        ([("a", 1), ("", None)], pa.map_(pa.string(), pa.int64()), '{"a": 1, "": null}'),
        ([(1, b"\xff")], pa.map_(pa.int32(), pa.binary()), '{"1": "0xff"}'),
        (
            [{"at": NOON.replace(tzinfo=None), "by": [("ü", Decimal("1.5"))]}, None],
            pa.list_(INNER),
            '[{"at": "2026-11-15 12:00:00", "by": {"ü": "1.50"}}, null]',
        ),
    ],
)
def test_a_value_is_converted_to_a_cell(value: Any, kind: pa.DataType, expected: Cell) -> None:
    assert cell(value, kind) == expected
    assert cell(None, kind) is None


def test_the_rows_of_several_chunks_keep_their_order() -> None:
    lists = pa.array([[1], None, [2, 3]])
    rows = pa.table({"a": pa.chunked_array([lists.slice(2), lists.slice(0, 2)])})

    assert result_of(rows).rows == (("[2, 3]",), ("[1]",), (None,))


def test_a_result_without_rows_has_columns() -> None:
    result = result_of(pa.table({"a": pa.array([], pa.int32())}))

    assert (result.columns, result.rows) == (result_columns("a INT"), ())


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("json", '[{"id": 1, "id_2": true, "d": "2.50", "l": "[\\"a\\"]", "n": null}]\n'),
        ("csv", 'id,id,d,l,n\n1,true,2.50,"[""a""]",\n'),
        (
            "table",
            "id  id    d     l      n\n"
            "--  ----  ----  -----  -\n"
            ' 1  true  2.50  ["a"]\n'
            "1 row\n",
        ),
        (
            "vertical",
            "************ 1. row ************\n"
            'id: 1\nid: true\n d: 2.50\n l: ["a"]\n n: \n1 row\n',
        ),
    ],
)
def test_cells_are_printed_in_every_output(output: str, expected: str) -> None:
    arrays: list[Any] = [
        pa.array([1]),
        pa.array([True]),
        pa.array([Decimal("2.50")]),
        pa.array([["a"]]),
        pa.nulls(1),
    ]
    rows = pa.Table.from_arrays(arrays, names=["id", "id", "d", "l", "n"])
    stream = io.StringIO()

    print_result(result_of(rows), output=output, stream=stream)

    assert stream.getvalue() == expected
