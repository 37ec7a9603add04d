"""Columns and their types, named as Spark SQL names them."""

from dataclasses import dataclass
from enum import StrEnum

from penstock.errors import Code, UserError
from penstock.model.text import quoted_name, quoted_text

# A folder name contains the column name and a value, and has at most 255 bytes. A column name
# of at most 200 bytes leaves room for all but very long values.
PARTITION_NAME_BYTES_MAX = 200

# These characters separate the parts of a path. Readers do not percent-decode column names in
# folder names, so a column name must not contain these characters.
_PATH_SEPARATORS = "/=:"


class Primitive(StrEnum):
    """A type without parts; ``sql`` is the text of a type in a statement."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    BINARY = "BINARY"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_NTZ = "TIMESTAMP_NTZ"

    @property
    def sql(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Decimal:
    """An exact number of at most ``precision`` digits, ``scale`` of them after the point."""

    precision: int
    scale: int

    @property
    def sql(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """A list of values of one type."""

    element: "DataType"

    @property
    def sql(self) -> str:
        return f"ARRAY<{self.element.sql}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """Values by key."""

    key: "DataType"
    value: "DataType"

    @property
    def sql(self) -> str:
        return f"MAP<{self.key.sql}, {self.value.sql}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Struct:
    """Named fields, each with a type of its own."""

    fields: tuple["Column", ...]

    @property
    def sql(self) -> str:
        fields = (f"{quoted_name(field.name)}: {_rest_sql(field)}" for field in self.fields)
        return f"STRUCT<{', '.join(fields)}>"


DataType = Primitive | Decimal | Array | Map | Struct


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A named, typed column of a table, a source or a struct."""

    name: str
    type: DataType
    nullable: bool = True
    comment: str = ""


def partition_column_error(column: Column) -> UserError | None:
    """Return an error if a column cannot be a partition column; None if it can."""
    if column.type in (Primitive.FLOAT, Primitive.DOUBLE):
        hint = "Readers compare NaN and -0.0 in different ways. Use a DECIMAL column."
        return _type_error(column, hint=hint)
    if column.type is Primitive.BINARY or isinstance(column.type, Array | Map | Struct):
        hint = (
            "Use a column of an integer, date or timestamp type, or DECIMAL, STRING or BOOLEAN."
        )
        return _type_error(column, hint=hint)
    found = [separator for separator in _PATH_SEPARATORS if separator in column.name]
    if found:
        return UserError(
            f'partition column "{column.name}" must not have "{found[0]}" in its name',
            code=Code.TABLE_ERR,
            hint="Rename the column. Folder names in the table contain the name of the column.",
        )
    name_bytes = len(column.name.encode())
    if name_bytes > PARTITION_NAME_BYTES_MAX:
        return UserError(
            f'name of partition column "{column.name}" must have at most '
            f"{PARTITION_NAME_BYTES_MAX} bytes, not {name_bytes}",
            code=Code.TABLE_ERR,
        )
    return None


def _type_error(column: Column, *, hint: str) -> UserError:
    return UserError(
        f'partition column "{column.name}" must not have the type {column.type.sql}',
        code=Code.TYPE_ERR,
        hint=hint,
    )


def columns_sql(columns: tuple[Column, ...]) -> str:
    """Write columns as a list without the parentheses: ``id BIGINT NOT NULL, note STRING``."""
    return ", ".join(column_sql(column) for column in columns)


def column_sql(column: Column) -> str:
    """Write one column as in CREATE TABLE."""
    return f"{quoted_name(column.name)} {_rest_sql(column)}"


def _rest_sql(column: Column) -> str:
    text = column.type.sql + ("" if column.nullable else " NOT NULL")
    return text + (f" COMMENT {quoted_text(column.comment)}" if column.comment else "")
