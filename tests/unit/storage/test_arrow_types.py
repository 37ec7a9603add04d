"""Conversion of column types to Arrow types and back."""

import pyarrow as pa
import pytest

from penstock.arrow.types import arrow_schema, arrow_type, data_type
from penstock.errors import Code, UserError
from penstock.model.schema import Array, Column, DataType, Decimal, Map, Primitive, Struct
from tests.error_values import raises

NESTED = Struct(
    fields=(
        Column(name="id", type=Primitive.BIGINT, nullable=False),
        Column(name="tags", type=Array(element=Primitive.STRING)),
        Column(name="by_name", type=Map(key=Primitive.STRING, value=Primitive.DOUBLE)),
    )
)


@pytest.mark.parametrize(
    "kind", [*Primitive, Decimal(precision=38, scale=10), Array(element=NESTED), NESTED]
)
def test_a_column_type_survives_the_conversion_to_arrow_and_back(kind: DataType) -> None:
    assert data_type(arrow_type(kind)) == kind


def test_timestamps_are_microseconds_with_and_without_a_zone() -> None:
    assert arrow_type(Primitive.TIMESTAMP) == pa.timestamp("us", "UTC")
    assert arrow_type(Primitive.TIMESTAMP_NTZ) == pa.timestamp("us")


def test_not_null_is_kept_in_the_arrow_schema() -> None:
    schema = arrow_schema(NESTED.fields)

    assert [(field.name, field.nullable) for field in schema] == [
        ("id", False),
        ("tags", True),
        ("by_name", True),
    ]


@pytest.mark.parametrize(
    ("arrow", "sql"),
    [
        (pa.uint8(), "SMALLINT"),
        (pa.uint32(), "BIGINT"),
        (pa.uint64(), "DECIMAL(20,0)"),
        (pa.large_string(), "STRING"),
        (pa.dictionary(pa.int32(), pa.string()), "STRING"),
        (pa.timestamp("ns", "Europe/Oslo"), "TIMESTAMP"),
        (pa.timestamp("ms"), "TIMESTAMP_NTZ"),
        (pa.date64(), "DATE"),
        (pa.large_list(pa.int8()), "ARRAY<TINYINT>"),
        (pa.decimal256(38, 2), "DECIMAL(38,2)"),
    ],
)
def test_other_arrow_types_have_a_column_type_that_holds_them(
    arrow: pa.DataType, sql: str
) -> None:
    assert data_type(arrow).sql == sql


@pytest.mark.parametrize("arrow", [pa.time64("us"), pa.decimal256(76, 2), pa.duration("s")])
def test_an_arrow_type_without_a_column_type_is_refused(arrow: pa.DataType) -> None:
    with raises(UserError, Code.TYPE_ERR, "Arrow") as raised:
        data_type(arrow)

    assert raised.value.code == Code.TYPE_ERR
