"""Write decoded JSON values as JSON again, and read their numbers as texts."""

from copy import copy
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

import pyarrow as pa

from penstock.sources.formats.json_decode import (
    BadRecordError,
    FloatingText,
    ForeignConstant,
    IntegerText,
)
from penstock.storage.arrow_types import AnyType, list_like

_NUMBERS = (IntegerText, FloatingText)
_WRITTEN_AS_TEXT = (
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date,
    pa.types.is_timestamp,
)
_BOOLEAN_BY_NUMBER = {"1": True, "0": False}


def json_text(value: object) -> str:
    """Write a decoded value as JSON, numbers as they were written."""
    try:
        return _text(value)
    except RecursionError as error:
        raise BadRecordError("the record is nested too deeply") from error


def _text(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case IntegerText() | FloatingText():
            return str(value)
        case ForeignConstant():
            # JSON has no such value, but a text can say it.
            return _quoted(str(value))
        case dict():
            members = [f"{_quoted(key)}: {_text(item)}" for key, item in value.items()]
            return f"{{{', '.join(members)}}}"
        case list():
            return f"[{', '.join([_text(item) for item in value])}]"
        case _:
            return _quoted(str(value))


def _quoted(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair has no encoding; its escape has one.
        ascii_text: str = encode_basestring_ascii(text)
        return ascii_text
    quoted: str = encode_basestring(text)
    return quoted


def numbers_as_texts(value: Any, arrow: AnyType) -> Any:  # noqa: ANN401 - Any JSON value.
    """Give a value in which numbers that are not read as numbers are the text they have."""
    if isinstance(value, _NUMBERS):
        return _number(value, arrow)
    if isinstance(value, list) and list_like(arrow):
        return [numbers_as_texts(item, arrow.value_type) for item in value]
    if isinstance(value, dict) and pa.types.is_map(arrow):
        return _items(value, dict.fromkeys(value, arrow.item_type))
    if isinstance(value, dict) and pa.types.is_struct(arrow):
        return _items(value, {field.name: field.type for field in arrow})
    return value


def _items(value: dict[str, Any], type_by_key: dict[str, AnyType]) -> dict[str, Any]:
    # A copy keeps what the decoder has noticed about the keys.
    items = copy(value)
    for key in value.keys() & type_by_key.keys():
        items[key] = numbers_as_texts(value[key], type_by_key[key])
    return items


def _number(number: str, arrow: AnyType) -> object:
    if any(fits(arrow) for fits in _WRITTEN_AS_TEXT):
        return str(number)
    if pa.types.is_boolean(arrow):
        return _BOOLEAN_BY_NUMBER.get(number, number)
    return number
