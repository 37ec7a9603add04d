"""Skip data files and row groups that cannot match the conditions of a scan.

Invariant: a skipped file or row group has no row for which every condition is true. Bounds may
be wider than the values. Bounds of other writers may also be inexact: long texts are truncated,
timestamps are rounded down to milliseconds, or NaN is ignored.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal as Number
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.arrow.casts import cast_array
from penstock.arrow.types import arrow_type
from penstock.model.schema import Column, DataType, Decimal, Primitive
from penstock.tables.table import SnapshotFile

# Writers truncate only texts with at least this many characters.
TRUNCATED_CHARACTERS_MIN = 32

_ROUNDED = timedelta(milliseconds=1)
_FLOATS = (Primitive.FLOAT, Primitive.DOUBLE)
_TIMES = (Primitive.TIMESTAMP, Primitive.TIMESTAMP_NTZ)
_WHOLE = (Primitive.TINYINT, Primitive.SMALLINT, Primitive.INT, Primitive.BIGINT)


class Comparison(StrEnum):
    """The operator of a condition."""

    EQUAL = "equal"
    LESS = "less"
    LESS_OR_EQUAL = "less or equal"
    GREATER = "greater"
    GREATER_OR_EQUAL = "greater or equal"
    NULL = "null"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A comparison of a column with values; EQUAL matches any of the values."""

    column: str
    comparison: Comparison
    values: tuple[Any, ...] = ()
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Known facts about the values of a column; None is unknown.

    ``above``: values such as NaN may be above ``high``. ``truncated``: ``high`` is the prefix
    of a text. ``exact``: both bounds are values of the column.
    """

    low: Any = None
    high: Any = None
    nulls: int | None = None
    rows: int | None = None
    above: bool = False
    truncated: bool = False
    exact: bool = False


class Pruning:
    """The conditions of one scan, with a cache of parsed partition values."""

    def __init__(
        self, *, conditions: tuple[Condition, ...], columns: tuple[Column, ...]
    ) -> None:
        self._conditions = conditions
        # In the log, "a.b" can be a column or field b of struct a. So skip names with a dot.
        compared = {c.column for c in conditions if "." not in c.column}
        self._kind_by_name = {c.name: c.type for c in columns if c.name in compared}
        self._value_by_text: dict[tuple[str, str], Any] = {}

    def files(self, files: Iterable[SnapshotFile]) -> tuple[SnapshotFile, ...]:
        """Return the files that may have a matching row."""
        return tuple(file for file in files if self._possible(self._ranges(file)))

    def row_groups(self, metadata: pq.FileMetaData) -> list[int]:
        """Return the row groups that may have a matching row."""
        groups = ((at, metadata.row_group(at)) for at in range(metadata.num_row_groups))
        return [at for at, group in groups if self._possible(self._group_ranges(group))]

    def _possible(self, range_by_column: Mapping[str, Range]) -> bool:
        return all(
            condition.column not in range_by_column
            or possible(condition, range_by_column[condition.column])
            for condition in self._conditions
        )

    def _ranges(self, file: SnapshotFile) -> dict[str, Range]:
        # A float would lose digits of a DECIMAL.
        logged: dict[str, Any] = json.loads(file.statistics_json or "{}", parse_float=Number)
        text_by_column = dict(file.partition_values)
        return {
            name: self._partition_range(name, kind, text_by_column[name])
            if name in text_by_column
            else _logged_range(logged, name, kind)
            for name, kind in self._kind_by_name.items()
        }

    def _partition_range(self, name: str, kind: DataType, text: str | None) -> Range:
        if text is None:
            return Range(nulls=1, rows=1)
        if (name, text) not in self._value_by_text:
            values = cast_array(pa.array([text], pa.string()), arrow_type(kind))
            self._value_by_text[name, text] = values[0].as_py()
        value = self._value_by_text[name, text]
        return Range(low=value, high=value, nulls=0, rows=1, exact=True)

    def _group_ranges(self, group: pq.RowGroupMetaData) -> dict[str, Range]:
        chunks = (group.column(at) for at in range(group.num_columns))
        return {
            chunk.path_in_schema: _group_range(chunk, self._kind_by_name[chunk.path_in_schema])
            for chunk in chunks
            if chunk.path_in_schema in self._kind_by_name
        }


def possible(condition: Condition, known: Range) -> bool:
    """Return whether the condition can be true for a value of the range."""
    only_nulls = known.rows is not None and known.nulls == known.rows
    if condition.comparison is Comparison.NULL:
        return not only_nulls if condition.negated else known.nulls != 0
    values = [value for value in condition.values if value is not None]
    if only_nulls:
        return False
    # In SQL, NaN equals itself and is greater than all numbers; not so in Python.
    if any(isinstance(value, float) and math.isnan(value) for value in values):
        return True
    try:
        if condition.negated:
            return not _all_pass(condition.comparison, values, known)
        return any(_some_pass(condition.comparison, value, known) for value in values)
    except TypeError:
        # A value that cannot be compared with the bounds may match.
        return True


def _some_pass(comparison: Comparison, value: Any, known: Range) -> bool:  # noqa: ANN401
    low, high = known.low, known.high
    match comparison:
        case Comparison.EQUAL:
            return (low is None or low <= value) and _reached(value, known)
        case Comparison.LESS:
            return low is None or bool(low < value)
        case Comparison.LESS_OR_EQUAL:
            return low is None or bool(low <= value)
        case Comparison.GREATER:
            return known.above or (
                _reached(value, known) and (known.truncated or high != value)
            )
        case Comparison.GREATER_OR_EQUAL:
            return known.above or _reached(value, known)
        case Comparison.PREFIX:
            return (low is None or low[: len(value)] <= value) and _reached(value, known)
        case Comparison.NULL:
            return True


def _reached(value: Any, known: Range) -> bool:  # noqa: ANN401 - Follows the column.
    """Return whether the upper bound is equal to or greater than the value."""
    if known.high is None:
        return True
    return bool((value[: len(known.high)] if known.truncated else value) <= known.high)


def _all_pass(comparison: Comparison, values: Sequence[Any], known: Range) -> bool:
    """Return whether the comparison is known to be true for every value that is not NULL."""
    if not known.exact or known.low != known.high:
        return False
    match comparison:
        case Comparison.EQUAL:
            return known.low in values
        case Comparison.PREFIX:
            return all(known.low.startswith(value) for value in values)
        case _:
            return False


def _logged_range(logged: Mapping[str, Any], name: str, kind: DataType) -> Range:
    bounds = [logged.get(key, {}).get(name) for key in ("minValues", "maxValues")]
    return _range(
        kind,
        bounds=[None if bound is None else _parsed(bound, kind) for bound in bounds],
        nulls=logged.get("nullCount", {}).get(name),
        rows=logged.get("numRecords"),
    )


def _group_range(chunk: pq.ColumnChunkMetaData, kind: DataType) -> Range:
    known = chunk.statistics
    if known is None:
        return Range()
    nulls = known.null_count
    rows = None if nulls is None else known.num_values + nulls
    try:
        bounds = [known.min, known.max] if known.has_min_max else [None, None]
    except (ValueError, OverflowError):
        # Python cannot represent the year.
        bounds = [None, None]
    return _range(kind, bounds=bounds, nulls=nulls, rows=rows)


def _range(
    kind: DataType, *, bounds: Sequence[Any], nulls: int | None, rows: int | None
) -> Range:
    """Return the range of logged bounds, widened where they may be inexact."""
    low, high = bounds
    exact = low is not None and high is not None
    if kind in _TIMES:
        high = None if high is None else _later(high)
        return Range(low=low, high=high, nulls=nulls, rows=rows)
    if kind in _FLOATS:
        bounded = not any(bound is not None and math.isnan(bound) for bound in bounds)
        low, high = (low, high) if bounded else (None, None)
        return Range(low=low, high=high, nulls=nulls, rows=rows, above=True)
    if kind is Primitive.STRING:
        truncated = high is not None and len(high) >= TRUNCATED_CHARACTERS_MIN
        exact = exact and not truncated
        return Range(
            low=low, high=high, nulls=nulls, rows=rows, truncated=truncated, exact=exact
        )
    if kind in (*_WHOLE, Primitive.BOOLEAN, Primitive.DATE) or isinstance(kind, Decimal):
        return Range(low=low, high=high, nulls=nulls, rows=rows, exact=exact)
    return Range(nulls=nulls, rows=rows)


def _later(at: datetime) -> datetime | None:
    try:
        return at + _ROUNDED
    except OverflowError:
        return None


def _parsed(bound: Any, kind: DataType) -> Any:  # noqa: ANN401 - Follows the column.
    """Parse a bound of the log; None if it does not have the column's type."""
    try:
        match kind:
            case Primitive.DATE:
                return date.fromisoformat(bound)
            case Primitive.TIMESTAMP | Primitive.TIMESTAMP_NTZ:
                return datetime.fromisoformat(bound)
            case Decimal():
                return Number(str(bound))
            case Primitive.FLOAT | Primitive.DOUBLE:
                return float(bound)
            case Primitive.STRING:
                return bound if isinstance(bound, str) else None
            case _:
                return bound if isinstance(bound, int) else None
    except (TypeError, ValueError, ArithmeticError):
        return None
