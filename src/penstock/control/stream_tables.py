"""Statements that change streaming tables and flows: CREATE, ALTER, REFRESH, DROP."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from penstock.arrow.casts import can_cast
from penstock.arrow.types import arrow_type
from penstock.catalog.catalog import TableRecord
from penstock.control.define import Defined
from penstock.control.execute import Services
from penstock.control.find import find_job, find_table, readers_of, require_unused
from penstock.control.jobs import (
    alter,
    drop,
    open_job,
    require_free_name,
    require_not_ended,
    require_paused,
)
from penstock.control.result import Result
from penstock.control.stream_define import (
    changed_option,
    define_query,
    keyed_writer,
    require_no_cycle,
    same_query,
    start_positions,
    stream_definition,
    stream_options,
    stream_source,
    try_query,
)
from penstock.control.tables import unregistered_table
from penstock.crashpoints import CrashPoint, reached
from penstock.errors import Code, UserError
from penstock.model.cadence import merge_properties
from penstock.model.events import EpochRequested
from penstock.model.job import DesiredState, JobState, StreamingQuery, TableRef
from penstock.model.job_kinds import FLOW, STREAMING_TABLE, OutputMode
from penstock.model.options import parse_options
from penstock.model.schema import Column, partition_column_error
from penstock.model.text import (
    FINAL_WATERMARK_MS,
    format_count,
    format_event_time,
    format_names,
    quoted_name,
)
from penstock.sources.registry import source_kind, source_ref
from penstock.sql.statements import (
    AlterStreamingTable,
    CreateFlow,
    CreateStreamingTable,
    CreateTable,
    DropJob,
    RefreshStreamingTable,
    StreamColumn,
)
from penstock.tables.partitions import check_keyed_partition_columns

# Options that the state or the first positions depend on.
FROZEN_OPTIONS = ("parallelism", "output", "state.ttl", "session.time_zone", "starting")


def create_streaming_table(statement: CreateStreamingTable, *, services: Services) -> Result:
    """Check the query, create the table, and start to keep the table up to date."""
    existing = _existing(statement, services)
    if existing is not None:
        return existing
    options = stream_options(statement.options, kind=STREAMING_TABLE)
    defined = define_query(
        statement.query, target=statement.name, options=options, services=services
    )
    columns = _columns(statement.columns, defined.query.outputs)
    partition_by = _partition_by(statement.partition_by, columns)
    if defined.query.output is OutputMode.UPDATE:
        check_keyed_partition_columns(columns, partition_by)
    source = stream_source(defined, options)
    progress = start_positions(source, options=options, services=services)
    try_query(defined, properties=options.properties, services=services)
    table = _create_table(statement, columns, partition_by, services=services)
    definition = stream_definition(
        statement,
        defined.query,
        properties=options.properties,
        source=source,
        table=table,
        columns=columns,
    )
    record = TableRecord(
        name=table.name,
        id=table.id,
        location=table.location,
        managed=statement.location is None,
        comment=statement.comment,
        created_at=services.clock.now(),
    )
    open_job(definition, progress=progress, services=services, table=record)
    key = f", one row per {', '.join(defined.query.key) or 'table'}"
    mode = key if defined.query.output is OutputMode.UPDATE else ""
    return Result(
        message=f"streaming table {statement.name} created, "
        f"{format_count(len(defined.streams), 'stream')}{mode}{_notices(defined.query)}"
    )


def _notices(query: StreamingQuery) -> str:
    found = dict.fromkeys(one.notice for one in query.operators if one.notice)
    return "".join(f"; {notice}" for notice in found)


def _existing(statement: CreateStreamingTable, services: Services) -> Result | None:
    """Return the result if the streaming table exists; raise if the name is taken."""
    record = services.catalog.table(statement.name)
    state = services.catalog.job(statement.name)
    streaming = state is not None and state.definition.kind is STREAMING_TABLE
    if record is None:
        require_free_name(statement.name, services=services)
        return None
    if streaming and state is not None and statement.or_refresh:
        _require_unchanged(statement, state, record, services=services)
        _require_running(state)
        return _request(state, services=services)
    if streaming and statement.if_not_exists:
        return Result(message=f"streaming table {statement.name} already exists")
    what = "streaming table" if streaming else "table"
    raise UserError(
        f'{what} "{statement.name}" already exists',
        code=Code.ALREADY_EXISTS_ERR,
        hint="Choose another name, or run "
        f"DROP {what.upper()} {quoted_name(statement.name)} first.",
    )


def _require_unchanged(
    statement: CreateStreamingTable,
    state: JobState,
    record: TableRecord,
    *,
    services: Services,
) -> None:
    """Raise UserError unless the statement describes the streaming table as it is."""
    noun = STREAMING_TABLE.noun
    part = next(_changed_parts(statement, state, record, services=services), None)
    if part is not None:
        raise UserError(
            f'the {part} of streaming table "{state.name}" cannot be changed yet',
            code=Code.NOT_SUPPORTED_ERR,
            hint=f"Run {state.definition.drop_statement}, then create the {noun} again.",
        )
    options = stream_options(statement.options, kind=STREAMING_TABLE)
    changed = changed_option(state.definition, options)
    if changed is None:
        return
    key, before, after = changed
    name = quoted_name(state.name)
    altering = (
        f"Run PAUSE STREAMING TABLE {name}, then ALTER STREAMING TABLE {name} "
        f"SET ('{key}' = '{after}'), then RESUME STREAMING TABLE {name}."
    )
    dropping = (
        f"The state depends on this option. Run {state.definition.drop_statement}, then create "
        f"the {noun} again."
    )
    raise UserError(
        f'option "{key}" of streaming table "{state.name}" is {before}, and CREATE OR REFRESH '
        f"cannot change it to {after}",
        code=Code.NOT_SUPPORTED_ERR,
        hint=dropping if key in FROZEN_OPTIONS else altering,
    )


def _changed_parts(
    statement: CreateStreamingTable,
    state: JobState,
    record: TableRecord,
    *,
    services: Services,
) -> Iterator[str]:
    """Yield the parts of a statement, except options, that differ from the existing table."""
    definition = state.definition
    if not same_query(statement.query.text, definition.select):
        yield "query"
    outputs = () if definition.streaming is None else definition.streaming.outputs
    handle = services.tables.open(record.location)
    if _comparable(_columns(statement.columns, outputs)) != _comparable(handle.columns()):
        yield "column list"
    if statement.comment != definition.comment:
        yield "comment"
    given = statement.location
    location = None if given is None else services.tables.normal_location(given)
    if location != (None if record.managed else record.location):
        yield "location"
    partition_by = [name.lower() for name in statement.partition_by]
    if partition_by != [name.lower() for name in handle.partition_columns()]:
        yield "list of partition columns"


def _comparable(columns: Sequence[Column]) -> list[Column]:
    """Return columns with names in lower case, as Spark compares names."""
    return [replace(column, name=column.name.lower()) for column in columns]


def _create_table(
    statement: CreateStreamingTable,
    columns: tuple[Column, ...],
    partition_by: tuple[str, ...],
    *,
    services: Services,
) -> TableRef:
    """Create the table, or reuse the table that a crashed run of the statement created."""
    table = CreateTable(
        name=statement.name,
        columns=columns,
        partition_by=partition_by,
        location=statement.location,
        comment=statement.comment,
    )
    found = unregistered_table(
        table, versions_max=1, catalog=services.catalog, tables=services.tables
    )
    created = found or services.tables.create(
        table.name,
        columns,
        location=table.location,
        comment=table.comment,
        partition_by=partition_by,
    )
    reached(CrashPoint.TABLE_CREATED)
    return created


def _columns(listed: Sequence[StreamColumn], outputs: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of the table: the listed ones, by name, or the outputs."""
    by_name = {output.name.lower(): output for output in outputs}
    listed_names = [column.name.lower() for column in listed]
    extra = [column.name for column in listed if column.name.lower() not in by_name]
    missing = [output.name for output in outputs if output.name.lower() not in listed_names]
    if listed and (extra or missing):
        column = (extra or missing)[0]
        names = [output.name for output in outputs]
        problem = "is not an output of the query" if extra else "is missing in the column list"
        raise UserError(
            f'column "{column}" {problem}',
            code=Code.TYPE_ERR,
            detail=f"Outputs of the query: {format_names(names, shown_max=20)}.",
            hint="The column list must name every output. Rename outputs with AS.",
        )
    if not listed:
        return tuple(replace(output, nullable=True) for output in outputs)
    return tuple(_column(column, by_name[column.name.lower()]) for column in listed)


def _column(listed: StreamColumn, output: Column) -> Column:
    kind = listed.type or output.type
    if not can_cast(arrow_type(output.type), arrow_type(kind)):
        raise UserError(
            f'column "{listed.name}" is {kind.sql}, but the output of the query is '
            f"{output.type.sql}, which cannot be cast",
            code=Code.TYPE_ERR,
            hint="Cast the output in the query, or change the type in the column list.",
        )
    return Column(name=listed.name, type=kind, comment=listed.comment, nullable=listed.nullable)


def _partition_by(names: Sequence[str], columns: Sequence[Column]) -> tuple[str, ...]:
    found: list[str] = []
    for name in names:
        column = next((c for c in columns if c.name.lower() == name.lower()), None)
        if column is None:
            raise UserError(
                f'partition column "{name}" is not a column of the table',
                code=Code.TYPE_ERR,
                hint=f"Known columns: {', '.join(c.name for c in columns)}.",
            )
        refusal = partition_column_error(column)
        if refusal is not None:
            raise refusal
        found.append(column.name)
    return tuple(found)


def create_flow(statement: CreateFlow, *, services: Services) -> Result:
    """Add one more query that appends rows to a streaming table."""
    require_free_name(statement.name, services=services)
    record = find_table(statement.table, catalog=services.catalog)
    owner = services.catalog.job(record.name)
    if owner is None or owner.definition.kind is not STREAMING_TABLE:
        raise UserError(
            f'table "{record.name}" is not a streaming table, so it cannot have a flow',
            code=Code.STATE_ERR,
            hint="Create it with CREATE STREAMING TABLE, or load it with CREATE JOB.",
        )
    keyed = keyed_writer(record, services.catalog.jobs())
    if keyed is not None:
        raise UserError(
            f'streaming table "{record.name}" updates rows by key, so it cannot have a flow',
            code=Code.NOT_SUPPORTED_ERR,
            hint="Combine the inputs with UNION ALL in the query of the streaming table.",
        )
    options = stream_options(statement.options, kind=FLOW)
    options = replace(options, properties=replace(options.properties, output=OutputMode.APPEND))
    defined = define_query(
        statement.query, target=record.name, options=options, services=services
    )
    require_no_cycle(record, defined.streams, jobs=services.catalog.jobs())
    columns = services.tables.open(record.location).columns()
    _require_columns(defined.query.outputs, columns, table=record.name)
    source = stream_source(defined, options)
    progress = start_positions(source, options=options, services=services)
    try_query(defined, properties=options.properties, services=services)
    definition = stream_definition(
        statement,
        defined.query,
        properties=options.properties,
        source=source,
        table=TableRef(name=record.name, id=record.id, location=record.location),
        columns=columns,
    )
    open_job(definition, progress=progress, services=services)
    notices = _notices(defined.query)
    return Result(message=f"flow {statement.name} created, into {record.name}{notices}")


def _require_columns(
    outputs: Sequence[Column], columns: Sequence[Column], *, table: str
) -> None:
    """Raise UserError unless each output fits the column of the same name."""
    by_name = {column.name.lower(): column for column in columns}
    for output in outputs:
        column = by_name.pop(output.name.lower(), None)
        if column is None:
            raise UserError(
                f'table "{table}" has no column "{output.name}"',
                code=Code.TYPE_ERR,
                hint="BY NAME matches outputs with columns. Rename the output with AS.",
            )
        _column(
            StreamColumn(name=column.name, type=column.type, nullable=column.nullable), output
        )
    required = [column.name for column in by_name.values() if not column.nullable]
    if required:
        raise UserError(
            f'column "{required[0]}" is NOT NULL, but the query has no value for it',
            code=Code.TYPE_ERR,
            hint="Add an output of this name to the query.",
        )


def alter_streaming_table(statement: AlterStreamingTable, *, services: Services) -> Result:
    """Change options of a paused streaming table, or advance its watermark."""
    state = find_job(statement.name, kind=statement.kind, catalog=services.catalog)
    if statement.advance is not None:
        return _request(state, services=services, advance=statement.advance)
    frozen = [key for key, _ in statement.options if key in FROZEN_OPTIONS]
    if frozen:
        raise UserError(
            f'option "{frozen[0]}" of a {statement.kind.noun} cannot be altered',
            code=Code.OPTION_ERR,
            hint=f"The state depends on this option. Run {state.definition.drop_statement}, "
            f"then create the {statement.kind.noun} again.",
        )
    require_paused(state)
    before = state.definition
    given = merge_properties(before.properties, statement.options)
    options = stream_options(tuple(given.items()), kind=statement.kind)
    kind = source_kind(before.source.kind)
    parsed = parse_options(
        kind.options, {**dict(before.source.options), **options.source}.items(), what="STREAM"
    )
    definition = replace(
        before,
        properties=options.properties,
        source=source_ref(kind, parsed),
        revision=before.revision + 1,
    )
    alter(state, Defined(definition=definition, progress=None, secret=None), services=services)
    return Result(message=f"{statement.kind.noun} {state.name} altered")


def refresh_streaming_table(statement: RefreshStreamingTable, *, services: Services) -> Result:
    """Request an epoch now."""
    state = find_job(statement.name, kind=statement.kind, catalog=services.catalog)
    _require_running(state)
    return _request(state, services=services)


def _require_running(state: JobState) -> None:
    """Raise UserError if the job is paused or ended, and so runs no epoch."""
    require_not_ended(state)
    if state.desired.state is DesiredState.PAUSE:
        kind = state.definition.kind
        raise UserError(
            f'{kind.noun} "{state.name}" is paused, so it cannot be refreshed',
            code=Code.STATE_ERR,
            hint=f"Run {kind.resume.format(quoted_name(state.name))}. An epoch then starts at "
            "once.",
        )


def _request(state: JobState, *, services: Services, advance: str | None = None) -> Result:
    """Store the request for an epoch, or for a later watermark."""
    advance_ms = None if advance is None else _advance_ms(state, advance)
    services.catalog.append(
        state.id, EpochRequested(advance_ms=advance_ms), expected=state.generation
    )
    noun = state.definition.kind.noun
    if advance_ms is None:
        return Result(message=f"{noun} {state.name}: epoch requested")
    text = format_event_time(advance_ms)
    return Result(message=f"{noun} {state.name}: watermark {text} requested")


def _advance_ms(state: JobState, advance: str) -> int:
    """Return the requested watermark; raise UserError unless it is later than the old one."""
    query = state.definition.streaming
    if query is None or not any(view.event_time for view in query.views):
        raise UserError(
            f'{state.definition.kind.noun} "{state.name}" has no watermark',
            code=Code.STATE_ERR,
            hint="Only a query with WATERMARK … DELAY OF has a watermark.",
        )
    if advance == "FINAL":
        requested = FINAL_WATERMARK_MS
    else:
        at = datetime.fromisoformat(advance)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        requested = int(at.timestamp() * 1000)
    current = state.batch.watermark_ms if state.batch else 0
    current = max(current, state.advance_ms or 0)
    if requested <= current:
        raise UserError(
            f"the watermark must be advanced beyond {format_event_time(current)}, "
            f"not to {format_event_time(requested)}",
            code=Code.OPTION_ERR,
            hint="A watermark never decreases. SHOW STREAMING TABLES prints the current one.",
        )
    return requested


def drop_streaming_table(statement: DropJob, state: JobState, *, services: Services) -> Result:
    """Drop a streaming table with its flows and, unless KEEP TABLE is given, its rows."""
    if state.definition.kind is FLOW:
        drop(state, services=services)
        services.delete_checkpoints(state.id)
        return Result(message=f"flow {state.name} dropped")
    table = state.definition.table
    jobs = [job for job in services.catalog.jobs() if not job.stopped]
    if not statement.keep_table:
        require_unused(f'table "{table.name}" is read by', readers_of(table.id, jobs))
    flows = [job for job in jobs if job.definition.table.id == table.id and job.id != state.id]
    for job in (*flows, state):
        drop(job, services=services)
        services.delete_checkpoints(job.id)
    record = services.catalog.table(table.name)
    if statement.keep_table or record is None:
        return Result(message=f"streaming table {state.name} dropped; table {table.name} stays")
    services.catalog.delete_table(table.name)
    reached(CrashPoint.TABLE_FORGOTTEN)
    if not record.managed:
        remain = f"; its files remain at {record.location}"
        return Result(message=f"streaming table {state.name} dropped{remain}")
    services.tables.delete(record.location)
    return Result(message=f"streaming table {state.name} dropped")
