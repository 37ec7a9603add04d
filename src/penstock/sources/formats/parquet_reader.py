"""Read the row groups of a Parquet file into Arrow record batches of the wanted columns.

Invariant: if ranges cover a file without overlap, exactly one range reads each row: the range
that contains the first byte of the row group.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BufferedIOBase
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.arrow.casts import CastError, can_cast, cast_array
from penstock.arrow.json_text import json_objects
from penstock.arrow.types import AnyArray, AnyField, AnyType, NestedArray, data_type
from penstock.errors import Code
from penstock.sources.files.kind import MissingColumns
from penstock.sources.formats.blocks import (
    BadRecord,
    RecordBlock,
    UnreadableFileError,
    Wanted,
    misfit_reasons,
)
from penstock.sources.formats.parquet_footer import RowGroup, read_row_groups
from penstock.storage.store import read_ahead

_BATCH_ROWS_MAX = 1 << 16
_MAGIC = b"PAR1"
_MAGIC_ENCRYPTED = b"PARE"
_BROKEN_FOOTER = "the footer of the Parquet file is broken"
_BROKEN_VALUES = "the values of the Parquet file are broken"
_REWRITE_HINT = "Write the file again, or remove it."


def read_parquet(
    stream: BufferedIOBase, *, wanted: Wanted, start: int, end: int | None
) -> Iterator[RecordBlock]:
    """Read the row groups that start in ``[start, end)`` of the file; None is its end."""
    file = open_parquet(stream)
    plan = _plan(file, wanted)
    _check_missing(plan)
    _check_types(plan)
    first_line = 0
    most = 2 * len(plan.read) >= len(file.schema_arrow)
    for number, group, after in _owned_groups(
        stream, rows=file.metadata.num_rows, start=start, end=end
    ):
        # Read the whole group ahead if most columns are needed.
        if most:
            read_ahead(stream, group.first_byte, after)
        for batch in _batches(file, number, names=plan.read, rows=group.rows):
            yield _block(batch, plan=plan, first_line=first_line)
            first_line += batch.num_rows


def open_parquet(stream: BufferedIOBase) -> pq.ParquetFile:
    """Open a Parquet file; raise ``UnreadableFileError`` if it has another format."""
    _check_magic(stream)
    with _explained(_BROKEN_FOOTER):
        # Arrow's default for INT96, nanoseconds, overflows outside the years 1677 to 2262.
        return pq.ParquetFile(
            cast("IO[bytes]", stream),
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
            pre_buffer=False,
        )


def instant_columns(file: pq.ParquetFile) -> frozenset[str]:
    """Return the columns of type INT96, which are instants although they have no zone."""
    leaves = (file.schema.column(at) for at in range(len(file.schema)))
    return frozenset(leaf.path for leaf in leaves if leaf.physical_type == "INT96")


def stored_type(arrow: AnyType) -> AnyType:
    """Return the storage type of an extension type such as UUID; other types unchanged."""
    return arrow.storage_type if isinstance(arrow, pa.BaseExtensionType) else arrow


def _check_magic(stream: BufferedIOBase) -> None:
    size_bytes = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    head = stream.read(len(_MAGIC))
    stream.seek(max(size_bytes - len(_MAGIC), 0))
    tail = stream.read(len(_MAGIC))
    if _MAGIC_ENCRYPTED in (head, tail):
        raise UnreadableFileError(
            "the Parquet file is encrypted, which is not supported",
            hint="Write the file without encryption.",
        )
    if head != _MAGIC:
        raise UnreadableFileError(
            f"a Parquet file must start with {_MAGIC!r}, found {head!r}",
            hint='Check the option "format", or remove the file.',
        )
    if tail != _MAGIC:
        raise UnreadableFileError(
            f"a Parquet file must end with {_MAGIC!r}, found {tail!r} before byte {size_bytes}",
            detail="The file may be truncated.",
            hint=_REWRITE_HINT,
        )


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Convert errors of Arrow to ``UnreadableFileError``; do not convert store errors."""
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise UnreadableFileError(what, detail=str(error), hint=_REWRITE_HINT) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The columns to read from one file."""

    wanted: Wanted
    # For each wanted column that the file has: the name in the file.
    name_by_wanted: dict[str, str]
    type_by_name: dict[str, AnyType]
    instants: frozenset[str]
    # The columns of the file that are not declared; empty if they are not rescued.
    extra: tuple[str, ...]

    @property
    def read(self) -> tuple[str, ...]:
        return (*dict.fromkeys(self.name_by_wanted.values()), *self.extra)


def _plan(file: pq.ParquetFile, wanted: Wanted) -> _Plan:
    with _explained(_BROKEN_FOOTER):
        type_by_name = _type_by_name(file.schema_arrow)
        instants = instant_columns(file)
    found = _found(wanted.columns.names, names=tuple(type_by_name))
    taken = frozenset(found.values())
    extra = (name for name in type_by_name if wanted.rescue and name not in taken)
    return _Plan(
        wanted=wanted,
        name_by_wanted={name: found[name] for name in wanted.names if name in found},
        type_by_name=type_by_name,
        instants=instants,
        extra=tuple(extra),
    )


def _type_by_name(schema: pa.Schema) -> dict[str, AnyType]:
    type_by_name = {field.name: stored_type(field.type) for field in schema}
    if len(type_by_name) < len(schema):
        names = schema.names
        repeated = next(name for name in names if names.count(name) > 1)
        raise UnreadableFileError(
            f'column "{repeated}" occurs more than once in the file',
            hint="Write the file with a unique name for each column.",
        )
    return type_by_name


def _found(columns: Sequence[str], *, names: tuple[str, ...]) -> dict[str, str]:
    """Return the file's name by column: the exact name, else the only one in another case."""
    alike: dict[str, list[str]] = {}
    for name in names:
        if name not in columns:
            alike.setdefault(name.casefold(), []).append(name)
    found = {column: column for column in columns if column in names}
    for column in columns:
        candidates = alike.get(column.casefold(), [])
        if column not in found and len(candidates) == 1:
            found[column] = candidates[0]
    return found


def _check_missing(plan: _Plan) -> None:
    lacking = [name for name in plan.wanted.names if name not in plan.name_by_wanted]
    if lacking and plan.wanted.missing is MissingColumns.FAIL:
        names = ", ".join(f'"{name}"' for name in lacking)
        raise UnreadableFileError(
            f"the file has no column {names}",
            detail=f"Columns of the file: {', '.join(plan.type_by_name) or 'none'}.",
            hint='Set the option "missing_columns" to "null" to read NULL instead.',
        )


def _check_types(plan: _Plan) -> None:
    for field in plan.wanted.fields:
        name = plan.name_by_wanted.get(field.name)
        source = plan.type_by_name.get(name or "")
        if source is None or can_cast(_cast_type(source, name, field.type, plan), field.type):
            continue
        raise UnreadableFileError(
            f'column "{field.name}" has the type {source} in the file, which cannot be'
            f" converted to {data_type(field.type).sql}",
            code=Code.TYPE_ERR,
            hint='Declare the column with another type in the option "schema".',
        )


def _cast_type(source: AnyType, name: str | None, target: AnyType, plan: _Plan) -> AnyType:
    """Return the source type for a cast; INT96 values for a TIMESTAMP are in UTC."""
    zoned = pa.types.is_timestamp(target) and target.tz is not None
    if zoned and name in plan.instants and pa.types.is_timestamp(source):
        return pa.timestamp("us", "UTC")
    return source


def _owned_groups(
    stream: BufferedIOBase, *, rows: int, start: int, end: int | None
) -> Iterator[tuple[int, RowGroup, int]]:
    """Yield the row groups of the range: number, row group, and first byte after it."""
    with _explained(_BROKEN_FOOTER):
        groups = read_row_groups(stream)
    if sum(group.rows for group in groups) != rows:
        raise UnreadableFileError(
            f"the row groups of the Parquet file do not have {rows} rows in total",
            hint=_REWRITE_HINT,
        )
    firsts = sorted({stream.seek(0, os.SEEK_END), *(group.first_byte for group in groups)})
    for number, group in enumerate(groups):
        if start <= group.first_byte and (end is None or group.first_byte < end):
            following = firsts[bisect_right(firsts, group.first_byte) :]
            yield number, group, following[0] if following else group.first_byte


def _batches(
    file: pq.ParquetFile, group: int, *, names: tuple[str, ...], rows: int
) -> Iterator[pa.RecordBatch]:
    found = 0
    with _explained(f"row group {group} of the Parquet file is broken"):
        batches = file.iter_batches(
            _BATCH_ROWS_MAX, row_groups=[group], columns=list(names), use_threads=False
        )
        for batch in batches:
            found += batch.num_rows
            yield _stored(batch.select(list(names)))
    if found != rows:
        raise UnreadableFileError(
            f"row group {group} of the Parquet file must have {rows} rows, found {found}",
            hint=_REWRITE_HINT,
        )


def _stored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode dictionaries and extension types."""
    columns = [column.cast(_value_type(column.type)) for column in batch.columns]
    # Only ``select`` can create a batch with rows but without columns.
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names) if columns else batch


def _value_type(arrow: AnyType) -> AnyType:
    return arrow.value_type if pa.types.is_dictionary(arrow) else stored_type(arrow)


def _block(batch: pa.RecordBatch, *, plan: _Plan, first_line: int) -> RecordBlock:
    reason_by_row: dict[int, str] = {}
    arrays = []
    for field in plan.wanted.fields:
        source = _source(batch, field, plan)
        try:
            arrays.append(_fitted(source, field))
        except CastError:
            reason_by_row = misfit_reasons(source, field, _fitted) | reason_by_row
    if reason_by_row:
        return _mixed_block(batch, reason_by_row, plan=plan, first_line=first_line)
    if plan.wanted.rescue:
        arrays.append(pa.array(_texts(batch.select(list(plan.extra))), pa.string()))
    return RecordBlock(
        batch=pa.RecordBatch.from_arrays(arrays, schema=plan.wanted.schema)
        if arrays
        else batch.select([]),
        record_of_row=range(first_line, first_line + batch.num_rows),
        lines=batch.num_rows,
    )


def _mixed_block(
    batch: pa.RecordBatch, reason_by_row: dict[int, str], *, plan: _Plan, first_line: int
) -> RecordBlock:
    good = np.array([n for n in range(batch.num_rows) if n not in reason_by_row], np.int64)
    bad = sorted(reason_by_row)
    texts = _texts(batch.take(pa.array(bad, pa.int64())))
    block = _block(batch.take(good), plan=plan, first_line=first_line)
    return replace(
        block,
        lines=batch.num_rows,
        record_of_row=first_line + good,
        bad=tuple(
            BadRecord(
                record=first_line + row,
                error=reason_by_row[row],
                raw=(text or "{}").encode(),
            )
            for row, text in zip(bad, texts, strict=True)
        ),
    )


def _texts(batch: pa.RecordBatch) -> list[str | None]:
    with _explained(_BROKEN_VALUES):
        return json_objects(batch)


def _source(batch: pa.RecordBatch, field: AnyField, plan: _Plan) -> NestedArray:
    name = plan.name_by_wanted.get(field.name)
    if name is None:
        return pa.nulls(batch.num_rows, field.type)
    array = batch.column(name)
    return array.cast(_cast_type(array.type, name, field.type, plan))


def _fitted(array: AnyArray, field: AnyField) -> AnyArray:
    """Convert values to the column's type; raise ``CastError`` if a value does not fit."""
    sql = data_type(field.type).sql
    try:
        # Arrow does not check that texts in Parquet files are UTF-8.
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CastError(0, f"expected {sql}, found a text that is not UTF-8") from error
    try:
        values = cast_array(array, field.type)
    except CastError:
        raise
    except (ValueError, OverflowError, pa.ArrowException) as error:
        # Python cannot represent some values, such as dates after the year 9999.
        raise CastError(0, f"expected {sql}, found a value that does not fit") from error
    if values.null_count and not field.nullable:
        raise CastError(0, f"expected {sql}, found NULL")
    return values
