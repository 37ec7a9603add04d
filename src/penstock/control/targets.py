"""Assignment of SELECT outputs to table columns: by name for ``*``, otherwise by position."""

from penstock.arrow.casts import can_cast
from penstock.arrow.types import arrow_type
from penstock.errors import Code, UserError
from penstock.model.job import SparkQuery, TargetColumn
from penstock.model.query import output_name
from penstock.model.schema import Column
from penstock.model.text import format_count
from penstock.sql.statements import Insert
from penstock.tables.fitting import canonical_path, check_fit


def plain_targets(
    insert: Insert,
    *,
    source_columns: tuple[Column, ...],
    metadata: tuple[Column, ...],
    columns: tuple[Column, ...],
) -> tuple[TargetColumn, ...]:
    """Assign columns of the source; ``*`` does not include the ``metadata`` columns."""
    known = source_columns + metadata
    paths: list[tuple[str, ...]] = (
        [canonical_path(known, item.path) for item in insert.items]
        if insert.items is not None
        else [(column.name,) for column in source_columns]
    )
    by_name = insert.items is None and insert.columns is None
    names = [path[0] for path in paths] if by_name else None
    targets = _targets(insert, paths=paths, names=names, columns=columns)
    check_fit(known, targets, columns)
    return targets


def query_targets(
    insert: Insert,
    query: SparkQuery,
    *,
    metadata: frozenset[str],
    columns: tuple[Column, ...],
) -> tuple[TargetColumn, ...]:
    """Assign the outputs of a SELECT that Spark runs."""
    paths: list[tuple[str, ...]] = [(output_name(at),) for at in range(len(query.outputs))]
    output_by_path = dict(zip(paths, query.outputs, strict=True))
    if query.source_starred:
        # The star does not include metadata columns that only the WHERE uses.
        paths = [path for path in paths if output_by_path[path].name not in metadata]
    names = [output_by_path[path].name for path in paths] if query.by_name else None
    targets = _targets(insert, paths=paths, names=names, columns=columns)
    column_by_name = {column.name: column for column in columns}
    for target in targets:
        column = column_by_name[target.name]
        if target.path is None:
            _require_nullable(column)
        else:
            _require_castable(output_by_path[target.path], column)
    return targets


def _targets(
    insert: Insert,
    *,
    paths: list[tuple[str, ...]],
    names: list[str] | None,
    columns: tuple[Column, ...],
) -> tuple[TargetColumn, ...]:
    """Assign paths to columns by ``names``, otherwise in the order of the INSERT."""
    filled = (
        _listed_columns(insert, columns)
        if names is None
        else [_column_of(name, names, columns) for name in names]
    )
    if len(paths) != len(filled):
        raise UserError(
            f"INSERT has {format_count(len(filled), 'column')}, "
            f"but the SELECT returns {len(paths)}",
            code=Code.TYPE_ERR,
            detail=f"Columns of the INSERT: {', '.join(filled)}.",
            hint="List the columns after the table's name, in the order of the SELECT.",
        )
    path_by_name = dict(zip(filled, paths, strict=True))
    return tuple(TargetColumn(name=c.name, path=path_by_name.get(c.name)) for c in columns)


def _listed_columns(insert: Insert, columns: tuple[Column, ...]) -> list[str]:
    """Return the columns of the INSERT in its order, spelled as in the table."""
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
            message = f'column "{name}" is specified more than once'
            raise UserError(message, code=Code.TYPE_ERR)
        names.append(spelling[name.lower()])
    return names


def _column_of(name: str, names: list[str], columns: tuple[Column, ...]) -> str:
    """Return the table's column with the name of a field of the source."""
    for column in columns:
        if column.name.lower() == name.lower():
            return column.name
    target = {column.name.lower() for column in columns}
    extra = [other for other in names if other.lower() not in target]
    raise UserError(
        f'the table has no column for the source field "{name}"',
        code=Code.TYPE_ERR,
        detail=f"SELECT * matches columns by name. Missing columns: {', '.join(extra)}.",
        hint="List the fields to load instead of *, or add the columns to the table.",
    )


def _require_castable(output: Column, column: Column) -> None:
    if not can_cast(arrow_type(output.type), arrow_type(column.type)):
        raise UserError(
            f'column "{column.name}" is {column.type.sql}, but the SELECT\'s "{output.name}" '
            f"is {output.type.sql}, which cannot be cast to {column.type.sql}",
            code=Code.TYPE_ERR,
            hint="Cast it in the SELECT, or change the column's type.",
        )


def _require_nullable(column: Column) -> None:
    if not column.nullable:
        raise UserError(
            f'column "{column.name}" is NOT NULL, but the SELECT has no value for it',
            code=Code.TYPE_ERR,
            hint="Add an expression for it to the SELECT.",
        )
