"""The contract of tables, implemented by Delta and by a fake in memory.

Invariant: a handle is a snapshot that only ``refresh`` moves. A commit through the handle fails
if the table has a newer commit of the same job than that snapshot. After any error of a
commit, its outcome is unknown until the table is read back.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import Code, CommitOutcomeUnknownError, InvariantError, UserError
from penstock.model.epoch import Attachment, DataFile
from penstock.model.job import TableRef
from penstock.model.schema import Column
from penstock.model.secrets import Sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainCommit:
    """A commit of a job's chain; a commit that was read from a copy has no version."""

    attachment: Attachment
    table_version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDetail:
    """Totals of one snapshot."""

    version: int
    files: int
    size_bytes: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFile:
    """A data file of a snapshot, as described in the log."""

    path: str
    size_bytes: int
    partition_values: tuple[tuple[str, str | None], ...]
    statistics_json: str


class TableHandle(Protocol):
    """A snapshot of one table."""

    @property
    def table_id(self) -> str:
        """The id of the table, assigned at its creation."""
        ...

    @property
    def version(self) -> int:
        """The version of the snapshot."""
        ...

    def refresh(self) -> None:
        """Move to the newest version.

        Raise UserError TABLE_CHANGED_ERR if the table does not exist any more.
        """
        ...

    def newest_number(self, job_id: str) -> int:
        """Return the newest commit number of the job in the snapshot; 0 if there is none."""
        ...

    def chain_after(self, job_id: str, number: int) -> Sequence[ChainCommit]:
        """Return the job's commits above a number, ascending and without a gap.

        Read commits from the table's log, or from their copies if the log was cleaned. Raise
        UserError CANNOT_RESUME_ERR for a missing commit or an unknown attachment format.
        """
        ...

    def commit(self, attachment: Attachment, files: Sequence[DataFile]) -> int:
        """Commit files with the attachment and txn(job id, number); return the new version.

        The snapshot does not move. Raise CommitOutcomeUnknownError for any failure, including a
        conflict.
        """
        ...

    def commit_keyed(
        self, attachment: Attachment, files: Sequence[DataFile], *, key: tuple[str, ...]
    ) -> int:
        """Merge the rows of staged files into the table, and commit as ``commit`` does.

        A staged row replaces the row with the same key, or is added if there is none. NULLs are
        equal. A table with an empty key has one row. Without staged rows, nothing is merged.

        If another writer committed first, repeat the merge into the new version. The job's
        newest commit must still be the predecessor of this one; otherwise raise
        CommitOutcomeUnknownError. If this commit is in the table already, return its version.

        Some errors are raised before any commit. Raise InvariantError if two staged rows have
        the same key. Raise ExternalError if a staged file cannot be read. Raise UserError
        NOT_SUPPORTED_ERR for partition columns that a merge cannot write.
        """
        ...

    def write_copy(self, attachment: Attachment) -> None:
        """Write a copy of the attachment beside the log; it remains when the log is cleaned."""
        ...

    def columns(self) -> tuple[Column, ...]:
        """Return the columns of the table in the snapshot."""
        ...

    def partition_columns(self) -> tuple[str, ...]:
        """Return the partition columns, outermost first.

        Raise UserError if Penstock cannot write to a table with these partition columns.
        """
        ...

    def detail(self) -> TableDetail:
        """Return the totals of the snapshot; files without a row count add no rows."""
        ...

    def files(self) -> tuple[SnapshotFile, ...]:
        """Return the data files of the snapshot."""
        ...

    def at(self, version: int) -> "TableHandle":
        """Return the table at a version.

        Raise UserError META_NOT_FOUND_ERR if the version does not exist.
        """
        ...


class RejectsLog(Protocol):
    """The newest snapshot of the rejects of one job."""

    @property
    def newest_number(self) -> int:
        """The newest commit number whose rejects are visible; 0 if there is none."""
        ...

    def commit(self, number: int, files: Sequence[DataFile]) -> None:
        """Commit the reject files of a commit number, unless they are visible already.

        Raise ExternalError for any failure.
        """
        ...


class Tables(Protocol):
    """A place where tables are created and opened."""

    def create(
        self,
        name: str,
        columns: tuple[Column, ...],
        *,
        location: str | None,
        comment: str,
        partition_by: tuple[str, ...] = (),
    ) -> TableRef:
        """Create an empty table, in a new folder unless a location is given."""
        ...

    def open(self, location: str) -> TableHandle:
        """Open a table at its newest version.

        Raise UserError TABLE_CHANGED_ERR if there is no table.
        """
        ...

    def normal_location(self, location: str) -> str:
        """Return the normalized form of a location, as ``create`` stores it."""
        ...

    def delete(self, location: str) -> None:
        """Delete the folder of a table with everything in it, if it exists."""
        ...

    def rejects_location(self, job_id: str) -> str:
        """Return the location of a job's rejects."""
        ...

    def open_rejects(self, job_id: str, columns: tuple[Column, ...]) -> RejectsLog:
        """Open the rejects of a job; create them if they do not exist."""
        ...

    def delete_rejects(self, job_id: str) -> None:
        """Delete the rejects of a job, if there are any."""
        ...

    def task_access(self, location: str) -> Sealed:
        """Return the sealed storage options with which tasks open the files of a table."""
        ...

    def delete_staged(self, location: str, job_id: str) -> None:
        """Delete the staged files of all attempts of a job, if there are any."""
        ...

    def missing_files(self, location: str, paths: Sequence[str]) -> tuple[str, ...]:
        """Return the paths, relative to the table, at which no file exists."""
        ...


def table_missing(location: object) -> UserError:
    """Return the error for a location without the expected table."""
    return UserError(
        f'table at "{location}" does not exist or was replaced',
        code=Code.TABLE_CHANGED_ERR,
        hint="Restore the table, or drop the jobs that load it and then the table.",
    )


def location_in_use(location: object) -> UserError:
    """Return the error for a new table at the location of another table."""
    return UserError(f'location "{location}" already has a table', code=Code.ALREADY_EXISTS_ERR)


def no_version(location: object, version: int, *, newest: int) -> UserError:
    """Return the error for a version that does not exist or was cleaned."""
    return UserError(
        f'table at "{location}" has no version {version}',
        code=Code.META_NOT_FOUND_ERR,
        hint=f"The newest version is {newest}. Cleaning the log deletes old versions.",
    )


def outcome_unknown(attachment: Attachment, reason: str) -> CommitOutcomeUnknownError:
    """Return the error for a commit whose outcome is unknown."""
    return CommitOutcomeUnknownError(
        f"outcome of commit {attachment.number} of the job is unknown", detail=f"{reason}."
    )


def require_predecessor(newest: int, *, attachment: Attachment) -> None:
    """Raise CommitOutcomeUnknownError unless the commit follows the job's newest commit."""
    if newest != attachment.number - 1:
        reason = f"The job's newest commit in the table is {newest}"
        raise outcome_unknown(attachment, reason)


def require_key_columns(key: tuple[str, ...], *, columns: tuple[Column, ...]) -> None:
    """Raise InvariantError if the table lacks a column of the key."""
    names = [column.name for column in columns]
    missing = [name for name in key if name not in names]
    if missing:
        raise InvariantError(f"key columns {missing} are not among the columns {names}")


def duplicate_key(value_by_column: Mapping[str, object]) -> InvariantError:
    """Return the error for two staged rows with the same key."""
    shown = ", ".join(
        f'"{name}" = {"NULL" if value is None else repr(value)}'
        for name, value in value_by_column.items()
    )
    return InvariantError(f"two staged rows have the same key ({shown})")


def require_partitions(files: Iterable[DataFile], *, columns: tuple[str, ...]) -> None:
    """Raise InvariantError if files were written for other partition columns."""
    for file in files:
        written = tuple(name for name, _ in file.partition_values)
        if written != columns:
            raise InvariantError(
                f'data file "{file.path}" was written for partition columns {written}, '
                f"but the table has {columns}"
            )
