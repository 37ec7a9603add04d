"""Which column of the table is filled by what: by name for ``*``, else one after the other."""

from penstock.arrow.casts import can_cast
from penstock.arrow.types import arrow_type
from penstock.errors import Code, UserError
from penstock.model.job import SparkQuery, TargetColumn
from penstock.model.query import output_name
from penstock.model.schema import Column
from penstock.model.text import counted
from penstock.sql.statements import Insert
from penstock.tables.fitting import canonical_path, check_fit


def plain_targets(
    insert: Insert,
    *,
    source_columns: tuple[Column, ...],
    metadata: tuple[Column, ...],
    columns: tuple[Column, ...],
) -> tuple[TargetColumn, ...]:
    """Fill columns straight from the source; ``metadata`` can only be named, not starred."""
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
    """Fill columns from the outputs of a SELECT that Spark runs."""
    paths: list[tuple[str, ...]] = [(output_name(at),) for at in range(len(query.outputs))]
    output_by_path = dict(zip(paths, query.outputs, strict=True))
    if query.source_starred:
        # What a WHERE looks at beside the source's own columns is no part of its star.
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
    """Bring paths and columns together: by the names given, else in the INSERT's order."""
    filled = (
        _listed_columns(insert, columns)
        if names is None
        else [_column_of(name, names, columns) for name in names]
    )
    if len(paths) != len(filled):
        raise UserError(
            f"INSERT fills {counted(len(filled), 'column')}, but the SELECT gives {len(paths)}",
            code=Code.TYPE_ERR,
            detail=f"Columns to fill: {', '.join(filled)}.",
            hint="List the columns behind the table's name, in the SELECT's order.",
        )
    path_by_name = dict(zip(filled, paths, strict=True))
    return tuple(TargetColumn(name=c.name, path=path_by_name.get(c.name)) for c in columns)


def _listed_columns(insert: Insert, columns: tuple[Column, ...]) -> list[str]:
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


def _column_of(name: str, names: list[str], columns: tuple[Column, ...]) -> str:
    """Answer the table's column that is called like a field of the source."""
    for column in columns:
        if column.name.lower() == name.lower():
            return column.name
    target = {column.name.lower() for column in columns}
    extra = [other for other in names if other.lower() not in target]
    raise UserError(
        f'the table has no column for the source field "{name}"',
        code=Code.TYPE_ERR,
        detail=f"SELECT * fills columns by name; without a place: {', '.join(extra)}.",
        hint="List the wanted fields instead of *, or add columns to the table.",
    )


def _require_castable(output: Column, column: Column) -> None:
    if not can_cast(arrow_type(output.type), arrow_type(column.type)):
        raise UserError(
            f'column "{column.name}" is {column.type.sql}, but the SELECT\'s "{output.name}" '
            f"is {output.type.sql}, which cannot become one",
            code=Code.TYPE_ERR,
            hint="Convert it in the SELECT, or change the column's type.",
        )


def _require_nullable(column: Column) -> None:
    if not column.nullable:
        raise UserError(
            f'column "{column.name}" is NOT NULL, but nothing fills it',
            code=Code.TYPE_ERR,
            hint="Add an expression for it to the SELECT.",
        )
