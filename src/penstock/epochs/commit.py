"""Commit an epoch: the table first, then the catalog.

Invariant: the table commit is the moment at which rows, positions and statistics appear
together. The handle is not refreshed between the check and the commit, so that another writer's
commit under this job makes this commit fail. An error of the commit means that the outcome is
unknown until the table is read back.
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
from penstock.tables.chain import newest_commit, open_table
from penstock.tables.rejects import settle_rejects
from penstock.tables.table import TableHandle, Tables


class EpochAbortedError(ExternalError):
    """The commit did not land; the epoch is planned again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitParts:
    """What a commit is made with."""

    catalog: Catalog
    tables: Tables
    clock: Clock


def draft_of(
    plan: EpochPlan,
    *,
    owner: JobState,
    epoch: int,
    attempt: int,
    attempt_id: str,
    at: datetime,
) -> Attachment:
    """Return the attachment of an attempt before anything has run."""
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
    )


def commit_epoch(
    attachment: Attachment,
    acks: Sequence[Ack],
    *,
    owner: JobState,
    handle: TableHandle,
    parts: CommitParts,
) -> JobState:
    """Make the epoch visible and return the job's state after it."""
    started = parts.clock.monotonic()
    _require_files(acks, owner=owner, tables=parts.tables)
    written_for = handle.columns(), handle.partition_columns()
    handle.refresh()
    require_predecessor(handle, owner=owner)
    if (handle.columns(), handle.partition_columns()) != written_for:
        raise ExternalError(
            f'columns of table "{owner.definition.table.name}" were changed during the epoch',
            code=Code.TABLE_ERR,
            hint="The epoch is tried again with the new columns.",
        )
    require_unchanged(parts.catalog.job_by_id(owner.id), owner=owner)
    reached(CrashPoint.COMMIT_CHECKED)
    version = _commit_and_look(attachment, acks, owner=owner, handle=handle, parts=parts)
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
        settle_rejects(
            attachment, definition=owner.definition, handle=handle, tables=parts.tables
        )
    except ExternalError as error:
        # The rows are in the table, so a retry of the epoch would be wrong. The next takeover,
        # most likely by this node, applies and copies what is missing.
        raise LeaseLostError(
            f'job "{owner.name}" must be taken over anew: {error.message}', detail=error.detail
        ) from error
    return state


def require_predecessor(handle: TableHandle, *, owner: JobState) -> None:
    """Require that the table is the job's and holds the expected newest commit."""
    if handle.table_id != owner.definition.table.id:
        raise LeaseLostError(
            "the table was replaced while the job ran",
            detail=f"Table id {handle.table_id}, expected {owner.definition.table.id}.",
        )
    newest = handle.newest_number(owner.id)
    if newest != owner.number:
        raise LeaseLostError(
            f'job "{owner.name}" was changed by somebody else',
            detail=f"The table's newest commit number is {newest}, expected {owner.number}.",
        )


def require_unchanged(state: JobState | None, *, owner: JobState) -> None:
    """Require that the job should still run, under this generation, from this commit."""
    if state is None:
        raise LeaseLostError(f'job "{owner.name}" was dropped')
    if state.generation != owner.generation:
        raise LeaseLostError(
            f'job "{owner.name}" has a newer owner',
            detail=f"Generation is {state.generation.number}, ours {owner.generation.number}.",
        )
    if state.desired.state is not DesiredState.RUN:
        raise LeaseLostError(f'job "{owner.name}" was paused or dropped')
    if state.number != owner.number:
        raise LeaseLostError(
            f'job "{owner.name}" has moved on',
            detail=f"Commit number is {state.number}, ours {owner.number}.",
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


def is_own(newest: Attachment, attachment: Attachment) -> bool:
    """Return whether the newest commit is this attempt's; another may have its number."""
    return newest.attempt_id == attachment.attempt_id


def _commit_and_look(
    attachment: Attachment,
    acks: Sequence[Ack],
    *,
    owner: JobState,
    handle: TableHandle,
    parts: CommitParts,
) -> int | None:
    refusal: CommitOutcomeUnknownError | None = None
    try:
        handle.commit(attachment, [file for ack in acks for file in ack.files])
    except CommitOutcomeUnknownError as error:
        refusal = error
    reached(CrashPoint.TABLE_COMMITTED)
    try:
        if refusal is None:
            handle.refresh()
            seen = handle
        else:
            seen = open_table(parts.tables, owner.definition.table)
        newest = newest_commit(seen, job_id=owner.id)
    except ExternalError as error:
        raise CommitOutcomeUnknownError(
            f"the table could not be read back: {error.message}", detail=error.detail
        ) from error
    if is_own(newest.attachment, attachment):
        return newest.table_version
    if newest.attachment.number == owner.number:
        raise EpochAbortedError(
            f'table "{owner.definition.table.name}" did not take the commit',
            code=Code.TABLE_ERR,
            detail=str(refusal or "The commit was answered but is not in the table."),
            hint="It is tried again; look for a full disk or another writer if it goes on.",
        ) from refusal
    raise LeaseLostError(
        f'job "{owner.name}" was taken over during a commit',
        detail=f"The table's newest commit number is {newest.attachment.number}.",
    )
