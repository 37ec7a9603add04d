"""The life of a job of any kind: opened, paused, resumed, altered, ended.

What the steps of a change are is the protocol's; what is changed, the statements' own.
"""

import uuid
from dataclasses import replace

from penstock.control.changes import (
    ChangeParts,
    apply_chain,
    change_job,
    forget,
    overtaken,
    store_first,
)
from penstock.control.define import Defined, DefinitionParts, JobSecret
from penstock.crashpoints import CrashPoint, reached
from penstock.errors import Code, CommitOutcomeUnknownError, LeaseLostError, UserError
from penstock.model.epoch import Attachment, CommitKind
from penstock.model.events import DefinitionChanged, JobCreated, WishChanged
from penstock.model.job import JobDefinition, JobState, Reason, Wish
from penstock.model.secrets import SealedSecret
from penstock.model.split import SplitProgress
from penstock.tables.chain import (
    TRIES_MAX,
    Closed,
    first_generation,
    newest_commit,
    next_generation,
    open_table,
    opening_attachment,
    require_followed,
)

Progress = tuple[SplitProgress, ...]


def definition_parts(parts: ChangeParts) -> DefinitionParts:
    """Answer what a definition is checked against."""
    return DefinitionParts(
        catalog=parts.catalog,
        tables=parts.tables,
        open_analyst=parts.open_analyst,
        vault=parts.vault,
    )


def open_job(
    definition: JobDefinition,
    *,
    progress: Progress,
    parts: ChangeParts,
    secret: JobSecret | None = None,
) -> JobState:
    """Begin a job under a new id: the opening commit first, then the catalog's event."""
    job_id = str(uuid.uuid4())
    generation = first_generation()
    opening = opening_attachment(
        job_id=job_id,
        table_id=definition.table.id,
        generation=generation,
        progress=progress,
        clock=parts.clock,
    )
    version = _open_chain(definition, opening, parts=parts)
    reached(CrashPoint.OPENING_COMMITTED)
    created = JobCreated(
        definition=definition, generation=generation, opening=opening, table_version=version
    )
    owned = _sealed(secret, job_id=job_id, parts=parts)
    return parts.catalog.create_job(job_id, created, secrets_owned=owned)


def _sealed(
    secret: JobSecret | None, *, job_id: str, parts: ChangeParts
) -> tuple[SealedSecret, ...]:
    if secret is None:
        return ()
    return (parts.vault.sealed_secret(secret.name, dict(secret.values), job_id=job_id),)


def _open_chain(definition: JobDefinition, opening: Attachment, *, parts: ChangeParts) -> int:
    """Write the opening commit; the job id is new, so whatever stands under it is ours."""
    refusal: CommitOutcomeUnknownError | None = None
    for _ in range(TRIES_MAX):
        handle = open_table(parts.tables, definition.table)
        if handle.newest_number(opening.job_id):
            handle.write_copy(opening)
            return newest_commit(handle, job_id=opening.job_id).table_version or handle.version
        try:
            handle.commit(opening, ())
        except CommitOutcomeUnknownError as error:
            refusal = error
        else:
            reached(CrashPoint.CHAIN_EXTENDED)
    raise UserError(
        f'table "{definition.table.name}" refused the opening commit of the job',
        code=Code.TABLE_ERR,
        detail=f"The last answer was: {refusal}.",
        hint="Look for a full or read-only disk at the table's location.",
    ) from refusal


def pause(state: JobState, *, said: str, parts: ChangeParts) -> None:
    """Stop a job so that no row appears any more, whoever runs it."""
    require_alive(state)
    if manually_paused(state) and not _pause_unfinished(state, parts=parts):
        raise UserError(
            f'{state.definition.kind} "{state.name}" is already paused', code=Code.STATE_ERR
        )
    reason = Reason(code=Code.MANUAL_PAUSE_ERR, message=f"paused by {said}")
    wish = WishChanged(wish=Wish.PAUSE, reason=reason, generation=state.generation)
    extension = change_job(state, wish=wish, kind=CommitKind.FENCE, parts=parts)
    if isinstance(extension, Closed):
        raise overtaken(state)
    after = apply_chain(state, parts=parts)
    if after.generation != extension.commit.attachment.generation:
        raise overtaken(state)


def manually_paused(state: JobState) -> bool:
    """Tell whether a person has paused a job."""
    wish = state.wish
    manual = wish.reason is not None and wish.reason.code is Code.MANUAL_PAUSE_ERR
    return wish.wish is Wish.PAUSE and manual


def _pause_unfinished(state: JobState, *, parts: ChangeParts) -> bool:
    """Tell whether a PAUSE died before its fence was written and followed by the catalog."""
    handle = open_table(parts.tables, state.definition.table)
    newest = newest_commit(handle, job_id=state.id).attachment
    return newest.generation != state.generation or newest.number != state.number


def resume(state: JobState, *, parts: ChangeParts) -> None:
    """Let a paused job run again from where it stands."""
    require_alive(state)
    if state.wish.wish is not Wish.PAUSE:
        raise UserError(
            f'{state.definition.kind} "{state.name}" is not paused',
            code=Code.STATE_ERR,
            hint="See SHOW JOBS.",
        )
    handle = open_table(parts.tables, state.definition.table)
    newest = newest_commit(handle, job_id=state.id).attachment
    require_followed(newest.number, state=state)
    generation = next_generation(state.generation, newest.generation)
    wish = WishChanged(
        wish=Wish.RUN,
        reason=None,
        generation=generation,
        rejected_before=state.cumulative.rows_rejected,
    )
    store_first(state, wish, parts=parts)
    reached(CrashPoint.WISH_STORED)


def require_paused(state: JobState, *, how: str) -> None:
    """Require a job that may be altered."""
    require_alive(state)
    if state.wish.wish is not Wish.PAUSE:
        raise UserError(
            f'{state.definition.kind} "{state.name}" must be paused before it is altered',
            code=Code.STATE_ERR,
            hint=f"{how}, ALTER it, then RESUME it.",
        )


def alter(
    state: JobState, defined: Defined, *, progress: Progress | None, parts: ChangeParts
) -> None:
    """Store another definition, and move the job if progress is given; all or nothing."""
    definition = defined.definition
    changed = (
        replace(definition, revision=state.definition.revision) != state.definition
        or defined.secret is not None
    )
    if progress is None and not changed:
        raise UserError(
            f'ALTER changes nothing: {definition.kind} "{state.name}" is like that already',
            code=Code.OPTION_ERR,
        )
    extension = change_job(
        state,
        wish=None,
        kind=CommitKind.FENCE if progress is None else CommitKind.MOVE,
        progress=progress,
        parts=parts,
    )
    if isinstance(extension, Closed):
        raise overtaken(state)
    if changed:
        _store_definition(state, defined, extension.commit.attachment, parts=parts)
    apply_chain(state, parts=parts)


def _store_definition(
    state: JobState, defined: Defined, landed: Attachment, *, parts: ChangeParts
) -> None:
    body = DefinitionChanged(definition=defined.definition)
    owned = _sealed(defined.secret, job_id=state.id, parts=parts)
    try:
        parts.catalog.append(state.id, body, expected=landed.generation, secrets_owned=owned)
    except LeaseLostError as error:
        raise overtaken(state) from error


def drop(state: JobState, *, parts: ChangeParts) -> None:
    """End a job's chain and forget the job; the table and its rows stay."""
    close(state, wish=Wish.DROP, parts=parts)
    forget(state, catalog=parts.catalog, tables=parts.tables)


def make_room(ended: JobState | None, *, parts: ChangeParts) -> None:
    """Free the name of a job that has ended; a stopped load can still be looked at."""
    if ended is None:
        return
    if ended.stopped:
        parts.catalog.retire_job(ended.id)
    else:
        drop(ended, parts=parts)


def close(state: JobState, *, wish: Wish, parts: ChangeParts) -> None:
    """End a job's chain."""
    wanted = WishChanged(wish=wish, reason=None, generation=state.generation)
    try:
        change_job(state, wish=wanted, kind=CommitKind.CLOSING, parts=parts)
    except UserError as error:
        # A table that is gone, or is another one, holds no chain that could be closed.
        if error.code not in (Code.TABLE_CHANGED_ERR, Code.CANNOT_RESUME_ERR):
            raise
    reached(CrashPoint.CLOSING_COMMITTED)


def require_free_name(name: str, *, parts: ChangeParts) -> JobState | None:
    """Require that no living job has this name; answer one that has ended.

    Whoever takes the name drops that one, but not before everything else is checked.
    """
    state = parts.catalog.job(name)
    if state is None or state.wish.wish in (Wish.DROP, Wish.CLOSED):
        return state
    ending = state.definition.ending
    raise UserError(
        f'{state.definition.kind} "{name}" exists already',
        code=Code.ALREADY_EXISTS_ERR,
        hint=f"Choose another name, or {ending} first.",
    )


def require_alive(state: JobState) -> None:
    """Require a job that was not ended."""
    if state.wish.wish is Wish.RUN or state.wish.wish is Wish.PAUSE:
        return
    ended = state.wish.wish is Wish.CLOSED and state.definition.load is not None
    told = "was stopped" if ended else "is being dropped"
    raise UserError(
        f'{state.definition.kind} "{state.name}" {told}',
        code=Code.STATE_ERR,
        hint="Create it again."
        if ended
        else f"{state.definition.ending} finishes what was begun.",
    )
