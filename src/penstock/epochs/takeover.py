"""Take a job's lease and bring catalog and table to the same point.

Invariant: the generation increases in the catalog first, then in a fence in the table, before
anything is applied or planned. The previous owner can therefore commit nothing more, and
everything it did commit is applied.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from penstock.catalog.catalog import Catalog
from penstock.clock import Clock
from penstock.crashpoints import CrashPoint, reached
from penstock.epochs.commit import require_unchanged
from penstock.errors import Code, LeaseLostError, UserError
from penstock.model.epoch import CommitKind, Generation
from penstock.model.events import DesiredStateChanged
from penstock.model.job import DesiredState, JobState
from penstock.tables.chain import (
    Closed,
    Landed,
    Surpassed,
    catch_up,
    extend,
    newest_commit,
    next_generation,
    open_table,
    require_followed,
)
from penstock.tables.rejects import settle_rejects
from penstock.tables.table import TableHandle, Tables

LEASE_DURATION = timedelta(seconds=15)


def take_over(
    job_id: str,
    *,
    node_id: str,
    catalog: Catalog,
    tables: Tables,
    clock: Clock,
    assume: Callable[[Generation], None],
) -> tuple[JobState, TableHandle]:
    """Become the job's owner; return its state and a fresh handle of its table.

    ``assume`` records the generation of each step, so that a failure is reported for that
    generation and no later one.
    """
    state = catalog.job_by_id(job_id)
    if state is None or state.desired.state is not DesiredState.RUN:
        raise LeaseLostError("the job was paused or dropped")
    assume(state.generation)
    _look_before(state, catalog=catalog, tables=tables)
    generation = next_generation(state.generation)
    state = catalog.take_lease(
        job_id,
        node_id=node_id,
        duration=LEASE_DURATION,
        expected=state.generation,
        generation=generation,
    )
    assume(generation)
    reached(CrashPoint.LEASE_TAKEN)
    match extend(
        state, kind=CommitKind.FENCE, generation=generation, tables=tables, clock=clock
    ):
        case Closed():
            raise _close(state, catalog=catalog)
        case Surpassed(generation=found):
            raise _surpassed(state, found, catalog=catalog)
        case Landed():
            reached(CrashPoint.RECOVERY_FENCED)
    handle = open_table(tables, state.definition.table)
    caught_up = catch_up(
        job_id, catalog=catalog, handle=handle, applied=CrashPoint.RECOVERY_APPLIED
    )
    if caught_up is None:
        raise LeaseLostError(f'job "{state.name}" was dropped')
    newest = newest_commit(handle, job_id=job_id).attachment
    settle_rejects(newest, definition=state.definition, handle=handle, tables=tables)
    catalog.cancel_open_attempts(job_id)
    reached(CrashPoint.ATTEMPTS_CANCELLED)
    current = catalog.job_by_id(job_id)
    owner = caught_up if current is None else current
    expected = replace(owner, generation=generation, number=handle.newest_number(job_id))
    require_unchanged(current, owner=expected)
    return owner, handle


def _look_before(state: JobState, *, catalog: Catalog, tables: Tables) -> None:
    newest = newest_commit(open_table(tables, state.definition.table), job_id=state.id)
    if newest.attachment.kind is CommitKind.CLOSING:
        raise _close(state, catalog=catalog)
    if newest.attachment.generation.newer_than(state.generation):
        raise behind(state, newest.attachment.generation)
    require_followed(newest.attachment.number, state=state)


def _close(state: JobState, *, catalog: Catalog) -> LeaseLostError:
    desired = DesiredStateChanged(
        state=DesiredState.CLOSED, reason=None, generation=state.generation
    )
    catalog.append(state.id, desired, expected=state.generation)
    return LeaseLostError(f'job "{state.name}" was dropped; its chain of commits has ended')


def _surpassed(
    state: JobState, found: Generation, *, catalog: Catalog
) -> LeaseLostError | UserError:
    current = catalog.job_by_id(state.id)
    if current is not None and current.generation == state.generation:
        return behind(state, found)
    return LeaseLostError(f'job "{state.name}" has a newer owner')


def behind(state: JobState, found: Generation) -> UserError:
    """Return the error of a catalog that is older than the table."""
    return UserError(
        f'catalog is older than the table of {state.definition.kind.noun} "{state.name}"',
        code=Code.CATALOG_BEHIND_ERR,
        detail=(
            f"The table holds generation {found.number}, the catalog knows "
            f"{state.generation.number}: the catalog was probably restored from a backup."
        ),
        hint=f"Look at the table, then {state.definition.resuming}; nothing is loaded twice.",
    )
