"""Merge staged rows into a Delta table that has one current row per key.

Invariant: a merge is committed at most once, and only if the job's newest commit is its
predecessor. Every try merges into a snapshot that passed this check. delta-rs refuses the merge
if the same job has committed after that snapshot.

delta-rs also refuses a merge if another writer changed files or metadata after the snapshot.
Only the merge is then repeated, with a newer snapshot. The staged files do not change, so every
try merges the same rows.

Memory: the check for duplicate keys holds the key columns of all staged rows. The merge holds
all staged rows. delta-rs also holds the rows of a data file until it finds a match in the file.
So a merge needs up to 150 bytes of memory for each table row of 75 bytes. A merge reads all
data files. Statistics cannot exclude a file, because their bounds are inexact for some types.

delta-rs writes the merged data files and the log entry without a sync in between. This module
syncs the data files when the merge returns. A power failure before that can damage the newest
version of a table on a local disk.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    WriterProperties,
)
from deltalake.exceptions import CommitFailedError

from penstock.arrow.types import NestedArray, arrow_schema
from penstock.model.epoch import Attachment, DataFile
from penstock.model.schema import Column, DataType, Decimal, Primitive
from penstock.tables.chain import find_committed_version
from penstock.tables.folder import TableFolder
from penstock.tables.log import read_commit
from penstock.tables.scan import read_file
from penstock.tables.schema import columns_of
from penstock.tables.table import (
    duplicate_key,
    outcome_unknown,
    require_key_columns,
    require_predecessor,
    table_missing,
)
from penstock.tables.writer import folders_of

MERGES_MAX = 5

_SOURCE, _TARGET = "s", "t"
_FLOATING = (Primitive.FLOAT, Primitive.DOUBLE)
# A decimal with at most this many digits is exact as a double.
_DOUBLE_DIGITS_MAX = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRows:
    """The rows of staged files, at most one row per key."""

    folder: TableFolder
    files: tuple[DataFile, ...]
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    def check(self) -> None:
        """Raise InvariantError for a missing key column or for two rows with the same key."""
        require_key_columns(self.key, columns=self.columns)
        columns = tuple(column for column in self.columns if column.name in self.key)
        # Without any column, Arrow would not count the rows.
        columns = columns or self.columns[:1]
        rows = pa.Table.from_batches(self._batches(columns), arrow_schema(columns))
        keys = rows.select(self.key)
        row = _first_duplicate(keys)
        if row is not None:
            raise duplicate_key({name: keys[name][row].as_py() for name in self.key})

    def merge_into(
        self,
        table: DeltaTable,
        *,
        properties: CommitProperties,
        after: PostCommitHookProperties,
    ) -> None:
        """Merge the rows into a table and commit; the table moves to the new version."""
        expression_by_column = {
            _quoted(column.name): f"{_SOURCE}.{_quoted(column.name)}" for column in self.columns
        }
        merger = table.merge(
            # A reader can be read only once, so a merge cannot see two versions of the rows.
            pa.RecordBatchReader.from_batches(
                arrow_schema(self.columns), self._batches(self.columns)
            ),
            _same_key(self.key),
            source_alias=_SOURCE,
            target_alias=_TARGET,
            writer_properties=_writer_properties(self.columns),
            commit_properties=properties,
            post_commithook_properties=after,
        )
        # The ``…_all`` functions of delta-rs do not quote names that contain a backtick.
        merger = merger.when_matched_update(expression_by_column)
        merger.when_not_matched_insert(expression_by_column).execute()

    def _batches(self, columns: tuple[Column, ...]) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            yield from read_file(self.folder, file, columns=columns)


def _same_key(key: tuple[str, ...]) -> str:
    pairs = ((f"{_TARGET}.{_quoted(name)}", f"{_SOURCE}.{_quoted(name)}") for name in key)
    # Without the parentheses, AND would be part of the second operand.
    return " AND ".join(f"({old} IS NOT DISTINCT FROM {new})" for old, new in pairs) or "true"


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _writer_properties(columns: tuple[Column, ...]) -> WriterProperties:
    """Return the writer properties of merged files.

    Only columns with exact bounds get bounds. Readers would skip files with wrong bounds.
    """
    bounded = ColumnProperties(statistics_enabled="CHUNK")
    return WriterProperties(
        compression="ZSTD",
        compression_level=1,
        # Fields of nested columns cannot be set one by one.
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties={c.name: bounded for c in columns if _exact_bounds(c.type)},
    )


def _exact_bounds(kind: DataType) -> bool:
    """Return whether delta-rs writes valid bounds of a column.

    delta-rs ignores NaN in bounds, and converts the bounds of decimals to doubles.
    """
    if isinstance(kind, Decimal):
        return kind.precision <= _DOUBLE_DIGITS_MAX
    return isinstance(kind, Primitive) and kind not in _FLOATING


def _first_duplicate(keys: pa.Table) -> int | None:
    """Return the index of the first row with a duplicate key; None if all keys are unique."""
    parts = [part for column in keys.columns for part in _comparable(column)]
    names = [str(at) for at in range(len(parts))]
    rows = pa.table([*parts, pa.array(range(keys.num_rows), pa.int64())], [*names, "row"])
    groups = rows.group_by(names).aggregate([("row", "count"), ("row", "min")])
    repeated = groups.filter(pc.greater(groups["row_count"], pa.scalar(1)))
    row: int | None = pc.min(repeated["row_min"]).as_py()
    return row


def _comparable(values: NestedArray) -> list[NestedArray]:
    """Return columns by which rows can be grouped; Arrow cannot group by nested types."""
    if pa.types.is_struct(values.type):
        fields = (_comparable(field) for field in values.flatten())
        return [values.is_valid(), *(part for parts in fields for part in parts)]
    if pa.types.is_nested(values.type):
        return [pa.array([repr(value) for value in values.to_pylist()], pa.string())]
    if pa.types.is_floating(values.type):
        # The merge does not distinguish -0.0 from 0.0.
        return [pc.add(values, pa.scalar(0.0, values.type))]
    return [values]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedCommit:
    """A commit that merges staged rows, based on the snapshot of a handle."""

    rows: StagedRows
    attachment: Attachment
    # The snapshot of the handle. The merge opens its own, because a merge moves its snapshot.
    snapshot: DeltaTable
    properties: CommitProperties
    after: PostCommitHookProperties

    def execute(self) -> None:
        """Merge and commit; repeat the merge if another writer committed first."""
        version = self._merge()
        commit = read_commit(self.rows.folder, version)
        paths = [file.path for file in commit.files] if commit else []
        folder = self.rows.folder
        folder.store.sync([*map(folder.key, paths), *folders_of(paths, folder)])

    def _merge(self) -> int:
        version: int | None = self.snapshot.version()
        conflict: CommitFailedError | None = None
        for _ in range(MERGES_MAX):
            table = self._open(version)
            try:
                self.rows.merge_into(table, properties=self.properties, after=self.after)
            except CommitFailedError as error:
                conflict, version = error, None
            else:
                return table.version()
            # If a response was lost, the conflicting commit can be this commit itself.
            committed = self._committed_version()
            if committed is not None:
                return committed
        reason = f"Other writers committed first {MERGES_MAX} times in a row"
        raise outcome_unknown(self.attachment, reason) from conflict

    def _committed_version(self) -> int | None:
        return find_committed_version(
            self.rows.folder, self.attachment, after=self.snapshot.version()
        )

    def _open(self, version: int | None) -> DeltaTable:
        """Open a version into which the rows can be merged."""
        folder = self.rows.folder
        table = DeltaTable(
            folder.location, version=version, storage_options=folder.library_options
        )
        if table.metadata().id != self.snapshot.metadata().id:
            raise table_missing(folder)
        newest = table.transaction_version(self.attachment.job_id) or 0
        require_predecessor(newest, attachment=self.attachment)
        if _shape(table) != _shape(self.snapshot):
            raise outcome_unknown(self.attachment, "The columns of the table were changed")
        return table


def _shape(table: DeltaTable) -> tuple[tuple[Column, ...], list[str]]:
    return columns_of(table.schema().to_json()), table.metadata().partition_columns
