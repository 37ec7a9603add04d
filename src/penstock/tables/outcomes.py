"""Errors that every kind of table raises alike."""

from collections.abc import Iterable

from penstock.errors import Code, CommitOutcomeUnknownError, InvariantError, UserError
from penstock.model.epoch import Attachment, DataFile


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
