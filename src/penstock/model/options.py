"""Typed options: declare once; parse, print, explain.

An option is a field of a frozen dataclass that ``option(...)`` declares. Parsing, printing and
the reference documentation use the same declaration, so printed options are always accepted.
A field that ``group(...)`` declares holds a nested class of options. Users write the nested
options next to those of the outer class.
"""

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from datetime import timedelta
from enum import Enum
from types import NoneType
from typing import Any, Protocol, TypeVar, get_args, get_type_hints

from penstock.errors import UserError
from penstock.model.secrets import Origins, is_mask, origins_of, shown_value

_T = TypeVar("_T")
_ORIGINS = "origins"
_SPELLED = "spelled"
# Returns the value of an option, given its key and a text that may be a reference.
Reveal = Callable[[str, str], str]


class _HasOrigins(Protocol):
    """Options whose texts may be references to secrets."""

    @property
    def origins(self) -> Origins:
        """The references that values come from; messages show a reference, never its value."""
        ...


_O = TypeVar("_O", bound=_HasOrigins)

_DIGITS_MAX = 30
_NUMBER_AND_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*\Z")
_SECONDS_BY_UNIT = {
    "": 1.0, "ms": 0.001, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hour": 3600.0, "hours": 3600.0, "d": 86400.0, "day": 86400.0, "days": 86400.0,
}  # fmt: skip
_SECONDS_MAX = 10 * 365 * 86400
_BYTES_BY_UNIT = {
    "": 1, "b": 1, "k": 2**10, "kb": 2**10, "kib": 2**10, "m": 2**20, "mb": 2**20, "mib": 2**20,
    "g": 2**30, "gb": 2**30, "gib": 2**30, "t": 2**40, "tb": 2**40, "tib": 2**40,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The declaration of an option."""

    explanation: str
    # The key in SQL; None: the name of the field.
    key: str | None = None
    # Other keys of the same option, each with the unit of a bare number. The class needs a
    # field ``spelled``, which stores the key that was given.
    aliases: Mapping[str, str] = field(default_factory=dict)
    at_least: Any = None
    at_most: Any = None
    unit: str = ""
    # The text that means None.
    none_word: str = ""
    secret: bool = False


def option(explanation: str, *, default: Any = MISSING, **rule: Any) -> Any:  # noqa: ANN401 - As dataclasses.field.
    """Declare an option as a dataclass field; the keywords are the fields of ``Rule``."""
    declared = Rule(explanation=explanation, **rule)
    return field(default=default, repr=not declared.secret, metadata={"option": declared})


def open_options(prefix: str, explanation: str) -> Any:  # noqa: ANN401 - As option().
    """Declare a field that holds all options whose keys start with a prefix.

    The value of the field is a tuple of pairs: the key without the prefix, and the text.
    """
    return field(default=(), metadata={"prefix": prefix, "explanation": explanation})


def group(kind: type[_T]) -> _T:
    """Declare a field that holds a nested class of options, all of which have defaults."""
    declared: _T = field(default=kind(), metadata={"group": kind})
    return declared


# Names of fields, each with the key with which the user set the option. A comparison of options
# ignores these keys.
Spelled = tuple[tuple[str, str], ...]


def parse_options(
    kind: type[_T],
    pairs: Iterable[tuple[str, str]],
    *,
    what: str,
    also: tuple[str, ...] = (),
    origins: Origins = (),
) -> _T:
    """Parse options given as text; raise UserError for unknown or missing keys and bad values.

    ``also`` lists further allowed keys, which the caller handles. ``origins`` lists keys whose
    values must not appear in messages, with the references to show instead.
    """
    given = dict(pairs)
    by_key = {option_key(f): f for f in option_fields(kind)}
    by_alias = {alias: f for f in option_fields(kind) for alias in rule_of(f).aliases}
    prefixes = tuple(f.metadata["prefix"] for f in open_fields(kind))
    known = {*by_key, *by_alias}
    unknown = [key for key in given if key not in known and not key.startswith(prefixes)]
    if unknown:
        raise _unknown(
            unknown,
            allowed=sorted([*known, *also, *(f"{prefix}…" for prefix in prefixes)]),
            what=what,
        )
    missing = [k for k, f in by_key.items() if k not in given and f.default is MISSING]
    if missing:
        names = ", ".join(f'"{key}"' for key in missing)
        raise UserError(
            f"{what} requires {names}",
            hint=f'Add "{missing[0]}" = "…": {rule_of(by_key[missing[0]]).explanation}',
        )
    return _built(kind, given, origins)


def _built(kind: type[_T], given: dict[str, str], origins: Origins) -> _T:
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for declared in fields(kind):  # type: ignore[arg-type] # Options are dataclasses.
        if "group" in declared.metadata:
            values[declared.name] = _built(declared.metadata["group"], given, origins)
        elif prefix := declared.metadata.get("prefix"):
            found = ((key, text) for key, text in given.items() if key.startswith(prefix))
            values[declared.name] = tuple((key.removeprefix(prefix), t) for key, t in found)
        elif "option" in declared.metadata and (key := _given_key(declared, given)) is not None:
            text, hint = given[key], hints[declared.name]
            shown = shown_value(key, text, origins)
            rule = rule_of(declared)
            if rule.aliases:
                values[_SPELLED] = (*values.get(_SPELLED, ()), (declared.name, key))
                rule = replace(rule, unit=rule.aliases.get(key, rule.unit))
            values[declared.name] = _parse_value(text, hint, rule, key, shown)
    return kind(**values)


def _given_key(declared: Field[Any], given: Mapping[str, str]) -> str | None:
    """Return the key with which the user set an option; raise UserError for two keys."""
    rule = rule_of(declared)
    found = [key for key in (option_key(declared), *rule.aliases) if key in given]
    if len(found) > 1:
        raise UserError(
            f'options "{found[0]}" and "{found[1]}" are the same option',
            hint=f"Remove one of them. {rule.explanation}",
        )
    return found[0] if found else None


def merge_options(value: object, given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return options as text, after the given changes.

    A given key also replaces the other keys of the same option.
    """
    changes = dict(given)
    spellings = {
        key: {option_key(f), *rule_of(f).aliases}
        for f in option_fields(type(value))
        for key in (option_key(f), *rule_of(f).aliases)
    }
    replaced = {old for key in changes for old in spellings.get(key, ())}
    kept = {key: text for key, text in print_options(value) if key not in replaced}
    return {**kept, **changes}


def print_options(value: object) -> tuple[tuple[str, str], ...]:
    """Write options as text; omit options that have their default value."""
    spelled = dict(getattr(value, _SPELLED, ()))
    changed = [
        (spelled.get(f.name, option_key(f)), _print_value(given, rule_of(f)))
        for f, given in _declared(value)
        if f.default is MISSING or given != f.default
    ]
    opened = [
        (f"{f.metadata['prefix']}{key}", text)
        for f in open_fields(type(value))
        for key, text in getattr(value, f.name)
    ]
    return (*changed, *opened)


def open_fields(kind: type) -> tuple[Field[Any], ...]:
    """Return the fields of a class that hold options by prefix."""
    return tuple(f for f in fields(kind) if "prefix" in f.metadata)


def all_options(value: object) -> tuple[tuple[str, str], ...]:
    """Write all options as text, including those that have their default value."""
    return tuple((option_key(f), _print_value(v, rule_of(f))) for f, v in _declared(value))


def plain_options(value: object) -> tuple[tuple[str, str], ...]:
    """Write all options as text without units: in the unit of a bare number, or in bytes."""
    return tuple((option_key(f), _print_plain(v, rule_of(f))) for f, v in _declared(value))


def _print_plain(value: object, rule: Rule) -> str:
    if isinstance(value, timedelta):
        factor = 1_000 if rule.unit == "milliseconds" else 1
        return print_duration(value * factor).removesuffix("s")
    plain = rule.unit == "bytes" and value is not None
    return str(value) if plain else _print_value(value, rule)


def _declared(value: object) -> Iterator[tuple[Field[Any], Any]]:
    for f in fields(value):  # type: ignore[arg-type] # Options are dataclasses.
        given = getattr(value, f.name)
        if "group" in f.metadata:
            yield from _declared(given)
        elif "option" in f.metadata:
            yield f, given


def secret_options(value: object) -> tuple[tuple[str, str], ...]:
    """Return keys and values of the secret options that are set."""
    return tuple(
        (option_key(f), given) for f, given in _declared(value) if rule_of(f).secret and given
    )


def option_fields(kind: type) -> tuple[Field[Any], ...]:
    """Return the fields of a class, and of its groups, that are options."""
    found: list[Field[Any]] = []
    for f in fields(kind):
        if "group" in f.metadata:
            found += option_fields(f.metadata["group"])
        elif "option" in f.metadata:
            found.append(f)
    return tuple(found)


def option_key(f: Field[Any]) -> str:
    """Return the key that an option has in SQL."""
    return rule_of(f).key or f.name


def rule_of(f: Field[Any]) -> Rule:
    """Return the declaration of an option."""
    rule: Rule = f.metadata["option"]
    return rule


def parse_duration(text: str, *, what: str, shown: str = "", bare_unit: str = "s") -> timedelta:
    """Read a duration such as ``10``, ``10s``, ``5m`` or ``1.5h``.

    A bare number has the unit ``bare_unit``, by default seconds.
    """
    shown = shown or f'"{text}"'
    factor_by_unit = _SECONDS_BY_UNIT | {"": _SECONDS_BY_UNIT[bare_unit]}
    seconds = _measure(text, factor_by_unit, what, shown, example="10s, 5m or 1h")
    if seconds > _SECONDS_MAX:
        raise UserError(f"{what} must be at most 10 years, not {shown}")
    return timedelta(seconds=seconds)


def parse_size(text: str, *, what: str, shown: str = "") -> int:
    """Read a size such as ``1048576``, ``256MB`` or ``10GiB``; a bare number is bytes."""
    shown = shown or f'"{text}"'
    return int(_measure(text, _BYTES_BY_UNIT, what, shown, example="1048576, 256MB or 10GB"))


def _measure(
    text: str, factor_by_unit: dict[str, Any], what: str, shown: str, *, example: str
) -> float:
    match = _NUMBER_AND_UNIT.match(text)
    factor = factor_by_unit.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise UserError(
            f"{what} must be a number with an optional unit, not {shown}",
            hint=f"Write for example {example}.",
        )
    if len(match[1]) > _DIGITS_MAX:
        raise UserError(f"{what} has more than {_DIGITS_MAX} digits")
    number = float(match[1]) if "." in match[1] else int(match[1])
    result: float = number * factor
    return result


def _unknown(unknown: list[str], *, allowed: list[str], what: str) -> UserError:
    near = difflib.get_close_matches(unknown[0], allowed, n=1)
    guess = f'Did you mean "{near[0]}"? ' if near else ""
    names = ", ".join(f'"{key}"' for key in unknown)
    return UserError(
        f"{what} has no option{'s' if len(unknown) > 1 else ''} {names}",
        hint=f"{guess}Allowed: {', '.join(allowed)}.",
    )


def _parse_value(text: str, hint: Any, rule: Rule, key: str, shown: str) -> object:  # noqa: ANN401
    what = f'option "{key}"'
    if rule.secret and is_mask(text):
        raise UserError(
            f"{what} must not be {text}, which is the mask of a hidden value",
            hint="Type the value again, or use SECRET 'name', 'env:VARIABLE' or 'file:/path'.",
        )
    if rule.none_word:
        if text.strip().lower() == rule.none_word:
            return None
        (hint,) = (kind for kind in get_args(hint) if kind is not NoneType)
    value = _converted(text, hint, what, shown, unit=rule.unit)
    for bound, word, broken in (
        (rule.at_least, "at least", rule.at_least is not None and value < rule.at_least),
        (rule.at_most, "at most", rule.at_most is not None and value > rule.at_most),
    ):
        if broken:
            bare = shown.strip('"')
            raise UserError(f"{what} must be {word} {_print_value(bound, rule)}, not {bare}")
    return value


def _converted(text: str, hint: Any, what: str, shown: str, *, unit: str) -> Any:  # noqa: ANN401
    if hint is timedelta:
        bare_unit = "ms" if unit == "milliseconds" else "s"
        return parse_duration(text, what=what, shown=shown, bare_unit=bare_unit)
    if unit == "bytes":
        return parse_size(text, what=what, shown=shown)
    convert, allowed = _converter(hint)
    try:
        return convert(text)
    except (KeyError, ValueError) as error:
        raise UserError(f"{what} must be {allowed}, not {shown}") from error


def _converter(hint: Any) -> tuple[Callable[[str], object], str]:  # noqa: ANN401 - A class.
    """Return the function that converts a text to a class, and the allowed values."""
    if issubclass(hint, Enum):
        allowed = ", ".join(str(member.value) for member in hint)
        return (lambda text: hint(text.lower())), f"one of {allowed}"
    if hint is bool:
        word_value = {"true": True, "false": False}
        return (lambda text: word_value[text.strip().lower()]), "true or false"
    if hint is int:
        return int, "an integer"
    return (_finite, "a number") if hint is float else (str, "a string")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _print_value(value: object, rule: Rule) -> str:
    if value is None:
        return rule.none_word
    if rule.unit == "bytes" and isinstance(value, int):
        return print_size(value)
    match value:
        case timedelta():
            return print_duration(value)
        case Enum():
            return str(value.value)
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def print_duration(duration: timedelta) -> str:
    """Write a duration in seconds, without an exponent."""
    digits = f"{duration.total_seconds():.6f}"
    return f"{digits.rstrip('0').rstrip('.')}s"


def print_size(size_bytes: int) -> str:
    """Write a size in the largest unit that divides it."""
    for unit in ("TB", "GB", "MB", "KB"):
        factor = _BYTES_BY_UNIT[unit.lower()]
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return str(size_bytes)


def resolve_references(options: _O, reveal: Reveal, *, what: str) -> _O:
    """Replace references by their values; ``origins`` of the result lists the references."""
    written = print_options(options)
    origins = origins_of(written)
    pairs = [(key, reveal(key, text)) for key, text in written]
    values = parse_options(type(options), pairs, what=what, origins=origins)
    return replace(values, origins=origins)  # type: ignore[type-var] # Options are dataclasses.


def sealed_pairs(options: "_HasOrigins") -> dict[str, str]:
    """Return options for encryption: their values, and the references that they come from."""
    pairs = dict(print_options(options))
    return {**pairs, _ORIGINS: json.dumps(options.origins)} if options.origins else pairs


def from_sealed_pairs(kind: type[_O], pairs: Mapping[str, str], *, what: str) -> _O:
    """Return the options that ``sealed_pairs`` wrote."""
    values = dict(pairs)
    origins = tuple((key, origin) for key, origin in json.loads(values.pop(_ORIGINS, "[]")))
    options = parse_options(kind, values.items(), what=what, origins=origins)
    return replace(options, origins=origins)  # type: ignore[type-var] # Options are dataclasses.
