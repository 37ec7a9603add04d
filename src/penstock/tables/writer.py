"""Write record batches to the Parquet files of a table, inside Spark tasks.

Invariant: a returned file is complete and durable, and no file is ever overwritten. A file that
was not returned is never part of the table.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.arrow.types import arrow_schema
from penstock.errors import ExternalError, InvariantError
from penstock.model.epoch import DataFile
from penstock.model.schema import Column, DataType, Decimal, Primitive
from penstock.storage.store import NewObject, storage_error
from penstock.tables.folder import TableFolder
from penstock.tables.partitions import PartitionRows, PartitionValues, folder_names, split
from penstock.tables.statistics import Summary, float_summary, leaves, statistics_json

# Maximum number of open files. At the maximum, the least recently written file is completed
# before a new file is opened.
OPEN_FILES_MAX = 64
_FILE_BYTES_MAX = 256 * 2**20

# A row group is held in memory before it is written.
_GROUP_BYTES_MAX = 64 * 2**20
_GROUP_ROWS_MAX = 2**20

_PACKED = frozenset(
    {
        Primitive.TINYINT,
        Primitive.SMALLINT,
        Primitive.INT,
        Primitive.BIGINT,
        Primitive.DATE,
        Primitive.TIMESTAMP,
        Primitive.TIMESTAMP_NTZ,
    }
)
_FLOATING = frozenset({Primitive.FLOAT, Primitive.DOUBLE})
_INTEGER_DECIMAL_DIGITS_MAX = 18


class TableWriter:
    """A writer of the batches of one task; its unique ``name`` is part of all file names.

    ``below`` is the folder of the files, relative to the table. Each partition has a subfolder.
    """

    def __init__(
        self,
        folder: TableFolder,
        columns: tuple[Column, ...],
        name: str,
        *,
        partition_by: tuple[str, ...] = (),
        below: str = "",
    ) -> None:
        self._folder = folder
        self._below = (below,) if below else ()
        self._name = name
        self._schema = arrow_schema(columns)
        column_by_name = {column.name: column for column in columns}
        self._keys = tuple(column_by_name[key] for key in partition_by)
        self._stored = tuple(c for c in columns if c.name not in partition_by)
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        # In the order of their last write.
        self._file_by_partition: dict[PartitionValues, _File] = {}
        self._created: list[NewObject] = []
        self._written: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch that has exactly the table's schema."""
        if not batch.schema.equals(self._schema):
            raise InvariantError(f"batch has the schema {batch.schema}, not {self._schema}")
        if not batch.num_rows:
            return
        self._wait(pa.Table.from_batches([batch]))
        if self._waiting_rows >= _GROUP_ROWS_MAX or self._waiting_bytes >= _GROUP_BYTES_MAX:
            self._write_largest()

    def close(self) -> tuple[DataFile, ...]:
        """Complete the files and return them; empty if no row was written."""
        for part in self._take_partitions():
            self._write_group(part)
        for partition in tuple(self._file_by_partition):
            self._finish_file(partition)
        self._folder.store.sync(folders_of((f.path for f in self._written), self._folder))
        return tuple(self._written)

    def abort(self) -> None:
        """Delete all written files, and their new folders if these are empty."""
        self._waiting.clear()
        for file in self._file_by_partition.values():
            with suppress(OSError, pa.ArrowException, ExternalError):
                file.close()
        self._file_by_partition.clear()
        for created in reversed(self._created):
            # A file that cannot be deleted now remains until VACUUM deletes it.
            with suppress(ExternalError):
                created.abort()

    def _wait(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes

    def _take_partitions(self) -> list[PartitionRows]:
        """Remove the buffered rows and return them by partition, largest first."""
        if not self._waiting:
            return []
        rows = pa.concat_tables(self._waiting)
        self._waiting.clear()
        self._waiting_rows = self._waiting_bytes = 0
        return split(rows, self._keys)

    def _write_largest(self) -> None:
        """Write at least half of the buffered rows; small partitions wait for more rows."""
        parts = self._take_partitions()
        half = sum(part.rows.num_rows for part in parts) / 2
        done = written = 0
        while written < half:
            self._write_group(parts[done])
            written += parts[done].rows.num_rows
            done += 1
        if parts[done:]:
            # Copy the rest, because a slice would keep the written rows in memory.
            rest = pa.concat_tables([part.rows for part in parts[done:]])
            self._wait(rest.combine_chunks())

    def _write_group(self, part: PartitionRows) -> None:
        file = self._file_by_partition.pop(part.values, None) or self._next_file(part.values)
        self._file_by_partition[part.values] = file
        with _writing(self._folder, file.name):
            rows = part.rows.select([column.name for column in self._stored])
            size_bytes = file.write(rows)
        if size_bytes >= _FILE_BYTES_MAX:
            self._finish_file(part.values)

    def _next_file(self, partition: PartitionValues) -> "_File":
        if len(self._file_by_partition) >= OPEN_FILES_MAX:
            self._finish_file(next(iter(self._file_by_partition)))
        own = f"part-{self._name}-{len(self._created)}.parquet"
        name = "/".join((*self._below, *folder_names(partition), own))
        self._created.append(self._folder.store.create(self._folder.root, name))
        with _writing(self._folder, name):
            return _File(name, self._created[-1], self._stored)

    def _finish_file(self, partition: PartitionValues) -> None:
        file = self._file_by_partition.pop(partition)
        with _writing(self._folder, file.name):
            self._written.append(file.finish(partition))


def folders_of(paths: Iterable[str], folder: TableFolder) -> set[str]:
    """Return the folder of the table and all folders between it and the files."""
    found: set[str] = set()
    for path in paths:
        found.add(folder.root)
        parts = path.split("/")[:-1]
        found |= {folder.key("/".join(parts[:depth])) for depth in range(1, len(parts) + 1)}
    return found


class _File:
    """One Parquet file while it is being written."""

    def __init__(self, name: str, target: NewObject, columns: tuple[Column, ...]) -> None:
        self.name = name
        self._target = target
        self._columns = columns
        self._metadata: list[pq.FileMetaData] = []
        self._floats = {c.name: Summary() for c in columns if c.type in _FLOATING}
        stored = list(leaves(columns))
        # A dictionary helps texts and slows other types. Floating columns get no bounds:
        # bounds ignore NaN, so readers would skip row groups that hold NaN.
        texts = [leaf for leaf, kind in stored if kind is Primitive.STRING]
        bounded = [leaf for leaf, kind in stored if kind not in _FLOATING]
        self._writer = pq.ParquetWriter(
            target.file,
            arrow_schema(columns),
            compression="zstd",
            compression_level=1,
            use_dictionary=texts,  # type: ignore[arg-type] # A list is allowed too.
            column_encoding={c.name: "DELTA_BINARY_PACKED" for c in columns if _packed(c.type)},
            write_statistics=bounded,
            store_decimal_as_integer=True,
            store_schema=False,
            metadata_collector=self._metadata,
        )

    def write(self, group: pa.Table) -> int:
        """Append one row group; return the bytes written so far."""
        self._writer.write_table(group, row_group_size=group.num_rows)
        for name, summary in self._floats.items():
            self._floats[name] = summary.join(float_summary(group[name]))
        return self._target.file.tell()

    def close(self) -> None:
        """Write the footer of the file."""
        self._writer.close()

    def finish(self, partition: PartitionValues) -> DataFile:
        """Complete and sync the file; return its description for the log."""
        self.close()
        size_bytes = self._target.finish()
        metadata = self._metadata[0]
        return DataFile(
            path=self.name,
            partition_values=partition,
            size_bytes=size_bytes,
            rows=metadata.num_rows,
            modified_at=datetime.now(UTC),
            statistics_json=statistics_json(metadata, self._columns, floats=self._floats),
        )


def _packed(kind: DataType) -> bool:
    """Return whether a column is stored as integers, which delta encoding compresses."""
    if isinstance(kind, Decimal):
        return kind.precision <= _INTEGER_DECIMAL_DIGITS_MAX
    return kind in _PACKED


@contextmanager
def _writing(folder: TableFolder, name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fact = f'data file "{folder}/{name}" could not be written'
        raise storage_error(fact, error) from error
