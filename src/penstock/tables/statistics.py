"""What a table's log says about a data file, so that readers may skip it.

Invariant: every bound holds for every value of the file; where that cannot be said exactly the
bound is widened, and where it cannot be widened it is left out. Bounds come from the metadata
that the Parquet writer kept anyway, so no row is looked at twice. Floating numbers are the
exception: that metadata passes over NaN without a trace.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import InvariantError
from penstock.model.schema import Array, Column, DataType, Decimal, Map, Primitive, Struct

_T = TypeVar("_T")

# Delta's own default; readers look for no more.
_LEAVES_MAX = 32
_TEXT_MAX = 32
_CODE_POINT_MAX = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is known of one column: NULLs, and bounds unless some value has none."""

    nulls: int = 0
    low: Any = None
    high: Any = None
    bounded: bool = True

    def join(self, other: "Summary") -> "Summary":
        """Answer what is known of both together."""
        sides = [side for side in (self, other) if side.low is not None]
        return Summary(
            nulls=self.nulls + other.nulls,
            low=min((side.low for side in sides), default=None),
            high=max((side.high for side in sides), default=None),
            bounded=self.bounded and other.bounded,
        )


def float_summary(values: "pa.ChunkedArray[Any]") -> Summary:
    """Look at floating numbers; a NaN lies beyond all bounds, above in some readers' order."""
    if pc.any(pc.is_nan(values)).as_py():
        return Summary(nulls=values.null_count, bounded=False)
    low, high = pc.min(values).as_py(), pc.max(values).as_py()
    # Some readers tell -0.0 from 0.0, so that each bound takes the outer one.
    return Summary(
        nulls=values.null_count,
        low=-0.0 if low == 0 else low,
        high=0.0 if high == 0 else high,
    )


def statistics_json(
    metadata: pq.FileMetaData, columns: Sequence[Column], *, floats: Mapping[str, Summary]
) -> str:
    """Write row count, bounds and NULL counts; floating columns were summarised before."""
    lows: dict[str, str] = {}
    highs: dict[str, str] = {}
    nulls: dict[str, str] = {}
    for name, kind, leaf in _plain_columns(columns):
        summary = floats[name] if name in floats else _leaf_summary(metadata, leaf)
        nulls[name] = str(summary.nulls)
        if summary.bounded and summary.low is not None:
            _keep(lows, name, _low_text(kind, summary.low))
            _keep(highs, name, _high_text(kind, summary.high))
    return _object(
        {
            "numRecords": str(metadata.num_rows),
            "minValues": _object(lows),
            "maxValues": _object(highs),
            "nullCount": _object(nulls),
        }
    )


def _plain_columns(columns: Sequence[Column]) -> list[tuple[str, DataType, int]]:
    """Answer the columns without parts among the first, with their place in the file."""
    plain: list[tuple[str, DataType, int]] = []
    leaf = 0
    for column in columns:
        if isinstance(column.type, Primitive | Decimal) and leaf < _LEAVES_MAX:
            plain.append((column.name, column.type, leaf))
        leaf += _leaves(column.type)
    return plain


def _leaves(kind: DataType) -> int:
    match kind:
        case Array():
            return _leaves(kind.element)
        case Map():
            return _leaves(kind.key) + _leaves(kind.value)
        case Struct():
            return sum(_leaves(field.type) for field in kind.fields)
        case _:
            return 1


def _leaf_summary(metadata: pq.FileMetaData, leaf: int) -> Summary:
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return reduce(Summary.join, (_group_summary(group, leaf) for group in groups))


def _group_summary(group: pq.RowGroupMetaData, leaf: int) -> Summary:
    chunk = group.column(leaf)
    known = chunk.statistics
    if known is None or known.null_count is None:
        raise InvariantError(f'data file has no statistics of "{chunk.path_in_schema}"')
    if not known.has_min_max:
        # Nothing but NULLs, or a text too long for the metadata.
        return Summary(nulls=known.null_count, bounded=known.null_count == group.num_rows)
    # The raw values: a date or a timestamp may lie beyond what Python can hold.
    raw = chunk.physical_type in ("INT32", "INT64")
    return Summary(
        nulls=known.null_count,
        low=known.min_raw if raw else known.min,
        high=known.max_raw if raw else known.max,
    )


def _low_text(kind: DataType, low: Any) -> str | None:  # noqa: ANN401 - Follows the kind.
    match kind:
        case Primitive.STRING:
            return _text(low[:_TEXT_MAX])
        case Primitive.TIMESTAMP | Primitive.TIMESTAMP_NTZ:
            return _instant_text(kind, low // 1000)
        case _:
            return _exact_text(kind, low)


def _high_text(kind: DataType, high: Any) -> str | None:  # noqa: ANN401 - Follows the kind.
    match kind:
        case Primitive.STRING:
            text = high if len(high) <= _TEXT_MAX else _above_prefix(high[:_TEXT_MAX])
            return None if text is None else _text(text)
        case Primitive.TIMESTAMP | Primitive.TIMESTAMP_NTZ:
            return _instant_text(kind, -(-high // 1000))
        case _:
            return _exact_text(kind, high)


def _exact_text(kind: DataType, value: Any) -> str | None:  # noqa: ANN401 - Follows the kind.
    match kind:
        case Decimal():
            return _decimal_text(value, kind.scale) if isinstance(value, int) else f"{value:f}"
        case Primitive.TINYINT | Primitive.SMALLINT | Primitive.INT | Primitive.BIGINT:
            return str(value)
        case Primitive.FLOAT | Primitive.DOUBLE:
            return repr(value) if math.isfinite(value) else None
        case Primitive.DATE:
            day = _in_range(lambda: _UNIX_EPOCH + value * _DAY)
            return None if day is None else f'"{day.date().isoformat()}"'
        case _:
            return None


def _decimal_text(unscaled: int, scale: int) -> str:
    if not scale:
        return str(unscaled)
    digits = f"{abs(unscaled):0{scale + 1}d}"
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _instant_text(kind: DataType, milliseconds: int) -> str | None:
    instant = _in_range(lambda: _UNIX_EPOCH + milliseconds * _MILLISECOND)
    if instant is None:
        return None
    zone = "Z" if kind is Primitive.TIMESTAMP else ""
    return f'"{instant.replace(tzinfo=None).isoformat(timespec="milliseconds")}{zone}"'


def _in_range(compute: Callable[[], _T]) -> _T | None:
    try:
        return compute()
    except OverflowError:
        return None


def _above_prefix(prefix: str) -> str | None:
    """Answer a text above every text that begins so, in the order of code points."""
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1]) + 1
        if code in _SURROGATES:
            code = _SURROGATES.stop
        if code <= _CODE_POINT_MAX:
            return prefix[: end - 1] + chr(code)
    return None


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _keep(texts: dict[str, str], name: str, text: str | None) -> None:
    if text is not None:
        texts[name] = text


def _object(texts: dict[str, str]) -> str:
    """Join values that are JSON already; json.dumps would make floats of exact decimals."""
    return "{" + ",".join(f"{_text(name)}:{text}" for name, text in texts.items()) + "}"
