"""Work out which field of a CSV record is which column."""

from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.model.files import RESCUED, MissingColumns
from penstock.sources.formats.blocks import UnreadableFileError
from penstock.sources.formats.csv_layout import CsvLayout

_NAMES_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvShape:
    """Which fields the records of a file have, and which of them the batches hold."""

    layout: CsvLayout
    # Of the batches, the rescued column included.
    schema: pa.Schema
    # The field of every wanted column, counted from 0; None where the file has none.
    field_by_column: tuple[int | None, ...]
    fields_max: int
    fields_min: int
    rescue: bool
    # The fields that the file names and no column holds.
    extra_name_by_field: dict[int, str]
    extra_names: frozenset[str]

    def extra_name(self, field: int) -> str:
        """Give the name that a field without a column is kept under."""
        named = self.extra_name_by_field.get(field)
        return named or _free(generated_name(field), self.extra_names)


def csv_shape(
    columns: pa.Schema,
    *,
    wanted: Sequence[str],
    layout: CsvLayout,
    names: Sequence[str] | None,
    missing: MissingColumns,
    rescue: bool,
) -> CsvShape:
    """Find the wanted columns among the names that a file gives, or else by their position."""
    if names is None:
        field_by_name: dict[str, int | None] = {
            name: field for field, name in enumerate(columns.names)
        }
    else:
        field_by_name = _matched(columns.names, names)
        _require_columns(field_by_name, missing)
    held = set(field_by_name.values())
    extra = _distinct(
        {field: name for field, name in enumerate(names or ()) if field not in held}
    )
    fields_max = len(columns) if names is None else len(names)
    return CsvShape(
        layout=layout,
        schema=_wanted_schema(columns, wanted=wanted, rescue=rescue),
        field_by_column=tuple(field_by_name[name] for name in wanted),
        fields_max=fields_max,
        fields_min=fields_max if missing is MissingColumns.FAIL else 0,
        rescue=rescue,
        extra_name_by_field=extra,
        extra_names=frozenset(extra.values()),
    )


def generated_name(field: int) -> str:
    """Give the name of a field that nobody named, counted from 0."""
    return f"c{field + 1}"


def _wanted_schema(columns: pa.Schema, *, wanted: Sequence[str], rescue: bool) -> pa.Schema:
    field_by_name: dict[str, pa.Field[Any]] = {field.name: field for field in columns}
    fields = [field_by_name[name] for name in wanted]
    return pa.schema([*fields, pa.field(RESCUED, pa.string())] if rescue else fields)


def _matched(columns: Sequence[str], names: Sequence[str]) -> dict[str, int | None]:
    """Find every column among the names; one written alike goes before one in other case."""
    exact: defaultdict[str, list[int]] = defaultdict(list)
    folded: defaultdict[str, list[int]] = defaultdict(list)
    for field, name in enumerate(names):
        exact[name].append(field)
        folded[name.lower()].append(field)
    return {
        column: _only(column, exact.get(column) or folded.get(column.lower(), []))
        for column in columns
    }


def _only(column: str, fields: list[int]) -> int | None:
    if len(fields) > 1:
        raise UnreadableFileError(
            f'column "{column}" is named by fields {fields[0] + 1} and {fields[1] + 1} of the'
            " header",
            hint="Give every column of the file a name of its own.",
        )
    return fields[0] if fields else None


def _require_columns(field_by_name: dict[str, int | None], missing: MissingColumns) -> None:
    absent = [f'"{name}"' for name, field in field_by_name.items() if field is None]
    if not absent or missing is MissingColumns.NULL:
        return
    shown = ", ".join(absent[:_NAMES_SHOWN_MAX])
    more = (
        "" if len(absent) <= _NAMES_SHOWN_MAX else f" and {len(absent) - _NAMES_SHOWN_MAX} more"
    )
    raise UnreadableFileError(
        f"the header of the file must name every column, and lacks {shown}{more}",
        hint="Mend the file, or set the option \"missing_columns\" to 'null'.",
    )


def _distinct(name_by_field: dict[int, str]) -> dict[int, str]:
    """Give fields that share a name their positions behind it, so that none is lost."""
    count_by_name = Counter(name_by_field.values())
    taken = {name for name, count in count_by_name.items() if count == 1}
    distinct: dict[int, str] = {}
    for field, name in name_by_field.items():
        shared = count_by_name[name] > 1
        distinct[field] = _free(f"{name}_{generated_name(field)}", taken) if shared else name
        taken.add(distinct[field])
    return distinct


def _free(name: str, taken: Set[str]) -> str:
    while name in taken:
        name += "_"
    return name
