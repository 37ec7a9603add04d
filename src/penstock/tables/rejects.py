"""The rejects of a job: one Delta table, with a chain of commits of its own.

Invariant: the reject files of a commit become visible after the commit itself, once, in the
order of the commit numbers. The job's chain names them, so whoever owns the job next finishes
what a crash left undone.
"""

from penstock.crashpoints import CrashPoint, reached
from penstock.model.epoch import Attachment, DataFile
from penstock.model.schema import Column, Primitive
from penstock.tables.table import TableHandle, Tables

REJECT_COLUMNS = (
    Column(name="commit_number", type=Primitive.BIGINT),
    Column(name="epoch", type=Primitive.BIGINT),
    Column(name="stage", type=Primitive.STRING),
    Column(name="file", type=Primitive.STRING),
    Column(name="line", type=Primitive.BIGINT),
    Column(name="shard", type=Primitive.STRING),
    Column(name="sequence", type=Primitive.STRING),
    Column(name="error", type=Primitive.STRING),
    Column(name="raw", type=Primitive.BINARY),
)


def settle_rejects(newest: Attachment, *, handle: TableHandle, tables: Tables) -> None:
    """Commit the reject files of the job's newest epoch with some, unless they are visible."""
    if not newest.rejects_number:
        return
    rejects = tables.open_rejects(newest.job_id)
    number = newest.rejects_number
    if rejects.newest_number >= number:
        return
    # An epoch begins only when the rejects of the one before are settled, so at most one
    # commit is open, and nothing but commits without rows stands behind it.
    files = newest.reject_files if newest.number == number else _files_of(newest, handle)
    rejects.commit(number, files)
    reached(CrashPoint.REJECTS_COMMITTED)


def _files_of(newest: Attachment, handle: TableHandle) -> tuple[DataFile, ...]:
    chain = handle.chain_after(newest.job_id, newest.rejects_number - 1)
    return chain[0].attachment.reject_files
