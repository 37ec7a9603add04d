"""Convert columns to the schema text of a Delta log, and back."""

import json
import re
from typing import Any, assert_never

from penstock.errors import Code, UserError
from penstock.model.schema import Array, Column, DataType, Decimal, Map, Primitive, Struct

_NAME_BY_PRIMITIVE = {
    Primitive.BOOLEAN: "boolean",
    Primitive.TINYINT: "byte",
    Primitive.SMALLINT: "short",
    Primitive.INT: "integer",
    Primitive.BIGINT: "long",
    Primitive.FLOAT: "float",
    Primitive.DOUBLE: "double",
    Primitive.STRING: "string",
    Primitive.BINARY: "binary",
    Primitive.DATE: "date",
    Primitive.TIMESTAMP: "timestamp",
    Primitive.TIMESTAMP_NTZ: "timestamp_ntz",
}
_PRIMITIVE_BY_NAME = {name: primitive for primitive, name in _NAME_BY_PRIMITIVE.items()}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)\Z")


def schema_text(columns: tuple[Column, ...]) -> str:
    """Convert columns to the schema of a Delta table."""
    return json.dumps(_struct(columns), ensure_ascii=False)


def columns_of(text: str) -> tuple[Column, ...]:
    """Convert the schema of a Delta table to columns."""
    return _columns(json.loads(text)["fields"])


def check_columns(name: str, columns: tuple[Column, ...]) -> None:
    """Raise UserError for columns that a Delta table cannot have."""
    if not columns:
        raise UserError(f'table "{name}" must have at least one column', code=Code.TABLE_ERR)
    for column in columns:
        # For this type inside a map, delta-rs omits the reader feature that the type requires.
        if _ntz_in_map(column.type):
            raise UserError(
                f'column "{column.name}" has TIMESTAMP_NTZ inside a MAP',
                code=Code.NOT_SUPPORTED_ERR,
                hint="Use TIMESTAMP there.",
            )


def _ntz_in_map(kind: DataType, *, inside: bool = False) -> bool:
    match kind:
        case Map():
            return any(_ntz_in_map(part, inside=True) for part in (kind.key, kind.value))
        case Array():
            return _ntz_in_map(kind.element, inside=inside)
        case Struct():
            return any(_ntz_in_map(field.type, inside=inside) for field in kind.fields)
        case _:
            return inside and kind is Primitive.TIMESTAMP_NTZ


def _struct(columns: tuple[Column, ...]) -> dict[str, Any]:
    fields = [
        {
            "name": column.name,
            "type": _type(column.type),
            "nullable": column.nullable,
            "metadata": {"comment": column.comment} if column.comment else {},
        }
        for column in columns
    ]
    return {"type": "struct", "fields": fields}


def _type(kind: DataType) -> str | dict[str, Any]:
    match kind:
        case Primitive():
            return _NAME_BY_PRIMITIVE[kind]
        case Decimal():
            return f"decimal({kind.precision},{kind.scale})"
        case Array():
            return {"type": "array", "elementType": _type(kind.element), "containsNull": True}
        case Map():
            return {
                "type": "map",
                "keyType": _type(kind.key),
                "valueType": _type(kind.value),
                "valueContainsNull": True,
            }
        case Struct():
            return _struct(kind.fields)
        case _:
            assert_never(kind)


def _columns(fields: list[dict[str, Any]]) -> tuple[Column, ...]:
    return tuple(
        Column(
            name=field["name"],
            type=_data_type(field["type"]),
            nullable=field["nullable"],
            comment=str(field.get("metadata", {}).get("comment", "")),
        )
        for field in fields
    )


def _data_type(written: str | dict[str, Any]) -> DataType:
    match written:
        case {"type": "array", "elementType": element}:
            return Array(element=_data_type(element))
        case {"type": "map", "keyType": key, "valueType": value}:
            return Map(key=_data_type(key), value=_data_type(value))
        case {"type": "struct", "fields": list(fields)}:
            return Struct(fields=_columns(fields))
        case str() if written in _PRIMITIVE_BY_NAME:
            return _PRIMITIVE_BY_NAME[written]
        case str() if decimal := _DECIMAL.match(written):
            return Decimal(precision=int(decimal[1]), scale=int(decimal[2]))
        case _:
            raise UserError(
                f'the table has a column of type "{written}", which is not supported',
                code=Code.TYPE_ERR,
            )
