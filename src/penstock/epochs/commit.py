"""Commit an epoch: first to the table, then to the catalog.

Invariant: one table commit publishes the rows, positions and statistics of an epoch together.
The handle is not refreshed between the checks and the commit. If another writer commits for the
same job in between, this commit therefore fails. After an error, the outcome of the commit is
unknown until the table is read back.

The steps of a commit, and the repair after a crash:

1. Commit to the table. After a crash before this step, the next owner plans the epoch again.
2. Apply the commit to the catalog. If this step is missing, the next takeover reads the commit
   from the table and applies it.
3. Write a copy of the attachment, then commit the reject files. The next takeover writes a
   missing copy and commits missing reject files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.catalog.catalog import Catalog
from penstock.clock import Clock
from penstock.crashpoints import CrashPoint, reached
from penstock.errors import (
    Code,
    CommitOutcomeUnknownError,
    ExternalError,
    InvariantError,
    LeaseLostError,
)
from penstock.model.epoch import Ack, Attachment, CommitKind, EpochPlan, Statistics, Timings
from penstock.model.job import DesiredState, JobState
from penstock.model.job_kinds import OutputMode
from penstock.tables.chain import newest_commit, open_table
from penstock.tables.rejects import commit_pending_rejects
from penstock.tables.table import TableHandle, Tables


class EpochAbortedError(ExternalError):
    """The commit is not in the table; the epoch is planned again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitParts:
    """The dependencies of a commit."""

    catalog: Catalog
    tables: Tables
    clock: Clock


def draft_attachment(
    plan: EpochPlan,
    *,
    owner: JobState,
    epoch: int,
    attempt: int,
    attempt_id: str,
    at: datetime,
) -> Attachment:
    """Return the attachment of an attempt before its tasks run."""
    return Attachment(
        kind=CommitKind.EPOCH,
        job_id=owner.id,
        table_id=owner.definition.table.id,
        number=owner.number + 1,
        generation=owner.generation,
        epoch=epoch,
        attempt=attempt,
        attempt_id=attempt_id,
        revision=owner.definition.revision,
        progress=plan.progress,
        statistics=Statistics(),
        cumulative=owner.cumulative,
        items=plan.items,
        timings=Timings(),
        committed_at=at,
        rejects_number=owner.rejects_number,
        backlog=owner.backlog,
    )


def commit_epoch(
    attachment: Attachment,
    acks: Sequence[Ack],
    *,
    owner: JobState,
    handle: TableHandle,
    parts: CommitParts,
) -> JobState:
    """Commit the epoch and return the job's new state.

    Raise EpochAbortedError if the commit is not in the table, so the epoch can be retried.
    Raise CommitOutcomeUnknownError if the table cannot be read back. Raise LeaseLostError if
    this node no longer owns the job, or must take it over again.
    """
    started = parts.clock.monotonic()
    _require_files(acks, owner=owner, tables=parts.tables)
    written_for = handle.columns(), handle.partition_columns()
    handle.refresh()
    require_predecessor(handle, owner=owner)
    if (handle.columns(), handle.partition_columns()) != written_for:
        raise ExternalError(
            f'columns of table "{owner.definition.table.name}" were changed during the epoch',
            code=Code.TABLE_ERR,
            hint="Penstock retries the epoch with the new columns.",
        )
    require_unchanged(parts.catalog.job_by_id(owner.id), owner=owner)
    reached(CrashPoint.COMMIT_CHECKED)
    version = _commit_and_verify(attachment, acks, owner=owner, handle=handle, parts=parts)
    try:
        state = parts.catalog.apply_commit(
            owner.id,
            attachment,
            table_version=version,
            commit_seconds=parts.clock.monotonic() - started,
        )
        reached(CrashPoint.CATALOG_APPLIED)
        handle.write_copy(attachment)
        reached(CrashPoint.COPY_WRITTEN)
        commit_pending_rejects(
            attachment, definition=owner.definition, handle=handle, tables=parts.tables
        )
    except ExternalError as error:
        # The rows are in the table, so the epoch must not be retried. The next takeover, most
        # likely by this node, completes the missing steps.
        raise LeaseLostError(
            f'job "{owner.name}" must be taken over again: {error.message}', detail=error.detail
        ) from error
    return state


def require_predecessor(handle: TableHandle, *, owner: JobState) -> None:
    """Raise LeaseLostError if the table was replaced or has another newest commit number."""
    if handle.table_id != owner.definition.table.id:
        raise LeaseLostError(
            f'table "{owner.definition.table.name}" was replaced while the job ran',
            detail=f"Table id {handle.table_id}, expected {owner.definition.table.id}.",
        )
    newest = handle.newest_number(owner.id)
    if newest != owner.number:
        raise LeaseLostError(
            f'another process committed for job "{owner.name}"',
            detail=f"The table's newest commit number is {newest}, expected {owner.number}.",
        )


def require_unchanged(state: JobState | None, *, owner: JobState) -> None:
    """Raise LeaseLostError if another process changed the job in the catalog.

    The desired state must be RUN. Generation and commit number must be those of the owner.
    """
    if state is None:
        raise LeaseLostError(f'job "{owner.name}" was dropped')
    if state.generation != owner.generation:
        raise LeaseLostError(
            f'job "{owner.name}" has a newer owner',
            detail=(
                f"The job's generation is {state.generation.number}, this node owned "
                f"generation {owner.generation.number}."
            ),
        )
    if state.desired.state is not DesiredState.RUN:
        raise LeaseLostError(f'job "{owner.name}" was paused or dropped')
    if state.number != owner.number:
        raise LeaseLostError(
            f'another process committed for job "{owner.name}"',
            detail=f"The catalog's commit number is {state.number}, expected {owner.number}.",
        )


def _require_files(acks: Sequence[Ack], *, owner: JobState, tables: Tables) -> None:
    loaded = [file.path for ack in acks for file in ack.files]
    rejected = [file.path for ack in acks for file in ack.reject_files]
    missing = tables.missing_files(owner.definition.table.location, loaded)
    if rejected:
        missing += tables.missing_files(tables.rejects_location(owner.id), rejected)
    if missing:
        raise InvariantError(
            f"{len(missing)} of {len(loaded) + len(rejected)} written files are missing",
            detail=missing[0],
        )


def is_same_attempt(newest: Attachment, attachment: Attachment) -> bool:
    """Return whether the newest commit belongs to this attempt.

    The commit number is not enough: another writer may have used the same number.
    """
    return newest.attempt_id == attachment.attempt_id


def _commit_and_verify(
    attachment: Attachment,
    acks: Sequence[Ack],
    *,
    owner: JobState,
    handle: TableHandle,
    parts: CommitParts,
) -> int | None:
    refusal: CommitOutcomeUnknownError | None = None
    try:
        files = [file for ack in acks for file in ack.files]
        query = owner.definition.streaming
        if query is not None and query.output is OutputMode.UPDATE:
            handle.commit_keyed(attachment, files, key=query.key)
        else:
            handle.commit(attachment, files)
    except CommitOutcomeUnknownError as error:
        refusal = error
    reached(CrashPoint.TABLE_COMMITTED)
    try:
        if refusal is None:
            handle.refresh()
            current = handle
        else:
            current = open_table(parts.tables, owner.definition.table)
        newest = newest_commit(current, job_id=owner.id)
    except ExternalError as error:
        raise CommitOutcomeUnknownError(
            f"the table could not be read back: {error.message}", detail=error.detail
        ) from error
    if is_same_attempt(newest.attachment, attachment):
        return newest.table_version
    if newest.attachment.number == owner.number:
        raise EpochAbortedError(
            f'commit to table "{owner.definition.table.name}" failed',
            code=Code.TABLE_ERR,
            detail=str(refusal or "The commit reported success but is not in the table."),
            hint="Penstock retries the epoch. If commits keep failing, check for a full disk "
            "and for other writers.",
        ) from refusal
    raise LeaseLostError(
        f'job "{owner.name}" was taken over during a commit',
        detail=f"The table's newest commit number is {newest.attachment.number}.",
    )
