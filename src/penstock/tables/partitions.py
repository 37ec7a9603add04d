"""Divide rows into partitions, and name their folders by the partition values.

Most readers take partition values from the log. Polars takes them from the folder names. This
module writes both, so all readers see the same values. Some values cannot be folder names, or
would be read as other values. Such a value raises an error with its row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrow.casts import CastError, decimal_to_text, shown
from penstock.arrow.types import AnyArray, NestedArray
from penstock.errors import Code, UserError
from penstock.model.schema import Column, DataType, Decimal, Primitive, partition_column_error

PartitionValues = tuple[tuple[str, str | None], ...]

_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_FOLDER_BYTES_MAX = 255
# Length of a percent-encoded byte.
_ENCODED_BYTES_MAX = 3
_FIRST_DAY, _LAST_DAY = "0001-01-01", "9999-12-31"
_FIRST_MOMENT, _LAST_MOMENT = f"{_FIRST_DAY}T00:00:00.000000", f"{_LAST_DAY}T23:59:59.999999"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRows:
    """The rows of one partition."""

    values: PartitionValues
    rows: pa.Table


def check_partition_columns(columns: tuple[Column, ...], names: tuple[str, ...]) -> None:
    """Raise UserError for partition columns that the table cannot have."""
    column_by_name = {column.name: column for column in columns}
    for name in names:
        if name not in column_by_name:
            raise UserError(
                f'partition column "{name}" is not a column of the table', code=Code.TABLE_ERR
            )
        error = partition_column_error(column_by_name[name])
        if error is not None:
            raise error
    if names and len(names) == len(columns):
        raise UserError(
            "at least one column must not be a partition column", code=Code.TABLE_ERR
        )


def check_keyed_partition_columns(columns: tuple[Column, ...], names: tuple[str, ...]) -> None:
    """Raise UserError for partition columns that a table with keys cannot have.

    delta-rs writes -0.5 as "0.-50". No reader opens a table with such a partition.
    """
    for column in columns:
        if column.name in names and isinstance(column.type, Decimal) and column.type.scale:
            raise UserError(
                f'a table with keys cannot be partitioned by column "{column.name}" of type '
                f"{column.type.sql}",
                code=Code.NOT_SUPPORTED_ERR,
                hint="Partition by another column, or by a DECIMAL with scale 0.",
            )


def folder_names(values: PartitionValues) -> tuple[str, ...]:
    """Return the folder names of a partition, outermost first."""
    return tuple(_folder_name(name, value) for name, value in values)


def _folder_name(name: str, value: str | None) -> str:
    return f"{name}={_NULL_FOLDER if value is None else quote(value, safe='')}"


def split(rows: pa.Table, keys: tuple[Column, ...]) -> list[PartitionRows]:
    """Return the partitions, largest first, each with its rows in the original order."""
    if not keys:
        return [PartitionRows(values=(), rows=rows)]
    codes = _codes([rows[key.name].combine_chunks() for key in keys])
    order: NestedArray = pc.sort_indices(codes)
    # Codes and their counts are both in the order of first appearance.
    sizes: list[int] = codes.value_counts().field("counts").to_pylist()
    starts = [0, *accumulate(sizes[:-1])]
    texts = [
        value_texts(
            rows[key.name].take(order.take(pa.array(starts))).combine_chunks(), key.type
        )
        for key in keys
    ]
    grouped = rows.take(order)
    names = [key.name for key in keys]
    parts = [
        PartitionRows(
            values=tuple(zip(names, values, strict=True)),
            rows=grouped.slice(start, size),
        )
        for start, size, *values in zip(starts, sizes, *texts, strict=True)
    ]
    return sorted(parts, key=lambda part: part.rows.num_rows, reverse=True)


def _codes(arrays: Sequence[NestedArray]) -> NestedArray:
    """Return a code for each row; equal rows have the same code.

    Codes are numbered from 0 in the order of first appearance.
    """
    codes: NestedArray = None
    for array in arrays:
        encoded = array.dictionary_encode(null_encoding="encode")
        own = encoded.indices.cast(pa.int64())
        if codes is None:
            codes = own
            continue
        # Codes are renumbered after every column, so the product cannot overflow.
        pairs = pc.add(pc.multiply(codes, len(encoded.dictionary)), own)
        codes = pairs.dictionary_encode().indices.cast(pa.int64())
    return codes


def value_texts(values: NestedArray, kind: DataType) -> list[str | None]:
    """Convert values to the texts that a Delta log has for them."""
    if isinstance(kind, Decimal):
        texts = decimal_to_text(values, pa.string())
    elif kind is Primitive.TIMESTAMP:
        # Without the Z for UTC, the value would depend on the reader's time zone.
        local = values.cast(pa.timestamp("us")).cast(pa.string())
        iso = pc.replace_substring(local, " ", "T")
        texts = pc.binary_join_element_wise(iso, "Z", "")
    else:
        texts = values.cast(pa.string())
    return list(texts.to_pylist())


def require_partition_values(values: AnyArray, column: Column) -> None:
    """Raise ``CastError`` for the first value that cannot be a folder name."""
    match column.type:
        case Primitive.STRING:
            _require_short(values, column.name)
            row = pc.index(values, value=_NULL_FOLDER).as_py()
            if row >= 0:
                mark = shown(_NULL_FOLDER)
                raise CastError(
                    row, f"a partition cannot have the value {mark}, which means NULL"
                )
        case Primitive.DATE:
            _require_years(values, first=_FIRST_DAY, last=_LAST_DAY)
        case Primitive.TIMESTAMP | Primitive.TIMESTAMP_NTZ:
            zone = "Z" if column.type is Primitive.TIMESTAMP else ""
            _require_years(values, first=_FIRST_MOMENT + zone, last=_LAST_MOMENT + zone)
        case _:
            return


def _require_short(values: NestedArray, name: str) -> None:
    room = (_FOLDER_BYTES_MAX - len(f"{name}=".encode())) // _ENCODED_BYTES_MAX
    doubtful = pc.greater(pc.binary_length(values), pa.scalar(room))
    if not pc.any(doubtful).as_py():
        return
    size_by_text = {
        text: len(_folder_name(name, text).encode())
        for text in values.filter(doubtful).unique().to_pylist()
    }
    long = [text for text, size in size_by_text.items() if size > _FOLDER_BYTES_MAX]
    too_long: NestedArray = pc.is_in(values, value_set=pa.array(long, pa.string()))
    row = pc.index(too_long, value=True).as_py()
    if row >= 0:
        text = values[row].as_py()
        raise CastError(
            row,
            f"the folder name of the partition {shown(text)} would have "
            f"{size_by_text[text]} bytes, at most {_FOLDER_BYTES_MAX} are allowed",
        )


def _require_years(values: AnyArray, *, first: str, last: str) -> None:
    lowest, highest = (pa.scalar(text).cast(values.type) for text in (first, last))
    beyond = pc.or_(pc.less(values, lowest), pc.greater(values, highest))
    row = pc.index(beyond, value=True).as_py()
    if row >= 0:
        found = values.slice(row, 1).cast(pa.string())[0]
        raise CastError(
            row, f"a partition must have a year between 1 and 9999, found {found.as_py()}"
        )
