"""Statements that change a running job: PAUSE, RESUME, ALTER, DROP.

Invariant: a statement first stores under a new generation what is wanted, then writes its own
commit into the job's chain, then applies it. It waits for nobody's word: when it returns, no
owner of an older generation, frozen or slow, can make a row appear.
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
    Landed,
    Surpassed,
    catch_up,
    extend,
    newest_commit,
    next_generation,
    open_table,
)
from penstock.tables.rejects import settle_rejects
from penstock.tables.table import Tables

ROLLBACKS_MAX = 5


class OutpacedError(UserError):
    """The job changed between reading it and the first effect; the statement may start over."""

    code_default = Code.OVERTAKEN_ERR


def change_job(
    state: JobState,
    *,
    desired: DesiredStateChanged | None,
    kind: CommitKind,
    services: Services,
    progress: tuple[SplitProgress, ...] | None = None,
) -> Landed | Closed:
    """Store what is wanted, write the commit that makes it hold, and apply it.

    Raises UserError OVERTAKEN_ERR when another statement was quicker.
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
        if not isinstance(extension, Surpassed):
            reached(CrashPoint.STATEMENT_COMMITTED)
            return extension
        state = _outrun_rollback(state, extension.generation, services=services)
    raise overtaken(state)


def apply_chain(state: JobState, *, services: Services) -> JobState:
    """Apply what the table holds; UserError if the job was dropped meanwhile."""
    handle = open_table(services.tables, state.definition.table)
    current = catch_up(
        state.id,
        catalog=services.catalog,
        handle=handle,
        applied=CrashPoint.STATEMENT_APPLIED,
    )
    if current is None:
        raise overtaken(state)
    # Whoever looks at a paused job finds what it rejected, whatever became of its runner.
    newest = newest_commit(handle, job_id=state.id).attachment
    settle_rejects(newest, definition=state.definition, handle=handle, tables=services.tables)
    return current


def forget(state: JobState, *, catalog: Catalog, tables: Tables) -> None:
    """Forget a job that has ended, and what it rejected."""
    tables.delete_rejects(state.id)
    catalog.delete_job(state.id)


def overtaken(state: JobState) -> UserError:
    """Answer the error of a statement that lost against another one."""
    return UserError(
        f'job "{state.name}" was changed by another statement at the same time',
        code=Code.OVERTAKEN_ERR,
        hint="Look at SHOW JOBS and repeat the statement if it is still wanted.",
    )


def store_first(state: JobState, body: EventBody, *, services: Services) -> JobState:
    """Store a statement's first effect, unless the job changed since it was read."""
    try:
        return services.catalog.append(state.id, body, expected=state.generation)
    except LeaseLostError as error:
        raise OutpacedError(overtaken(state).message, hint=overtaken(state).hint) from error


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


def _outrun_rollback(state: JobState, found: Generation, *, services: Services) -> JobState:
    """Raise the generation above the table's when the catalog was restored from a backup."""
    current = services.catalog.job_by_id(state.id)
    if current is None or current.generation != state.generation:
        raise overtaken(state)
    generation = next_generation(current.generation, found)
    body: EventBody = GenerationRaised(generation=generation, cause="catalog behind")
    if current.desired.state is DesiredState.RUN:
        reason = Reason(
            code=Code.CATALOG_BEHIND_ERR,
            message="the catalog was older than the table; look at it, then resume the job",
        )
        body = DesiredStateChanged(
            state=DesiredState.PAUSE, reason=reason, generation=generation
        )
    try:
        return services.catalog.append(state.id, body, expected=current.generation)
    except LeaseLostError as error:
        raise overtaken(state) from error
