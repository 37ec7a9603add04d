"""Statistics of data files in a table's log, with which readers skip files.

Invariant: every bound is valid for every value of the file. An inexact bound is widened, or
omitted if it cannot be widened. Bounds come from the metadata of the Parquet writer, so no row
is read twice. The bounds of floating-point columns are computed here, because that metadata
ignores NaN.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal as Number
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import InvariantError
from penstock.model.schema import Array, Column, DataType, Decimal, Map, Primitive, Struct

# Delta's default number of columns with statistics. Readers do not expect more columns.
_LEAVES_MAX = 32
# A stream orders files by event time. So columns of these types have statistics even after the
# first 32 columns.
_TIMES = (Primitive.TIMESTAMP, Primitive.TIMESTAMP_NTZ)
_TEXT_MAX = 32
_CODE_POINT_MAX = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """NULL count and bounds of one column; ``bounded`` is False if a value has no bound."""

    nulls: int = 0
    low: Any = None
    high: Any = None
    bounded: bool = True

    def join(self, other: "Summary") -> "Summary":
        """Return one summary of the values of both summaries."""
        sides = [side for side in (self, other) if side.low is not None]
        return Summary(
            nulls=self.nulls + other.nulls,
            low=min((side.low for side in sides), default=None),
            high=max((side.high for side in sides), default=None),
            bounded=self.bounded and other.bounded,
        )


def float_summary(values: "pa.ChunkedArray[Any]") -> Summary:
    """Summarise floating-point values; a NaN has no bound."""
    if pc.any(pc.is_nan(values)).as_py():
        return Summary(nulls=values.null_count, bounded=False)
    low, high = pc.min(values).as_py(), pc.max(values).as_py()
    # Some readers distinguish -0.0 from 0.0. So a lower bound is -0.0, and an upper bound 0.0.
    return Summary(
        nulls=values.null_count,
        low=-0.0 if low == 0 else low,
        high=0.0 if high == 0 else high,
    )


def statistics_json(
    metadata: pq.FileMetaData, columns: Sequence[Column], *, floats: Mapping[str, Summary]
) -> str:
    """Return row count, bounds and NULL counts as JSON.

    ``floats`` has the summaries of the floating-point columns.
    """
    lows: dict[str, str | None] = {}
    highs: dict[str, str | None] = {}
    nulls: dict[str, str] = {}
    # The index of the column's first leaf in the file. Nested columns have no statistics.
    leaf = 0
    for column in columns:
        name, kind = column.name, column.type
        if isinstance(kind, Primitive | Decimal) and (leaf < _LEAVES_MAX or kind in _TIMES):
            summary = floats[name] if name in floats else _leaf_summary(metadata, leaf)
            nulls[name] = str(summary.nulls)
            if summary.bounded and summary.low is not None:
                lows[name] = _bound_text(kind, summary.low, upper=False)
                highs[name] = _bound_text(kind, summary.high, upper=True)
        leaf += sum(1 for _ in leaves([column]))
    return _object(
        {
            "numRecords": str(metadata.num_rows),
            "minValues": _object(lows),
            "maxValues": _object(highs),
            "nullCount": _object(nulls),
        }
    )


def leaves(columns: Iterable[Column], *, parent: str = "") -> Iterator[tuple[str, DataType]]:
    """Yield path and type of the leaf columns, as a Parquet file stores them."""
    for column in columns:
        path = f"{parent}{column.name}"
        match column.type:
            case Struct():
                yield from leaves(column.type.fields, parent=f"{path}.")
            case Array():
                element = Column(name="element", type=column.type.element)
                yield from leaves([element], parent=f"{path}.list.")
            case Map():
                key = Column(name="key", type=column.type.key)
                value = Column(name="value", type=column.type.value)
                yield from leaves([key, value], parent=f"{path}.key_value.")
            case _:
                yield path, column.type


def _leaf_summary(metadata: pq.FileMetaData, leaf: int) -> Summary:
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return reduce(Summary.join, (_group_summary(group, leaf) for group in groups))


def _group_summary(group: pq.RowGroupMetaData, leaf: int) -> Summary:
    chunk = group.column(leaf)
    known = chunk.statistics
    if known is None or known.null_count is None:
        raise InvariantError(f'data file has no statistics of "{chunk.path_in_schema}"')
    if not known.has_min_max:
        # The column has only NULLs, or a text is too long for the metadata.
        return Summary(nulls=known.null_count, bounded=known.null_count == group.num_rows)
    # Use raw values, because Python cannot represent every date and timestamp.
    raw = chunk.physical_type in ("INT32", "INT64")
    return Summary(
        nulls=known.null_count,
        low=known.min_raw if raw else known.min,
        high=known.max_raw if raw else known.max,
    )


def _bound_text(kind: DataType, value: Any, *, upper: bool) -> str | None:  # noqa: ANN401 - Follows the kind.
    """Return a bound as JSON; None if readers could not use it."""
    match kind:
        case Primitive.STRING:
            truncated = upper and len(value) > _TEXT_MAX
            text = _above_prefix(value[:_TEXT_MAX]) if truncated else value[:_TEXT_MAX]
            return None if text is None else _text(text)
        case Primitive.TIMESTAMP | Primitive.TIMESTAMP_NTZ:
            moment = _moment(milliseconds=-(-value // 1000) if upper else value // 1000)
            zone = "Z" if kind is Primitive.TIMESTAMP else ""
            return moment and f'"{moment}{zone}"'
        case Primitive.DATE:
            moment = _moment(days=value)
            return moment and f'"{moment.partition("T")[0]}"'
        case Decimal():
            # Decimals of few digits are stored as integers.
            exact = Number(value).scaleb(-kind.scale) if isinstance(value, int) else value
            return f"{exact:f}"
        case Primitive.FLOAT | Primitive.DOUBLE:
            return repr(value) if math.isfinite(value) else None
        case Primitive.TINYINT | Primitive.SMALLINT | Primitive.INT | Primitive.BIGINT:
            return str(value)
        case _:
            return None


def _moment(*, days: int = 0, milliseconds: int = 0) -> str | None:
    """Convert a time since 1970 to ISO 8601; None if Python cannot represent the time."""
    try:
        moment = _UNIX_EPOCH + timedelta(days=days, milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds")


def _above_prefix(prefix: str) -> str | None:
    """Return a text greater than every text with this prefix, by code points."""
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1]) + 1
        if code in _SURROGATES:
            code = _SURROGATES.stop
        if code <= _CODE_POINT_MAX:
            return prefix[: end - 1] + chr(code)
    return None


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _object(text_by_name: Mapping[str, str | None]) -> str:
    """Join JSON values into an object; json.dumps would convert decimals to floats."""
    pairs = (f"{_text(name)}:{text}" for name, text in text_by_name.items() if text is not None)
    return "{" + ",".join(pairs) + "}"
