"""Decode one JSON record in Python, keeping what Python's own decoder would lose.

A number keeps its text, because a STRING or a DECIMAL column wants all of its digits. A
repeated key is remembered, because the value to load is then anyone's guess.
"""

import json
from typing import Any

from penstock.storage.casts import shown

_BLANK = " \t\r\n"


class BadRecordError(ValueError):
    """A line that cannot be loaded; its text says why, in words for the user."""


class IntegerText(str):
    """A JSON number without fraction or exponent, as written."""

    __slots__ = ()


class FloatingText(str):
    """A JSON number with a fraction or an exponent, as written."""

    __slots__ = ()


class ForeignConstant(str):
    """NaN or Infinity, which some programs write although JSON has no such values."""

    __slots__ = ()


class AmbiguousObject(dict[str, Any]):
    """A JSON object in which some keys occur more than once."""

    __slots__ = ("repeated",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        keys = [key for key, _ in pairs]
        self.repeated = frozenset(key for key in keys if keys.count(key) > 1)


def decode_record(line: bytes) -> dict[str, Any]:
    """Read the one JSON object of a line."""
    text = _text(line)
    begin = text.lstrip(_BLANK)
    if not begin.startswith("{"):
        raise BadRecordError(f'a record must begin with "{{", found {shown(begin)}')
    record: dict[str, Any] = _decoded(text)
    return record


def decode_document(line: bytes) -> Any:  # noqa: ANN401 - Any JSON value.
    """Read the one JSON value of a line, whatever it is."""
    return _decoded(_text(line))


def _decoded(text: str) -> Any:  # noqa: ANN401
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise BadRecordError(_reason(error)) from error
    except RecursionError as error:
        raise BadRecordError("the record is nested too deeply") from error


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise BadRecordError(f"byte {error.start + 1} of the line is not UTF-8") from error


def _reason(error: json.JSONDecodeError) -> str:
    if error.msg == "Extra data":
        return f"the record ends before character {error.pos + 1}, but the line goes on"
    return f"the JSON is broken at character {error.pos + 1}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    return plain if len(plain) == len(pairs) else AmbiguousObject(pairs)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=IntegerText,
    parse_float=FloatingText,
    parse_constant=ForeignConstant,
)
