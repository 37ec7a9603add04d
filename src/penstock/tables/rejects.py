"""The rejects of a job: a Delta table with its own chain of commits.

Invariant: the reject files of an epoch become visible once, after the epoch's own commit. They
become visible in the order of the commit numbers. The attachment of the epoch lists these
files. After a crash, the next owner of the job can therefore commit them.
"""

from penstock.crashpoints import CrashPoint, reached
from penstock.model.epoch import Attachment
from penstock.model.job import JobDefinition
from penstock.model.schema import Column, Primitive
from penstock.tables.table import TableHandle, Tables


def reject_columns(place_columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns of a job's rejects; the place columns depend on the source kind."""
    return (
        Column(name="commit_number", type=Primitive.BIGINT),
        Column(name="epoch", type=Primitive.BIGINT),
        Column(name="stage", type=Primitive.STRING),
        *place_columns,
        Column(name="error", type=Primitive.STRING),
        Column(name="raw", type=Primitive.BINARY),
    )


def commit_pending_rejects(
    newest: Attachment, *, definition: JobDefinition, handle: TableHandle, tables: Tables
) -> None:
    """Commit the reject files of the newest epoch with rejects, unless they are visible."""
    number = newest.rejects_number
    if not number:
        return
    columns = reject_columns(definition.place_columns)
    rejects = tables.open_rejects(newest.job_id, columns)
    if rejects.newest_number >= number:
        return
    # An epoch starts only after the rejects of the previous epoch are committed. So at most one
    # commit has pending rejects, and all later commits are without rows.
    attachment = newest
    if newest.number != number:
        attachment = handle.chain_after(newest.job_id, number - 1)[0].attachment
    rejects.commit(number, attachment.reject_files)
    reached(CrashPoint.REJECTS_COMMITTED)
