"""Statements about jobs."""

import uuid
from dataclasses import replace

from penstock.catalog.secrets import SealedSecret
from penstock.control.changes import (
    ChangeParts,
    apply_chain,
    change_job,
    overtaken,
    store_first,
)
from penstock.control.credentials import JobSecret
from penstock.control.definition import (
    Defined,
    DefinitionParts,
    alter_insert,
    define_job,
    read_properties,
)
from penstock.control.lookup import find_job, find_table
from penstock.control.result import Result
from penstock.crashpoints import CrashPoint, reached
from penstock.errors import Code, CommitOutcomeUnknownError, LeaseLostError, UserError
from penstock.model.epoch import Attachment, CommitKind
from penstock.model.events import DefinitionChanged, JobCreated, WishChanged
from penstock.model.job import JobDefinition, JobProperties, JobState, Reason, Wish
from penstock.model.options import option_fields, option_key, print_options
from penstock.model.position import Horizon, Position, SplitProgress
from penstock.model.schema import quoted_name
from penstock.sql.statements import (
    AlterJob,
    CreateJob,
    DropJob,
    PauseJob,
    ResumeJob,
)
from penstock.tables.extension import (
    TRIES_MAX,
    Closed,
    first_generation,
    newest_commit,
    next_generation,
    open_table,
    opening_attachment,
    require_followed,
)


def create_job(statement: CreateJob, *, parts: ChangeParts) -> Result:
    """Check everything against the real thing, open the job's chain, remember the job."""
    _require_free_name(statement.name, parts=parts)
    record = find_table(statement.insert.table, catalog=parts.catalog)
    handle = parts.tables.open(record.location)
    # A table whose partitions cannot be written is refused here.
    handle.partition_columns()
    defined = define_job(
        statement, table=record, columns=handle.columns(), parts=_definition_parts(parts)
    )
    open_job(
        defined.definition,
        floor=defined.floor or Horizon(),
        secret=defined.secret,
        parts=parts,
    )
    return Result(message=f"job {statement.name} created")


def _definition_parts(parts: ChangeParts) -> DefinitionParts:
    return DefinitionParts(
        catalog=parts.catalog,
        tables=parts.tables,
        open_analyst=parts.open_analyst,
        vault=parts.vault,
    )


def open_job(
    definition: JobDefinition,
    *,
    floor: Position,
    parts: ChangeParts,
    secret: JobSecret | None = None,
) -> JobState:
    """Begin a job under a new id: the opening commit first, then the catalog's event."""
    job_id = str(uuid.uuid4())
    generation = first_generation()
    start = SplitProgress(split=definition.source_name, floor=floor, position=floor)
    opening = opening_attachment(
        job_id=job_id,
        table_id=definition.table.id,
        generation=generation,
        progress=(start,),
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


def _require_free_name(name: str, *, parts: ChangeParts) -> None:
    state = parts.catalog.job(name)
    if state is not None and state.wish.wish in (Wish.DROP, Wish.CLOSED):
        _finish_drop(state, parts=parts)
    elif state is not None:
        raise UserError(
            f'job "{name}" exists already',
            code=Code.ALREADY_EXISTS_ERR,
            hint=f"Choose another name, or DROP JOB {quoted_name(name)} first.",
        )


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


def pause_job(statement: PauseJob, *, parts: ChangeParts) -> Result:
    """Stop a job so that no row appears any more, whoever runs it."""
    state = find_job(statement.name, catalog=parts.catalog)
    _require_alive(state)
    if _manually_paused(state) and not _pause_unfinished(state, parts=parts):
        raise UserError(f'job "{state.name}" is already paused', code=Code.STATE_ERR)
    reason = Reason(code=Code.MANUAL_PAUSE_ERR, message="paused by PAUSE JOB")
    wish = WishChanged(wish=Wish.PAUSE, reason=reason, generation=state.generation)
    extension = change_job(state, wish=wish, kind=CommitKind.FENCE, parts=parts)
    if isinstance(extension, Closed):
        raise overtaken(state)
    after = apply_chain(state, parts=parts)
    if after.generation != extension.commit.attachment.generation:
        raise overtaken(state)
    return Result(message=f"job {state.name} paused")


def _manually_paused(state: JobState) -> bool:
    wish = state.wish
    manual = wish.reason is not None and wish.reason.code is Code.MANUAL_PAUSE_ERR
    return wish.wish is Wish.PAUSE and manual


def _pause_unfinished(state: JobState, *, parts: ChangeParts) -> bool:
    """Tell whether a PAUSE died before its fence was written and followed by the catalog."""
    handle = open_table(parts.tables, state.definition.table)
    newest = newest_commit(handle, job_id=state.id).attachment
    return newest.generation != state.generation or newest.number != state.number


def resume_job(statement: ResumeJob, *, parts: ChangeParts) -> Result:
    """Let a paused job run again from where it stands."""
    state = find_job(statement.name, catalog=parts.catalog)
    _require_alive(state)
    if state.wish.wish is not Wish.PAUSE:
        raise UserError(
            f'job "{state.name}" is not paused', code=Code.STATE_ERR, hint="See SHOW JOBS."
        )
    handle = open_table(parts.tables, state.definition.table)
    newest = newest_commit(handle, job_id=state.id).attachment
    require_followed(newest.number, state=state)
    generation = next_generation(state.generation, newest.generation)
    wish = WishChanged(wish=Wish.RUN, reason=None, generation=generation)
    store_first(state, wish, parts=parts)
    reached(CrashPoint.WISH_STORED)
    return Result(message=f"job {state.name} resumed")


def alter_job(statement: AlterJob, *, parts: ChangeParts) -> Result:
    """Change a paused job's properties or move its position; all of it or nothing."""
    state = find_job(statement.name, catalog=parts.catalog)
    _require_alive(state)
    if state.wish.wish is not Wish.PAUSE:
        raise UserError(
            f'job "{state.name}" must be paused before it is altered',
            code=Code.STATE_ERR,
            hint=f"PAUSE JOB {quoted_name(state.name)}, ALTER it, then RESUME it.",
        )
    defined = _altered(state, statement, parts=parts)
    definition, floor = defined.definition, defined.floor
    changed = (
        replace(definition, revision=state.definition.revision) != state.definition
        or defined.secret is not None
    )
    if floor is None and not changed:
        raise UserError(
            f'ALTER changes nothing: job "{state.name}" is like that already',
            code=Code.OPTION_ERR,
        )
    extension = change_job(
        state,
        wish=None,
        kind=CommitKind.FENCE if floor is None else CommitKind.MOVE,
        progress=None if floor is None else _moved(state, floor),
        parts=parts,
    )
    if isinstance(extension, Closed):
        raise overtaken(state)
    if changed:
        _store_definition(state, defined, extension.commit.attachment, parts=parts)
    apply_chain(state, parts=parts)
    return Result(message=f"job {state.name} altered")


def _store_definition(
    state: JobState, defined: Defined, landed: Attachment, *, parts: ChangeParts
) -> None:
    body = DefinitionChanged(definition=defined.definition)
    owned = _sealed(defined.secret, job_id=state.id, parts=parts)
    try:
        parts.catalog.append(state.id, body, expected=landed.generation, secrets_owned=owned)
    except LeaseLostError as error:
        raise overtaken(state) from error


def _altered(state: JobState, statement: AlterJob, *, parts: ChangeParts) -> Defined:
    """Answer the definition as it would be, checked like a new one, and the new floor."""
    definition = state.definition
    uri = definition.source_name
    _, metadata, floor = read_properties(statement.properties, uri=uri)
    merged = {**dict(print_options(definition.properties)), **dict(statement.properties)}
    options = tuple((k, v) for k, v in merged.items() if k in _option_keys())
    properties, _, _ = read_properties(options, uri=uri)
    kept = {**dict(definition.metadata), **dict(metadata)}
    altered = replace(
        definition,
        properties=properties,
        metadata=tuple(kept.items()),
        revision=definition.revision + 1,
    )
    secret: JobSecret | None = None
    if statement.insert is not None or _matters_to_spark(definition, properties):
        altered, secret = alter_insert(
            altered, statement.insert, job_id=state.id, parts=_definition_parts(parts)
        )
    return Defined(definition=altered, floor=floor, secret=secret)


def _matters_to_spark(definition: JobDefinition, properties: JobProperties) -> bool:
    """Tell whether the SELECT must be looked at again, because its session is another one."""
    return definition.query is not None and properties != definition.properties


def _option_keys() -> frozenset[str]:
    return frozenset(option_key(f) for f in option_fields(JobProperties))


def _moved(state: JobState, floor: Position) -> tuple[SplitProgress, ...]:
    return tuple(
        SplitProgress(split=split.split, floor=floor, position=floor)
        for split in state.progress
    )


def drop_job(statement: DropJob, *, parts: ChangeParts) -> Result:
    """End a job's chain and forget the job; the table and its rows stay."""
    if statement.if_exists and parts.catalog.job(statement.name) is None:
        return Result(message=f"job {statement.name} does not exist")
    _finish_drop(find_job(statement.name, catalog=parts.catalog), parts=parts)
    return Result(message=f"job {statement.name} dropped")


def _finish_drop(state: JobState, *, parts: ChangeParts) -> None:
    wish = WishChanged(wish=Wish.DROP, reason=None, generation=state.generation)
    try:
        change_job(state, wish=wish, kind=CommitKind.CLOSING, parts=parts)
    except UserError as error:
        # A table that is gone, or is another one, holds no chain that could be closed.
        if error.code not in (Code.TABLE_CHANGED_ERR, Code.CANNOT_RESUME_ERR):
            raise
    reached(CrashPoint.CLOSING_COMMITTED)
    parts.tables.delete_rejects(state.id)
    parts.catalog.delete_job(state.id)


def _require_alive(state: JobState) -> None:
    if state.wish.wish in (Wish.DROP, Wish.CLOSED):
        raise UserError(
            f'job "{state.name}" is being dropped',
            code=Code.STATE_ERR,
            hint=f"DROP JOB {quoted_name(state.name)} finishes what was begun.",
        )
