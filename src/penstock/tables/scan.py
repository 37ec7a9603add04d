"""Read the rows of a table's snapshot, file by file, without its log."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BufferedIOBase
from typing import IO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import Code, ExternalError
from penstock.model.query import Lookup, LookupFile
from penstock.model.schema import Column
from penstock.model.sealed import Sealed
from penstock.storage.access import open_sealed
from penstock.storage.arrow_types import AnyArray, AnyType, arrow_schema
from penstock.storage.casts import cast_array
from penstock.storage.stores import Store
from penstock.tables.locations import table_uri
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
    access: Sealed = Sealed()


def read_lookup(lookup: Lookup) -> Iterator[pa.RecordBatch]:
    """Read all rows of a table that a SELECT joins with."""
    files = TableFiles(lookup.table.location, lookup.access)
    for file in lookup.files:
        yield from read_file(files, file, columns=lookup.columns)


class TableFiles:
    """The data files of a table, opened to be read; used inside tasks."""

    def __init__(self, location: str, access: Sealed) -> None:
        self.location = location
        self._store: Store
        self._store, self._root = open_sealed(str(table_uri(location)), access)

    def open(self, path: str) -> AbstractContextManager[BufferedIOBase]:
        """Open a data file; none is ever written twice, so that no ETag needs to be known."""
        return self._store.open(f"{self._root}/{path}", etag=None)


def read_file(
    files: TableFiles,
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
        with (
            files.open(file.path) as stream,
            pq.ParquetFile(cast("IO[bytes]", stream)) as parquet,
        ):
            stored = set(parquet.schema_arrow.names)
            wanted = [name for name in schema.names if name in stored]
            groups = None if pruning is None else pruning.row_groups(parquet.metadata)
            for batch in parquet.iter_batches(
                _BATCH_ROWS, row_groups=groups, columns=wanted, use_threads=False
            ):
                yield _completed(batch, schema, value_by_name)
    except (OSError, pa.ArrowException, ExternalError) as error:
        # Without its cause, which a traceback in Spark's own logs would show.
        raise ExternalError(
            f'data file "{files.location}/{file.path}" could not be read',
            code=Code.STORAGE_ERR,
            detail=f"{error}.",
        ) from None


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
