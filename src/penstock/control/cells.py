"""Rows of Arrow as cells that can be printed.

Numbers and truths stay what they are. What JSON has no number for is a text: DECIMAL, whose
digits all count, NaN and the infinities. Times are in UTC; nested values are JSON.
"""

import json
import math
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.arrow.types import NestedArray
from penstock.control.result import Cell, Result

Value: TypeAlias = Any

_WHOLE_SECOND = ".000000"


def result_of(rows: "pa.Table") -> Result:
    """Answer the rows as a result."""
    columns = [
        [cell for chunk in column.chunks for cell in _cells(chunk)] for column in rows.columns
    ]
    cells = zip(*columns, strict=True) if columns else ()
    return Result(columns=tuple(rows.column_names), rows=tuple(cells))


def _cells(array: NestedArray) -> list[Cell]:
    values = _values(array)
    if not pa.types.is_nested(array.type):
        return values
    return [None if value is None else _json(value) for value in values]


def _json(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False)


def _values(array: NestedArray) -> list[Value]:
    """Answer the values as JSON knows them."""
    kind = array.type
    if pa.types.is_floating(kind):
        # By way of the text, so that a FLOAT shows no digits that it does not have.
        return [None if t is None else _number(t) for t in _texts(array)]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [None if value is None else _bytes(value) for value in array.to_pylist()]
    if pa.types.is_timestamp(kind):
        local = array.cast(pa.timestamp("us"))
        return [t and t.removesuffix(_WHOLE_SECOND) for t in _texts(local)]
    if pa.types.is_nested(kind):
        return _nested(array)
    if pa.types.is_decimal(kind):
        return [None if value is None else f"{value:f}" for value in array.to_pylist()]
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return list(array.to_pylist())
    return _texts(array)


def _texts(array: NestedArray) -> list[Value]:
    return list(array.cast(pa.string()).to_pylist())


def _number(text: str) -> float | str:
    number = float(text)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else f"{'-' if number < 0 else ''}Infinity"


def _bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def _nested(array: NestedArray) -> list[Value]:
    kind = array.type
    if pa.types.is_struct(kind):
        fields = [
            (field.name, _values(values))
            for field, values in zip(kind, array.flatten(), strict=True)
        ]
        return [
            {name: values[at] for name, values in fields} if valid else None
            for at, valid in enumerate(array.is_valid().to_pylist())
        ]
    if pa.types.is_map(kind):
        pair = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        lists = _lists(array.cast(pa.list_(pair)))
        return [
            None if pairs is None else {_key(one["key"]): one["value"] for one in pairs}
            for pairs in lists
        ]
    return _lists(array)


def _lists(array: NestedArray) -> list[Value]:
    """Answer lists of values; those of all lists lie one behind the other."""
    values = iter(_values(array.flatten()))
    lengths: list[int | None] = array.value_lengths().to_pylist()
    return [
        None if length is None else [next(values) for _ in range(length)] for length in lengths
    ]


def _key(value: Value) -> str:
    return value if isinstance(value, str) else _json(value)
