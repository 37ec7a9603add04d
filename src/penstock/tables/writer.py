"""Record batches to Parquet files of a table; runs inside Spark tasks.

Invariant: a file that is answered is complete and on the disk, and no file is ever written
over another one. Files that were not answered are no part of the table.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import InvariantError
from penstock.model.epoch import DataFile
from penstock.model.schema import Array, Column, DataType, Decimal, Map, Primitive, Struct
from penstock.storage.arrow_types import arrow_schema
from penstock.tables.durable import storage_error, sync
from penstock.tables.statistics import Summary, float_summary, statistics_json

_FILE_BYTES_MAX = 256 * 2**20

# A row group is what lies in memory before it is written.
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
    """Writes batches of one task; a name that no other writer has makes its files its own."""

    def __init__(
        self,
        root: Path,
        columns: tuple[Column, ...],
        name: str,
        *,
        file_bytes_max: int = _FILE_BYTES_MAX,
    ) -> None:
        self._root = root
        self._columns = columns
        self._name = name
        self._file_bytes_max = file_bytes_max
        self._schema = arrow_schema(columns)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._file: _File | None = None
        self._paths: list[Path] = []
        self._written: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch that has exactly the table's schema."""
        if not batch.schema.equals(self._schema):
            raise InvariantError(f"batch has the schema {batch.schema}, not {self._schema}")
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= _GROUP_ROWS_MAX or self._waiting_bytes >= _GROUP_BYTES_MAX:
            self._write_group()

    def close(self) -> tuple[DataFile, ...]:
        """Finish the files and answer them; none if there was no row."""
        self._write_group()
        self._finish_file()
        if self._written:
            with _writing(self._root):
                sync(self._root)
        return tuple(self._written)

    def abort(self) -> None:
        """Remove everything that was written."""
        self._waiting.clear()
        if self._file is not None:
            with suppress(OSError, pa.ArrowException):
                self._file.close()
            self._file = None
        for path in self._paths:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _write_group(self) -> None:
        if not self._waiting:
            return
        group = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting.clear()
        self._waiting_rows = self._waiting_bytes = 0
        file = self._file or self._next_file()
        with _writing(file.path):
            file.write(group)
            full = file.size_bytes >= self._file_bytes_max
        if full:
            self._finish_file()

    def _next_file(self) -> "_File":
        path = self._root / f"part-{self._name}-{len(self._paths)}.parquet"
        with _writing(path):
            path.touch(exist_ok=False)
            self._paths.append(path)
            self._file = _File(path, self._schema, self._columns)
        return self._file

    def _finish_file(self) -> None:
        if self._file is None:
            return
        file, self._file = self._file, None
        with _writing(file.path):
            self._written.append(file.finish())


class _File:
    """One Parquet file while it is being written."""

    def __init__(self, path: Path, schema: pa.Schema, columns: tuple[Column, ...]) -> None:
        self.path = path
        self._columns = columns
        self._metadata: list[pq.FileMetaData] = []
        self._floats = {c.name: Summary() for c in columns if c.type in _FLOATING}
        self._sink = pa.OSFile(str(path), "wb")
        leaves = list(_leaves(columns))
        # A dictionary helps texts and only slows the rest. Readers skip row groups by bounds
        # that leave NaN out; where there are no bounds they cannot.
        texts = [leaf for leaf, kind in leaves if kind is Primitive.STRING]
        bounded = [leaf for leaf, kind in leaves if kind not in _FLOATING]
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=texts,  # type: ignore[arg-type] # A list is understood too.
            column_encoding={c.name: "DELTA_BINARY_PACKED" for c in columns if _packed(c.type)},
            write_statistics=bounded,
            store_decimal_as_integer=True,
            store_schema=False,
            metadata_collector=self._metadata,
        )

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return int(self._sink.tell())

    def write(self, group: pa.Table) -> None:
        """Append one row group."""
        self._writer.write_table(group, row_group_size=group.num_rows)
        for name, summary in self._floats.items():
            self._floats[name] = summary.join(float_summary(group[name]))

    def close(self) -> None:
        """Let go of the file."""
        try:
            self._writer.close()
        finally:
            self._sink.close()

    def finish(self) -> DataFile:
        """Complete the file, make it durable and answer what the log shall say about it."""
        self.close()
        sync(self.path)
        status = self.path.stat()
        metadata = self._metadata[0]
        return DataFile(
            path=self.path.name,
            size_bytes=status.st_size,
            rows=metadata.num_rows,
            modified_at=datetime.fromtimestamp(status.st_mtime, tz=UTC),
            statistics_json=statistics_json(metadata, self._columns, floats=self._floats),
        )


def _packed(kind: DataType) -> bool:
    """Tell whether a column is stored as whole numbers, whose differences are small."""
    if isinstance(kind, Decimal):
        return kind.precision <= _INTEGER_DECIMAL_DIGITS_MAX
    return kind in _PACKED


def _leaves(columns: Iterable[Column], *, parent: str = "") -> Iterator[tuple[str, DataType]]:
    """Yield the columns of the Parquet file, which has no nested ones, with their paths."""
    for column in columns:
        path = f"{parent}{column.name}"
        match column.type:
            case Struct():
                yield from _leaves(column.type.fields, parent=f"{path}.")
            case Array():
                element = Column(name="element", type=column.type.element)
                yield from _leaves([element], parent=f"{path}.list.")
            case Map():
                key = Column(name="key", type=column.type.key)
                value = Column(name="value", type=column.type.value)
                yield from _leaves([key, value], parent=f"{path}.key_value.")
            case _:
                yield path, column.type


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise InvariantError(f'data file "{path}" exists already') from error
    except OSError as error:
        raise storage_error(f'data file "{path}" could not be written', error) from error
