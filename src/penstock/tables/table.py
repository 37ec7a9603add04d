"""What the rest of the product asks of tables: a contract, fulfilled by Delta and by a twin.

Invariant: a handle is a snapshot that moves only when told to. A commit made through it is
refused if anybody has committed under the same job id since that snapshot; an answer that is
not a clean success says nothing about whether the commit landed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.model.epoch import Attachment, DataFile
from penstock.model.job import TableRef
from penstock.model.schema import Column


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

    def detail(self) -> TableDetail:
        """Answer what the snapshot holds."""
        ...


class Tables(Protocol):
    """Where tables are made and opened."""

    def create(
        self, name: str, columns: tuple[Column, ...], *, location: str | None, comment: str
    ) -> TableRef:
        """Create an empty table, in a folder of its own unless a location is given."""
        ...

    def open(self, location: str) -> TableHandle:
        """Open a table freshly; UserError TABLE_CHANGED_ERR if there is none."""
        ...

    def delete(self, location: str) -> None:
        """Remove a table's folder with everything in it; nothing happens if it is gone."""
        ...

    def missing_files(self, location: str, paths: Sequence[str]) -> tuple[str, ...]:
        """Answer which of the data files, relative to the table, do not exist."""
        ...
