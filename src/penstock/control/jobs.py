"""Statements about streaming jobs."""

from dataclasses import replace

from penstock.control.changes import ChangeParts
from penstock.control.define import (
    Defined,
    JobSecret,
    alter_insert,
    define_job,
    read_properties,
)
from penstock.control.find import find_streaming_job, find_table
from penstock.control.lifecycle import (
    alter,
    definition_parts,
    drop,
    make_room,
    open_job,
    pause,
    require_free_name,
    require_paused,
    resume,
)
from penstock.control.result import Result
from penstock.model.job import JobDefinition, JobProperties, JobState
from penstock.model.options import option_fields, option_key, print_options
from penstock.model.schema import quoted_name
from penstock.model.split import Horizon, Position, SplitProgress
from penstock.sql.statements import AlterJob, CreateJob, DropJob, PauseJob, ResumeJob


def create_job(statement: CreateJob, *, parts: ChangeParts) -> Result:
    """Check everything against the real thing, open the job's chain, remember the job."""
    ended = require_free_name(statement.name, parts=parts)
    record = find_table(statement.insert.table, catalog=parts.catalog)
    handle = parts.tables.open(record.location)
    # A table whose partitions cannot be written is refused here.
    handle.partition_columns()
    defined = define_job(
        statement, table=record, columns=handle.columns(), parts=definition_parts(parts)
    )
    floor = defined.floor or Horizon()
    start = SplitProgress(split=defined.definition.files.uri, floor=floor, position=floor)
    make_room(ended, parts=parts)
    open_job(defined.definition, progress=(start,), secret=defined.secret, parts=parts)
    return Result(message=f"job {statement.name} created")


def pause_job(statement: PauseJob, *, parts: ChangeParts) -> Result:
    """Stop a job so that no row appears any more, whoever runs it."""
    state = find_streaming_job(statement.name, catalog=parts.catalog)
    pause(state, said="PAUSE JOB", parts=parts)
    return Result(message=f"job {state.name} paused")


def resume_job(statement: ResumeJob, *, parts: ChangeParts) -> Result:
    """Let a paused job run again from where it stands."""
    state = find_streaming_job(statement.name, catalog=parts.catalog)
    resume(state, parts=parts)
    return Result(message=f"job {state.name} resumed")


def alter_job(statement: AlterJob, *, parts: ChangeParts) -> Result:
    """Change a paused job's properties or move its position; all of it or nothing."""
    state = find_streaming_job(statement.name, catalog=parts.catalog)
    require_paused(state, how=f"PAUSE JOB {quoted_name(state.name)}")
    defined = _altered(state, statement, parts=parts)
    floor = defined.floor
    progress = None if floor is None else _moved(state, floor)
    alter(state, defined, progress=progress, parts=parts)
    return Result(message=f"job {state.name} altered")


def _altered(state: JobState, statement: AlterJob, *, parts: ChangeParts) -> Defined:
    """Answer the definition as it would be, checked like a new one, and the new floor."""
    definition = state.definition
    uri = definition.files.uri
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
            altered, statement.insert, job_id=state.id, parts=definition_parts(parts)
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
    drop(find_streaming_job(statement.name, catalog=parts.catalog), parts=parts)
    return Result(message=f"job {statement.name} dropped")
