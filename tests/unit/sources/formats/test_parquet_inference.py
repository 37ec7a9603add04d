"""Columns are inferred from the footers of Parquet files."""

import datetime as dt
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import Code, UserError
from penstock.model.schema import columns_sql
from penstock.sources.formats.blocks import UnreadableFileError
from penstock.sources.formats.inference import infer_parquet_columns
from tests.error_values import assert_names, raises


def parquet(table: dict[str, Any], **options: Any) -> io.BytesIO:
    sink = io.BytesIO()
    pq.write_table(pa.table(table), sink, **options)
    return sink


def inferred(*tables: dict[str, Any]) -> str:
    return columns_sql(infer_parquet_columns(parquet(table) for table in tables))


def empty(arrow: pa.DataType) -> dict[str, Any]:
    return {"v": pa.array([], arrow)}


def test_columns_are_the_union_of_all_files_in_order_of_appearance() -> None:
    columns = inferred({"b": ["x"], "a": [1]}, {"c": [1.5], "a": [2]})

    assert columns == "b STRING, a BIGINT, c DOUBLE"


def test_names_that_differ_in_case_are_one_column() -> None:
    assert inferred({"Id": [1]}, {"ID": [2], "id2": [3]}) == "Id BIGINT, id2 BIGINT"


def test_names_of_one_file_that_differ_only_in_case_are_refused() -> None:
    with raises(UserError, Code.TYPE_ERR, '"id"', '"ID"'):
        inferred({"id": [1], "ID": [2]})


@pytest.mark.parametrize(
    ("left", "right", "both"),
    [
        (pa.int32(), pa.int64(), "BIGINT"),
        (pa.int8(), pa.uint8(), "SMALLINT"),
        (pa.float32(), pa.float64(), "DOUBLE"),
        (pa.int64(), pa.float32(), "DOUBLE"),
        (pa.decimal128(10, 2), pa.decimal128(8, 4), "DECIMAL(12,4)"),
        (pa.decimal128(10, 2), pa.int32(), "DECIMAL(12,2)"),
        (pa.int64(), pa.uint64(), "DECIMAL(20,0)"),
        (pa.string(), pa.large_string(), "STRING"),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), "STRING"),
        (pa.null(), pa.int16(), "SMALLINT"),
        (pa.null(), pa.null(), "STRING"),
        (pa.date32(), pa.date64(), "DATE"),
        (pa.uuid(), pa.binary(), "BINARY"),
        (pa.list_(pa.int32()), pa.large_list(pa.int64()), "ARRAY<BIGINT>"),
        (
            pa.map_(pa.string(), pa.int32()),
            pa.map_(pa.string(), pa.int64()),
            "MAP<STRING, BIGINT>",
        ),
        (
            pa.struct([("a", pa.int8()), ("b", pa.string())]),
            pa.struct([("c", pa.bool_()), ("a", pa.int16())]),
            "STRUCT<a: SMALLINT, b: STRING, c: BOOLEAN>",
        ),
    ],
)
def test_different_types_are_widened(left: pa.DataType, right: pa.DataType, both: str) -> None:
    assert inferred(empty(left), empty(right)) == f"v {both}"


@pytest.mark.parametrize(
    ("left", "right", "named"),
    [
        (pa.int64(), pa.string(), ("BIGINT", "STRING")),
        (pa.date32(), pa.string(), ("DATE", "STRING")),
        (pa.float64(), pa.decimal128(5, 1), ("DOUBLE", "DECIMAL", "5", "1")),
        (pa.decimal128(38, 0), pa.decimal128(38, 9), ("DECIMAL", "38", "0")),
        (pa.list_(pa.int64()), pa.int64(), ("ARRAY", "BIGINT")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), ("TIMESTAMP_NTZ",)),
        (
            pa.struct([("a", pa.int8())]),
            pa.struct([("a", pa.string())]),
            ("STRUCT", "TINYINT", "STRING"),
        ),
    ],
)
def test_the_error_names_incompatible_types(
    left: pa.DataType, right: pa.DataType, named: tuple[str, ...]
) -> None:
    with raises(UserError, Code.TYPE_ERR, '"v"', *named) as caught:
        inferred(empty(left), empty(right))

    assert caught.value.code is Code.TYPE_ERR


@pytest.mark.parametrize(
    ("value", "kind"), [(dt.time(1), "time64[us]"), (dt.timedelta(1), "duration[us]")]
)
def test_an_unsupported_type_is_refused_by_name(value: object, kind: str) -> None:
    with pytest.raises(UserError) as caught:
        inferred({"id": [1], "v": [value]})

    assert_names(caught.value.message, '"v"', f"{kind}")
    assert caught.value.code is Code.TYPE_ERR


def test_int96_is_an_instant() -> None:
    local = pa.array([0], pa.timestamp("us"))

    stream = parquet({"at": local}, use_deprecated_int96_timestamps=True)

    assert columns_sql(infer_parquet_columns([stream])) == "at TIMESTAMP"


def test_no_files_are_refused_without_columns() -> None:
    with raises(UserError, Code.TYPE_ERR, "no column", "Parquet"):
        infer_parquet_columns([])


def test_a_file_of_another_format_is_unreadable() -> None:
    with raises(UnreadableFileError, Code.FILE_ERR, "b'PAR1'"):
        infer_parquet_columns([io.BytesIO(b"id,name\n")])
