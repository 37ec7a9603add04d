"""Decode, address and write JSON values without losing digits or duplicates.

Numbers are decoded as texts, because STRING and DECIMAL columns need all digits. Repeated keys
are recorded, because their value is ambiguous.
"""

import json
import re
from copy import copy
from dataclasses import dataclass
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

import pyarrow as pa

from penstock.arrow.casts import shown
from penstock.arrow.types import AnyType, list_like
from penstock.errors import Code, UserError

_BLANK = " \t\r\n"


class BadRecordError(ValueError):
    """A record that cannot be loaded; the message is for the user."""


class IntegerText(str):
    """A JSON number without fraction or exponent, as written."""

    __slots__ = ()


class FloatingText(str):
    """A JSON number with a fraction or an exponent, as written."""

    __slots__ = ()


class ForeignConstant(str):
    """NaN or Infinity, which some programs write although they are not JSON."""

    __slots__ = ()


class AmbiguousObject(dict[str, Any]):
    """A JSON object in which some keys occur more than once."""

    __slots__ = ("repeated",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        keys = [key for key, _ in pairs]
        self.repeated = frozenset(key for key in keys if keys.count(key) > 1)


def decode_record(line: bytes) -> dict[str, Any]:
    """Decode a line that must be one JSON object."""
    text = _text(line)
    stripped = text.lstrip(_BLANK)
    if not stripped.startswith("{"):
        raise BadRecordError(f'a record must start with "{{", found {shown(stripped)}')
    record: dict[str, Any] = _decoded(text)
    return record


def decode_document(line: bytes) -> Any:  # noqa: ANN401 - Any JSON value.
    """Decode a line that must be one JSON value of any kind."""
    return _decoded(_text(line))


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise BadRecordError(f"byte {error.start + 1} of the line is not UTF-8") from error


def _decoded(text: str) -> Any:  # noqa: ANN401
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        place = f"character {error.pos + 1}"
        if error.msg == "Extra data":
            reason = f"the line has more text after the record, at {place}"
        else:
            reason = f"the JSON is broken at {place}"
        raise BadRecordError(reason) from error
    except RecursionError as error:
        raise BadRecordError("the record is nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    return plain if len(plain) == len(pairs) else AmbiguousObject(pairs)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=IntegerText,
    parse_float=FloatingText,
    parse_constant=ForeignConstant,
)


_WRITTEN_AS_TEXT = (
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date,
    pa.types.is_timestamp,
)
_BOOLEAN_BY_NUMBER = {"1": True, "0": False}


def json_text(value: object) -> str:
    """Return a decoded value as JSON, with the original text of numbers."""
    try:
        return _json_text(value)
    except RecursionError as error:
        raise BadRecordError("the record is nested too deeply") from error


def _json_text(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case IntegerText() | FloatingText():
            return str(value)
        case ForeignConstant():
            # JSON has neither NaN nor Infinity, so these values become strings.
            return _quoted(str(value))
        case dict():
            members = [f"{_quoted(key)}: {_json_text(item)}" for key, item in value.items()]
            return f"{{{', '.join(members)}}}"
        case list():
            return f"[{', '.join([_json_text(item) for item in value])}]"
        case _:
            return _quoted(str(value))


def _quoted(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half a surrogate pair has no UTF-8 encoding, so it is escaped.
        ascii_text: str = encode_basestring_ascii(text)
        return ascii_text
    quoted: str = encode_basestring(text)
    return quoted


def shown_value(value: object) -> str:
    """Return a decoded value for an error message, truncated."""
    match value:
        case None | bool():
            return json_text(value)
        case dict():
            return "an object"
        case list():
            return "an array"
        case IntegerText() | FloatingText() | ForeignConstant():
            return shown(value)[1:-1]
        case _:
            return shown(str(value))


def numbers_as_texts(value: Any, arrow: AnyType) -> Any:  # noqa: ANN401 - Any JSON value.
    """Return a value with numbers replaced by their texts where the type is not numeric."""
    if isinstance(value, (IntegerText, FloatingText)):
        if any(fits(arrow) for fits in _WRITTEN_AS_TEXT):
            return str(value)
        return _BOOLEAN_BY_NUMBER.get(value, value) if pa.types.is_boolean(arrow) else value
    if isinstance(value, list) and list_like(arrow):
        return [numbers_as_texts(item, arrow.value_type) for item in value]
    if isinstance(value, dict) and pa.types.is_map(arrow):
        return _items(value, dict.fromkeys(value, arrow.item_type))
    if isinstance(value, dict) and pa.types.is_struct(arrow):
        return _items(value, {field.name: field.type for field in arrow})
    return value


def _items(value: dict[str, Any], type_by_key: dict[str, AnyType]) -> dict[str, Any]:
    # ``copy`` preserves the repeated keys of an AmbiguousObject.
    items = copy(value)
    for key in value.keys() & type_by_key.keys():
        items[key] = numbers_as_texts(value[key], type_by_key[key])
    return items


_STEP = re.compile(
    r"""
      \.(?P<name>[^\s.\[\]'"*]+)
    | \[(?P<index>[0-9]{1,9})\]
    | \[(?P<quote>['"])(?P<quoted>(?:(?!(?P=quote))[^\\]|\\.)*)(?P=quote)\]
    """,
    re.VERBOSE | re.DOTALL,
)
_WILDCARD = re.compile(r"\[\*\]|\.\*|\.\.")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class NoSuchPartError(LookupError):
    """A path that does not exist in a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonPath:
    """A path into a document: its text, and its keys and indexes."""

    text: str
    steps: tuple[str | int, ...]

    def part_of(self, document: object) -> Any:  # noqa: ANN401 - Any JSON value.
        """Return the part at the path; raise ``NoSuchPartError`` if there is none."""
        part: Any = document
        for step in self.steps:
            part = _follow(part, step)
        return part


def _follow(part: Any, step: str | int) -> Any:  # noqa: ANN401 - Any JSON value.
    match step, part:
        case str(), dict():
            if isinstance(part, AmbiguousObject) and step in part.repeated:
                raise BadRecordError(f"key {shown(step)} occurs more than once in its object")
            if step in part:
                return part[step]
        case int(), list() if step < len(part):
            return part[step]
    raise NoSuchPartError


def json_path(text: str, *, option: str) -> JsonPath:
    """Parse a path; raise ``UserError`` that names the option."""
    steps: list[str | int] = []
    at = 1 if text.startswith("$") else 0
    while at and at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise _unknown_step(text, at, option=option)
        if step["index"] is not None:
            steps.append(int(step["index"]))
        else:
            steps.append(step["name"] or _ESCAPED.sub(r"\1", step["quoted"]))
        at = step.end()
    if not at:
        raise UserError(
            f'path in option "{option}" must start with $, not {shown(text)}',
            code=Code.OPTION_ERR,
            hint="For example, write $.customer.city, $.lines[0].price or $['odd name'].",
        )
    return JsonPath(text=text, steps=tuple(steps))


def _unknown_step(text: str, at: int, *, option: str) -> UserError:
    wildcard = _WILDCARD.match(text, at)
    if wildcard:
        return UserError(
            f'path {shown(text)} in option "{option}" must have one value; the wildcard'
            f' "{wildcard[0]}" is not supported',
            code=Code.OPTION_ERR,
            hint="Write an index, such as [0], or load the whole array as an ARRAY column.",
        )
    return UserError(
        f'path {shown(text)} in option "{option}" must have steps of the form .name, [0] or'
        f" ['odd name'], not {shown(text[at:])}",
        code=Code.OPTION_ERR,
        hint="For example, write $.customer.city, $.lines[0].price or $['odd name'].",
    )
