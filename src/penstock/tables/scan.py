"""Pin a table to one version, and read its data files without the log."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.arrow.casts import cast_array
from penstock.arrow.types import AnyArray, AnyField, AnyType, arrow_schema
from penstock.errors import Code, ExternalError, UserError
from penstock.model.epoch import DataFile
from penstock.model.job import TableRef
from penstock.model.query import Lookup, LookupFile
from penstock.model.schema import Column
from penstock.model.secrets import Sealed
from penstock.tables.chain import open_table
from penstock.tables.folder import TableFolder, open_sealed_folder
from penstock.tables.pruning import Pruning
from penstock.tables.table import SnapshotFile, Tables

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class TableScan:
    """The files of one version of a table, for a SELECT."""

    name: str
    location: str
    version: int
    columns: tuple[Column, ...]
    files: tuple[SnapshotFile, ...]
    access: Sealed = Sealed()


def read_lookup(lookup: Lookup) -> Iterator[pa.RecordBatch]:
    """Read all rows of a table that a SELECT joins."""
    folder = open_sealed_folder(lookup.table.location, lookup.access)
    for file in lookup.files:
        yield from read_file(folder, file, columns=lookup.columns)


def read_file(
    folder: TableFolder,
    file: LookupFile | SnapshotFile | DataFile,
    *,
    columns: tuple[Column, ...],
    needed: Sequence[str] | None = None,
    pruning: Pruning | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file; ``pruning`` skips row groups that cannot match.

    Columns that the file lacks, or that are not ``needed``, are NULL. If ``needed`` is None,
    all columns are read.
    """
    schema = arrow_schema(columns)
    names = set(schema.names if needed is None else needed)
    text_by_name = {name: text for name, text in file.partition_values if name in names}
    try:
        with (
            # Data files never change, so no ETag is needed.
            folder.store.open(folder.key(file.path), etag=None) as stream,
            pq.ParquetFile(cast("IO[bytes]", stream)) as parquet,
        ):
            stored = [name for name in parquet.schema_arrow.names if name in names]
            groups = None if pruning is None else pruning.row_groups(parquet.metadata)
            for batch in parquet.iter_batches(
                _BATCH_ROWS, row_groups=groups, columns=stored, use_threads=False
            ):
                columns_read = [_values(batch, field, text_by_name) for field in schema]
                yield pa.RecordBatch.from_arrays(columns_read, schema=schema)
    except (OSError, pa.ArrowException, ExternalError) as error:
        # The cause is omitted, because Spark would log it with its traceback.
        raise ExternalError(
            f'data file "{folder}/{file.path}" could not be read',
            code=Code.STORAGE_ERR,
            detail=f"{error}.",
        ) from None


def _values(
    batch: pa.RecordBatch, field: AnyField, text_by_name: dict[str, str | None]
) -> AnyArray:
    if field.name in batch.schema.names:
        return cast_array(batch.column(field.name), field.type)
    kind: AnyType = field.type
    text = text_by_name.get(field.name)
    if text is None:
        return pa.nulls(batch.num_rows, kind)
    return pa.repeat(cast_array(pa.array([text], pa.string()), kind)[0], batch.num_rows)


def pin(
    table: TableRef, *, tables: Tables, bytes_max: int, version: int | None = None
) -> Lookup:
    """Return a lookup of a version, or of the newest version.

    Raise UserError if a SELECT cannot join the table. The lookup has the columns that the table
    had when the query was defined. So a column that was added later does not change the result
    of ``SELECT *``.
    """
    try:
        handle = open_table(tables, table)
        handle = handle if version is None else handle.at(version)
    except UserError as error:
        raise UserError(
            f'table "{table.name}", which the SELECT joins, cannot be opened',
            code=error.code,
            detail=f"{error.message}.",
            hint="Restore the table, or define the query again without it.",
        ) from error
    files = handle.files()
    size_bytes = sum(file.size_bytes for file in files)
    if size_bytes > bytes_max:
        raise UserError(
            f'joined table "{table.name}" must have at most {bytes_max} bytes, '
            f"not {size_bytes}",
            code=Code.OPTION_ERR,
            hint='Raise "lookup_max_bytes". Every task holds the whole table in memory.',
        )
    return Lookup(
        table=table,
        version=handle.version,
        size_bytes=size_bytes,
        columns=_defined_columns(table, handle.columns()),
        files=tuple(
            LookupFile(path=file.path, partition_values=file.partition_values) for file in files
        ),
        access=tables.task_access(table.location),
    )


def _defined_columns(table: TableRef, found: tuple[Column, ...]) -> tuple[Column, ...]:
    type_by_name = {column.name: column.type for column in found}
    for column in table.columns:
        if type_by_name.get(column.name) != column.type:
            raise UserError(
                f'column "{column.name}" of the joined table "{table.name}" was dropped, '
                f"or its type {column.type.sql} has changed",
                code=Code.TABLE_CHANGED_ERR,
                hint="Restore the column, or define the query again without the column.",
            )
    return table.columns or found


def scan_table(table: TableRef, *, tables: Tables, version: int | None = None) -> TableScan:
    """Return a scan of a table, at a version or at its newest version."""
    return _scan(table.name, table.location, tables=tables, version=version)


def scan_rejects(
    job_id: str, *, name: str, columns: tuple[Column, ...], tables: Tables
) -> TableScan:
    """Return a scan of a job's rejects; an empty scan of these columns if there are none."""
    location = tables.rejects_location(job_id)
    try:
        return _scan(name, location, tables=tables)
    except UserError as error:
        if error.code is not Code.TABLE_CHANGED_ERR:
            raise
        return TableScan(name=name, location=location, version=0, columns=columns, files=())


def _scan(name: str, location: str, *, tables: Tables, version: int | None = None) -> TableScan:
    handle = tables.open(location)
    handle = handle if version is None else handle.at(version)
    return TableScan(
        name=name,
        location=location,
        version=handle.version,
        columns=handle.columns(),
        files=handle.files(),
        access=tables.task_access(location),
    )
