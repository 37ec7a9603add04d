"""Statements that change jobs of any kind: CREATE, ALTER, PAUSE, RESUME, DROP and STOP.

The statements check and define; ``changes`` has the steps of the protocol.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace

from penstock.control.changes import (
    apply_chain,
    change_job,
    forget,
    overtaken,
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
from penstock.model.text import counted, quoted_name
from penstock.sources.registry import source_kind
from penstock.sql.statements import AlterJob, CreateJob, DropJob, PauseJob, ResumeJob
from penstock.tables.chain import (
    TRIES_MAX,
    Closed,
    newest_commit,
    next_generation,
    open_table,
    opening_attachment,
    require_followed,
)


def create_job(statement: CreateJob, *, services: Services) -> Result:
    """Check everything against the real source and table, open the chain, store the job."""
    _forget_old(services=services)
    ended = require_free_name(statement.name, services=services)
    statement = _with_values(statement, of=ended, services=services)
    record = find_table(statement.body.table or "", catalog=services.catalog)
    handle = services.tables.open(record.location)
    # A table whose partitions cannot be written is refused here.
    handle.partition_columns()
    defined = define_job(statement, table=record, columns=handle.columns(), services=services)
    make_room(ended, services=services)
    created = open_job(
        defined.definition,
        progress=defined.progress or (),
        secret=defined.secret,
        services=services,
    )
    _inherit_memory(created, of=ended, services=services)
    return Result(message=_created_message(created))


def _created_message(created: JobState) -> str:
    definition = created.definition
    message = f"{definition.kind.noun} {created.name} created"
    if definition.kind is not ROUTINE_LOAD:
        return message
    noun = source_kind(definition.source.kind).split_noun
    unfilled = ", ".join(t.name for t in definition.targets if t.path is None)
    note = f"; nothing fills the table's {unfilled}" if unfilled else ""
    return f"{message}, {counted(len(created.progress), noun)}{note}"


def _inherit_memory(created: JobState, *, of: JobState | None, services: Services) -> None:
    """Let a job that continues a stopped one keep what its source remembered."""
    if of is None or of.definition.source.kind != created.definition.source.kind:
        return
    kind = source_kind(created.definition.source.kind)
    memory = kind.inherit(services.catalog.report(of.id).memory, of, created)
    if memory:
        services.catalog.set_memory(created.id, memory, expected=created.generation)


def _with_values(statement: CreateJob, *, of: JobState | None, services: Services) -> CreateJob:
    """Take over the secrets of a stopped job whose SHOW CREATE names them."""
    call = statement.body.source
    if of is None or not of.stopped or call is None:
        return statement
    owned = {secret.name for secret in services.catalog.secrets() if secret.job_id == of.id}
    options = []
    for key, text in call.options:
        reference = reference_of(text)
        taken = isinstance(reference, SecretReference) and reference.name in owned
        options.append((key, services.vault.reveal(text, option=key) if taken else text))
    source = replace(call, options=tuple(options))
    return replace(statement, body=replace(statement.body, source=source))


def alter_job(statement: AlterJob, *, services: Services) -> Result:
    """Change a paused job's properties or move its positions; all of it or nothing."""
    state = find_job(statement.name, kind=statement.kind, catalog=services.catalog)
    require_paused(state)
    alter(state, redefine_job(state, statement, services=services), services=services)
    return _done(state, "altered")


def pause_job(statement: PauseJob, *, services: Services) -> Result:
    """Stop one job, or all jobs of a kind; no row appears after it returns."""
    kind = statement.kind
    if statement.name is None:
        # A job that paused itself would be resumed automatically.
        running = [state for state in _living(kind, services) if not manually_paused(state)]
        by = f"PAUSE ALL {kind.noun.upper()}"
        return _each(running, lambda s: pause(s, by=by, services=services), "paused")
    state = find_job(statement.name, kind=kind, catalog=services.catalog)
    pause(state, by=f"PAUSE {kind.noun.upper()}", services=services)
    return _done(state, "paused")


def resume_job(statement: ResumeJob, *, services: Services) -> Result:
    """Let one paused job, or all paused jobs of a kind, run again from their positions."""
    kind = statement.kind
    if statement.name is None:
        living = _living(kind, services)
        paused = [s for s in living if s.desired.state is DesiredState.PAUSE]
        return _each(paused, lambda state: resume(state, services=services), "resumed")
    state = find_job(statement.name, kind=kind, catalog=services.catalog)
    if kind is ROUTINE_LOAD and state.desired.state is DesiredState.RUN:
        return _done(state, "is to run already")
    resume(state, services=services)
    return _done(state, "resumed")


def drop_job(statement: DropJob, *, services: Services) -> Result:
    """End a job's chain; the table and its rows stay. Some kinds can still be shown."""
    kind = statement.kind
    if statement.if_exists and services.catalog.job(statement.name) is None:
        return Result(message=f"{kind.noun} {statement.name} does not exist")
    state = find_job(statement.name, kind=kind, catalog=services.catalog)
    if kind.kept_after_stop is None:
        drop(state, services=services)
        return _done(state, "dropped")
    require_alive(state)
    close(state, desired=DesiredState.CLOSED, services=services)
    return _done(state, "stopped")


def _done(state: JobState, what: str) -> Result:
    return Result(message=f"{state.definition.kind.noun} {state.name} {what}")


def _each(states: list[JobState], change: Callable[[JobState], None], done: str) -> Result:
    """Change loads one by one; a load that cannot be changed is named and stays as it is."""
    failed: list[str] = []
    for state in states:
        try:
            change(state)
        except UserError as error:
            failed.append(f"{state.name}: {error.message}")
    changed = f"{counted(len(states) - len(failed), 'routine load')} {done}"
    return Result(message="; ".join([changed, *failed]))


def _living(kind: JobKind, services: Services) -> list[JobState]:
    return [
        state
        for state in services.catalog.jobs()
        if state.definition.kind is kind
        and state.desired.state in (DesiredState.RUN, DesiredState.PAUSE)
    ]


def _forget_old(*, services: Services) -> None:
    """Delete jobs that were stopped longer ago than their kind keeps them."""
    now = services.clock.now()
    for state in services.catalog.jobs():
        kept = state.definition.kind.kept_after_stop
        if state.stopped and kept is not None and state.desired.changed_at < now - kept:
            forget(state, catalog=services.catalog, tables=services.tables)


def open_job(
    definition: JobDefinition,
    *,
    progress: Progress,
    services: Services,
    secret: JobSecret | None = None,
) -> JobState:
    """Begin a job under a new id: the opening commit first, then the catalog's event."""
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
    return services.catalog.create_job(job_id, created, secrets_owned=owned)


def _sealed(
    secret: JobSecret | None, *, job_id: str, services: Services
) -> tuple[SealedSecret, ...]:
    if secret is None:
        return ()
    return (services.vault.sealed_secret(secret.name, dict(secret.values), job_id=job_id),)


def _open_chain(definition: JobDefinition, opening: Attachment, *, services: Services) -> int:
    """Write the opening commit; the job id is new, so whatever stands under it is ours."""
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
        f'table "{definition.table.name}" refused the opening commit of the job',
        code=Code.TABLE_ERR,
        detail=f"The last answer was: {refusal}.",
        hint="Look for a full or read-only disk at the table's location.",
    ) from refusal


def pause(state: JobState, *, by: str, services: Services) -> None:
    """Stop a job so that no row appears any more, whoever runs it."""
    require_alive(state)
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
        raise overtaken(state)
    after = apply_chain(state, services=services)
    if after.generation != extension.commit.attachment.generation:
        raise overtaken(state)


def manually_paused(state: JobState) -> bool:
    """Tell whether a person has paused a job."""
    desired = state.desired
    manual = desired.reason is not None and desired.reason.code is Code.MANUAL_PAUSE_ERR
    return desired.state is DesiredState.PAUSE and manual


def _pause_unfinished(state: JobState, *, services: Services) -> bool:
    """Tell whether a PAUSE died before its fence was written and followed by the catalog."""
    handle = open_table(services.tables, state.definition.table)
    newest = newest_commit(handle, job_id=state.id).attachment
    return newest.generation != state.generation or newest.number != state.number


def resume(state: JobState, *, services: Services) -> None:
    """Let a paused job run again from where it stands."""
    require_alive(state)
    if state.desired.state is not DesiredState.PAUSE:
        raise UserError(
            f'{state.definition.kind.noun} "{state.name}" is not paused',
            code=Code.STATE_ERR,
            hint="See SHOW JOBS.",
        )
    handle = open_table(services.tables, state.definition.table)
    newest = newest_commit(handle, job_id=state.id).attachment
    require_followed(newest.number, state=state)
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
    """Require a job that may be altered."""
    require_alive(state)
    if state.desired.state is not DesiredState.PAUSE:
        pausing = state.definition.kind.pause.format(quoted_name(state.name))
        raise UserError(
            f'{state.definition.kind.noun} "{state.name}" must be paused before it is altered',
            code=Code.STATE_ERR,
            hint=f"{pausing}, ALTER it, then RESUME it.",
        )


def alter(state: JobState, defined: Defined, *, services: Services) -> None:
    """Store another definition, and move the job if it has a start; all or nothing."""
    definition, progress = defined.definition, defined.progress
    changed = (
        replace(definition, revision=state.definition.revision) != state.definition
        or defined.secret is not None
    )
    if progress is None and not changed:
        raise UserError(
            f'ALTER changes nothing: {definition.kind.noun} "{state.name}" is the same already',
            code=Code.OPTION_ERR,
        )
    extension = change_job(
        state,
        desired=None,
        kind=CommitKind.FENCE if progress is None else CommitKind.MOVE,
        progress=progress,
        services=services,
    )
    if isinstance(extension, Closed):
        raise overtaken(state)
    if changed:
        _store_definition(state, defined, extension.commit.attachment, services=services)
    apply_chain(state, services=services)


def _store_definition(
    state: JobState, defined: Defined, landed: Attachment, *, services: Services
) -> None:
    body = DefinitionChanged(definition=defined.definition)
    owned = _sealed(defined.secret, job_id=state.id, services=services)
    try:
        services.catalog.append(state.id, body, expected=landed.generation, secrets_owned=owned)
    except LeaseLostError as error:
        raise overtaken(state) from error


def drop(state: JobState, *, services: Services) -> None:
    """End a job's chain and forget the job; the table and its rows stay."""
    close(state, desired=DesiredState.DROP, services=services)
    forget(state, catalog=services.catalog, tables=services.tables)


def make_room(ended: JobState | None, *, services: Services) -> None:
    """Free the name of a job that has ended; a stopped load can still be looked at."""
    if ended is None:
        return
    if ended.stopped:
        services.catalog.retire_job(ended.id)
    else:
        drop(ended, services=services)


def close(state: JobState, *, desired: DesiredState, services: Services) -> None:
    """End a job's chain."""
    wanted = DesiredStateChanged(state=desired, reason=None, generation=state.generation)
    try:
        change_job(state, desired=wanted, kind=CommitKind.CLOSING, services=services)
    except UserError as error:
        # A table that is gone, or is another one, holds no chain that could be closed.
        if error.code not in (Code.TABLE_CHANGED_ERR, Code.CANNOT_RESUME_ERR):
            raise
    reached(CrashPoint.CLOSING_COMMITTED)


def require_free_name(name: str, *, services: Services) -> JobState | None:
    """Require that no living job has this name; return one that has ended.

    The statement that takes the name drops that job after everything else is checked.
    """
    state = services.catalog.job(name)
    if state is None or state.desired.state in (DesiredState.DROP, DesiredState.CLOSED):
        return state
    ending = state.definition.ending
    raise UserError(
        f'{state.definition.kind.noun} "{name}" exists already',
        code=Code.ALREADY_EXISTS_ERR,
        hint=f"Choose another name, or {ending} first.",
    )


def require_alive(state: JobState) -> None:
    """Require a job that was not ended."""
    if state.desired.state is DesiredState.RUN or state.desired.state is DesiredState.PAUSE:
        return
    ended = state.stopped
    told = "was stopped" if ended else "is being dropped"
    raise UserError(
        f'{state.definition.kind.noun} "{state.name}" {told}',
        code=Code.STATE_ERR,
        hint="Create it again."
        if ended
        else f"{state.definition.ending} finishes what was begun.",
    )
