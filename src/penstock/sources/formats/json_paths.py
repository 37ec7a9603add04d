"""Paths into JSON documents: ``$``, ``$.a.b``, ``$.a[0].b``, ``$['odd name']``."""

import re
from dataclasses import dataclass
from typing import Any

from penstock.errors import Code, UserError
from penstock.sources.formats.json_decode import AmbiguousObject, BadRecordError
from penstock.storage.casts import shown

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
    """A path that leads nowhere in a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonPath:
    """A path into a document, as written and step by step: keys and indexes."""

    text: str
    steps: tuple[str | int, ...]

    def part_of(self, document: object) -> Any:  # noqa: ANN401 - Any JSON value.
        """Give the part that the path leads to; ``NoSuchPartError`` if there is none."""
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
    """Read a path; ``UserError`` names the option that has it."""
    steps: list[str | int] = []
    at = 1 if text.startswith("$") else 0
    while at and at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise _unknown_step(text, at, option=option)
        steps.append(_step(step))
        at = step.end()
    if not at:
        raise UserError(
            f'option "{option}" must have paths that begin with $, not {shown(text)}',
            code=Code.OPTION_ERR,
            hint="Write for example $.customer.city, $.lines[0].price or $['odd name'].",
        )
    return JsonPath(text=text, steps=tuple(steps))


def _step(match: re.Match[str]) -> str | int:
    if match["index"] is not None:
        return int(match["index"])
    if match["name"] is not None:
        return match["name"]
    return _ESCAPED.sub(r"\1", match["quoted"])


def _unknown_step(text: str, at: int, *, option: str) -> UserError:
    wildcard = _WILDCARD.match(text, at)
    if wildcard:
        return UserError(
            f'option "{option}" has the path {shown(text)}, and a path must lead to one value,'
            f' which "{wildcard[0]}" does not',
            code=Code.OPTION_ERR,
            hint="Name one element, such as [0], or load the whole array as an ARRAY column.",
        )
    return UserError(
        f'option "{option}" has the path {shown(text)}, in which a step must be .name, [0] or'
        f" ['odd name'], not {shown(text[at:])}",
        code=Code.OPTION_ERR,
        hint="Write for example $.customer.city, $.lines[0].price or $['odd name'].",
    )
