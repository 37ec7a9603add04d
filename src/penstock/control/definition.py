"""From CREATE JOB to a definition, checked against the real table and the real files."""

from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedIOBase
from itertools import islice

from penstock.catalog.tables import TableRecord
from penstock.control.wording import OFFSET, read_offset
from penstock.errors import Code, UserError
from penstock.model.files import FilesOptions
from penstock.model.job import JobDefinition, JobProperties, TableRef, TargetColumn
from penstock.model.options import parse_options
from penstock.model.position import Horizon, Position
from penstock.model.schema import Column, columns_sql
from penstock.sources.files.globs import compile_glob
from penstock.sources.files.listing import list_all
from penstock.sources.formats.json_inference import infer_columns
from penstock.sql.statements import CreateJob, Insert, Properties
from penstock.sql.types import parse_columns
from penstock.storage.objects import ObjectMeta
from penstock.storage.stores import Store, open_store
from penstock.tables.fitting import canonical_path, check_fit

METADATA_PREFIX = "__"
INFERENCE_FILES_MAX = 5


def define_job(
    statement: CreateJob, *, table: TableRecord, columns: tuple[Column, ...]
) -> tuple[JobDefinition, Position]:
    """Answer the definition with everything inferred frozen, and the floor to begin at."""
    insert = statement.insert
    properties, metadata, floor = read_properties(statement.properties)
    source = parse_options(FilesOptions, insert.source.options, what=insert.source.function)
    source_columns = _source_columns(source)
    targets = _targets(insert, source_columns=source_columns, columns=columns)
    check_fit(source_columns, targets, columns)
    definition = JobDefinition(
        name=statement.name,
        comment=statement.comment,
        revision=1,
        table=TableRef(name=table.name, id=table.id, location=table.location),
        columns=insert.columns,
        select=insert.select,
        select_source_start=insert.source.start,
        select_source_end=insert.source.end,
        function=insert.source.function,
        source=source,
        source_columns=source_columns,
        targets=targets,
        properties=properties,
        metadata=metadata,
    )
    return definition, floor or Horizon()


def read_properties(
    pairs: Properties,
) -> tuple[JobProperties, Properties, Position | None]:
    """Sort PROPERTIES into options, metadata that is only kept, and the offset to begin at."""
    metadata = tuple(pair for pair in pairs if pair[0].startswith(METADATA_PREFIX))
    offset = next((value for key, value in pairs if key == OFFSET), None)
    options = [p for p in pairs if p not in metadata and p[0] != OFFSET]
    properties = parse_options(JobProperties, options, what="a streaming job", also=(OFFSET,))
    return properties, metadata, None if offset is None else read_offset(offset)


def _source_columns(source: FilesOptions) -> tuple[Column, ...]:
    store, pattern = open_store(source.uri)
    first = list(islice(list_all(store, compile_glob(pattern)), INFERENCE_FILES_MAX))
    if not first:
        raise UserError(
            f'no file matches "{source.uri}"',
            code=Code.META_NOT_FOUND_ERR,
            hint="Check the path and the pattern; at least one file must be there already.",
        )
    if source.schema:
        return parse_columns(source.schema)
    with ExitStack() as stack:
        columns = infer_columns(_opened(first, store=store, stack=stack))
    _expect_sayable(columns)
    return columns


def _expect_sayable(columns: tuple[Column, ...]) -> None:
    """Refuse inferred columns that SHOW CREATE could not write so that they are read back."""
    try:
        parse_columns(columns_sql(columns))
    except UserError as error:
        raise UserError(
            f"the files hold a field that cannot be a column: {error.message}",
            code=Code.TYPE_ERR,
            hint='Name the wanted columns with the option "schema".',
        ) from error


def _opened(
    metas: list[ObjectMeta], *, store: Store, stack: ExitStack
) -> Iterator[BufferedIOBase]:
    for meta in metas:
        yield stack.enter_context(store.open(meta.key, etag=meta.etag))


def _targets(
    insert: Insert, *, source_columns: tuple[Column, ...], columns: tuple[Column, ...]
) -> tuple[TargetColumn, ...]:
    names = _target_names(insert, columns)
    if insert.items is None and insert.columns is None:
        return _by_name(source_columns, columns)
    paths = (
        [item.path for item in insert.items]
        if insert.items is not None
        else [(column.name,) for column in source_columns]
    )
    if len(paths) != len(names):
        raise UserError(
            f"INSERT fills {len(names)} columns, but the SELECT gives {len(paths)}",
            code=Code.TYPE_ERR,
            detail=f"Columns to fill: {', '.join(names)}.",
            hint="List the columns behind the table's name, in the SELECT's order.",
        )
    path_by_name = dict(zip(names, paths, strict=True))
    return tuple(
        TargetColumn(name=column.name, path=_canonical(source_columns, path_by_name, column))
        for column in columns
    )


def _canonical(
    source_columns: tuple[Column, ...],
    path_by_name: dict[str, tuple[str, ...]],
    column: Column,
) -> tuple[str, ...] | None:
    path = path_by_name.get(column.name)
    return None if path is None else canonical_path(source_columns, path)


def _target_names(insert: Insert, columns: tuple[Column, ...]) -> list[str]:
    """Answer the columns to fill, in the INSERT's order and the table's spelling."""
    spelling = {column.name.lower(): column.name for column in columns}
    if insert.columns is None:
        return list(spelling.values())
    names: list[str] = []
    for name in insert.columns:
        if name.lower() not in spelling:
            raise UserError(
                f'table "{insert.table}" has no column "{name}"',
                code=Code.TYPE_ERR,
                hint=f"Known columns: {', '.join(spelling.values())}.",
            )
        if spelling[name.lower()] in names:
            raise UserError(f'column "{name}" is listed twice', code=Code.TYPE_ERR)
        names.append(spelling[name.lower()])
    return names


def _by_name(
    source_columns: tuple[Column, ...], columns: tuple[Column, ...]
) -> tuple[TargetColumn, ...]:
    source = {column.name.lower(): column.name for column in source_columns}
    target = {column.name.lower() for column in columns}
    extra = [column.name for column in source_columns if column.name.lower() not in target]
    if extra:
        raise UserError(
            f'the table has no column for the source field "{extra[0]}"',
            code=Code.TYPE_ERR,
            detail=f"SELECT * fills columns by name; without a place: {', '.join(extra)}.",
            hint="List the wanted fields instead of *, or add columns to the table.",
        )
    return tuple(
        TargetColumn(
            name=c.name, path=(source[c.name.lower()],) if c.name.lower() in source else None
        )
        for c in columns
    )
