"""Statements that change routine loads."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from penstock.control.changes import ChangeParts, forget
from penstock.control.find import find_routine_load, find_table
from penstock.control.lifecycle import (
    alter,
    close,
    definition_parts,
    make_room,
    manually_paused,
    open_job,
    pause,
    require_alive,
    require_free_name,
    require_paused,
    resume,
)
from penstock.control.result import Result
from penstock.control.routine_definition import alter_load, define_load
from penstock.errors import UserError
from penstock.model.job import JobState, Wish
from penstock.model.schema import quoted_name
from penstock.model.secrets import SecretReference, reference_of
from penstock.model.split import report_behind_move
from penstock.model.text import counted
from penstock.sql.statements import (
    AlterRoutineLoad,
    CreateRoutineLoad,
    PauseRoutineLoad,
    ResumeRoutineLoad,
    StopRoutineLoad,
)
from penstock.tables.chain import open_table

# How long a load that was stopped can still be looked at.
KEPT_AFTER_STOP = timedelta(days=3)


def create_routine_load(statement: CreateRoutineLoad, *, parts: ChangeParts) -> Result:
    """Check everything against the real thing, resolve positions, open the load's chain."""
    _forget_old(parts=parts)
    ended = require_free_name(statement.name, parts=parts)
    statement = _with_values(statement, of=ended, parts=parts)
    record = find_table(statement.table, catalog=parts.catalog)
    handle = parts.tables.open(record.location)
    # A table whose partitions cannot be written is refused here.
    handle.partition_columns()
    found = define_load(
        statement,
        table=record,
        columns=handle.columns(),
        parts=definition_parts(parts),
        clock=parts.clock,
    )
    defined = found.defined
    progress = found.progress or ()
    make_room(ended, parts=parts)
    made = open_job(defined.definition, progress=progress, secret=defined.secret, parts=parts)
    _take_over_report(made, of=ended, parts=parts)
    shards = counted(len(progress), "shard")
    unfilled = ", ".join(t.name for t in defined.definition.targets if t.path is None)
    told = f"; nothing fills the table's {unfilled}" if unfilled else ""
    return Result(message=f"routine load {statement.name} created, {shards}{told}")


def _take_over_report(made: JobState, *, of: JobState | None, parts: ChangeParts) -> None:
    """Let a load that goes on where a stopped one stood know what that one has heard.

    Of a quiet shard nothing else can tell that no record was lost.
    """
    if of is None or _place(of) != _place(made):
        return
    heard = parts.catalog.report(of.id)
    report = report_behind_move(heard, before=of.progress, after=made.progress)
    parts.catalog.set_report(made.id, report, expected=made.generation)


def _place(state: JobState) -> tuple[str, ...]:
    source = state.definition.stream
    return (source.stream, source.region, source.endpoint, source.stream_arn)


def _with_values(
    statement: CreateRoutineLoad, *, of: JobState | None, parts: ChangeParts
) -> CreateRoutineLoad:
    """Take over what a load that makes room keeps secret: SHOW CREATE names it."""
    owned = {secret.name for secret in parts.catalog.secrets() if of and secret.job_id == of.id}
    options = []
    for key, text in statement.options:
        reference = reference_of(text)
        taken = isinstance(reference, SecretReference) and reference.name in owned
        options.append((key, parts.vault.reveal(text, option=key) if taken else text))
    return replace(statement, options=tuple(options))


def alter_routine_load(statement: AlterRoutineLoad, *, parts: ChangeParts) -> Result:
    """Change a paused load or move its positions; all of it or nothing."""
    state = find_routine_load(statement.name, catalog=parts.catalog)
    require_paused(state, how=f"PAUSE ROUTINE LOAD FOR {quoted_name(state.name)}")
    columns = open_table(parts.tables, state.definition.table).columns()
    found = alter_load(
        state,
        statement,
        columns=columns,
        parts=definition_parts(parts),
        clock=parts.clock,
    )
    alter(state, found.defined, progress=found.progress, parts=parts)
    return Result(message=f"routine load {state.name} altered")


def pause_routine_load(statement: PauseRoutineLoad, *, parts: ChangeParts) -> Result:
    """Stop one load, or all of them, so that no row appears any more."""
    if statement.name is None:
        return _each(
            # One that paused itself would resume by itself.
            [state for state in _living(parts) if not manually_paused(state)],
            lambda state: pause(state, said="PAUSE ALL ROUTINE LOAD", parts=parts),
            done="paused",
        )
    state = find_routine_load(statement.name, catalog=parts.catalog)
    pause(state, said="PAUSE ROUTINE LOAD", parts=parts)
    return Result(message=f"routine load {state.name} paused")


def resume_routine_load(statement: ResumeRoutineLoad, *, parts: ChangeParts) -> Result:
    """Let one load, or all that are paused, run again from where they stand."""
    if statement.name is None:
        return _each(
            [state for state in _living(parts) if state.wish.wish is Wish.PAUSE],
            lambda state: resume(state, parts=parts),
            done="resumed",
        )
    state = find_routine_load(statement.name, catalog=parts.catalog)
    if state.wish.wish is Wish.RUN:
        return Result(message=f"routine load {state.name} is to run already")
    resume(state, parts=parts)
    return Result(message=f"routine load {state.name} resumed")


def stop_routine_load(statement: StopRoutineLoad, *, parts: ChangeParts) -> Result:
    """End a load for good; it can still be looked at for some days."""
    state = find_routine_load(statement.name, catalog=parts.catalog)
    require_alive(state)
    close(state, wish=Wish.CLOSED, parts=parts)
    return Result(message=f"routine load {state.name} stopped")


def _each(states: list[JobState], change: Callable[[JobState], None], *, done: str) -> Result:
    """Change loads one by one; one that cannot be changed is named and left as it is."""
    failed: list[str] = []
    for state in states:
        try:
            change(state)
        except UserError as error:
            failed.append(f"{state.name}: {error.message}")
    told = f"{counted(len(states) - len(failed), 'routine load')} {done}"
    return Result(message="; ".join([told, *failed]))


def _living(parts: ChangeParts) -> list[JobState]:
    loads = [state for state in parts.catalog.jobs() if state.definition.load is not None]
    return [state for state in loads if state.wish.wish in (Wish.RUN, Wish.PAUSE)]


def _forget_old(*, parts: ChangeParts) -> None:
    """Forget loads that were stopped long ago."""
    oldest = parts.clock.now() - KEPT_AFTER_STOP
    for state in parts.catalog.jobs():
        if state.stopped and state.wish.changed_at < oldest:
            forget(state, catalog=parts.catalog, tables=parts.tables)
