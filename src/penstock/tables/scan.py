"""Read the rows of a table's snapshot, file by file, without its log."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import Code, ExternalError
from penstock.model.query import Lookup, LookupFile
from penstock.model.schema import Column
from penstock.storage.arrow_types import AnyArray, AnyType, arrow_schema
from penstock.storage.casts import cast_array
from penstock.tables.pruning import Pruning
from penstock.tables.table import SnapshotFile

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class TableScan:
    """What a SELECT reads of a table: the files of one version."""

    name: str
    location: str
    version: int
    columns: tuple[Column, ...]
    files: tuple[SnapshotFile, ...]


def read_lookup(lookup: Lookup) -> Iterator[pa.RecordBatch]:
    """Read all rows of a table that a SELECT joins with."""
    for file in lookup.files:
        yield from read_file(lookup.table.location, file, columns=lookup.columns)


def read_file(
    location: str,
    file: LookupFile | SnapshotFile,
    *,
    columns: tuple[Column, ...],
    pruning: Pruning | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read some columns of a data file; one that the file does not have is NULL.

    Row groups without a wanted row are left out.
    """
    schema = arrow_schema(columns)
    value_by_name = dict(file.partition_values)
    try:
        with pq.ParquetFile(Path(location) / file.path) as parquet:
            stored = set(parquet.schema_arrow.names)
            wanted = [name for name in schema.names if name in stored]
            groups = None if pruning is None else pruning.row_groups(parquet.metadata)
            for batch in parquet.iter_batches(
                _BATCH_ROWS, row_groups=groups, columns=wanted, use_threads=False
            ):
                yield _completed(batch, schema, value_by_name)
    except (OSError, pa.ArrowException) as error:
        raise ExternalError(
            f'data file "{location}/{file.path}" could not be read',
            code=Code.STORAGE_ERR,
            detail=f"{error}.",
        ) from error


def _completed(
    batch: pa.RecordBatch, schema: pa.Schema, value_by_name: dict[str, str | None]
) -> pa.RecordBatch:
    columns = [
        cast_array(batch.column(field.name), field.type)
        if field.name in batch.schema.names
        else _repeated(value_by_name.get(field.name), field.type, batch.num_rows)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _repeated(value: str | None, kind: AnyType, count: int) -> AnyArray:
    if value is None:
        return pa.nulls(count, kind)
    return pa.repeat(cast_array(pa.array([value], pa.string()), kind)[0], count)
