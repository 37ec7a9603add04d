"""Write the tables of options.md and settings.md in docs/reference from the declarations.

The classes of options come from the job kinds and from the source kinds of the registry. Only
the text between two markers is replaced. ``make docs`` runs this script, and a test compares
the pages with its output.
"""

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields
from datetime import timedelta
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from penstock.model.job_kinds import JOB_KINDS
from penstock.model.options import Rule, open_fields, option_key, rule_of
from penstock.settings.home import SHOWN_SETTINGS, ShownSetting
from penstock.sources.registry import source_kinds

PAGE = Path(__file__).parent / "reference" / "options.md"
SETTINGS_PAGE = PAGE.with_name("settings.md")
HEADER = "| key | default | allowed | meaning |\n| --- | --- | --- | --- |\n"
BLOCK = re.compile(r"(<!-- generated: ([\w ]+) -->\n).*?(<!-- end of generated -->)", re.DOTALL)
FORMATS = ("CSV", "JSON")
SIZES = ("GB", 2**30), ("MB", 2**20), ("KB", 2**10)
# The kinds of jobs whose statements name a source by its function.
CALLING = {"STREAMING", "ROUTINE_LOAD"}
UNITS = ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)
CONTROLS = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def main() -> None:
    """Write both pages."""
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    SETTINGS_PAGE.write_text(settings_page(SETTINGS_PAGE.read_text("utf-8")), "utf-8")


def page(text: str) -> str:
    """Return the page with new tables."""
    written = tables()
    return BLOCK.sub(lambda found: f"{found[1]}\n{written[found[2]]}\n{found[3]}", text)


def settings_page(text: str) -> str:
    """Return the page of settings with a new table."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{settings_table()}\n{found[3]}", text)


def settings_table() -> str:
    """Return the table of settings."""
    rows = [
        f"| {_place(setting)} | `{setting.variable}` | {_default(setting)} "
        f"| {setting.meaning} |\n"
        for setting in SHOWN_SETTINGS
    ]
    head = "| setting | environment | default | meaning |\n| --- | --- | --- | --- |\n"
    return head + "".join(rows)


def _place(setting: ShownSetting) -> str:
    if setting.example:
        return f"`{setting.key}`"
    return "`--home` (flag)" if setting.key == "home" else "environment only"


def _default(setting: ShownSetting) -> str:
    return "none" if setting.default == "none" else f"`{setting.default}`"


def table(kind: type, *, prefix: str = "", only: Callable[[str], bool] = lambda _: True) -> str:
    """Return the table of a class's options whose explanations ``only`` accepts."""
    hints = get_type_hints(kind)
    hidden = _set_by_create(kind)
    declared = (f for f in fields(kind) if "option" in f.metadata)
    shown = (f for f in declared if option_key(f) not in hidden)
    wanted = (f for f in shown if only(rule_of(f).explanation))
    return HEADER + "".join(_line(f, hints[f.name], prefix=prefix) for f in wanted)


def _set_by_create(options: type) -> set[str]:
    """Return the options of a source without a function, which only CREATE can set."""
    kinds = (k for k in source_kinds() if k.options is options)
    return {
        key for k in kinds for key in k.fixed if not JOB_KINDS.keys() & CALLING & {*k.job_kinds}
    }


def _about(form: str) -> Callable[[str], bool]:
    return lambda explanation: explanation.startswith(f"{form}: ")


def _about_all(explanation: str) -> bool:
    return not any(_about(form)(explanation) for form in FORMATS)


def _line(declared: Field[Any], kind: type, *, prefix: str) -> str:
    rule = rule_of(declared)
    meaning = rule.explanation
    for form in FORMATS:
        meaning = meaning.removeprefix(f"{form}: ")
    spellings = [f"`{prefix}{key}`" for key in (option_key(declared), *rule.aliases)]
    cells = (
        ", ".join(spellings),
        "required" if declared.default is MISSING else _typed(declared.default, rule),
        _allowed(kind, rule),
        _sentence(meaning),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _sentence(meaning: str) -> str:
    """Return an explanation as Markdown; the name of a value at its start keeps its case."""
    text = meaning.replace("<", "&lt;")
    return text if re.match(r"\w+:", text) else text[:1].upper() + text[1:]


def _allowed(kind: type, rule: Rule) -> str:
    at_least, at_most = rule.at_least, rule.at_most
    # The type of an option with a word for None is a union.
    kind = next((one for one in get_args(kind) if one is not NoneType), kind)
    if kind is bool:
        return _choices(("true", "false"))
    if isinstance(kind, type) and issubclass(kind, Enum):
        values = [str(member.value) for member in kind]
        return _choices([rule.none_word, *values] if rule.none_word else values)
    bound = "" if at_least is None else f"at least {_typed(at_least, rule)}"
    if at_least is not None and at_most is not None:
        bound = f"{_typed(at_least, rule)} to {_typed(at_most, rule)}"
    return f"`{rule.none_word}`, or {bound}" if rule.none_word else bound


def _choices(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def _typed(value: object, rule: Rule) -> str:
    """Return a value as users write it in a statement."""
    match value:
        case None:
            return f"`{rule.none_word}`"
        case "":
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case Enum():
            return f"`{value.value}`"
        case timedelta():
            return f"`{_duration(value)}`"
        case int() if rule.unit == "bytes":
            return f"`{_size(value)}`"
        case float():
            return f"`{value:g}`"
        case _:
            return f"`{CONTROLS.get(str(value), value)}`"


def _duration(duration: timedelta) -> str:
    milliseconds = duration // timedelta(milliseconds=1)
    unit, factor = next(one for one in UNITS if milliseconds % one[1] == 0)
    return f"{milliseconds // factor}{unit}" if milliseconds else "0s"


def _size(size_bytes: int) -> str:
    for name, factor in SIZES:
        if size_bytes % factor == 0:
            return f"{size_bytes // factor}{name}"
    return str(size_bytes)


def option_classes() -> dict[str, tuple[type, str]]:
    """Return the class of options and the prefix of its keys, by name of the table."""
    found: dict[str, tuple[type, str]] = {}
    for job_kind in JOB_KINDS.values():
        # A flow has the options of a streaming table.
        if (job_kind.properties, "") not in found.values():
            found[job_kind.noun] = job_kind.properties, ""
            found |= _groups(job_kind.properties)
    # A kind that no job kind can read yet is not documented.
    usable = (k for k in source_kinds() if not JOB_KINDS.keys().isdisjoint(k.job_kinds))
    for kind in usable:
        name = kind.name.lower()
        found[name] = kind.options, ""
        found |= {f"{name} {group}": one for group, one in _groups(kind.options).items()}
        for f in open_fields(kind.options):
            found[f"{name} {f.name}"] = _open_class(kind.options, f)
        if kind.start_options is not None:
            found[f"{name} start"] = kind.start_options, ""
    return found


def _groups(options: type) -> dict[str, tuple[type, str]]:
    """Return the nested classes of options, by the names of their fields."""
    nested = (f for f in fields(options) if "group" in f.metadata)
    return {f.name: (f.metadata["group"], "") for f in nested}


def _open_class(options: type, declared: Field[Any]) -> tuple[type, str]:
    """Return the class of options with a prefix, and the start of their keys.

    The class ``FieldOptions`` of the same module reads the options of the field ``fields``.
    """
    name = f"{declared.name.removesuffix('s').title()}Options"
    found: type = getattr(sys.modules[options.__module__], name)
    return found, f"{declared.metadata['prefix']}<name>."


def tables() -> dict[str, str]:
    """Return the tables by the names of their markers; each format has its own table."""
    found = {}
    for name, (kind, prefix) in option_classes().items():
        found[name] = table(kind, prefix=prefix, only=_about_all)
        for form in FORMATS:
            about = table(kind, prefix=prefix, only=_about(form))
            if about != HEADER:
                found[f"{name} {form.lower()}"] = about
    return found


if __name__ == "__main__":
    main()
