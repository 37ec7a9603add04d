"""Take over a job: acquire its lease, fence the previous owner, and update the catalog.

Invariant: a takeover increases the generation in the catalog first, then commits a fence with
that generation to the table. Only then does it apply commits or plan an epoch. The previous
owner therefore cannot commit any more, and all of its commits are applied.

The steps of a takeover:

1. Check the table. Stop if the job was dropped, or if the catalog or the table was rolled back.
2. Acquire the lease and increase the generation in the catalog, in one transaction.
3. Commit the fence: a commit without rows, with the new generation and the next number. The
   previous owner cannot commit with that number any more.
4. Apply the commits that the catalog lacks, in order.
5. Commit the reject files of the newest epoch, if they are not visible.
6. Cancel the attempts of the previous owner that have no end in the ledger.
7. Check again that no other node took over and no statement paused the job.

A crash between two steps is safe: the next takeover starts again at the first step.
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
    Extended,
    Superseded,
    catch_up,
    extend,
    newest_commit,
    next_generation,
    open_table,
    require_no_rollback,
)
from penstock.tables.rejects import commit_pending_rejects
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
    """Take over the job; return its state and a current handle of its table.

    ``assume`` receives the generation under which each step runs. A failure pauses the job only
    if the job still has that generation.
    """
    state = catalog.job_by_id(job_id)
    if state is None or state.desired.state is not DesiredState.RUN:
        raise LeaseLostError("the job was paused or dropped")
    assume(state.generation)
    _check_before_takeover(state, catalog=catalog, tables=tables)
    generation = next_generation(state.generation)
    state = catalog.acquire_lease(
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
        case Superseded(generation=found):
            raise _superseded_error(state, found, catalog=catalog)
        case Extended():
            reached(CrashPoint.RECOVERY_FENCED)
    handle = open_table(tables, state.definition.table)
    caught_up = catch_up(
        job_id, catalog=catalog, handle=handle, applied=CrashPoint.RECOVERY_APPLIED
    )
    if caught_up is None:
        raise LeaseLostError(f'job "{state.name}" was dropped')
    newest = newest_commit(handle, job_id=job_id).attachment
    commit_pending_rejects(newest, definition=state.definition, handle=handle, tables=tables)
    catalog.cancel_open_attempts(job_id)
    reached(CrashPoint.ATTEMPTS_CANCELLED)
    current = catalog.job_by_id(job_id)
    owner = caught_up if current is None else current
    expected = replace(owner, generation=generation, number=handle.newest_number(job_id))
    require_unchanged(current, owner=expected)
    return owner, handle


def _check_before_takeover(state: JobState, *, catalog: Catalog, tables: Tables) -> None:
    newest = newest_commit(open_table(tables, state.definition.table), job_id=state.id)
    if newest.attachment.kind is CommitKind.CLOSING:
        raise _close(state, catalog=catalog)
    if newest.attachment.generation.newer_than(state.generation):
        raise stale_catalog(state, newest.attachment.generation)
    require_no_rollback(newest.attachment.number, state=state)


def _close(state: JobState, *, catalog: Catalog) -> LeaseLostError:
    desired = DesiredStateChanged(
        state=DesiredState.CLOSED, reason=None, generation=state.generation
    )
    catalog.append(state.id, desired, expected=state.generation)
    return LeaseLostError(f'job "{state.name}" was dropped')


def _superseded_error(
    state: JobState, found: Generation, *, catalog: Catalog
) -> LeaseLostError | UserError:
    current = catalog.job_by_id(state.id)
    if current is not None and current.generation == state.generation:
        return stale_catalog(state, found)
    return LeaseLostError(f'job "{state.name}" has a newer owner')


def stale_catalog(state: JobState, found: Generation) -> UserError:
    """Return the error for a catalog that is older than the table."""
    return UserError(
        f'catalog is older than the table of {state.definition.kind.noun} "{state.name}"',
        code=Code.CATALOG_BEHIND_ERR,
        detail=(
            f"The table has generation {found.number}, the catalog has "
            f"{state.generation.number}. The catalog was probably restored from a backup."
        ),
        hint=(
            f"Check the rows of the table, then run {state.definition.resume_statement}; "
            "nothing is loaded twice."
        ),
    )
