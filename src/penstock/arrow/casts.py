"""Cast Arrow arrays between types, or report the first value that does not fit.

Invariant: a value is never wrapped, truncated, or turned into NULL. A value that does not fit
raises ``CastError`` with its row. Only digits beyond the precision of a floating type or the
scale of a decimal are rounded.

The scalar casts raise ``pa.ArrowInvalid``; ``cast_array`` then finds the row.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrow.bisect import bad_rows
from penstock.arrow.types import AnyArray, AnyField, AnyType, NestedArray, data_type, list_like

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_INTEGER_TEXT = r"^[+-]?[0-9]+$"
_FLOATING_TEXT = rf"^(?:{_NUMBER}|NaN|[+-]?Infinity)$"
_NUMBER_TEXT = re.compile(rf"{_NUMBER}\Z")
# The required colon before the zone prevents reading the day of a plain date as an offset.
_ZONED = r":[0-9]{2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$"
_SCALE_MAX = 38
# Arrow wraps numbers that overflow when they are rescaled. For texts with many digits after the
# point, Arrow returns random numbers. So Arrow gets only texts that fit in 256 bits at any
# scale.
_WIDE_TEXT = r"^[+-]?[0-9]{1,28}(?:\.[0-9]{0,28})?(?:[eE][+-]?[0-9])?$"
# Digits must not be lost before rounding to the target's scale. The context therefore has more
# digits than any text that can be rounded to 38 digits.
_EXACT = Context(prec=400, Emax=10**6, Emin=-(10**6))
_SPARK_NAME = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def text_to_integer(array: AnyArray, target: AnyType) -> AnyArray:
    """Read integers written in decimal digits."""
    text = _trimmed(array)
    # Arrow itself accepts hexadecimal digits and rejects a plus sign.
    _require_match(text, _INTEGER_TEXT)
    return pc.utf8_ltrim(text, "+").cast(target)


def text_to_floating(array: AnyArray, target: AnyType) -> AnyArray:
    """Read floating numbers; a number too large for the type is an error, not infinity."""
    text = _trimmed(array)
    _require_match(text, _FLOATING_TEXT)
    values = text.cast(target)
    require(pc.or_(pc.invert(pc.is_inf(values)), pc.match_substring(text, "Infinity")))
    return values


def text_to_decimal(array: AnyArray, target: AnyType) -> AnyArray:
    """Read exact numbers, rounded half up to the target's scale."""
    text = _trimmed(array)
    with suppress(pa.ArrowInvalid):
        _require_match(text, _WIDE_TEXT)
        with suppress(pa.ArrowInvalid):
            # Nearly all texts have no more digits than the scale.
            return text.cast(pa.decimal256(76, target.scale)).cast(target)
        return round_decimals(text.cast(pa.decimal256(76, _SCALE_MAX)), target)
    values = [
        None if value is None else decimal_from_text(value, target)
        for value in text.to_pylist()
    ]
    return pa.array(values, target)


def decimal_from_text(text: str, target: AnyType) -> Decimal:
    """Read one exact number, rounded half up to the target's scale."""
    if not _NUMBER_TEXT.match(text):
        raise pa.ArrowInvalid("not a number")
    try:
        value = _EXACT.create_decimal(text).quantize(
            Decimal(1).scaleb(-target.scale), rounding=ROUND_HALF_UP, context=_EXACT
        )
    except InvalidOperation as error:
        raise pa.ArrowInvalid("too many digits") from error
    if value and value.adjusted() + target.scale >= target.precision:
        raise pa.ArrowInvalid("too many digits")
    return value


def round_decimals(array: AnyArray, target: AnyType) -> AnyArray:
    """Round exact numbers half up to the target's scale."""
    # Rounding may add a digit, so the numbers are widened first. A cast in Arrow reduces the
    # precision before the scale. So a separate cast changes the scale first.
    wide = array.cast(pa.decimal256(76, array.type.scale))
    rounded = pc.round(wide, ndigits=target.scale, round_mode="half_towards_infinity")
    return rounded.cast(pa.decimal256(76, target.scale)).cast(target)


def parse_with_arrow(array: AnyArray, target: AnyType) -> AnyArray:
    """Read booleans (true, false, 1, 0), dates, and date-times without a zone."""
    return _trimmed(array).cast(target)


def text_to_timestamp(array: AnyArray, target: AnyType) -> AnyArray:
    """Read instants; a date-time without a zone is in UTC."""
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        text = _trimmed(array)
    zoned = pc.match_substring_regex(text, _ZONED)
    nothing = pa.scalar(None, pa.string())
    instants = pc.if_else(zoned, text, nothing).cast(target)
    local = pc.if_else(zoned, nothing, text).cast(pa.timestamp("us"))
    return pc.coalesce(instants, pc.assume_timezone(local, "UTC").cast(target))


def floating_to_text(array: AnyArray, target: AnyType) -> AnyArray:
    """Write floating numbers with the fewest digits that read back as the same number."""
    # Arrow finds these digits, but omits the point of a whole number.
    digits = array.cast(pa.string()).to_pylist()
    texts = [None if text is None else repr(float(text)) for text in digits]
    return pa.array([_SPARK_NAME.get(text or "", text) for text in texts], target)


def decimal_to_text(array: AnyArray, target: AnyType) -> AnyArray:
    """Write exact numbers with all digits of their scale and no exponent."""
    texts = array.cast(target)
    if not pc.any(pc.match_substring(texts, "E")).as_py():
        return texts
    return pa.array(
        [None if value is None else format(value, "f") for value in array.to_pylist()], target
    )


def timestamp_to_text(array: AnyArray, target: AnyType) -> AnyArray:
    """Write date-times in UTC, without trailing zeros in the fraction."""
    texts = array.cast(pa.timestamp("us")).cast(target)
    return pc.replace_substring_regex(texts, pattern=r"\.?0+$", replacement="")


def require(fits: AnyArray) -> None:
    """Raise if one of the booleans is false; NULL is ignored."""
    if pc.all(fits).as_py() is False:
        raise pa.ArrowInvalid("a value does not fit")


def _trimmed(array: AnyArray) -> AnyArray:
    return pc.ascii_trim_whitespace(array.cast(pa.string()))


def _require_match(text: AnyArray, pattern: str) -> None:
    require(pc.match_substring_regex(text, pattern))


_VALUE_SHOWN_MAX = 80


class CastError(ValueError):
    """A value that does not fit: its row, its path inside the row, and the reason."""

    def __init__(self, row: int, reason: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(row, reason, path)
        self.row = row
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        place = f'field "{".".join(self.path)}": ' if self.path else ""
        return f"row {self.row}: {place}{self.reason}"


class _Kind(StrEnum):
    """A family of Arrow types with the same casts."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOATING = "floating"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    LIST = "list"
    MAP = "map"
    STRUCT = "struct"


def can_cast(source: AnyType, target: AnyType) -> bool:
    """Return whether some values of the source type can be cast to the target type."""
    if pa.types.is_dictionary(source):
        source = source.value_type
    if source == target or pa.types.is_null(source):
        return True
    match _kind(source), _kind(target):
        case _Kind.STRUCT, _Kind.STRUCT:
            return _can_cast_struct(source, target)
        case _Kind.LIST, _Kind.LIST:
            return can_cast(source.value_type, target.value_type)
        case _Kind.MAP, _Kind.MAP:
            return can_cast(source.key_type, target.key_type) and can_cast(
                source.item_type, target.item_type
            )
        case _Kind.LIST, _Kind.MAP:
            return _can_cast_struct(source.value_type, _entry_type(target))
        case pair:
            return pair in _SCALAR_CASTS


def cast_array(array: AnyArray, target: AnyType) -> AnyArray:
    """Return the values in the target type; raise ``CastError`` for the first bad value."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if array.type == target:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    match _kind(array.type), _kind(target):
        case _Kind.STRUCT, _Kind.STRUCT:
            return _cast_struct(array, target)
        case _Kind.LIST, _Kind.LIST:
            return _cast_list(array, target)
        case _Kind.MAP | _Kind.LIST, _Kind.MAP:
            return _cast_map(array, target)
        case pair:
            return _cast_scalar(array, target, _SCALAR_CASTS[pair])


def shown(value: object) -> str:
    """Format a value for an error message; a long value is truncated."""
    text = str(value)
    if len(text) > _VALUE_SHOWN_MAX:
        text = text[:_VALUE_SHOWN_MAX] + "…"
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) else text


def _kind(arrow: AnyType) -> _Kind | None:
    if pa.types.is_timestamp(arrow):
        return _Kind.TIMESTAMP_NTZ if arrow.tz is None else _Kind.TIMESTAMP
    return next((kind for fits, kind in _KINDS if fits(arrow)), None)


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], _Kind], ...] = (
    (pa.types.is_boolean, _Kind.BOOLEAN),
    (pa.types.is_integer, _Kind.INTEGER),
    (pa.types.is_floating, _Kind.FLOATING),
    (pa.types.is_decimal, _Kind.DECIMAL),
    (pa.types.is_string, _Kind.STRING),
    (pa.types.is_large_string, _Kind.STRING),
    (pa.types.is_string_view, _Kind.STRING),
    (pa.types.is_binary, _Kind.BINARY),
    (pa.types.is_large_binary, _Kind.BINARY),
    (pa.types.is_fixed_size_binary, _Kind.BINARY),
    (pa.types.is_date, _Kind.DATE),
    (list_like, _Kind.LIST),
    (pa.types.is_map, _Kind.MAP),
    (pa.types.is_struct, _Kind.STRUCT),
)


def _can_cast_struct(source: AnyType, target: AnyType) -> bool:
    if not (pa.types.is_struct(source) and pa.types.is_struct(target)):
        return False
    type_by_name = {field.name: field.type for field in source}
    names = {field.name for field in target}
    # A field that the target lacks would be lost silently.
    return type_by_name.keys() <= names and all(
        can_cast(type_by_name[field.name], field.type)
        if field.name in type_by_name
        else field.nullable
        for field in target
    )


def _cast_struct(array: NestedArray, target: AnyType) -> AnyArray:
    child_by_name = dict(
        zip((field.name for field in array.type), array.flatten(), strict=True)
    )
    children: list[AnyArray] = []
    errors: list[CastError] = []
    for field in target:
        child = child_by_name.get(field.name)
        if child is None:
            child = pa.nulls(len(array), field.type)
        try:
            children.append(cast_array(child, field.type))
            _require_values(child, field, present=array.is_valid())
        except CastError as error:
            errors.append(CastError(error.row, error.reason, (field.name, *error.path)))
    if errors:
        raise min(errors, key=lambda error: error.row)
    return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())


def _require_values(child: AnyArray, field: AnyField, *, present: AnyArray) -> None:
    if field.nullable or not child.null_count:
        return
    missing = pc.index(pc.and_(present, child.is_null()), value=True).as_py()
    if missing >= 0:
        raise CastError(missing, f"expected {data_type(field.type).sql}, found NULL")


def _cast_list(array: NestedArray, target: AnyType) -> AnyArray:
    offsets, values = _unnested(array)
    values = _cast_nested(values, target.value_type, offsets)
    return pa.ListArray.from_arrays(offsets, values, type=target, mask=array.is_null())


def _cast_map(array: NestedArray, target: AnyType) -> AnyArray:
    if pa.types.is_map(array.type):
        # Arrow returns the values of a sliced map only through the list of its entries.
        array = array.cast(pa.list_(_entry_type(array.type)))
    offsets, entries = _unnested(array)
    entries = _cast_nested(entries, _entry_type(target), offsets)
    keys, items = entries.flatten()
    return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=array.is_null())


def _entry_type(arrow: AnyType) -> pa.DataType:
    return pa.struct(
        [pa.field("key", arrow.key_type, nullable=False), pa.field("value", arrow.item_type)]
    )


def _unnested(array: NestedArray) -> tuple[NestedArray, NestedArray]:
    """Return the offsets and values of the rows of a list, even if it is a slice."""
    lengths: NestedArray = pc.list_value_length(array)
    ends = pc.cumulative_sum(lengths.fill_null(0)).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), ends]), array.flatten()


def _cast_nested(values: AnyArray, target: AnyType, offsets: NestedArray) -> NestedArray:
    try:
        return cast_array(values, target)
    except CastError as error:
        before = sum(offset <= error.row for offset in offsets.to_pylist())
        raise CastError(before - 1, error.reason, error.path) from error


_ScalarCast = Callable[[Any, Any], AnyArray]


def _cast_scalar(array: AnyArray, target: AnyType, cast: _ScalarCast) -> AnyArray:
    try:
        return cast(array, target)
    except pa.ArrowInvalid as error:
        row, _ = next(
            bad_rows(
                len(array),
                lambda first, count: cast(array.slice(first, count), target),
                pa.ArrowInvalid,
            ),
            (0, error),
        )
        reason = f"expected {data_type(target).sql}, found {shown(array[row].as_py())}"
        raise CastError(row, reason) from error


def _exactly(array: AnyArray, target: AnyType) -> AnyArray:
    return array.cast(target)


def _integer_to_floating(array: AnyArray, target: AnyType) -> AnyArray:
    # A floating type keeps only the leading digits of a long integer.
    return array.cast(target, safe=False)


def _floating_to_floating(array: AnyArray, target: AnyType) -> AnyArray:
    values = array.cast(target)
    require(pc.or_(pc.invert(pc.is_inf(values)), pc.is_inf(array)))
    return values


def _decimal_to_floating(array: AnyArray, target: AnyType) -> AnyArray:
    # Convert through text, because the last digit of Arrow's own conversion may be wrong.
    return array.cast(pa.string()).cast(target)


def _number_to_decimal(array: AnyArray, target: AnyType) -> AnyArray:
    # The printed number is rounded, not the binary one: 1.005 becomes 1.01.
    return text_to_decimal(array.cast(pa.string()), target)


_SCALAR_CASTS: dict[tuple[_Kind | None, _Kind | None], _ScalarCast] = {
    (_Kind.BOOLEAN, _Kind.STRING): _exactly,
    (_Kind.INTEGER, _Kind.INTEGER): _exactly,
    (_Kind.INTEGER, _Kind.FLOATING): _integer_to_floating,
    (_Kind.INTEGER, _Kind.DECIMAL): _number_to_decimal,
    (_Kind.INTEGER, _Kind.STRING): _exactly,
    (_Kind.FLOATING, _Kind.INTEGER): _exactly,
    (_Kind.FLOATING, _Kind.FLOATING): _floating_to_floating,
    (_Kind.FLOATING, _Kind.DECIMAL): _number_to_decimal,
    (_Kind.FLOATING, _Kind.STRING): floating_to_text,
    (_Kind.DECIMAL, _Kind.INTEGER): _exactly,
    (_Kind.DECIMAL, _Kind.FLOATING): _decimal_to_floating,
    (_Kind.DECIMAL, _Kind.DECIMAL): round_decimals,
    (_Kind.DECIMAL, _Kind.STRING): decimal_to_text,
    (_Kind.STRING, _Kind.BOOLEAN): parse_with_arrow,
    (_Kind.STRING, _Kind.INTEGER): text_to_integer,
    (_Kind.STRING, _Kind.FLOATING): text_to_floating,
    (_Kind.STRING, _Kind.DECIMAL): text_to_decimal,
    (_Kind.STRING, _Kind.STRING): _exactly,
    (_Kind.STRING, _Kind.BINARY): _exactly,
    (_Kind.STRING, _Kind.DATE): parse_with_arrow,
    (_Kind.STRING, _Kind.TIMESTAMP): text_to_timestamp,
    (_Kind.STRING, _Kind.TIMESTAMP_NTZ): parse_with_arrow,
    (_Kind.BINARY, _Kind.STRING): _exactly,
    (_Kind.BINARY, _Kind.BINARY): _exactly,
    (_Kind.DATE, _Kind.DATE): _exactly,
    (_Kind.DATE, _Kind.STRING): _exactly,
    (_Kind.DATE, _Kind.TIMESTAMP): _exactly,
    (_Kind.DATE, _Kind.TIMESTAMP_NTZ): _exactly,
    (_Kind.TIMESTAMP, _Kind.TIMESTAMP): _exactly,
    (_Kind.TIMESTAMP, _Kind.STRING): timestamp_to_text,
    (_Kind.TIMESTAMP_NTZ, _Kind.TIMESTAMP_NTZ): _exactly,
    (_Kind.TIMESTAMP_NTZ, _Kind.STRING): timestamp_to_text,
}
