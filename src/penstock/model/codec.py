"""Convert values to JSON and back, field by field.

Invariant: every field of every dataclass is written unless it opts out with
``metadata={"transient": True}``. A decoded value equals the value that was encoded. A field
that is missing in the stored text gets its default. A stored field that the class lacks is an
error. Ignoring such a field would lose data of a newer version.
"""

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from penstock.errors import InvariantError

_T = TypeVar("_T")
_TAG = "is"


def _cached(function: Callable[[Any], _T]) -> Callable[[Any], _T]:
    """Cache a function of a type; the type checker does not accept types as hashable."""
    return cache(function)


def to_text(value: object) -> str:
    """Write a value as one line of JSON."""
    return json.dumps(encode(value), ensure_ascii=False, separators=(",", ":"))


def from_text(kind: type[_T], text: str) -> _T:
    """Read a value of the given class from JSON."""
    return from_data(kind, json.loads(text))


def from_data(kind: type[_T], data: object) -> _T:
    """Read a value of the given class from decoded JSON."""
    value = _decoder(kind)(data)
    if not isinstance(value, kind):
        raise InvariantError(f"stored value is {type(value).__name__}, not {kind.__name__}")
    return value


def encode(value: Any) -> Any:  # noqa: ANN401 - JSON has no narrower type.
    """Convert a value to types that the json module can write."""
    return _encoder(type(value))(value)


@_cached
def _encoder(kind: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - A class.
    """Return the function that encodes values of a class."""
    if is_dataclass(kind):
        return _dataclass_encoder(kind)  # type: ignore[arg-type]
    if issubclass(kind, Enum):
        return lambda value: value.value
    if issubclass(kind, datetime):
        return lambda value: value.astimezone(UTC).isoformat()
    if issubclass(kind, timedelta):
        return lambda value: value.total_seconds()
    if issubclass(kind, tuple | list):
        return lambda value: [_encoder(type(item))(item) for item in value]
    if issubclass(kind, Mapping):
        return lambda value: {str(key): encode(item) for key, item in value.items()}
    return lambda value: value


def _dataclass_encoder(kind: type) -> Callable[[Any], Any]:
    names = tuple(f.name for f in _stored_fields(kind))

    def write(value: Any) -> Any:  # noqa: ANN401
        data = {_TAG: kind.__name__}
        for name in names:
            item = getattr(value, name)
            data[name] = _encoder(type(item))(item)
        return data

    return write


@_cached
def _decoder(hint: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - Follows the hint.
    """Return the function that decodes values with a type hint."""
    if get_origin(hint) in (Union, types.UnionType):
        return _union_decoder(get_args(hint))
    if get_origin(hint) is tuple:
        item = _decoder(get_args(hint)[0])
        return lambda data: tuple([item(part) for part in data])
    if get_origin(hint) is Mapping:
        value = _decoder(get_args(hint)[1])
        return lambda data: {key: value(part) for key, part in data.items()}
    if is_dataclass(hint):
        return _dataclass_decoder(hint)
    if hint is datetime:
        return datetime.fromisoformat
    if hint is timedelta:
        return lambda data: timedelta(seconds=data)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    return lambda data: data


def _union_decoder(options: tuple[Any, ...]) -> Callable[[Any], Any]:
    tagged = [option for option in options if is_dataclass(option)]
    by_tag = {getattr(option, "__name__", ""): option for option in tagged}
    plain = [o for o in options if o is not type(None) and not is_dataclass(o)]
    read_plain = _decoder(plain[0]) if plain else None

    def read(data: Any) -> Any:  # noqa: ANN401
        if data is None:
            return None
        if isinstance(data, dict):
            if data.get(_TAG) not in by_tag:
                raise InvariantError(f'stored value has the unknown kind "{data.get(_TAG)}"')
            return _decoder(by_tag[data[_TAG]])(data)
        if read_plain is None:
            raise InvariantError(f'stored value "{data}" has no kind')
        return read_plain(data)

    return read


def _dataclass_decoder(kind: Any) -> Callable[[Any], Any]:  # noqa: ANN401
    hints = get_type_hints(kind)
    known = {f.name: f for f in _stored_fields(kind)}
    required = [
        name
        for name, f in known.items()
        if f.default is MISSING and f.default_factory is MISSING
    ]

    def read(data: dict[str, Any]) -> Any:  # noqa: ANN401
        unknown = data.keys() - known.keys() - {_TAG}
        if unknown:
            raise InvariantError(
                f"stored {kind.__name__} has fields unknown to this version: "
                + ", ".join(sorted(unknown))
            )
        missing = [name for name in required if name not in data]
        if missing:
            raise InvariantError(f"stored {kind.__name__} lacks {', '.join(missing)}")
        # Decoders are found here, not above, because a type may contain itself.
        given = (name for name in known if name in data)
        return kind(**{name: _decoder(hints[name])(data[name]) for name in given})

    return read


@cache
def _stored_fields(kind: type) -> tuple[Field[Any], ...]:
    return tuple(f for f in fields(kind) if not f.metadata.get("transient"))
