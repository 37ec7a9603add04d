"""Which keys and values a list of options may have, for whoever writes one."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass
from enum import Enum
from typing import Any

from penstock.model.files import FilesOptions
from penstock.model.job import JobProperties
from penstock.model.kinesis import KinesisOptions, PositionOptions
from penstock.model.options import option_fields, option_key, rule_of
from penstock.model.routine_properties import RoutineProperties

NamesOf = Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What is known by name; every function is asked when a name is completed."""

    # Jobs of every kind; routine loads are those with statements of their own.
    jobs: NamesOf
    routine_loads: NamesOf
    tables: NamesOf
    secrets: NamesOf


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionChoice:
    """An option that may be given: what it is for, and its values where they are few."""

    explanation: str
    values: tuple[str, ...] = ()


def option_list(call: str, *, about: str, names: Names) -> Mapping[str, OptionChoice] | None:
    """Answer the options by key that a call or PROPERTIES takes; None where none are taken.

    ``about`` is what the statement is about: a JOB, a ROUTINE load, a SECRET.
    """
    match call, about:
        case (("FILES" | "S3"), _):
            return _declared(FilesOptions, names=names)
        case "KINESIS", _:
            return _declared(KinesisOptions, PositionOptions, names=names)
        case "PROPERTIES", "ROUTINE":
            return _declared(RoutineProperties, names=names)
        case "PROPERTIES", "JOB":
            offset = OptionChoice(explanation='Where loading goes on: {"fileName": "…"}.')
            return {**_declared(JobProperties, names=names), "offset": offset}
        case _, "SECRET":
            return _secrets()
        case (("JOBS" | "TASKS"), _):
            return {"type": OptionChoice(explanation="Kind of the jobs.", values=("insert",))}
        case "REJECTS", _:
            jobs = tuple(names.jobs())
            return {"job": OptionChoice(explanation="Whose rejected rows.", values=jobs)}
        case _:
            return None


def _declared(*kinds: type, names: Names) -> dict[str, OptionChoice]:
    """Answer the options of classes; those that must be given come first."""
    declared = (f for kind in kinds for f in option_fields(kind))
    ordered = sorted(declared, key=lambda f: f.default is not MISSING)
    return {option_key(f): _choice(f, names=names) for f in ordered}


def _choice(declared: Field[Any], *, names: Names) -> OptionChoice:
    rule = rule_of(declared)
    must = "Required. " if declared.default is MISSING else ""
    values = _values(declared.type)
    if rule.none_word:
        values = (rule.none_word, *values)
    if rule.secret:
        values = tuple(f"secret:{name}" for name in names.secrets())
    return OptionChoice(explanation=f"{must}{rule.explanation}", values=values)


def _values(kind: object) -> tuple[str, ...]:
    if kind is bool:
        return ("true", "false")
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(str(member.value) for member in kind)
    return ()


def _secrets() -> dict[str, OptionChoice]:
    """Answer the options whose values may be kept as secrets."""
    return {
        option_key(f): OptionChoice(explanation=rule_of(f).explanation)
        for kind in (FilesOptions, KinesisOptions)
        for f in option_fields(kind)
        if rule_of(f).secret
    }
