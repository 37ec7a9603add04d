"""Strategies for values of any model class, built from type hints to cover new fields."""

import types
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from penstock.model.options import Rule, rule_of

_PLAIN: dict[Any, SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
    datetime: st.datetimes(timezones=st.just(UTC)),
    timedelta: st.timedeltas(timedelta(0), timedelta(days=36_500)),
}


# Statements contain neither surrogates, which are not characters, nor NUL.
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
_REFERENCES = st.sampled_from(["", "secret:mine", "env:KEY", "file:/run/key"])
_YEARS = timedelta(days=3650)


@cache
def values_of(hint: Any) -> SearchStrategy[Any]:
    """Return a strategy for values of a type hint."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if get_origin(hint) in (Union, types.UnionType):
        return st.one_of([values_of(option) for option in get_args(hint)])
    if get_origin(hint) is tuple:
        return _tuples(get_args(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    if is_dataclass(hint) and isinstance(hint, type):
        return _instances(hint)
    raise AssertionError(f"no strategy for values of {hint}; add one to values_of")


def _tuples(items: tuple[Any, ...]) -> SearchStrategy[Any]:
    if items[-1] is Ellipsis:
        return st.lists(values_of(items[0]), max_size=2).map(tuple)
    return st.tuples(*[values_of(item) for item in items])


def _instances(kind: type) -> SearchStrategy[Any]:
    def instances() -> SearchStrategy[Any]:
        hints = get_type_hints(kind)
        return st.builds(kind, **{f.name: values_of(hints[f.name]) for f in fields(kind)})

    # Deferred, because the type of a column can contain columns.
    return st.deferred(instances)


def options_of(kind: type) -> SearchStrategy[Any]:
    """Return a strategy for a class of options that draws every option and every group."""
    hints = get_type_hints(kind)
    drawn: dict[str, SearchStrategy[Any]] = {}
    for f in fields(kind):
        if "group" in f.metadata:
            drawn[f.name] = options_of(f.metadata["group"])
        elif "option" in f.metadata:
            drawn[f.name] = _option_values(hints[f.name], rule_of(f))
    return st.builds(kind, **drawn)


def _option_values(hint: object, rule: Rule) -> SearchStrategy[Any]:
    if rule.secret:
        return _REFERENCES
    if hint is str:
        return st.text(CHARACTERS, max_size=5)
    if hint is int:
        return st.integers(rule.at_least, rule.at_most or 10**12)
    if hint is float:
        return st.floats(rule.at_least, rule.at_most)
    if hint is timedelta:
        return st.timedeltas(rule.at_least or timedelta(0), _YEARS)
    if get_origin(hint) in (Union, types.UnionType):
        return st.one_of([_option_values(one, rule) for one in get_args(hint)])
    return values_of(hint)


def reachable(*roots: type) -> tuple[type, ...]:
    """Return the given dataclasses, and every dataclass that their values can contain."""
    found: dict[type, None] = {}
    waiting: list[Any] = list(roots)
    while waiting:
        hint = waiting.pop()
        if is_dataclass(hint) and isinstance(hint, type):
            if hint not in found:
                found[hint] = None
                waiting.extend(get_type_hints(hint).values())
        else:
            waiting.extend(get_args(hint))
    return tuple(sorted(found, key=lambda kind: kind.__name__))


def fields_of(kinds: tuple[type, ...]) -> Iterator[tuple[type, Field[Any]]]:
    """Return all fields of the given dataclasses."""
    return ((kind, f) for kind in kinds for f in fields(kind))
