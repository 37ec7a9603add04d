"""The rejects of a job: one Delta table, with a chain of commits of its own.

Invariant: the reject files of a commit become visible after the commit itself, once, in the
order of the commit numbers. The job's chain names them, so whoever owns the job next finishes
what a crash left undone.
"""

from penstock.crashpoints import CrashPoint, reached
from penstock.model.epoch import Attachment
from penstock.model.schema import Column, Primitive
from penstock.tables.table import TableHandle, Tables

REJECT_COLUMNS = (
    Column(name="commit_number", type=Primitive.BIGINT),
    Column(name="epoch", type=Primitive.BIGINT),
    Column(name="stage", type=Primitive.STRING),
    Column(name="file", type=Primitive.STRING),
    Column(name="line", type=Primitive.BIGINT),
    Column(name="error", type=Primitive.STRING),
    Column(name="raw", type=Primitive.BINARY),
)


def settle_rejects(newest: Attachment, *, handle: TableHandle, tables: Tables) -> None:
    """Commit the reject files of the job's commits that its rejects do not show yet."""
    if not newest.rejects_number:
        return
    rejects = tables.open_rejects(newest.job_id)
    if rejects.newest_number >= newest.rejects_number:
        return
    for commit in handle.chain_after(newest.job_id, rejects.newest_number):
        if commit.attachment.reject_files:
            rejects.commit(commit.attachment.number, commit.attachment.reject_files)
            reached(CrashPoint.REJECTS_COMMITTED)
