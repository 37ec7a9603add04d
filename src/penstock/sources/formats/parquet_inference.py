"""Infer columns from the footers of Parquet files."""

from collections.abc import Iterable
from io import BufferedIOBase

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import Code, UserError
from penstock.model.schema import Array, Column, DataType, Decimal, Map, Primitive, Struct
from penstock.sources.formats.parquet_rows import (
    instant_columns,
    opened_parquet,
    stored_type,
)
from penstock.storage.arrow_types import AnyField, data_type

_PRECISION_MAX = 38
_INTEGERS = (Primitive.TINYINT, Primitive.SMALLINT, Primitive.INT, Primitive.BIGINT)
_FLOATINGS = (Primitive.FLOAT, Primitive.DOUBLE)
_DIGITS_BY_INTEGER = {
    Primitive.TINYINT: 3,
    Primitive.SMALLINT: 5,
    Primitive.INT: 10,
    Primitive.BIGINT: 19,
}
_SCHEMA_HINT = 'Name the columns with the option "schema", such as "id BIGINT, note STRING".'


def infer_parquet_columns(streams: Iterable[BufferedIOBase]) -> tuple[Column, ...]:
    """Give the columns that hold the rows of all files, in the order they are met."""
    # None stands for what was never seen to have a type.
    type_by_name: dict[str, DataType | None] = {}
    for stream in streams:
        for name, kind in _file_types(opened_parquet(stream)).items():
            known = _known_name(name, type_by_name)
            type_by_name[known] = _merged(type_by_name.get(known), kind, name=known)
    if not type_by_name:
        raise UserError(
            "no column was found in the Parquet files",
            code=Code.TYPE_ERR,
            hint=_SCHEMA_HINT,
        )
    return tuple(
        Column(name=name, type=kind or Primitive.STRING) for name, kind in type_by_name.items()
    )


def _file_types(file: pq.ParquetFile) -> dict[str, DataType | None]:
    instants = instant_columns(file)
    type_by_name: dict[str, DataType | None] = {}
    for field in file.schema_arrow:
        twin = next((name for name in type_by_name if _alike(name, field.name)), None)
        if twin is not None:
            raise UserError(
                f'columns "{twin}" and "{field.name}" of one file must differ not only in case',
                code=Code.TYPE_ERR,
                hint=_SCHEMA_HINT,
            )
        type_by_name[field.name] = _type(field, instant=field.name in instants)
    return type_by_name


def _alike(left: str, right: str) -> bool:
    return left.casefold() == right.casefold()


def _known_name(name: str, known: Iterable[str]) -> str:
    return next((other for other in known if _alike(other, name)), name)


def _type(field: AnyField, *, instant: bool) -> DataType | None:
    if pa.types.is_null(field.type):
        return None
    try:
        kind = data_type(stored_type(field.type))
    except UserError as error:
        raise UserError(
            f'column "{field.name}" is {field.type} in the file, which is no column type',
            code=Code.TYPE_ERR,
            hint='Name the columns with the option "schema", without this one.',
        ) from error
    return Primitive.TIMESTAMP if instant and kind is Primitive.TIMESTAMP_NTZ else kind


def _merged(left: DataType | None, right: DataType | None, *, name: str) -> DataType | None:
    if left is None or right is None:
        return left or right
    widened = _widened(left, right)
    if widened is None:
        raise UserError(
            f'column "{name}" is {left.sql} in one file and {right.sql} in another',
            code=Code.TYPE_ERR,
            hint='Name the columns with the option "schema", with a type that holds both.',
        )
    return widened


def _widened(left: DataType, right: DataType) -> DataType | None:
    """Give the type that holds the values of both; None if there is none."""
    if left == right:
        return left
    match left, right:
        case Primitive(), Primitive():
            return _widened_number(left, right)
        case (Decimal(), Decimal() | Primitive()) | (Primitive(), Decimal()):
            return _widened_decimal(left, right)
        case Array(), Array():
            element = _widened(left.element, right.element)
            return element and Array(element=element)
        case Map(), Map():
            key, value = _widened(left.key, right.key), _widened(left.value, right.value)
            return Map(key=key, value=value) if key and value else None
        case Struct(), Struct():
            return _widened_struct(left, right)
        case _:
            return None


def _widened_number(left: Primitive, right: Primitive) -> Primitive | None:
    for family in (_INTEGERS, _FLOATINGS):
        if left in family and right in family:
            return max(left, right, key=family.index)
    numbers = (*_INTEGERS, *_FLOATINGS)
    return Primitive.DOUBLE if left in numbers and right in numbers else None


def _widened_decimal(left: DataType, right: DataType) -> Decimal | None:
    first, second = _as_decimal(left), _as_decimal(right)
    if first is None or second is None:
        return None
    whole = max(first.precision - first.scale, second.precision - second.scale)
    scale = max(first.scale, second.scale)
    if whole + scale > _PRECISION_MAX:
        return None
    return Decimal(precision=whole + scale, scale=scale)


def _as_decimal(kind: DataType) -> Decimal | None:
    match kind:
        case Decimal():
            return kind
        case Primitive() if kind in _DIGITS_BY_INTEGER:
            return Decimal(precision=_DIGITS_BY_INTEGER[kind], scale=0)
        case _:
            return None


def _widened_struct(left: Struct, right: Struct) -> Struct | None:
    field_by_name = {field.name: field for field in left.fields}
    lacking = field_by_name.keys() ^ {field.name for field in right.fields}
    for field in right.fields:
        known = field_by_name.get(field.name, field)
        kind = _widened(known.type, field.type)
        if kind is None:
            return None
        field_by_name[field.name] = Column(
            name=field.name, type=kind, nullable=known.nullable or field.nullable
        )
    return Struct(
        fields=tuple(
            Column(name=name, type=field.type, nullable=field.nullable or name in lacking)
            for name, field in field_by_name.items()
        )
    )
