"""Values to JSON and back, field by field.

Invariant: every field of every dataclass is written unless it opts out with
``metadata={"transient": True}``; a value that comes back equals the one that went in. A field
that the stored text lacks takes its default; a stored field that the class does not know is
refused, because dropping it would lose what a newer version had to say.
"""

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from penstock.errors import InvariantError

_T = TypeVar("_T")
_TAG = "is"


def to_text(value: object) -> str:
    """Write a value as one line of JSON."""
    return json.dumps(encode(value), ensure_ascii=False, separators=(",", ":"))


def from_text(kind: type[_T], text: str) -> _T:
    """Read a value of the given class back from JSON."""
    return from_data(kind, json.loads(text))


def from_data(kind: type[_T], data: object) -> _T:
    """Read a value of the given class back from decoded JSON."""
    value = _decode(kind, data)
    if not isinstance(value, kind):
        raise InvariantError(f"stored value is {type(value).__name__}, not {kind.__name__}")
    return value


def encode(value: object) -> Any:  # noqa: ANN401 - JSON has no narrower type.
    """Turn a value into what the json module writes."""
    if is_dataclass(value) and not isinstance(value, type):
        data = {f.name: encode(getattr(value, f.name)) for f in _stored_fields(type(value))}
        return {_TAG: type(value).__name__, **data}
    match value:
        case Enum():
            return value.value
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            return value.total_seconds()
        case tuple() | list():
            return [encode(item) for item in value]
        case Mapping():
            return {str(key): encode(item) for key, item in value.items()}
        case _:
            return value


def _decode(hint: Any, data: Any) -> Any:  # noqa: ANN401 - Follows the hint, whatever it is.
    if get_origin(hint) in (Union, types.UnionType):
        return _decode_union(get_args(hint), data)
    if get_origin(hint) is tuple:
        return tuple(_decode(get_args(hint)[0], item) for item in data)
    if is_dataclass(hint):
        return _decode_dataclass(hint, data)
    if hint is datetime:
        return datetime.fromisoformat(data)
    if hint is timedelta:
        return timedelta(seconds=data)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(data)
    return data


def _decode_union(options: tuple[Any, ...], data: Any) -> Any:  # noqa: ANN401
    if data is None:
        return None
    if isinstance(data, dict):
        for option in options:
            if is_dataclass(option) and getattr(option, "__name__", "") == data.get(_TAG):
                return _decode_dataclass(option, data)
        raise InvariantError(f'stored value has the unknown kind "{data.get(_TAG)}"')
    plain = next(o for o in options if o is not type(None) and not is_dataclass(o))
    return _decode(plain, data)


def _decode_dataclass(kind: Any, data: dict[str, Any]) -> Any:  # noqa: ANN401
    hints = _hints(kind)
    known = {f.name: f for f in _stored_fields(kind)}
    unknown = data.keys() - known.keys() - {_TAG}
    if unknown:
        names = ", ".join(sorted(unknown))
        raise InvariantError(
            f"stored {kind.__name__} has fields unknown to this version: {names}"
        )
    missing = [name for name, f in known.items() if name not in data and not _has_default(f)]
    if missing:
        raise InvariantError(f"stored {kind.__name__} lacks {', '.join(missing)}")
    return kind(**{name: _decode(hints[name], data[name]) for name in known if name in data})


def _has_default(f: Field[Any]) -> bool:
    return f.default is not MISSING or f.default_factory is not MISSING


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _stored_fields(kind: type) -> tuple[Field[Any], ...]:
    return tuple(f for f in fields(kind) if not f.metadata.get("transient"))
