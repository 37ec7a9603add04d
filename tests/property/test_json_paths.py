"""The result of a JSON line does not depend on its neighbours."""

import io
import json
import math
from typing import Any

import pyarrow as pa
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from penstock.arrow.types import arrow_schema
from penstock.errors import UserError
from penstock.sources.formats.blocks import Wanted
from penstock.sources.formats.inference import infer_columns
from penstock.sources.formats.json_arrays import JsonSource
from penstock.sources.formats.json_columns import read_directly
from penstock.sources.formats.json_reader import json_reading, read_json, read_one_by_one

SCALARS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "tinyint": (pa.int8(), st.integers(-128, 127)),
    "double": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "float": (pa.float32(), st.floats(allow_nan=False, allow_infinity=False, width=32)),
    "boolean": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text()),
    "decimal": (pa.decimal128(10, 2), st.decimals(-(10**7), 10**7, places=3).map(str)),
    "date": (pa.date32(), st.dates().map(str)),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes().map(str)),
}
TYPES: dict[str, pa.DataType] = {
    **{name: kind for name, (kind, _) in SCALARS.items()},
    "list": pa.list_(pa.int64()),
    "struct": pa.struct([("a", pa.string()), ("b", pa.list_(pa.float64()))]),
}
SCHEMA = pa.schema(TYPES)


def wanted(columns: pa.Schema) -> Wanted:
    return Wanted(columns=columns, names=tuple(columns.names))


values: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.none() | value for name, (_, value) in SCALARS.items()},
    "list": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3),
    "struct": st.none()
    | st.fixed_dictionaries(
        {}, optional={"a": st.text(), "b": st.lists(st.floats(-1, 1), max_size=3)}
    ),
    "unknown": st.recursive(
        st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner, max_size=3)
    ),
}
records = st.fixed_dictionaries({}, optional=values)
rows = st.lists(records, min_size=1, max_size=5)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["2026-11-15", "1.5"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=2)
    ),
    max_leaves=6,
)
wild_records = st.dictionaries(st.sampled_from([*TYPES, "unknown"]), anything, max_size=4)


@settings(deadline=None, max_examples=200)
@given(rows=rows, ascii_only=st.booleans())
def test_records_read_line_by_line_equal_those_read_as_a_block(
    *, rows: list[dict[str, Any]], ascii_only: bool
) -> None:
    lines = [json.dumps(row, ensure_ascii=ascii_only).encode() for row in rows]
    reading = json_reading(wanted(SCHEMA))
    sources = [JsonSource(text=line, line=True) for line in lines]

    batches = read_directly(b"\n".join(lines), reading.shape)
    one_by_one = read_one_by_one(sources, reading=reading)

    assert batches == [one_by_one.batch]
    assert one_by_one.bad == ()


@settings(deadline=None, max_examples=200)
@given(record=wild_records, spaced=st.booleans())
def test_a_record_has_the_same_result_alone_and_with_bad_neighbours(
    *, record: dict[str, Any], spaced: bool
) -> None:
    line = json.dumps(record, separators=(", ", ": ") if spaced else (",", ":")).encode()

    alone = read(line + b"\n")
    beside = read(b"null\n" + line + b"\n{}}\n")

    assert str(beside[0]) == str(alone[0])
    assert [error for _, error in beside[1][1:-1]] == [error for _, error in alone[1]]


@settings(deadline=None, max_examples=200)
@given(rows=rows)
def test_values_are_read_unchanged(rows: list[dict[str, Any]]) -> None:
    lines = [json.dumps(row).encode() for row in rows]

    read_rows, bad = read(b"\n".join(lines))

    assert bad == []
    assert [plain(row) for row in read_rows] == [plain(row) for row in rows]


@settings(deadline=None, max_examples=200)
@given(rows=st.lists(st.dictionaries(st.text(min_size=1, max_size=3), anything, max_size=4)))
def test_inferred_columns_fit_the_records_they_were_inferred_from(
    rows: list[dict[str, Any]],
) -> None:
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows if finite(row))
    try:
        columns = infer_columns([content])
    except UserError:
        reject()

    reading = json_reading(wanted(arrow_schema(columns)))
    blocks = list(read_json(io.BytesIO(content), reading=reading, start=0, end=None))

    assert [bad.error for block in blocks for bad in block.bad] == []


def plain(row: dict[str, Any]) -> list[object]:
    names = ("bigint", "tinyint", "double", "boolean", "string", "list")
    return [*(row.get(name) for name in names), str(row.get("date"))]


def finite(value: object) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case dict():
            return all(finite(item) for item in value.values())
        case list():
            return all(finite(item) for item in value)
        case _:
            return True


def read(content: bytes) -> tuple[list[Any], list[tuple[int, str]]]:
    reading = json_reading(wanted(SCHEMA))
    blocks = list(read_json(io.BytesIO(content), reading=reading, start=0, end=None))
    return (
        [row for block in blocks for row in block.batch.to_pylist()],
        [(bad.record, bad.error) for block in blocks for bad in block.bad],
    )
