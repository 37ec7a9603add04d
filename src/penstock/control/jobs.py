"""Statements that change jobs of any kind: CREATE, ALTER, PAUSE, RESUME, DROP and STOP.

This module checks and defines jobs; ``changes`` has the steps of the commit protocol.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace

from penstock.catalog.catalog import TableRecord
from penstock.control.changes import (
    apply_chain,
    change_job,
    delete_ended_job,
    overtaken_error,
    store_first,
)
from penstock.control.define import Defined, JobSecret, define_job, redefine_job
from penstock.control.execute import Services
from penstock.control.find import find_job, find_table
from penstock.control.result import Result
from penstock.crashpoints import CrashPoint, reached
from penstock.errors import Code, CommitOutcomeUnknownError, LeaseLostError, UserError
from penstock.model.epoch import Attachment, CommitKind
from penstock.model.events import DefinitionChanged, DesiredStateChanged, JobCreated
from penstock.model.job import DesiredState, JobDefinition, JobState, Reason
from penstock.model.job_kinds import ROUTINE_LOAD, JobKind
from penstock.model.secrets import SealedSecret, SecretReference, reference_of
from penstock.model.split import Progress
from penstock.model.text import format_count, quoted_name
from penstock.sources.registry import source_kind
from penstock.sql.statements import AlterJob, CreateJob, DropJob, PauseJob, ResumeJob
from penstock.tables.chain import (
    TRIES_MAX,
    Closed,
    newest_commit,
    next_generation,
    open_table,
    opening_attachment,
    require_no_rollback,
)


def create_job(statement: CreateJob, *, services: Services) -> Result:
    """Check the statement against the real source and table, then store the new job."""
    _delete_expired(services=services)
    ended = require_free_name(statement.name, services=services)
    statement = _with_inherited_secrets(statement, of=ended, services=services)
    record = find_table(statement.body.table or "", catalog=services.catalog)
    _require_no_streaming_table(record, services=services)
    handle = services.tables.open(record.location)
    # Raises if the partitions of the table cannot be written.
    handle.partition_columns()
    defined = define_job(statement, table=record, columns=handle.columns(), services=services)
    release_name(ended, services=services)
    created = open_job(
        defined.definition,
        progress=defined.progress or (),
        secret=defined.secret,
        services=services,
    )
    _inherit_memory(created, of=ended, services=services)
    return Result(message=_created_message(created))


def _require_no_streaming_table(record: TableRecord, *, services: Services) -> None:
    """Raise if the table is kept up to date by a query."""
    owner = services.catalog.job(record.name)
    if owner is not None and owner.definition.streaming is not None:
        raise UserError(
            f'table "{record.name}" is a streaming table, so a job cannot load it',
            code=Code.STATE_ERR,
            hint="Load another table, and add its rows with CREATE FLOW.",
        )


def _created_message(created: JobState) -> str:
    definition = created.definition
    message = f"{definition.kind.noun} {created.name} created"
    if definition.kind is not ROUTINE_LOAD:
        return message
    noun = source_kind(definition.source.kind).split_noun
    unfilled = ", ".join(t.name for t in definition.targets if t.path is None)
    note = f"; columns that stay NULL: {unfilled}" if unfilled else ""
    return f"{message}, {format_count(len(created.progress), noun)}{note}"


def _inherit_memory(created: JobState, *, of: JobState | None, services: Services) -> None:
    """Copy the source's ``Memory``, a cache, from the replaced job to the new job."""
    if of is None or of.definition.source.kind != created.definition.source.kind:
        return
    kind = source_kind(created.definition.source.kind)
    memory = kind.inherit(services.catalog.report(of.id).memory, of, created)
    if memory:
        services.catalog.set_memory(created.id, memory, expected=created.generation)


def _with_inherited_secrets(
    statement: CreateJob, *, of: JobState | None, services: Services
) -> CreateJob:
    """Replace references to secrets of a stopped job by their values.

    SHOW CREATE of the stopped job prints such references.
    """
    call = statement.body.source
    if of is None or not of.stopped or call is None:
        return statement
    owned = {secret.name for secret in services.catalog.secrets() if secret.job_id == of.id}
    options = []
    for key, text in call.options:
        reference = reference_of(text)
        inherited = isinstance(reference, SecretReference) and reference.name in owned
        options.append((key, services.vault.reveal(text, option=key) if inherited else text))
    source = replace(call, options=tuple(options))
    return replace(statement, body=replace(statement.body, source=source))


def alter_job(statement: AlterJob, *, services: Services) -> Result:
    """Change a paused job's definition or positions; all changes or none take effect."""
    state = find_job(statement.name, kind=statement.kind, catalog=services.catalog)
    require_paused(state)
    alter(state, redefine_job(state, statement, services=services), services=services)
    return _done(state, "altered")


def pause_job(statement: PauseJob, *, services: Services) -> Result:
    """Pause one job, or all jobs of a kind; after the return no row is committed."""
    kind = statement.kind
    if statement.name is None:
        # Jobs that Penstock paused are included, because Penstock may resume them later.
        running = [state for state in _not_ended(kind, services) if not manually_paused(state)]
        by = f"PAUSE ALL {kind.noun.upper()}"
        return _change_each(running, lambda s: pause(s, by=by, services=services), "paused")
    state = find_job(statement.name, kind=kind, catalog=services.catalog)
    pause(state, by=f"PAUSE {kind.noun.upper()}", services=services)
    return _done(state, "paused")


def resume_job(statement: ResumeJob, *, services: Services) -> Result:
    """Resume one paused job, or all paused jobs of a kind, from their positions."""
    kind = statement.kind
    if statement.name is None:
        states = _not_ended(kind, services)
        paused = [s for s in states if s.desired.state is DesiredState.PAUSE]
        return _change_each(paused, lambda state: resume(state, services=services), "resumed")
    state = find_job(statement.name, kind=kind, catalog=services.catalog)
    if kind is ROUTINE_LOAD and state.desired.state is DesiredState.RUN:
        return _done(state, "is not paused")
    resume(state, services=services)
    return _done(state, "resumed")


def drop_job(statement: DropJob, *, services: Services) -> Result:
    """Drop or stop a job; the table keeps its rows. A stopped job can still be shown."""
    kind = statement.kind
    if statement.if_exists and services.catalog.job(statement.name) is None:
        return Result(message=f"{kind.noun} {statement.name} does not exist")
    state = find_job(statement.name, kind=kind, catalog=services.catalog)
    if state.definition.streaming is not None:
        from penstock.control.stream_tables import drop_streaming_table

        return drop_streaming_table(statement, state, services=services)
    if kind.retention_after_stop is None:
        drop(state, services=services)
        return _done(state, "dropped")
    require_not_ended(state)
    close(state, desired=DesiredState.CLOSED, services=services)
    return _done(state, "stopped")


def _done(state: JobState, what: str) -> Result:
    return Result(message=f"{state.definition.kind.noun} {state.name} {what}")


def _change_each(
    states: list[JobState], change: Callable[[JobState], None], done: str
) -> Result:
    """Change routine loads one by one; the message lists the unchanged loads."""
    failed: list[str] = []
    for state in states:
        try:
            change(state)
        except UserError as error:
            failed.append(f"{state.name}: {error.message}")
    changed = f"{format_count(len(states) - len(failed), 'routine load')} {done}"
    return Result(message="; ".join([changed, *failed]))


def _not_ended(kind: JobKind, services: Services) -> list[JobState]:
    return [
        state
        for state in services.catalog.jobs()
        if state.definition.kind is kind
        and state.desired.state in (DesiredState.RUN, DesiredState.PAUSE)
    ]


def _delete_expired(*, services: Services) -> None:
    """Delete stopped jobs whose retention has ended."""
    now = services.clock.now()
    for state in services.catalog.jobs():
        retention = state.definition.kind.retention_after_stop
        if (
            state.stopped
            and retention is not None
            and state.desired.changed_at < now - retention
        ):
            delete_ended_job(state, catalog=services.catalog, tables=services.tables)


def open_job(
    definition: JobDefinition,
    *,
    progress: Progress,
    services: Services,
    secret: JobSecret | None = None,
    table: TableRecord | None = None,
) -> JobState:
    """Create a job under a new id: first the opening commit, then the catalog's event.

    ``table`` is the job's table if the statement creates it.
    """
    job_id = str(uuid.uuid4())
    generation = next_generation()
    opening = opening_attachment(
        job_id=job_id,
        table_id=definition.table.id,
        generation=generation,
        progress=progress,
        clock=services.clock,
    )
    version = _open_chain(definition, opening, services=services)
    reached(CrashPoint.OPENING_COMMITTED)
    created = JobCreated(
        definition=definition, generation=generation, opening=opening, table_version=version
    )
    owned = _sealed(secret, job_id=job_id, services=services)
    return services.catalog.create_job(job_id, created, secrets_owned=owned, table=table)


def _sealed(
    secret: JobSecret | None, *, job_id: str, services: Services
) -> tuple[SealedSecret, ...]:
    if secret is None:
        return ()
    return (services.vault.sealed_secret(secret.name, dict(secret.values), job_id=job_id),)


def _open_chain(definition: JobDefinition, opening: Attachment, *, services: Services) -> int:
    """Write the opening commit and return its table version.

    The job id is new, so any commit with this id was written by this statement.
    """
    refusal: CommitOutcomeUnknownError | None = None
    for _ in range(TRIES_MAX):
        handle = open_table(services.tables, definition.table)
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
        f'the first commit of the job to table "{definition.table.name}" failed',
        code=Code.TABLE_ERR,
        detail=f"The last error was: {refusal}.",
        hint="Check that the disk at the table's location is writable and not full.",
    ) from refusal


def pause(state: JobState, *, by: str, services: Services) -> None:
    """Pause a job; after the return no process can commit a row for it."""
    require_not_ended(state)
    if manually_paused(state) and not _pause_unfinished(state, services=services):
        raise UserError(
            f'{state.definition.kind.noun} "{state.name}" is already paused',
            code=Code.STATE_ERR,
        )
    reason = Reason(code=Code.MANUAL_PAUSE_ERR, message=f"paused by {by}")
    desired = DesiredStateChanged(
        state=DesiredState.PAUSE, reason=reason, generation=state.generation
    )
    extension = change_job(state, desired=desired, kind=CommitKind.FENCE, services=services)
    if isinstance(extension, Closed):
        raise overtaken_error(state)
    after = apply_chain(state, services=services)
    if after.generation != extension.commit.attachment.generation:
        raise overtaken_error(state)


def manually_paused(state: JobState) -> bool:
    """Return whether a user paused the job."""
    desired = state.desired
    manual = desired.reason is not None and desired.reason.code is Code.MANUAL_PAUSE_ERR
    return desired.state is DesiredState.PAUSE and manual


def _pause_unfinished(state: JobState, *, services: Services) -> bool:
    """Return whether a PAUSE crashed before its commit was written and applied."""
    handle = open_table(services.tables, state.definition.table)
    newest = newest_commit(handle, job_id=state.id).attachment
    return newest.generation != state.generation or newest.number != state.number


def resume(state: JobState, *, services: Services) -> None:
    """Resume a paused job from its positions."""
    require_not_ended(state)
    if state.desired.state is not DesiredState.PAUSE:
        raise UserError(
            f'{state.definition.kind.noun} "{state.name}" is not paused',
            code=Code.STATE_ERR,
            hint="Check its state with SHOW JOBS.",
        )
    handle = open_table(services.tables, state.definition.table)
    newest = newest_commit(handle, job_id=state.id).attachment
    require_no_rollback(newest.number, state=state)
    generation = next_generation(state.generation, newest.generation)
    desired = DesiredStateChanged(
        state=DesiredState.RUN,
        reason=None,
        generation=generation,
        rejected_before=state.cumulative.rows_rejected,
    )
    store_first(state, desired, services=services)
    reached(CrashPoint.DESIRED_STATE_STORED)


def require_paused(state: JobState) -> None:
    """Raise unless the job is paused, as ALTER requires."""
    require_not_ended(state)
    if state.desired.state is not DesiredState.PAUSE:
        pausing = state.definition.kind.pause.format(quoted_name(state.name))
        raise UserError(
            f'{state.definition.kind.noun} "{state.name}" must be paused before it is altered',
            code=Code.STATE_ERR,
            hint=f"Run {pausing}, then ALTER, then RESUME.",
        )


def alter(state: JobState, defined: Defined, *, services: Services) -> None:
    """Store another definition and, if given, other positions; both or none take effect."""
    definition, progress = defined.definition, defined.progress
    changed = (
        replace(definition, revision=state.definition.revision) != state.definition
        or defined.secret is not None
    )
    if progress is None and not changed:
        noun = definition.kind.noun
        message = f'ALTER has no effect: {noun} "{state.name}" already has these values'
        raise UserError(message, code=Code.OPTION_ERR)
    extension = change_job(
        state,
        desired=None,
        kind=CommitKind.FENCE if progress is None else CommitKind.MOVE,
        progress=progress,
        services=services,
    )
    if isinstance(extension, Closed):
        raise overtaken_error(state)
    if changed:
        _store_definition(state, defined, extension.commit.attachment, services=services)
    apply_chain(state, services=services)


def _store_definition(
    state: JobState, defined: Defined, attachment: Attachment, *, services: Services
) -> None:
    body = DefinitionChanged(definition=defined.definition)
    owned = _sealed(defined.secret, job_id=state.id, services=services)
    try:
        services.catalog.append(
            state.id, body, expected=attachment.generation, secrets_owned=owned
        )
    except LeaseLostError as error:
        raise overtaken_error(state) from error


def drop(state: JobState, *, services: Services) -> None:
    """Write the closing commit and delete the job; the table keeps its rows."""
    close(state, desired=DesiredState.DROP, services=services)
    delete_ended_job(state, catalog=services.catalog, tables=services.tables)


def release_name(ended: JobState | None, *, services: Services) -> None:
    """Free the name of an ended job; a stopped routine load can still be shown."""
    if ended is None:
        return
    if ended.stopped:
        services.catalog.retire_job(ended.id)
    else:
        drop(ended, services=services)


def close(state: JobState, *, desired: DesiredState, services: Services) -> None:
    """Write the closing commit, after which the job's chain accepts no commit."""
    change = DesiredStateChanged(state=desired, reason=None, generation=state.generation)
    try:
        change_job(state, desired=change, kind=CommitKind.CLOSING, services=services)
    except UserError as error:
        # A table that was deleted or replaced has no chain to close.
        if error.code not in (Code.TABLE_CHANGED_ERR, Code.CANNOT_RESUME_ERR):
            raise
    reached(CrashPoint.CLOSING_COMMITTED)


def require_free_name(name: str, *, services: Services) -> JobState | None:
    """Raise if a job that has not ended has this name; return an ended job of this name.

    The statement that reuses the name drops the ended job after all checks.
    """
    state = services.catalog.job(name)
    if state is None or state.desired.state in (DesiredState.DROP, DesiredState.CLOSED):
        return state
    ending = state.definition.drop_statement
    raise UserError(
        f'{state.definition.kind.noun} "{name}" already exists',
        code=Code.ALREADY_EXISTS_ERR,
        hint=f"Choose another name, or run {ending} first.",
    )


def require_not_ended(state: JobState) -> None:
    """Raise if the job was dropped or stopped."""
    if state.desired.state is DesiredState.RUN or state.desired.state is DesiredState.PAUSE:
        return
    ended = state.stopped
    state_text = "was stopped" if ended else "is being dropped"
    raise UserError(
        f'{state.definition.kind.noun} "{state.name}" {state_text}',
        code=Code.STATE_ERR,
        hint="Create it again."
        if ended
        else f"Run {state.definition.drop_statement} again to finish.",
    )
