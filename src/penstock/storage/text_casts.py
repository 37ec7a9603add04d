"""Read values from texts and write values as texts, a whole Arrow array at a time.

Every function raises ``pa.ArrowInvalid`` when one of the values does not fit; who asks finds
out which one.
"""

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

from penstock.storage.arrow_types import AnyArray, AnyType

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_INTEGER_TEXT = r"^[+-]?[0-9]+$"
_FLOATING_TEXT = rf"^(?:{_NUMBER}|NaN|[+-]?Infinity)$"
_NUMBER_TEXT = re.compile(rf"{_NUMBER}\Z")
# A colon must come before the zone, else the day of a plain date looks like an offset.
_ZONED = r":[0-9]{2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$"
_SCALE_MAX = 38
# Arrow wraps a number that overflows while it is brought to its scale, and makes a random
# one of many digits after the point. It is only given texts that 256 bits hold at any scale.
_WIDE_TEXT = r"^[+-]?[0-9]{1,28}(?:\.[0-9]{0,28})?(?:[eE][+-]?[0-9])?$"
# No digit of a text may be lost before it is rounded to the wanted scale, so the context
# is wider than any sum of digits that can still end inside 38.
_EXACT = Context(prec=400, Emax=10**6, Emin=-(10**6))
_SPARK_NAME = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def text_to_integer(array: AnyArray, target: AnyType) -> AnyArray:
    """Read integers written in decimal digits."""
    text = _trimmed(array)
    # Arrow itself would take hexadecimal digits, and refuse a plus.
    _require_match(text, _INTEGER_TEXT)
    return pc.utf8_ltrim(text, "+").cast(target)


def text_to_floating(array: AnyArray, target: AnyType) -> AnyArray:
    """Read floating numbers; one too large for the type is refused, not made infinite."""
    text = _trimmed(array)
    _require_match(text, _FLOATING_TEXT)
    values = text.cast(target)
    require(pc.or_(pc.invert(pc.is_inf(values)), pc.match_substring(text, "Infinity")))
    return values


def text_to_decimal(array: AnyArray, target: AnyType) -> AnyArray:
    """Read exact numbers, rounded half up to the target's scale."""
    text = _trimmed(array)
    attempts: tuple[Callable[..., AnyArray], ...] = (_exact_decimals, _rounded_decimals)
    for attempt in attempts:
        try:
            return attempt(text, target)
        except pa.ArrowInvalid:
            continue
    return _decimals_one_by_one(text, target)


def _exact_decimals(text: AnyArray, target: AnyType) -> AnyArray:
    return _wide_decimals(text, scale=target.scale).cast(target)


def _rounded_decimals(text: AnyArray, target: AnyType) -> AnyArray:
    return round_decimals(_wide_decimals(text, scale=_SCALE_MAX), target)


def _wide_decimals(text: AnyArray, *, scale: int) -> AnyArray:
    _require_match(text, _WIDE_TEXT)
    return text.cast(pa.decimal256(76, scale))


def _decimals_one_by_one(text: AnyArray, target: AnyType) -> AnyArray:
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
    """Bring exact numbers to the target's scale, rounded half up."""
    # Rounding may add a digit, so it happens with room to spare. Arrow narrows before it
    # changes the scale, so the scale changes while the numbers are still wide.
    wide = array.cast(pa.decimal256(76, array.type.scale))
    rounded = pc.round(wide, ndigits=target.scale, round_mode="half_towards_infinity")
    return rounded.cast(pa.decimal256(76, target.scale)).cast(target)


def text_to_boolean(array: AnyArray, target: AnyType) -> AnyArray:
    """Read true, false, 1 and 0, in any case."""
    return _trimmed(array).cast(target)


def text_to_date(array: AnyArray, target: AnyType) -> AnyArray:
    """Read dates written as 2026-11-15."""
    return _trimmed(array).cast(target)


def text_to_timestamp_ntz(array: AnyArray, target: AnyType) -> AnyArray:
    """Read local date-times; a zone is refused."""
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
    # Arrow finds those digits but drops the point of a whole number.
    texts = [None if text is None else repr(float(text)) for text in _texts(array)]
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
    """Write date-times in UTC, with no more fraction than they have."""
    texts = array.cast(pa.timestamp("us")).cast(target)
    return pc.replace_substring_regex(texts, pattern=r"\.?0+$", replacement="")


def require(fits: AnyArray) -> None:
    """Refuse when one of the truths, NULL aside, is false."""
    if pc.all(fits).as_py() is False:
        raise pa.ArrowInvalid("a value does not fit")


def _texts(array: AnyArray) -> list[str | None]:
    texts: list[str | None] = array.cast(pa.string()).to_pylist()
    return texts


def _trimmed(array: AnyArray) -> AnyArray:
    return pc.ascii_trim_whitespace(array.cast(pa.string()))


def _require_match(text: AnyArray, pattern: str) -> None:
    require(pc.match_substring_regex(text, pattern))
