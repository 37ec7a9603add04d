"""Write decoded records again, with every value in the form that its column is read from.

Only what the columns need is written. A scalar for a STRING column becomes its JSON text, an
exact number is rounded to its column's scale, a MAP becomes a list of entries.
"""

from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from typing import Any

import pyarrow as pa

from penstock.sources.formats.blocks import column_message
from penstock.sources.formats.json_decode import (
    AmbiguousObject,
    BadRecordError,
    FloatingText,
    ForeignConstant,
    IntegerText,
)
from penstock.storage.arrow_types import AnyType, data_type, list_like
from penstock.storage.casts import shown
from penstock.storage.text_casts import decimal_from_text

Render = Callable[[Any], str]

_INTEGER_DIGITS_MAX = 20
# The smallest numbers that round to infinity in FLOAT and in DOUBLE.
_FLOATING_BOUND = {32: (2.0 - 2.0**-24) * 2.0**127, 64: float("inf")}


class _MisfitError(ValueError):
    """A value that its column cannot hold, with the way to it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path: tuple[str, ...] = ()


def record_renderer(schema: pa.Schema) -> Render:
    """Give the function that writes a decoded record for columns of the schema."""
    render = _struct(pa.struct(list(schema)))

    def render_record(record: dict[str, Any]) -> str:
        try:
            return render(record)
        except _MisfitError as error:
            raise BadRecordError(column_message(error.path, str(error))) from error

    return render_record


def _renderer(arrow: AnyType) -> Render:
    for fits, make in _MAKERS:
        if fits(arrow):
            return make(arrow)
    raise TypeError(f"no JSON value is read as {arrow}")


def _misfit(arrow: AnyType, value: object) -> _MisfitError:
    return _MisfitError(f"expected {data_type(arrow).sql}, found {shown_value(value)}")


def shown_value(value: object) -> str:
    """Write a decoded value for an error message, cut short."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case dict():
            return "an object"
        case list():
            return "an array"
        case IntegerText() | FloatingText() | ForeignConstant():
            return shown(value)[1:-1]
        case _:
            return shown(str(value))


def _boolean(arrow: AnyType) -> Render:
    def render(value: object) -> str:
        if value is True:
            return "true"
        if value is False:
            return "false"
        raise _misfit(arrow, value)

    return render


def _integer(arrow: AnyType) -> Render:
    low, high = -(2 ** (arrow.bit_width - 1)), 2 ** (arrow.bit_width - 1) - 1

    def render(value: object) -> str:
        if (
            isinstance(value, IntegerText)
            and len(value) <= _INTEGER_DIGITS_MAX
            and low <= int(value) <= high
        ):
            return value
        raise _misfit(arrow, value)

    return render


def _floating(arrow: AnyType) -> Render:
    bound = _FLOATING_BOUND[arrow.bit_width]

    def render(value: object) -> str:
        if isinstance(value, (IntegerText, FloatingText)) and abs(float(value)) < bound:
            return value
        raise _misfit(arrow, value)

    return render


def _decimal(arrow: AnyType) -> Render:
    def render(value: object) -> str:
        if isinstance(value, str) and not isinstance(value, ForeignConstant):
            try:
                return f'"{decimal_from_text(value.strip(), arrow):f}"'
            except pa.ArrowInvalid as error:
                raise _misfit(arrow, value) from error
        raise _misfit(arrow, value)

    return render


def _string(arrow: AnyType) -> Render:
    def render(value: object) -> str:
        if isinstance(value, (IntegerText, FloatingText)):
            return f'"{value}"'
        if isinstance(value, bool):
            return '"true"' if value else '"false"'
        if type(value) is str:
            return _quoted(value)
        raise _misfit(arrow, value)

    return render


def _text(arrow: AnyType) -> Render:
    def render(value: object) -> str:
        if type(value) is str:
            return _quoted(value)
        raise _misfit(arrow, value)

    return render


def _quoted(value: str) -> str:
    quoted: str = encode_basestring_ascii(value)
    if "\\ud" in quoted:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _MisfitError("half of a surrogate pair is not a character") from error
    return quoted


def _list(arrow: AnyType) -> Render:
    element = _nullable(arrow.value_type, nullable=arrow.value_field.nullable)

    def render(value: object) -> str:
        if isinstance(value, list):
            return f"[{','.join([element(item) for item in value])}]"
        raise _misfit(arrow, value)

    return render


def _map(arrow: AnyType) -> Render:
    item = _nullable(arrow.item_type, nullable=arrow.item_field.nullable)

    def render(value: object) -> str:
        if not isinstance(value, dict):
            raise _misfit(arrow, value)
        if isinstance(value, AmbiguousObject):
            raise _repeated(min(value.repeated))
        entries = [f'{{"key":{_quoted(key)},"value":{item(at)}}}' for key, at in value.items()]
        return f"[{','.join(entries)}]"

    return render


def _nullable(arrow: AnyType, *, nullable: bool) -> Render:
    render = _renderer(arrow)
    if not nullable:
        return render
    return lambda value: "null" if value is None else render(value)


def _struct(arrow: AnyType) -> Render:
    fields = [
        (field.name, f"{_quoted(field.name)}:", _renderer(field.type), field.nullable)
        for field in arrow
    ]

    def render(value: object) -> str:
        if not isinstance(value, dict):
            raise _misfit(arrow, value)
        parts = []
        name = ""
        try:
            for name, prefix, render_field, nullable in fields:
                item = value.get(name)
                if item is not None or not nullable:
                    parts.append(prefix + render_field(item))
                if isinstance(value, AmbiguousObject) and name in value.repeated:
                    raise _repeated(name)
        except _MisfitError as error:
            error.path = (name, *error.path)
            raise
        return f"{{{','.join(parts)}}}"

    return render


def _repeated(key: str) -> _MisfitError:
    return _MisfitError(f"key {shown(key)} occurs more than once in its object")


_MAKERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Render]], ...] = (
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _string),
    (pa.types.is_binary, _text),
    (pa.types.is_date, _text),
    (pa.types.is_timestamp, _text),
    (list_like, _list),
    (pa.types.is_map, _map),
    (pa.types.is_struct, _struct),
)
