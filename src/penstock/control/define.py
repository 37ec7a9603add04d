"""Build the definition of a job, checked against the real table and source.

Invariant: a literal secret of a statement is in no value that is stored or shown. It goes into
a secret that belongs to the job, in the transaction that stores the definition.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.catalog.catalog import Catalog
from penstock.catalog.tables import TableRecord
from penstock.control.clauses import OFFSET, insert_of, read_offset
from penstock.control.find import find_table, placed
from penstock.control.result import Analyst
from penstock.control.targets import plain_targets, query_targets
from penstock.errors import Code, SelectError, UserError
from penstock.model.job import JobDefinition, JobProperties, SparkQuery, TableRef, TargetColumn
from penstock.model.job_kinds import RoutineProperties
from penstock.model.options import parse_options, print_options, secret_options
from penstock.model.query import Lookup, query_text, with_view
from penstock.model.schema import Column
from penstock.model.secrets import (
    SecretReference,
    reference_of,
    reference_text,
    resembles_secret_key,
)
from penstock.model.split import Position
from penstock.secrets.vault import Vault
from penstock.sources.files.columns import find_columns
from penstock.sources.files.options import METADATA_COLUMNS, FilesOptions
from penstock.sql.statements import CreateJob, Insert, Properties, SourceCall
from penstock.storage.options import StoreOptions, require_meaning, revealed
from penstock.tables.chain import open_table
from penstock.tables.scan import pin
from penstock.tables.table import Tables

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSecret:
    """Values that a job keeps for itself, still in the clear; they are never printed."""

    name: str
    values: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"JobSecret(name={self.name!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAccess:
    """The options of a source with references only, and what stands behind them now."""

    source: FilesOptions
    values: StoreOptions
    secret: JobSecret | None


def read_source(
    call: SourceCall, *, job: str, job_id: str | None, vault: Vault
) -> SourceAccess:
    """Read the options of a source call and take literal secrets out of them.

    ``job_id`` is None for a job that is being created.
    """
    given = parse_options(FilesOptions, call.options, what=call.function)
    require_meaning(given.uri, given.store)
    values = revealed(given.store, lambda key, text: vault.reveal(text, option=key))
    source, secret = without_literals(
        given, what=call.function, job=job, job_id=job_id, vault=vault
    )
    return SourceAccess(source=source, values=values, secret=secret)


def without_literals(
    given: _T, *, what: str, job: str, job_id: str | None, vault: Vault
) -> tuple[_T, JobSecret | None]:
    """Answer options with references in the place of literal secrets, and those secrets."""
    literals = tuple(
        (key, text) for key, text in secret_options(given) if reference_of(text) is None
    )
    if not literals:
        return given, None
    name = vault.free_name(f"{job}_credentials".lower(), job_id=job_id)
    reference = reference_text(SecretReference(name=name))
    pairs = {**dict(print_options(given)), **{key: reference for key, _ in literals}}
    source = parse_options(type(given), pairs.items(), what=what)
    return source, JobSecret(name=name, values=literals)


def without_options(insert: Insert) -> Insert:
    """Answer the INSERT with an empty call of its source; the options are kept elsewhere."""
    call = f"{insert.source.function}()"
    begin, end = insert.source.start, insert.source.end
    return replace(
        insert,
        select=insert.select[:begin] + call + insert.select[end:],
        source=replace(insert.source, end=begin + len(call)),
    )


METADATA_PREFIX = "__"
_NAMES_SHOWN_MAX = 20
_UTC_OFFSET = re.compile(r"[+-](0\d|1[0-8]):[0-5]\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defined:
    """A definition with everything inferred frozen, and what is stored beside it."""

    definition: JobDefinition
    floor: Position | None
    secret: JobSecret | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionParts:
    """What a definition is checked against."""

    catalog: Catalog
    tables: Tables
    open_analyst: Callable[[], Analyst]
    vault: Vault


def define_job(
    statement: CreateJob,
    *,
    table: TableRecord,
    columns: tuple[Column, ...],
    parts: DefinitionParts,
) -> Defined:
    """Answer the definition, checked against the real table and the real files."""
    access = read_source(
        statement.insert.source, job=statement.name, job_id=None, vault=parts.vault
    )
    insert = statement.insert
    properties, metadata, floor = read_properties(statement.properties, uri=access.source.uri)
    source_columns = find_columns(access.source, access.values)
    query, targets = define_insert(
        insert,
        source_columns=source_columns,
        columns=columns,
        properties=properties,
        parts=parts,
    )
    kept = without_options(insert)
    definition = JobDefinition(
        name=statement.name,
        comment=statement.comment,
        revision=1,
        table=TableRef(name=table.name, id=table.id, location=table.location),
        columns=kept.columns,
        select=kept.select,
        select_source_start=kept.source.start,
        select_source_end=kept.source.end,
        function=kept.source.function,
        source=access.source,
        source_columns=source_columns,
        targets=targets,
        properties=properties,
        metadata=metadata,
        query=query,
    )
    return Defined(definition=definition, floor=floor, secret=access.secret)


def read_properties(
    pairs: Properties, *, uri: str
) -> tuple[JobProperties, Properties, Position | None]:
    """Sort PROPERTIES into options, metadata that is only kept, and the offset to begin at."""
    metadata = tuple(pair for pair in pairs if pair[0].startswith(METADATA_PREFIX))
    for key, _ in metadata:
        _refuse_secret(key)
    offset = next((value for key, value in pairs if key == OFFSET), None)
    options = [p for p in pairs if p not in metadata and p[0] != OFFSET]
    properties = parse_options(JobProperties, options, what="a streaming job", also=(OFFSET,))
    require_time_zone(properties.time_zone, key="session.time_zone")
    return properties, metadata, None if offset is None else read_offset(offset, uri=uri)


def _refuse_secret(key: str) -> None:
    """Refuse metadata that looks like a secret: it would be kept and shown as it is."""
    if resembles_secret_key(key):
        raise UserError(
            f'property "{key}" would be stored as it is written',
            code=Code.OPTION_ERR,
            hint="Keep secrets with CREATE SECRET, and call other metadata by another name.",
        )


def require_time_zone(name: str, *, key: str) -> None:
    """Require the name of a time zone, or an offset."""
    try:
        known = bool(_UTC_OFFSET.fullmatch(name) or ZoneInfo(name))
    except (ValueError, OSError, ZoneInfoNotFoundError):
        known = False
    if not known:
        raise UserError(
            f'option "{key}" must name a time zone, not "{name}"',
            code=Code.OPTION_ERR,
            hint="Write for example UTC, Europe/Berlin or +02:00.",
        )


def define_insert(
    insert: Insert,
    *,
    source_columns: tuple[Column, ...],
    columns: tuple[Column, ...],
    properties: JobProperties | RoutineProperties,
    parts: DefinitionParts,
    beside: tuple[Column, ...] = METADATA_COLUMNS,
) -> tuple[SparkQuery | None, tuple[TargetColumn, ...]]:
    """Find out how the SELECT is run, and what fills which column of the table.

    ``beside`` are the columns of what is known of a row beside its content.
    """
    metadata = _metadata(source_columns, insert.names, beside)
    if insert.plain:
        targets = plain_targets(
            insert, source_columns=source_columns, metadata=metadata, columns=columns
        )
        return None, targets
    query = _analysed(
        insert, view_columns=source_columns + metadata, properties=properties, parts=parts
    )
    _refuse_star_beside(metadata, insert)
    names = frozenset(column.name for column in metadata)
    return query, query_targets(insert, query, metadata=names, columns=columns)


def _refuse_star_beside(metadata: tuple[Column, ...], insert: Insert) -> None:
    """Refuse a star among other outputs that would hold what it never holds elsewhere."""
    if metadata and insert.stars and not insert.starred:
        raise UserError(
            f'* cannot stand beside "{metadata[0].name}" in a job\'s SELECT',
            code=Code.NOT_SUPPORTED_ERR,
            hint=f"List the columns of the source instead of *, and {metadata[0].name}.",
        )


def alter_insert(
    definition: JobDefinition, insert: Insert | None, *, job_id: str, parts: DefinitionParts
) -> tuple[JobDefinition, JobSecret | None]:
    """Answer the definition with another INSERT; table, function and uri stay what they are."""
    access = _altered_source(definition, insert, job_id=job_id, parts=parts)
    insert = insert or insert_of(definition)
    columns = open_table(parts.tables, definition.table).columns()
    source_columns = _altered_columns(definition, access)
    query, targets = define_insert(
        insert,
        source_columns=source_columns,
        columns=columns,
        properties=definition.properties,
        parts=parts,
    )
    kept = without_options(insert)
    altered = replace(
        definition,
        columns=kept.columns,
        select=kept.select,
        select_source_start=kept.source.start,
        select_source_end=kept.source.end,
        source=access.source,
        source_columns=source_columns,
        targets=targets,
        query=query,
    )
    return altered, access.secret


def _altered_source(
    definition: JobDefinition, insert: Insert | None, *, job_id: str, parts: DefinitionParts
) -> SourceAccess:
    call = (insert or insert_of(definition)).source
    access = read_source(call, job=definition.name, job_id=job_id, vault=parts.vault)
    if insert is None:
        return replace(access, source=definition.files)
    record = find_table(insert.table, catalog=parts.catalog)
    _require_same("table", definition.table.id, record.id, shown=record.name)
    _require_same("source function", definition.function, insert.source.function)
    _require_same("uri", definition.files.uri, access.source.uri)
    return access


def _altered_columns(definition: JobDefinition, access: SourceAccess) -> tuple[Column, ...]:
    """Keep the frozen columns unless the options that they came from have changed."""
    if access.source == definition.source:
        return definition.source_columns
    return find_columns(access.source, access.values)


def _require_same(what: str, old: str, new: str, *, shown: str = "") -> None:
    if old != new:
        raise UserError(
            f'the {what} of a job cannot be changed, not even to "{shown or new}"',
            code=Code.OPTION_ERR,
            hint="Drop the job and create it again; its rows stay in the table.",
        )


def _metadata(
    source_columns: tuple[Column, ...], named: frozenset[str], beside: tuple[Column, ...]
) -> tuple[Column, ...]:
    """Answer what the SELECT names of that which is known of a row beside its content."""
    own = {column.name.lower() for column in source_columns}
    return tuple(c for c in beside if c.name in named and c.name not in own)


def _analysed(
    insert: Insert,
    *,
    view_columns: tuple[Column, ...],
    properties: JobProperties | RoutineProperties,
    parts: DefinitionParts,
) -> SparkQuery:
    source = insert.source
    view = source.function.lower()
    select = with_view(insert.select, start=source.start, end=source.end, view=view)
    text = query_text(select, view=view, columns=view_columns, properties=properties)

    def find_lookup(name: str) -> Lookup:
        record = find_table(name.removeprefix("default."), catalog=parts.catalog)
        table = TableRef(name=record.name, id=record.id, location=record.location)
        return pin(table, tables=parts.tables, bytes_max=properties.lookup_bytes_max)

    try:
        query = parts.open_analyst().analyse(text, find_lookup=find_lookup)
    except SelectError as error:
        names = ", ".join(column.name for column in view_columns[:_NAMES_SHOWN_MAX])
        hint = f"Columns of the source: {names}."
        if insert.select_at is None:
            # It was made of clauses, so that a place in it says nothing.
            raise UserError(
                error.message, code=error.code, detail=error.detail, hint=error.hint or hint
            ) from error
        raise placed(error, insert.select, begins_at=insert.select_at, hint=hint) from error
    # Rows without columns could not be counted, so one is read in any case.
    needed = query.needed or (query.view_columns[0].name,)
    return replace(
        query,
        needed=needed,
        by_name=insert.starred and insert.columns is None,
        source_starred=insert.source_starred,
    )
