"""Build the definition of a job, checked against the real table and the real source.

CREATE and ALTER of all jobs use the same functions. The two grammars of Apache Doris, JOB … ON
STREAMING and ROUTINE LOAD, result in the same kind of definition.

Invariant: no stored or shown value contains a literal secret of a statement. The literal is
stored in a secret that the job owns, in the transaction that stores the definition.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.catalog.catalog import TableRecord
from penstock.control.clauses import (
    insert_of,
    insert_of_load,
    require_applicable,
    require_known_columns,
    source_columns,
)
from penstock.control.execute import Services
from penstock.control.find import find_table, located
from penstock.control.targets import plain_targets, query_targets
from penstock.errors import Code, InvariantError, SelectError, UserError
from penstock.model.cadence import merge_properties, require_cadence
from penstock.model.job import (
    JobDefinition,
    JobState,
    LoadProperties,
    SourceRef,
    SparkQuery,
    TableRef,
    TargetColumn,
)
from penstock.model.job_kinds import (
    FIXED_OPTIONS,
    ROUTINE_LOAD,
    STREAMING,
    JobKind,
    Properties,
    RoutineProperties,
)
from penstock.model.options import (
    Reveal,
    option_fields,
    option_key,
    parse_options,
    print_options,
    secret_options,
)
from penstock.model.query import Lookup, query_text, with_view
from penstock.model.schema import Column
from penstock.model.secrets import (
    SecretReference,
    reference_of,
    reference_text,
    resembles_secret_key,
)
from penstock.model.split import Progress
from penstock.secrets.vault import Vault
from penstock.sources.registry import kinds_of, source_kind, source_options, source_ref
from penstock.sources.source import Draft, SourceKind, StartRequest
from penstock.sql.statements import AlterJob, CreateJob, Insert, RoutineBody
from penstock.tables.chain import open_table
from penstock.tables.scan import pin

METADATA_PREFIX = "__"
_NAMES_SHOWN_MAX = 20
_UTC_OFFSET = re.compile(r"[+-](0\d|1[0-8]):[0-5]\d")

_T = TypeVar("_T")
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSecret:
    """The plaintext values of a secret that a job owns; they are never printed."""

    name: str
    values: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"JobSecret(name={self.name!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defined:
    """A definition with all inferred values, and the values that are stored with it."""

    definition: JobDefinition
    # The start positions of the splits; None if the positions do not change.
    progress: Progress | None
    secret: JobSecret | None


def define_job(
    statement: CreateJob,
    *,
    table: TableRecord,
    columns: tuple[Column, ...],
    services: Services,
) -> Defined:
    """Return the definition of a new job, checked against the real table and source."""
    body = statement.body
    if body.source is None:
        raise InvariantError("a new job has a source")
    function = body.source.function
    kind = _kind_of(function, statement.kind)
    given = _sort_options(statement, kind)
    options = _parsed(given.options, kind, function=function)
    reveal = _revealer(services.vault)
    values = kind.reveal(options, reveal)
    properties = _properties(given.properties, statement.kind)
    require_cadence(properties, measures=kind.measures)
    source, secret = without_literals(
        options, what=kind.functions[0], job=statement.name, job_id=None, vault=services.vault
    )
    definition = JobDefinition(
        name=statement.name,
        comment=statement.comment,
        revision=1,
        job_kind=statement.kind.name,
        table=TableRef(name=table.name, id=table.id, location=table.location),
        columns=None,
        select="",
        select_source_start=0,
        select_source_end=0,
        function=function,
        source=source_ref(kind, source),
        source_columns=kind.define(Draft(options=source, values=values, table_columns=columns)),
        targets=(),
        properties=properties,
        metadata=given.metadata,
        load=body.load if isinstance(body, RoutineBody) else None,
        needs=kind.needs,
        place_columns=kind.place_columns,
    )
    insert = body if isinstance(body, Insert) else None
    definition = _with_insert(definition, insert, columns=columns, services=services)
    progress = _start(definition, given, options=options, values=values, services=services)
    return Defined(definition=definition, progress=progress, secret=secret)


def redefine_job(state: JobState, statement: AlterJob, *, services: Services) -> Defined:
    """Return the definition after ALTER; parts that the statement omits do not change."""
    before, body = state.definition, statement.body
    kind, reveal = source_kind(before.source.kind), _revealer(services.vault)
    given = _sort_options(statement, kind)
    properties = _altered_properties(before, given, kind)
    options, source, secret = _altered_source(state, statement, given, services=services)
    altered = replace(
        before,
        properties=properties,
        metadata=tuple({**dict(before.metadata), **dict(given.metadata)}.items()),
        load=_merged(before.load, body.load if isinstance(body, RoutineBody) else None),
        revision=before.revision + 1,
        source=source,
    )
    values = kind.reveal(options, reveal) if body else None
    if body or (before.query is not None and properties != before.properties):
        columns = open_table(services.tables, before.table).columns()
        if source != before.source and not kind.decodes:
            draft = Draft(options=source_options(source), values=values, table_columns=columns)
            altered = replace(altered, source_columns=kind.define(draft))
        insert = None if altered.load else insert_of(altered)
        if isinstance(body, Insert):
            insert = body
        altered = _with_insert(altered, insert, columns=columns, services=services)
    progress = None
    if body or given.start:
        progress = _start(
            altered, given, options=options, values=values, services=services, moved=state
        )
    return Defined(definition=altered, progress=progress, secret=secret)


def _start(
    definition: JobDefinition,
    given: "_StatementOptions",
    *,
    options: object,
    values: object,
    services: Services,
    moved: JobState | None = None,
) -> Progress | None:
    """Return the start positions of the splits; ``moved`` is the job before an ALTER."""
    request = StartRequest(
        options=options,
        values=values,
        given=given.start,
        properties=definition.properties,
        clock=services.clock,
        reveal=_revealer(services.vault),
    )
    if moved is not None:
        before = moved.definition.source
        request = replace(request, before=before, progress=moved.progress)
    return source_kind(definition.source.kind).start(request)


def _kind_of(function: str, job_kind: JobKind) -> SourceKind:
    known = kinds_of(job_kind.name)
    for kind in known:
        if function in kind.functions:
            return kind
    names = " or ".join(f"FROM {kind.functions[0]}(…)" for kind in known)
    raise UserError(
        f"FROM {function} is not supported yet",
        code=Code.NOT_SUPPORTED_ERR,
        hint=f"Write {names}.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _StatementOptions:
    """The keys and values of a statement, grouped by purpose."""

    options: Mapping[str, str]
    start: Mapping[str, str]
    properties: Mapping[str, str]
    metadata: Pairs


def _sort_options(statement: CreateJob | AlterJob, kind: SourceKind) -> _StatementOptions:
    """Sort keys and values into options, start options, properties and metadata."""
    starts = _keys(kind.start_options)
    call = statement.body.source if statement.body else None
    options: dict[str, str] = {}
    for written, value in call.options if call else ():
        key = kind.aliases.get(written, written)
        if key in options:
            raise UserError(
                f'option "{written}" is another name of "{key}", which is also specified',
                code=Code.OPTION_ERR,
                hint="Remove one of them.",
            )
        options[key] = value
    properties = dict(statement.properties)
    metadata: Pairs = ()
    if statement.kind is STREAMING:
        metadata = tuple(p for p in statement.properties if p[0].startswith(METADATA_PREFIX))
        for key, _ in metadata:
            _refuse_secret(key)
            del properties[key]
        start = {key: properties.pop(key) for key in starts if key in properties}
    else:
        start = {key: options.pop(key) for key in starts if key in options}
    return _StatementOptions(
        options=options, start=start, properties=properties, metadata=metadata
    )


def _keys(options: type | None) -> tuple[str, ...]:
    return () if options is None else tuple(map(option_key, option_fields(options)))


def _parsed(pairs: Mapping[str, str], kind: SourceKind, *, function: str) -> Any:  # noqa: ANN401
    also = _keys(kind.start_options) if ROUTINE_LOAD.name in kind.job_kinds else ()
    return parse_options(kind.options, pairs.items(), what=function, also=also)


def _properties(pairs: Mapping[str, str], job_kind: JobKind) -> Properties:
    given = dict(pairs)
    if job_kind is ROUTINE_LOAD:
        for key, default in FIXED_OPTIONS.items():
            text = given.pop(key, default)
            if text.strip().lower() != default:
                raise UserError(
                    f'option "{key}" must be {default or "empty"}, not "{text}"',
                    code=Code.NOT_SUPPORTED_ERR,
                    detail="Other values of this Apache Doris option are not supported.",
                    hint="Remove it.",
                )
        routine: Properties = parse_options(
            job_kind.properties, given.items(), what="a routine load"
        )
        require_time_zone(routine.time_zone, key="timezone")
        return routine
    starts = tuple(key for kind in kinds_of(job_kind.name) for key in _keys(kind.start_options))
    streaming: Properties = parse_options(
        job_kind.properties, given.items(), what="a streaming job", also=starts
    )
    require_time_zone(streaming.time_zone, key="session.time_zone")
    return streaming


def _altered_properties(
    before: JobDefinition, given: _StatementOptions, kind: SourceKind
) -> Properties:
    merged = merge_properties(before.properties, tuple(given.properties.items()))
    properties = _properties(merged, before.kind)
    require_cadence(properties, measures=kind.measures)
    old = before.properties
    if (
        kind.decodes
        and isinstance(properties, RoutineProperties)
        and isinstance(old, RoutineProperties)
        and properties.format is not old.format
    ):
        raise UserError(
            'option "format" of a routine load cannot be altered',
            code=Code.OPTION_ERR,
            hint="Stop the routine load and create another one.",
        )
    return properties


def _altered_source(
    state: JobState, statement: AlterJob, given: _StatementOptions, *, services: Services
) -> tuple[Any, SourceRef, JobSecret | None]:
    """Return the options as written, the source to store, and the literal secrets."""
    before, body = state.definition, statement.body
    kind = source_kind(before.source.kind)
    if body is None or body.source is None:
        return source_options(before.source), before.source, None
    function, pairs = body.source.function, dict(given.options)
    if isinstance(body, Insert):
        # An INSERT sets all options of its source; the table and function must not change.
        record = find_table(body.table, catalog=services.catalog)
        _require_same("table", before.table.id, record.id, shown=record.name)
    else:
        _kind_of(function, statement.kind)
        pairs = kind.merge(dict(before.source.options), given.options)
    _require_same("source function", before.function, function)
    options = _parsed(pairs, kind, function=function)
    old, new = dict(before.source.options), dict(print_options(options))
    for key in kind.fixed:
        _require_same(key, old.get(key, ""), new.get(key, ""))
    source, secret = without_literals(
        options, what=function, job=before.name, job_id=state.id, vault=services.vault
    )
    return options, source_ref(kind, source), secret


def _require_same(what: str, old: str, new: str, *, shown: str = "") -> None:
    if old != new:
        raise UserError(
            f'the {what} of a job cannot be changed to "{shown or new}"',
            code=Code.OPTION_ERR,
            hint="Drop the job and create it again; its rows stay in the table.",
        )


def _merged(
    before: LoadProperties | None, given: LoadProperties | None
) -> LoadProperties | None:
    if before is None or given is None:
        return before
    return LoadProperties(
        separator=before.separator if given.separator is None else given.separator,
        columns=before.columns if given.columns is None else given.columns,
        preceding_filter=given.preceding_filter or before.preceding_filter,
        where=given.where or before.where,
    )


def _revealer(vault: Vault) -> Reveal:
    return lambda key, text: vault.reveal(text, option=key)


def _with_insert(
    definition: JobDefinition,
    insert: Insert | None,
    *,
    columns: tuple[Column, ...],
    services: Services,
) -> JobDefinition:
    """Add the SELECT to a definition; without an INSERT, build the SELECT from the clauses."""
    kind = source_kind(definition.source.kind)
    if insert is None:
        load = definition.load or LoadProperties()
        require_applicable(definition, decodes=kind.decodes)
        if kind.decodes:
            own = source_columns(definition, columns=columns)
            definition = replace(definition, source_columns=own)
        else:
            require_known_columns(load, definition.source_columns)
        insert = insert_of_load(
            load,
            function=definition.function,
            table=definition.table.name,
            columns=columns,
            source=definition.source_columns,
            metadata=kind.metadata_columns,
        )
    query, targets = define_insert(
        insert,
        source_columns=definition.source_columns,
        columns=columns,
        properties=definition.properties,
        services=services,
        metadata_columns=kind.metadata_columns,
    )
    stored = without_options(insert)
    return replace(
        definition,
        columns=stored.columns,
        select=stored.select,
        select_source_start=stored.source.start,
        select_source_end=stored.source.end,
        targets=targets,
        query=query,
    )


def without_literals(
    options: _T, *, what: str, job: str, job_id: str | None, vault: Vault
) -> tuple[_T, JobSecret | None]:
    """Return options with references instead of literal secrets, and the literals."""
    literals = tuple(
        (key, text) for key, text in secret_options(options) if reference_of(text) is None
    )
    if not literals:
        return options, None
    name = vault.unused_name(f"{job}_credentials".lower(), job_id=job_id)
    reference = reference_text(SecretReference(name=name))
    pairs = {**dict(print_options(options)), **{key: reference for key, _ in literals}}
    source = parse_options(type(options), pairs.items(), what=what)
    return source, JobSecret(name=name, values=literals)


def without_options(insert: Insert) -> Insert:
    """Return the INSERT without the options of its source, which are stored elsewhere."""
    call = f"{insert.source.function}()"
    start, end = insert.source.start, insert.source.end
    return replace(
        insert,
        select=insert.select[:start] + call + insert.select[end:],
        source=replace(insert.source, end=start + len(call)),
    )


def _refuse_secret(key: str) -> None:
    """Raise if metadata resembles a secret, because metadata is stored in plaintext."""
    if resembles_secret_key(key):
        raise UserError(
            f'property "{key}" resembles a secret, but would be stored in plaintext',
            code=Code.OPTION_ERR,
            hint="Store secrets with CREATE SECRET. Rename the property if it is not secret.",
        )


def require_time_zone(name: str, *, key: str) -> None:
    """Raise unless the text is the name of a time zone or a UTC offset."""
    try:
        known = bool(_UTC_OFFSET.fullmatch(name) or ZoneInfo(name))
    except (ValueError, OSError, ZoneInfoNotFoundError):
        known = False
    if not known:
        raise UserError(
            f'option "{key}" must be a time zone or a UTC offset, not "{name}"',
            code=Code.OPTION_ERR,
            hint="Write for example UTC, Europe/Berlin or +02:00.",
        )


def define_insert(
    insert: Insert,
    *,
    source_columns: tuple[Column, ...],
    columns: tuple[Column, ...],
    properties: Properties,
    services: Services,
    metadata_columns: tuple[Column, ...],
) -> tuple[SparkQuery | None, tuple[TargetColumn, ...]]:
    """Return the query for Spark (None for a plain list) and the source of every table column.

    ``metadata_columns`` describe where a row came from, such as its file.
    """
    metadata = _metadata(source_columns, insert.names, metadata_columns)
    if insert.plain:
        targets = plain_targets(
            insert, source_columns=source_columns, metadata=metadata, columns=columns
        )
        return None, targets
    query = _analysed(
        insert, view_columns=source_columns + metadata, properties=properties, services=services
    )
    _refuse_star_with_metadata(metadata, insert)
    names = frozenset(column.name for column in metadata)
    return query, query_targets(insert, query, metadata=names, columns=columns)


def _refuse_star_with_metadata(metadata: tuple[Column, ...], insert: Insert) -> None:
    """Raise if a star among other outputs would include metadata columns."""
    if metadata and insert.stars and not insert.starred:
        raise UserError(
            f'* cannot be combined with "{metadata[0].name}" in a job\'s SELECT',
            code=Code.NOT_SUPPORTED_ERR,
            hint=f"List the columns of the source and {metadata[0].name} instead of *.",
        )


def _metadata(
    source_columns: tuple[Column, ...],
    named: frozenset[str],
    metadata_columns: tuple[Column, ...],
) -> tuple[Column, ...]:
    """Return the metadata columns that the SELECT names."""
    own = {column.name.lower() for column in source_columns}
    return tuple(c for c in metadata_columns if c.name in named and c.name not in own)


def _analysed(
    insert: Insert,
    *,
    view_columns: tuple[Column, ...],
    properties: Properties,
    services: Services,
) -> SparkQuery:
    source = insert.source
    view = source.function.lower()
    select = with_view(insert.select, start=source.start, end=source.end, view=view)
    text = query_text(select, view=view, columns=view_columns, properties=properties)

    def find_lookup(name: str) -> Lookup:
        record = find_table(name.removeprefix("default."), catalog=services.catalog)
        table = TableRef(name=record.name, id=record.id, location=record.location)
        return pin(table, tables=services.tables, bytes_max=properties.lookup_bytes_max)

    try:
        query = services.open_analyzer().analyse(text, find_lookup=find_lookup)
    except SelectError as error:
        names = ", ".join(column.name for column in view_columns[:_NAMES_SHOWN_MAX])
        hint = f"Columns of the source: {names}."
        if insert.select_at is None:
            # The SELECT was built from clauses, so lines and columns in it would mislead users.
            raise UserError(
                error.message, code=error.code, detail=error.detail, hint=error.hint or hint
            ) from error
        raise located(error, insert.select, select_at=insert.select_at, hint=hint) from error
    # Rows without columns cannot be counted, so at least one column is read.
    needed = query.needed or (query.view_columns[0].name,)
    return replace(
        query,
        needed=needed,
        by_name=insert.starred and insert.columns is None,
        source_starred=insert.source_starred,
    )
