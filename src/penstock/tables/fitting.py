"""Fit rows to the columns of a table, and separate the rows that do not fit.

Invariant: fitted rows have exactly the table's Arrow schema, valid UTF-8 and no NULL in a
NOT NULL column. delta-rs checks none of these rules.
"""

import difflib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrow.bisect import bad_rows
from penstock.arrow.casts import CastError, can_cast, cast_array
from penstock.arrow.types import AnyArray, AnyType, arrow_schema, arrow_type
from penstock.errors import Code, UserError
from penstock.model.job import TargetColumn
from penstock.model.schema import Column, Struct
from penstock.tables.partitions import require_partition_values

_NAMES_SHOWN_MAX = 20


class RowError(ValueError):
    """A row that does not fit the table: its index, the column and the reason."""

    def __init__(self, row: int, column: str, reason: str) -> None:
        super().__init__(row, column, reason)
        self.row = row
        self.column = column
        self.reason = reason

    def __str__(self) -> str:
        return f'column "{self.column}": {self.reason}'


def fit(
    batch: pa.RecordBatch,
    *,
    targets: tuple[TargetColumn, ...],
    columns: tuple[Column, ...],
    partition_by: tuple[str, ...] = (),
) -> pa.RecordBatch:
    """Return the batch in the table's schema; raise RowError for a row that does not fit."""
    path_by_name = {target.name: target.path for target in targets}
    schema = arrow_schema(columns)
    arrays: list[AnyArray] = []
    misfits: list[RowError] = []
    for column, field in zip(columns, schema, strict=True):
        path = path_by_name.get(column.name)
        source = (
            pa.nulls(len(batch), field.type) if path is None else _field_values(batch, path)
        )
        try:
            fitted = _fit_column(source, column=column, target=field.type)
            if column.name in partition_by:
                require_partition_values(fitted, column)
            arrays.append(fitted)
        except CastError as error:
            inside = f'field "{".".join(error.path)}": ' if error.path else ""
            misfits.append(RowError(error.row, column.name, f"{inside}{error.reason}"))
    if misfits:
        raise min(misfits, key=lambda misfit: misfit.row)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fit_column(source: AnyArray, *, column: Column, target: AnyType) -> AnyArray:
    def check_utf8(first: int, count: int) -> None:
        source.slice(first, count).validate(full=True)

    for row, _ in bad_rows(len(source), check_utf8, pa.ArrowInvalid):
        raise CastError(row, "the text is not valid UTF-8")
    fitted = cast_array(source, target)
    if not column.nullable and fitted.null_count:
        row = pc.index(fitted.is_null(), value=True).as_py()
        raise CastError(row, f"expected {column.type.sql}, found NULL")
    return fitted


def _field_values(batch: pa.RecordBatch, path: tuple[str, ...]) -> AnyArray:
    """Return the values at a path; the fields of a NULL struct are NULL."""
    values: AnyArray = batch.column(_index(path[0], batch.schema.names))
    for name in path[1:]:
        names = [field.name for field in values.type]
        values = pc.struct_field(values, _index(name, names))
    return values


def check_fit(
    source_columns: tuple[Column, ...],
    targets: tuple[TargetColumn, ...],
    columns: tuple[Column, ...],
) -> None:
    """Raise UserError for unknown fields, types that cannot be converted, and unfilled columns.

    An unfilled column is a NOT NULL column without a source field.
    """
    column_by_name = {column.name: column for column in columns}
    for target in targets:
        column = column_by_name.get(target.name)
        if column is None:
            raise _unknown("table", target.name, list(column_by_name))
        if target.path is None:
            continue
        kind = _fields_along(source_columns, target.path)[-1].type
        if not can_cast(arrow_type(kind), arrow_type(column.type)):
            raise UserError(
                f'column "{column.name}" is {column.type.sql}, but "{".".join(target.path)}" '
                f"is {kind.sql}, which cannot be converted",
                code=Code.TYPE_ERR,
                hint="Change the column's type, or convert the field in the SELECT.",
            )
    filled = {target.name for target in targets if target.path is not None}
    for column in columns:
        if not column.nullable and column.name not in filled:
            raise UserError(
                f'column "{column.name}" is NOT NULL, but the SELECT has no value for it',
                code=Code.TYPE_ERR,
                hint="Add a source field for this column to the SELECT.",
            )


def canonical_path(
    source_columns: tuple[Column, ...], path: tuple[str, ...]
) -> tuple[str, ...]:
    """Return a path in the spelling of the source; raise UserError for an unknown field."""
    return tuple(field.name for field in _fields_along(source_columns, path))


def _fields_along(
    source_columns: tuple[Column, ...], path: tuple[str, ...]
) -> tuple[Column, ...]:
    fields = source_columns
    found: list[Column] = []
    for depth, name in enumerate(path):
        found.append(fields[_index(name, [field.name for field in fields], path[:depth])])
        kind = found[-1].type
        fields = kind.fields if isinstance(kind, Struct) else ()
    return tuple(found)


def _index(name: str, names: Sequence[str], parents: tuple[str, ...] = ()) -> int:
    """Return the index of the field with a name; ignore case if no name matches exactly.

    Raise UserError for an unknown or ambiguous name. Spark applies the same rule.
    """
    if name in names:
        return names.index(name)
    alike = [index for index, other in enumerate(names) if other.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    if alike:
        found = ", ".join(f'"{names[index]}"' for index in alike)
        raise UserError(
            f'field "{name}" is ambiguous: the source has {found}',
            code=Code.TYPE_ERR,
            hint="Write the name exactly as in the source, with the same upper and lower case.",
        )
    where = f'source field "{".".join(parents)}"' if parents else "source"
    raise _unknown(where, name, names)


def _unknown(where: str, name: str, names: Sequence[str]) -> UserError:
    near = difflib.get_close_matches(name, names, n=1)
    guess = f'Did you mean "{near[0]}"? ' if near else ""
    more = " …" if len(names) > _NAMES_SHOWN_MAX else ""
    known = ", ".join(names[:_NAMES_SHOWN_MAX]) or "none"
    noun = "column" if where == "table" else "field"
    return UserError(
        f'{where} has no {noun} "{name}"',
        code=Code.TYPE_ERR,
        hint=f"{guess}Known {noun}s: {known}{more}.",
    )


def separate_misfits(
    batch: pa.RecordBatch,
    *,
    targets: tuple[TargetColumn, ...],
    columns: tuple[Column, ...],
    partition_by: tuple[str, ...],
) -> tuple[list[pa.RecordBatch], list[RowError]]:
    """Return the rows that fit, in the table's schema, and the errors of the other rows.

    An error has the index of its row in the batch.
    """
    fitting: list[pa.RecordBatch] = []

    def fit_part(first: int, count: int) -> None:
        part = batch.slice(first, count)
        fitting.append(fit(part, targets=targets, columns=columns, partition_by=partition_by))

    misfits = [
        RowError(row, error.column, error.reason)
        for row, error in bad_rows(batch.num_rows, fit_part, RowError)
    ]
    return fitting, misfits
