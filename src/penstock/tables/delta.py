"""Delta tables in a folder or a bucket, written with delta-rs.

Invariant: only ``refresh`` moves a handle's snapshot; a commit does not. delta-rs therefore
checks each commit against all commits with the same job id since the last refresh.

delta-rs does not call fsync. So this module syncs the log entries before a commit counts as
successful.

delta-rs identifies a table by its path, so it does not notice a new table at the same path. The
handle therefore stores the etag of the log entry of its snapshot, and compares the etag later.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Schema,
    Transaction,
)
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from penstock.errors import Code, CommitOutcomeUnknownError, ExternalError, UserError
from penstock.model.codec import to_text
from penstock.model.epoch import Attachment, DataFile
from penstock.model.job import TableRef
from penstock.model.schema import Column
from penstock.model.secrets import Sealed
from penstock.storage.options import StoreOptions
from penstock.storage.store import ObjectMeta, error_text, storage_error
from penstock.storage.uris import Scheme
from penstock.tables.chain import (
    ATTACHMENT_KEY,
    chain_above,
    copy_key,
    find_committed_version,
    log_entry,
    logged_commits,
    read_copy,
)
from penstock.tables.folder import (
    LOG_FOLDER,
    TableFolder,
    location_of,
    new_folder,
    open_folder,
    staged_folder,
    subfolder,
    table_uri,
)
from penstock.tables.keyed import KeyedCommit, StagedRows
from penstock.tables.partitions import check_keyed_partition_columns, check_partition_columns
from penstock.tables.schema import check_columns, columns_of, schema_text
from penstock.tables.table import (
    ChainCommit,
    SnapshotFile,
    TableDetail,
    location_in_use,
    no_version,
    outcome_unknown,
    require_partitions,
    table_missing,
)


def _add_action(file: DataFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=dict(file.partition_values),
        modification_time=int(file.modified_at.timestamp() * 1000),
        data_change=True,
        stats=file.statistics_json,
    )


_PARTITION = "partition."
_BOUNDS = {"min.": "minValues", "max.": "maxValues", "null_count.": "nullCount"}


def _snapshot_files(table: DeltaTable) -> tuple[SnapshotFile, ...]:
    """Return the files of the snapshot, with statistics and partition values as texts."""
    actions = pa.table(table.get_add_actions(flatten=True))
    texts = [
        (name.removeprefix(_PARTITION), pc.cast(actions[name], pa.string()).to_pylist())
        for name in actions.column_names
        if name.startswith(_PARTITION)
    ]
    rows: list[dict[str, Any]] = actions.to_pylist()
    # Paths in the log are percent-encoded.
    paths = [unquote(row["path"]) for row in rows]
    return tuple(
        SnapshotFile(
            path=paths[at],
            size_bytes=row["size_bytes"],
            partition_values=tuple(
                (name, _partition_value(name, values[at], paths[at])) for name, values in texts
            ),
            statistics_json=_statistics_json(row),
        )
        for at, row in enumerate(rows)
    )


def _partition_value(name: str, value: str | None, path: str) -> str | None:
    """Return a partition value; restore an empty text, for which delta-rs returns NULL.

    Only the folder name distinguishes an empty text from NULL.
    """
    return "" if value is None and f"{name}=" in path.split("/") else value


def _statistics_json(row: dict[str, Any]) -> str:
    statistics: dict[str, Any] = {"numRecords": row.get("num_records")}
    for prefix, key in _BOUNDS.items():
        statistics[key] = {
            name.removeprefix(prefix): value
            for name, value in row.items()
            if name.startswith(prefix) and value is not None
        }
    return json.dumps(statistics, default=str)


# Appends of other writers do not conflict, but use up the next version. delta-rs then checks
# for conflicts again and retries with the following version, at most this often.
_COMMIT_RETRIES_MAX = 15

# Data files can be read without the log if the table uses only these reader features.
_READER_FEATURES = frozenset({"timestampNtz"})

# By default, delta-rs writes a checkpoint every hundred versions, so that tables open fast.
# Commits do not clean the log, because a load would wait until the log is cleaned.
_AFTER_COMMIT = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)


def _commit_properties(attachment: Attachment) -> CommitProperties:
    """Return the properties of a commit of the job's chain."""
    return CommitProperties(
        custom_metadata={ATTACHMENT_KEY: to_text(attachment)},
        max_commit_retries=_COMMIT_RETRIES_MAX,
        app_transactions=[Transaction(attachment.job_id, attachment.number)],
    )


class DeltaRejects:
    """The newest snapshot of a job's rejects table, created when first opened."""

    def __init__(self, folder: TableFolder, job_id: str, columns: tuple[Column, ...]) -> None:
        self._folder = folder
        self._app_id = f"{job_id}/rejects"
        try:
            self._table = DeltaTable.create(
                folder.location,
                Schema.from_json(schema_text(columns)),
                mode="ignore",
                storage_options=folder.library_options,
            )
            folder.store.sync([folder.key(LOG_FOLDER), folder.root])
        except (DeltaError, OSError, ValueError) as error:
            raise storage_error(
                f'rejects at "{folder}" could not be opened', error, hidden=folder.hidden
            ) from error

    @property
    def newest_number(self) -> int:
        return self._table.transaction_version(self._app_id) or 0

    def commit(self, number: int, files: Sequence[DataFile]) -> None:
        try:
            self._table.update_incremental()
            if self.newest_number >= number:
                return
            self._table.create_write_transaction(
                [_add_action(file) for file in files],
                mode="append",
                schema=self._table.schema(),
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(self._app_id, number)]
                ),
            )
            self._table.update_incremental()
            entry = log_entry(self._table.version())
            self._folder.store.sync(map(self._folder.key, (entry, LOG_FOLDER)))
        except (DeltaError, OSError) as error:
            # The next commit_pending_rejects checks whether this commit succeeded.
            raise ExternalError(
                f"rejects of commit {number} could not be committed",
                code=Code.TABLE_ERR,
                detail=f"{error_text(error, hidden=self._folder.hidden)}.",
                hint="Penstock commits the rejects before it loads the next epoch.",
            ) from error


@dataclass(frozen=True, slots=True)
class DeltaTables:
    """Delta tables in a warehouse, or at a location of their own.

    The options are read whenever a table is opened, so rotated keys take effect at once.
    """

    warehouse: str
    options: Callable[[], StoreOptions] = StoreOptions
    seal: Callable[[StoreOptions], Sealed] = lambda _: Sealed()

    def create(
        self,
        name: str,
        columns: tuple[Column, ...],
        *,
        location: str | None,
        comment: str,
        partition_by: tuple[str, ...] = (),
    ) -> TableRef:
        folder = self.folder(location or new_folder(self.warehouse, name))
        check_columns(name, columns)
        check_partition_columns(columns, partition_by)
        _require_free(folder)
        try:
            table = DeltaTable.create(
                folder.location,
                Schema.from_json(schema_text(columns)),
                mode="error",
                partition_by=list(partition_by) or None,
                name=name,
                description=comment or None,
                storage_options=folder.library_options,
            )
            created = (log_entry(0), LOG_FOLDER)
            parent = folder.root.rpartition("/")[0]
            folder.store.sync([*map(folder.key, created), folder.root, parent])
        except ValueError as error:
            raise UserError(
                f'table "{name}" cannot have these columns',
                code=Code.TABLE_ERR,
                detail=f"{error}.",
            ) from error
        except (DeltaError, OSError) as error:
            raise storage_error(
                f'table "{name}" could not be created in "{folder}"',
                error,
                hidden=folder.hidden,
            ) from error
        return TableRef(name=name, id=str(table.metadata().id), location=folder.location)

    def open(self, location: str) -> "DeltaHandle":
        return DeltaHandle(partial(self.folder, location))

    def normal_location(self, location: str) -> str:
        return location_of(table_uri(location))

    def delete(self, location: str) -> None:
        folder = self.folder(location)
        # A folder without a table is not deleted.
        if not folder.store.is_folder(folder.key(LOG_FOLDER)):
            return
        # The log is deleted last, so after an interruption the folder still counts as a table.
        folder.store.delete_below(f"{folder.root}/", last=f"{folder.key(LOG_FOLDER)}/")

    def rejects_location(self, job_id: str) -> str:
        return subfolder(self.warehouse, "_rejects", job_id)

    def open_rejects(self, job_id: str, columns: tuple[Column, ...]) -> DeltaRejects:
        return DeltaRejects(self.folder(self.rejects_location(job_id)), job_id, columns)

    def delete_rejects(self, job_id: str) -> None:
        folder = self.folder(self.rejects_location(job_id))
        folder.store.delete_below(f"{folder.root}/")

    def delete_staged(self, location: str, job_id: str) -> None:
        folder = self.folder(location)
        folder.store.delete_below(f"{folder.key(staged_folder(job_id))}/")

    def missing_files(self, location: str, paths: Sequence[str]) -> tuple[str, ...]:
        folder = self.folder(location)
        return tuple(path for path in paths if folder.store.head(folder.key(path)) is None)

    def task_access(self, location: str) -> Sealed:
        return Sealed() if _is_local(location) else self.seal(self.options())

    def folder(self, location: str) -> TableFolder:
        """Return the folder of a table."""
        return open_folder(location, StoreOptions() if _is_local(location) else self.options())

    def probe(self) -> str:
        """Write, read and delete a small object in the warehouse; return the result as text."""
        folder = self.folder(subfolder(self.warehouse, "_penstock-probe"))
        key = folder.key("probe")
        folder.store.create_folder(folder.root)
        folder.store.delete_below(f"{folder.root}/")
        folder.store.create_folder(folder.root)
        first, second = (folder.store.write_new(key, text) for text in (b"one", b"two"))
        content = folder.store.read_bytes(key)
        folder.store.delete_below(f"{folder.root}/")
        if not first or second or content != b"one":
            raise UserError(
                f'warehouse "{self.warehouse}" allows two writers to create the same object',
                code=Code.STORAGE_ERR,
                detail="Commits would overwrite each other.",
                hint="Use a store that supports conditional puts (If-None-Match).",
            )
        return f"{self.warehouse} is readable and writable; conditional writes work"


def _is_local(location: str) -> bool:
    return table_uri(location).scheme is Scheme.FILE


def _require_free(folder: TableFolder) -> None:
    if folder.store.is_folder(folder.key(LOG_FOLDER)):
        raise location_in_use(folder)
    if folder.store.holds(folder.root):
        raise UserError(
            f'location "{folder}" must be a new or empty folder',
            code=Code.TABLE_ERR,
            hint="Choose another location, or move the files out of this folder.",
        )


class DeltaHandle:
    """A snapshot of one Delta table."""

    def __init__(
        self, open_folder: Callable[[], TableFolder], *, version: int | None = None
    ) -> None:
        self._open_folder = open_folder
        self._folder = open_folder()
        self._open(version)

    @property
    def table_id(self) -> str:
        return str(self._table.metadata().id)

    @property
    def version(self) -> int:
        return int(self._table.version())

    def refresh(self) -> None:
        folder = self._open_folder()
        if folder.library_options == self._folder.library_options and self._same_log():
            with _reading(self._folder):
                self._table.update_incremental()
            # Compare again, because the table may have been replaced in between.
            if self._same_log():
                self._entry = self._newest_entry()
                return
        self._folder = folder
        self._open()

    def newest_number(self, job_id: str) -> int:
        return self._table.transaction_version(job_id) or 0

    def chain_after(self, job_id: str, number: int) -> Sequence[ChainCommit]:
        with _reading(self._folder):
            return chain_above(
                number,
                newest=self.newest_number(job_id),
                logged=logged_commits(self._folder, job_id, version=self.version),
                copy_of=lambda missing: read_copy(self._folder, job_id, missing),
            )

    def commit(self, attachment: Attachment, files: Sequence[DataFile]) -> int:
        partition_columns = self._table.metadata().partition_columns
        require_partitions(files, columns=tuple(partition_columns))

        def append() -> None:
            self._table.create_write_transaction(
                [_add_action(file) for file in files],
                mode="append",
                schema=self._table.schema(),
                partition_by=partition_columns or None,
                commit_properties=_commit_properties(attachment),
                post_commithook_properties=_AFTER_COMMIT,
            )

        return self._commit(attachment, append)

    def commit_keyed(
        self, attachment: Attachment, files: Sequence[DataFile], *, key: tuple[str, ...]
    ) -> int:
        # delta-rs does not commit a merge without rows.
        if not any(file.rows for file in files):
            return self.commit(attachment, ())
        rows = StagedRows(
            folder=self._folder, files=tuple(files), columns=self.columns(), key=key
        )
        check_keyed_partition_columns(rows.columns, self.partition_columns())
        rows.check()
        merge = KeyedCommit(
            rows=rows,
            attachment=attachment,
            snapshot=self._table,
            properties=_commit_properties(attachment),
            after=_AFTER_COMMIT,
        )
        return self._commit(attachment, merge.execute)

    def _commit(self, attachment: Attachment, write: Callable[[], None]) -> int:
        """Write a commit and return its version; after any failure, the outcome is unknown."""
        after = self.version
        try:
            # The entry is also missing after the log was cleaned. So compare the table id, too.
            if (
                not self._same_log()
                and DeltaHandle(self._open_folder).table_id != self.table_id
            ):
                raise table_missing(self._folder)
            write()
            version = find_committed_version(self._folder, attachment, after=after)
        except CommitOutcomeUnknownError:
            raise
        except Exception as error:
            reason = error_text(error, hidden=self._folder.hidden)
            raise outcome_unknown(attachment, reason) from error
        if version is None:
            reason = f"The log has no entry of this commit above version {after}"
            raise outcome_unknown(attachment, reason)
        return version

    def write_copy(self, attachment: Attachment) -> None:
        if not self._folder.store.is_folder(self._folder.key(LOG_FOLDER)):
            raise table_missing(self._folder)
        key = copy_key(self._folder, attachment.job_id, attachment.number)
        self._folder.store.write_new(key, to_text(attachment).encode())

    def columns(self) -> tuple[Column, ...]:
        return columns_of(self._table.schema().to_json())

    def partition_columns(self) -> tuple[str, ...]:
        names = tuple(self._table.metadata().partition_columns)
        check_partition_columns(self.columns(), names)
        return names

    def detail(self) -> TableDetail:
        actions = pa.table(self._table.get_add_actions())
        counts = actions["num_records"] if "num_records" in actions.column_names else None
        return TableDetail(
            version=self.version,
            files=actions.num_rows,
            size_bytes=pc.sum(actions["size_bytes"]).as_py() or 0,
            rows=0 if counts is None else pc.sum(counts).as_py() or 0,
        )

    def files(self) -> tuple[SnapshotFile, ...]:
        # Without the log, a reader cannot apply deletion vectors and column mappings.
        features = set(self._table.protocol().reader_features or ()) - _READER_FEATURES
        mapping = self._table.metadata().configuration.get("delta.columnMapping.mode", "none")
        if features or mapping != "none":
            shown = ", ".join(sorted(features)) or "column mapping"
            raise UserError(
                f'table at "{self._folder}" cannot be read: it uses {shown}',
                code=Code.NOT_SUPPORTED_ERR,
                hint="Copy the rows to a new table. Or remove the feature with ALTER TABLE … "
                "DROP FEATURE in Spark.",
            )
        with _reading(self._folder):
            return _snapshot_files(self._table)

    def at(self, version: int) -> "DeltaHandle":
        if version > self.version:
            raise no_version(self._folder, version, newest=self.version)
        try:
            return DeltaHandle(self._open_folder, version=version)
        except ExternalError as error:
            raise no_version(self._folder, version, newest=self.version) from error

    def _open(self, version: int | None = None) -> None:
        with _reading(self._folder):
            self._table = DeltaTable(
                self._folder.location,
                version=version,
                storage_options=self._folder.library_options,
            )
            self._entry = self._newest_entry()

    def _newest_entry(self) -> ObjectMeta | None:
        return self._folder.store.head(self._folder.key(log_entry(self.version)))

    def _same_log(self) -> bool:
        """Return whether the log entry of the snapshot is unchanged; False if unknown."""
        entry = self._entry
        return entry is not None and self._folder.store.head(entry.key) == entry


@contextmanager
def _reading(folder: TableFolder) -> Iterator[None]:
    try:
        yield
    except TableNotFoundError as error:
        raise table_missing(folder) from error
    except (DeltaError, OSError) as error:
        raise storage_error(
            f'table at "{folder}" could not be read', error, hidden=folder.hidden
        ) from error
