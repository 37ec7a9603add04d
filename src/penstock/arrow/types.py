"""Convert column types to Arrow types and back."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, assert_never

import pyarrow as pa

from penstock.errors import Code, UserError
from penstock.model.schema import Array, Column, DataType, Decimal, Map, Primitive, Struct

# Arrow's classes are generic only for the type checker, and their attributes depend on the
# type at run time.
AnyArray: TypeAlias = "pa.Array[Any]"
AnyField: TypeAlias = "pa.Field[Any]"
AnyType: TypeAlias = Any
NestedArray: TypeAlias = Any

_PRECISION_MAX = 38

_ARROW_BY_PRIMITIVE: dict[Primitive, pa.DataType] = {
    Primitive.BOOLEAN: pa.bool_(),
    Primitive.TINYINT: pa.int8(),
    Primitive.SMALLINT: pa.int16(),
    Primitive.INT: pa.int32(),
    Primitive.BIGINT: pa.int64(),
    Primitive.FLOAT: pa.float32(),
    Primitive.DOUBLE: pa.float64(),
    Primitive.STRING: pa.string(),
    Primitive.BINARY: pa.binary(),
    Primitive.DATE: pa.date32(),
    Primitive.TIMESTAMP: pa.timestamp("us", "UTC"),
    Primitive.TIMESTAMP_NTZ: pa.timestamp("us"),
}

# Files of other programs can have Arrow types without an equal column type. An unsigned
# integer becomes the next wider signed type, which holds all of its values.
_SCALAR_BY_ARROW: dict[pa.DataType, DataType] = {
    **{arrow: primitive for primitive, arrow in _ARROW_BY_PRIMITIVE.items()},
    pa.uint8(): Primitive.SMALLINT,
    pa.uint16(): Primitive.INT,
    pa.uint32(): Primitive.BIGINT,
    pa.uint64(): Decimal(precision=20, scale=0),
    pa.float16(): Primitive.FLOAT,
    pa.large_string(): Primitive.STRING,
    pa.string_view(): Primitive.STRING,
    pa.large_binary(): Primitive.BINARY,
    pa.binary_view(): Primitive.BINARY,
    pa.date64(): Primitive.DATE,
    pa.null(): Primitive.STRING,
}


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type that holds the values of a column type."""
    match kind:
        case Primitive():
            return _ARROW_BY_PRIMITIVE[kind]
        case Decimal():
            return pa.decimal128(kind.precision, kind.scale)
        case Array():
            return pa.list_(pa.field("element", arrow_type(kind.element)))
        case Map():
            return pa.map_(arrow_type(kind.key), arrow_type(kind.value))
        case Struct():
            return pa.struct([_arrow_field(field) for field in kind.fields])
        case _:
            assert_never(kind)


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema of columns, including NOT NULL."""
    return pa.schema([_arrow_field(column) for column in columns])


def _arrow_field(column: Column) -> AnyField:
    return pa.field(column.name, arrow_type(column.type), nullable=column.nullable)


def data_type(arrow: pa.DataType) -> DataType:
    """Return the column type that holds the values of an Arrow type."""
    scalar = _SCALAR_BY_ARROW.get(arrow)
    if scalar is not None:
        return scalar
    for fits, convert in _COMPOUNDS:
        if fits(arrow):
            return convert(arrow)
    raise UserError(
        f"Arrow type {arrow} has no column type",
        code=Code.TYPE_ERR,
        hint="Omit the column, or write it with another type.",
    )


def list_like(arrow: pa.DataType) -> bool:
    """Return whether the type is any of Arrow's list types."""
    return isinstance(arrow, (pa.ListType, pa.LargeListType, pa.FixedSizeListType))


def _storable_decimal(arrow: pa.DataType) -> bool:
    return pa.types.is_decimal(arrow) and 0 <= arrow.scale <= arrow.precision <= _PRECISION_MAX


def _struct(arrow: pa.StructType) -> DataType:
    return Struct(
        fields=tuple(
            Column(name=field.name, type=data_type(field.type), nullable=field.nullable)
            for field in arrow
        )
    )


_COMPOUNDS: tuple[tuple[Callable[[pa.DataType], bool], Callable[..., DataType]], ...] = (
    (
        pa.types.is_timestamp,
        lambda arrow: Primitive.TIMESTAMP_NTZ if arrow.tz is None else Primitive.TIMESTAMP,
    ),
    (_storable_decimal, lambda arrow: Decimal(precision=arrow.precision, scale=arrow.scale)),
    (pa.types.is_fixed_size_binary, lambda _: Primitive.BINARY),
    (pa.types.is_dictionary, lambda arrow: data_type(arrow.value_type)),
    (list_like, lambda arrow: Array(element=data_type(arrow.value_type))),
    (
        pa.types.is_map,
        lambda arrow: Map(key=data_type(arrow.key_type), value=data_type(arrow.item_type)),
    ),
    (pa.types.is_struct, _struct),
)
