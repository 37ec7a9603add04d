"""A cast returns the result of exact arithmetic in Python, or refuses the value."""

import datetime as dt
import math
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.arrow.casts import CastError, cast_array

EXACT = Context(prec=500)
decimal_types = st.integers(1, 38).flatmap(
    lambda precision: st.integers(0, precision).map(
        lambda scale: pa.decimal128(precision, scale)
    )
)
texts_of_numbers = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9),
    st.decimals(allow_nan=False, allow_infinity=False),
).map(str)


def cast_one(value: object, source: pa.DataType, target: pa.DataType) -> Any:
    """Return the result of casting one value, or the word "refused"."""
    try:
        return cast_array(pa.array([value], source), target)[0].as_py()
    except CastError:
        return "refused"


def rounded(value: Decimal, target: Any) -> Decimal | str:
    exact = value.quantize(
        Decimal(1).scaleb(-target.scale), rounding=ROUND_HALF_UP, context=EXACT
    )
    fits = exact.copy_abs() < Decimal(10) ** (target.precision - target.scale)
    return exact if fits else "refused"


@settings(deadline=None, max_examples=200)
@given(value=st.integers(-(2**63), 2**63 - 1), width=st.sampled_from([8, 16, 32, 64]))
def test_an_integer_fits_or_is_refused(value: int, width: int) -> None:
    target = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[width]
    fits = -(2 ** (width - 1)) <= value < 2 ** (width - 1)

    assert cast_one(value, pa.int64(), target) == (value if fits else "refused")
    assert cast_one(str(value), pa.string(), target) == (value if fits else "refused")


@settings(deadline=None, max_examples=200)
@given(value=st.integers(-(2**63), 2**63 - 1), target=decimal_types)
def test_an_integer_becomes_an_exact_number(value: int, target: pa.DataType) -> None:
    assert cast_one(value, pa.int64(), target) == rounded(Decimal(value), target)


@settings(deadline=None, max_examples=200)
@given(value=st.floats(allow_nan=False, allow_infinity=False), target=decimal_types)
def test_a_double_is_rounded_by_its_decimal_text(value: float, target: pa.DataType) -> None:
    printed = Decimal(repr(value))
    expected = rounded(printed, target) if abs(printed) < 10**39 else "refused"

    assert cast_one(value, pa.float64(), target) == expected


@settings(deadline=None, max_examples=200)
@given(text=texts_of_numbers, target=decimal_types)
def test_a_text_becomes_an_exact_number(text: str, target: pa.DataType) -> None:
    value = Decimal(text)
    expected = rounded(value, target) if abs(value) < 10**39 else "refused"

    assert cast_one(text, pa.string(), target) == expected


@settings(deadline=None, max_examples=200)
@given(data=st.data(), source=decimal_types, target=decimal_types)
def test_an_exact_number_is_rounded_half_up(data: Any, source: Any, target: Any) -> None:
    digits = data.draw(st.integers(-(10**source.precision) + 1, 10**source.precision - 1))
    value = Decimal(digits).scaleb(-source.scale, context=EXACT)

    assert cast_one(value, source, target) == rounded(value, target)
    assert cast_one(value, source, pa.float64()) == float(value)
    assert cast_one(value, source, pa.string()) == f"{value:f}"


@settings(deadline=None, max_examples=200)
@given(value=st.floats())
def test_a_double_survives_a_round_trip_through_text(value: float) -> None:
    text = cast_one(value, pa.float64(), pa.string())
    again = cast_one(text, pa.string(), pa.float64())

    assert again == value or (math.isnan(again) and math.isnan(value))
    assert not math.isfinite(value) or text == repr(value)


@settings(deadline=None, max_examples=200)
@given(value=st.floats())
def test_a_double_becomes_an_integer_only_if_it_is_one(value: float) -> None:
    whole = math.isfinite(value) and value.is_integer() and -(2.0**63) <= value < 2.0**63

    assert cast_one(value, pa.float64(), pa.int64()) == (int(value) if whole else "refused")


@settings(deadline=None, max_examples=200)
@given(value=st.datetimes(), separator=st.sampled_from(" T"), minutes=st.integers(-839, 839))
def test_a_timestamp_is_parsed_in_its_zone(
    value: dt.datetime, separator: str, minutes: int
) -> None:
    zone = dt.timezone(dt.timedelta(minutes=minutes))
    local = pa.scalar(value.replace(tzinfo=zone), pa.timestamp("us", "UTC"))

    array = pa.array([value.replace(tzinfo=zone).isoformat(sep=separator), value.isoformat()])
    result = cast_array(array, pa.timestamp("us", "UTC"))

    assert result[0].equals(local)
    assert result[1].as_py() == value.replace(tzinfo=dt.UTC)


@settings(deadline=None, max_examples=200)
@given(value=st.datetimes())
def test_a_local_time_survives_a_round_trip_through_text(value: dt.datetime) -> None:
    text = cast_one(value, pa.timestamp("us"), pa.string())

    assert cast_one(text, pa.string(), pa.timestamp("us")) == value
    assert text.rstrip("0").rstrip(".") == str(value).rstrip("0").rstrip(".")
