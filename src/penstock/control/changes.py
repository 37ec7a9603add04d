"""Statements that change a running job: PAUSE, RESUME, ALTER, DROP.

First, a statement stores the desired state under a new generation. Then the statement writes a
commit to the job's chain of table commits, and applies this commit to the catalog.

Invariant: a statement waits for no other process. After a statement returns, owners of older
generations cannot commit a row, even slow or suspended owners.
"""

from penstock.catalog.catalog import Catalog
from penstock.control.execute import Services
from penstock.crashpoints import CrashPoint, reached
from penstock.errors import Code, LeaseLostError, UserError
from penstock.model.epoch import CommitKind, Generation
from penstock.model.events import DesiredStateChanged, EventBody, GenerationRaised
from penstock.model.job import DesiredState, JobState, Reason
from penstock.model.split import SplitProgress
from penstock.tables.chain import (
    Closed,
    Extended,
    Superseded,
    catch_up,
    extend,
    newest_commit,
    next_generation,
    open_table,
)
from penstock.tables.rejects import commit_pending_rejects
from penstock.tables.table import Tables

ROLLBACKS_MAX = 5


class ConcurrentChangeError(UserError):
    """The job changed before the statement stored anything; the statement can be retried."""

    code_default = Code.OVERTAKEN_ERR


def change_job(
    state: JobState,
    *,
    desired: DesiredStateChanged | None,
    kind: CommitKind,
    services: Services,
    progress: tuple[SplitProgress, ...] | None = None,
) -> Extended | Closed:
    """Store the desired state and write a commit that fences older generations.

    Raise UserError OVERTAKEN_ERR if another statement changed the job first.
    """
    generation = next_generation(state.generation)
    state = _store(state, generation, desired=desired, kind=kind, services=services)
    reached(CrashPoint.DESIRED_STATE_STORED)
    for _ in range(ROLLBACKS_MAX):
        extension = extend(
            state,
            kind=kind,
            generation=state.generation,
            tables=services.tables,
            clock=services.clock,
            progress=progress,
        )
        if not isinstance(extension, Superseded):
            reached(CrashPoint.STATEMENT_COMMITTED)
            return extension
        state = _raise_generation(state, extension.generation, services=services)
    raise overtaken_error(state)


def apply_chain(state: JobState, *, services: Services) -> JobState:
    """Apply the table's commits to the catalog; raise UserError if the job was dropped."""
    handle = open_table(services.tables, state.definition.table)
    current = catch_up(
        state.id,
        catalog=services.catalog,
        handle=handle,
        applied=CrashPoint.STATEMENT_APPLIED,
    )
    if current is None:
        raise overtaken_error(state)
    # The rejects of a paused job must be complete, even if its runner has crashed.
    newest = newest_commit(handle, job_id=state.id).attachment
    commit_pending_rejects(
        newest, definition=state.definition, handle=handle, tables=services.tables
    )
    return current


def delete_ended_job(state: JobState, *, catalog: Catalog, tables: Tables) -> None:
    """Delete a job that has ended, and its rejects."""
    tables.delete_rejects(state.id)
    catalog.delete_job(state.id)


def overtaken_error(state: JobState) -> UserError:
    """Return the error of a statement that another statement has overtaken."""
    return UserError(
        f'job "{state.name}" was changed by another statement at the same time',
        code=Code.OVERTAKEN_ERR,
        hint="Check SHOW JOBS, then run the statement again if it is still needed.",
    )


def store_first(state: JobState, body: EventBody, *, services: Services) -> JobState:
    """Store the first event of a statement; raise if the job changed since it was read."""
    try:
        return services.catalog.append(state.id, body, expected=state.generation)
    except LeaseLostError as error:
        raise ConcurrentChangeError(
            overtaken_error(state).message, hint=overtaken_error(state).hint
        ) from error


def _store(
    state: JobState,
    generation: Generation,
    *,
    desired: DesiredStateChanged | None,
    kind: CommitKind,
    services: Services,
) -> JobState:
    first: EventBody = (
        GenerationRaised(generation=generation, cause=str(kind))
        if desired is None
        else DesiredStateChanged(
            state=desired.state, reason=desired.reason, generation=generation
        )
    )
    return store_first(state, first, services=services)


def _raise_generation(state: JobState, found: Generation, *, services: Services) -> JobState:
    """Store a generation above the table's, after the catalog was restored from a backup."""
    current = services.catalog.job_by_id(state.id)
    if current is None or current.generation != state.generation:
        raise overtaken_error(state)
    generation = next_generation(current.generation, found)
    body: EventBody = GenerationRaised(generation=generation, cause="stale catalog")
    if current.desired.state is DesiredState.RUN:
        reason = Reason(
            code=Code.CATALOG_BEHIND_ERR,
            message="the catalog was older than the table; "
            "check the rows of the table, then resume the job",
        )
        body = DesiredStateChanged(
            state=DesiredState.PAUSE, reason=reason, generation=generation
        )
    try:
        return services.catalog.append(state.id, body, expected=current.generation)
    except LeaseLostError as error:
        raise overtaken_error(state) from error
