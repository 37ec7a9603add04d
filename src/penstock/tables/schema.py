"""Columns as the Delta log writes them, and back."""

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
    """Write columns as the schema of a Delta table."""
    return json.dumps(_struct(columns), ensure_ascii=False)


def columns_of(text: str) -> tuple[Column, ...]:
    """Read the schema of a Delta table as columns."""
    return _columns(json.loads(text)["fields"])


def check_columns(name: str, columns: tuple[Column, ...]) -> None:
    """Refuse columns that a Delta table cannot have."""
    if not columns:
        raise UserError(f'table "{name}" must have at least one column', code=Code.TABLE_ERR)
    for column in columns:
        # delta-rs looks for the type everywhere but in maps, and then writes a table whose
        # log does not name the feature that reading it takes.
        if _within_map(column.type, Primitive.TIMESTAMP_NTZ):
            raise UserError(
                f'column "{column.name}" has TIMESTAMP_NTZ inside a MAP',
                code=Code.NOT_SUPPORTED_ERR,
                hint="Use TIMESTAMP there.",
            )


def _within_map(kind: DataType, wanted: Primitive) -> bool:
    match kind:
        case Map():
            return _within(kind.key, wanted) or _within(kind.value, wanted)
        case Array():
            return _within_map(kind.element, wanted)
        case Struct():
            return any(_within_map(field.type, wanted) for field in kind.fields)
        case _:
            return False


def _within(kind: DataType, wanted: Primitive) -> bool:
    match kind:
        case Map():
            return _within_map(kind, wanted)
        case Array():
            return _within(kind.element, wanted)
        case Struct():
            return any(_within(field.type, wanted) for field in kind.fields)
        case _:
            return kind is wanted


def _struct(columns: tuple[Column, ...]) -> dict[str, Any]:
    return {"type": "struct", "fields": [_field(column) for column in columns]}


def _field(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": _type(column.type),
        "nullable": column.nullable,
        "metadata": {"comment": column.comment} if column.comment else {},
    }


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
                f'the table has a column of the type "{written}", which cannot be loaded',
                code=Code.TYPE_ERR,
            )
