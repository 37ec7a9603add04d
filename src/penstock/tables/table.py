"""The contract of tables, implemented by Delta and by a fake in memory.

Invariant: a handle is a snapshot that moves only when told to. A commit made through it is
refused if anybody has committed under the same job id since that snapshot; an answer that is
not a clean success says nothing about whether the commit landed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import Code, CommitOutcomeUnknownError, InvariantError, UserError
from penstock.model.epoch import Attachment, DataFile
from penstock.model.job import TableRef
from penstock.model.schema import Column
from penstock.model.secrets import Sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainCommit:
    """A commit of a job's chain as the table remembers it."""

    attachment: Attachment
    table_version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDetail:
    """What a table holds at its newest version."""

    version: int
    files: int
    size_bytes: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFile:
    """A data file of a snapshot, with what the log says about it."""

    path: str
    size_bytes: int
    partition_values: tuple[tuple[str, str | None], ...]
    statistics_json: str


class TableHandle(Protocol):
    """A snapshot of one table."""

    @property
    def table_id(self) -> str:
        """The id that the table got when it was created."""
        ...

    @property
    def version(self) -> int:
        """The version of the snapshot."""
        ...

    def refresh(self) -> None:
        """Move to the newest version; UserError TABLE_CHANGED_ERR if the table is gone."""
        ...

    def newest_number(self, job_id: str) -> int:
        """Answer the newest commit number of the job in the snapshot, 0 if there is none."""
        ...

    def chain_after(self, job_id: str, number: int) -> Sequence[ChainCommit]:
        """Answer the job's commits above a number up to the newest one, ascending, no gap.

        They are read from the table's log, or from their copies where the log was cleaned.
        UserError CANNOT_RESUME_ERR, with the numbers, if one is found nowhere; an attachment of
        an unknown format version is refused the same way, never skipped.
        """
        ...

    def commit(self, attachment: Attachment, files: Sequence[DataFile]) -> int:
        """Commit files with the attachment and txn(job id, number); answer the new version.

        The snapshot does not move. Any failure, a conflict included, is a
        CommitOutcomeUnknownError.
        """
        ...

    def write_copy(self, attachment: Attachment) -> None:
        """Keep the attachment beside the table, for the day the log has been cleaned."""
        ...

    def columns(self) -> tuple[Column, ...]:
        """Answer the table's columns in the snapshot."""
        ...

    def partition_columns(self) -> tuple[str, ...]:
        """Answer the columns that divide the table into folders, outermost first.

        UserError for a table of others that is partitioned as none can be written.
        """
        ...

    def detail(self) -> TableDetail:
        """Answer what the snapshot holds."""
        ...

    def files(self) -> tuple[SnapshotFile, ...]:
        """Answer the data files of the snapshot."""
        ...

    def at(self, version: int) -> "TableHandle":
        """Answer the table as it was at a version; UserError META_NOT_FOUND_ERR without it."""
        ...


class RejectsLog(Protocol):
    """The newest snapshot of the rejects of one job."""

    @property
    def newest_number(self) -> int:
        """The newest commit number whose rejects are visible, 0 if there is none."""
        ...

    def commit(self, number: int, files: Sequence[DataFile]) -> None:
        """Make the reject files of a commit visible, unless they are; else ExternalError."""
        ...


class Tables(Protocol):
    """Where tables are made and opened."""

    def create(
        self,
        name: str,
        columns: tuple[Column, ...],
        *,
        location: str | None,
        comment: str,
        partition_by: tuple[str, ...] = (),
    ) -> TableRef:
        """Create an empty table, in a folder of its own unless a location is given."""
        ...

    def open(self, location: str) -> TableHandle:
        """Open a table freshly; UserError TABLE_CHANGED_ERR if there is none."""
        ...

    def normal_location(self, location: str) -> str:
        """Answer a location as a table that is created there has it."""
        ...

    def delete(self, location: str) -> None:
        """Remove a table's folder with everything in it; nothing happens if it is gone."""
        ...

    def rejects_location(self, job_id: str) -> str:
        """Answer where the rejects of a job lie."""
        ...

    def open_rejects(self, job_id: str) -> RejectsLog:
        """Open the rejects of a job; they are made when they are first needed."""
        ...

    def delete_rejects(self, job_id: str) -> None:
        """Remove the rejects of a job; nothing happens if there are none."""
        ...

    def task_access(self, location: str) -> Sealed:
        """Answer what tasks need to reach a table's files."""
        ...

    def missing_files(self, location: str, paths: Sequence[str]) -> tuple[str, ...]:
        """Answer which of the data files, relative to the table, do not exist."""
        ...


def table_gone(location: object) -> UserError:
    """Say that the table which was opened is no longer there."""
    return UserError(
        f'table at "{location}" does not exist, or is not the one that was opened',
        code=Code.TABLE_CHANGED_ERR,
        hint="Put the table back, or drop it together with the jobs that load it.",
    )


def location_taken(location: object) -> UserError:
    """Say that a new table cannot be put where one is."""
    return UserError(
        f'location "{location}" holds a table already', code=Code.ALREADY_EXISTS_ERR
    )


def no_version(location: object, version: int, *, newest: int) -> UserError:
    """Say that a version of a table does not exist, or no longer."""
    return UserError(
        f'table at "{location}" has no version {version}',
        code=Code.META_NOT_FOUND_ERR,
        hint=f"Its newest version is {newest}; old ones may have been cleaned away.",
    )


def outcome_unknown(attachment: Attachment, reason: str) -> CommitOutcomeUnknownError:
    """Say that a commit may or may not have landed."""
    return CommitOutcomeUnknownError(
        f"commit {attachment.number} of the job has an unknown outcome", detail=f"{reason}."
    )


def require_partitions(files: Iterable[DataFile], *, columns: tuple[str, ...]) -> None:
    """Refuse files that were not written for a table with these partition columns."""
    for file in files:
        written = tuple(name for name, _ in file.partition_values)
        if written != columns:
            raise InvariantError(
                f'data file "{file.path}" has values of the partition columns {written}, '
                f"the table has {columns}"
            )
