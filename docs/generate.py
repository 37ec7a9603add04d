"""Write the tables of docs/reference/options.md from the declarations of the options.

Only what stands between two markers is written; all other words of the page are by hand.
``make docs`` runs it, and a test compares the page with what it would write.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

from penstock.model.job import JobProperties
from penstock.model.job_kinds import RoutineProperties
from penstock.model.options import Rule, option_key, rule_of
from penstock.settings.home import settings_table
from penstock.sources.files.options import FilesOptions
from penstock.sources.kinesis.options import KinesisOptions, PositionOptions
from penstock.storage.options import StoreOptions

PAGE = Path(__file__).parent / "reference" / "options.md"
SETTINGS_PAGE = PAGE.with_name("settings.md")
HEADER = "| key | default | allowed | meaning |\n| --- | --- | --- | --- |\n"
BLOCK = re.compile(r"(<!-- generated: ([\w ]+) -->\n).*?(<!-- end of generated -->)", re.DOTALL)
FORMATS = ("CSV", "JSON")
SIZES = ("GB", 2**30), ("MB", 2**20), ("KB", 2**10)
CONTROLS = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def main() -> None:
    """Write the page anew."""
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    SETTINGS_PAGE.write_text(settings_page(SETTINGS_PAGE.read_text("utf-8")), "utf-8")


def page(text: str) -> str:
    """Answer the page with its tables written anew."""

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}"

    return BLOCK.sub(block, text)


def settings_page(text: str) -> str:
    """Answer the page of settings with its table written anew."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{settings_table()}\n{found[3]}", text)


def table(kind: type, *, only: Callable[[str], bool] = lambda _: True) -> str:
    """Answer the table of a class's options whose explanations are wanted."""
    hints = get_type_hints(kind)
    declared = (f for f in fields(kind) if "option" in f.metadata)
    wanted = (f for f in declared if only(rule_of(f).explanation))
    return HEADER + "".join(_line(f, hints[f.name]) for f in wanted)


def _about(form: str) -> Callable[[str], bool]:
    return lambda explanation: explanation.startswith(f"{form}: ")


def _about_all(explanation: str) -> bool:
    return not any(_about(form)(explanation) for form in FORMATS)


def _line(declared: Field[Any], kind: type) -> str:
    rule = rule_of(declared)
    meaning = rule.explanation
    for form in FORMATS:
        meaning = meaning.removeprefix(f"{form}: ")
    cells = (
        f"`{option_key(declared)}`",
        "required" if declared.default is MISSING else _typed(declared.default, rule),
        _allowed(kind, rule),
        meaning[:1].upper() + meaning[1:],
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _allowed(kind: type, rule: Rule) -> str:
    at_least, at_most = rule.at_least, rule.at_most
    if kind is bool:
        return _choices(("true", "false"))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _choices(str(member.value) for member in kind)
    if at_least is not None and at_most is not None:
        return f"{_typed(at_least, rule)} to {_typed(at_most, rule)}"
    bound = "" if at_least is None else f"at least {_typed(at_least, rule)}"
    return f"`{rule.none_word}`, or {bound}" if rule.none_word else bound


def _choices(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def _typed(value: object, rule: Rule) -> str:
    """Write a value as a statement would."""
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
            return f"`{value.total_seconds():g}s`"
        case int() if rule.unit == "bytes":
            return f"`{_size(value)}`"
        case float():
            return f"`{value:g}`"
        case _:
            return f"`{CONTROLS.get(str(value), value)}`"


def _size(size_bytes: int) -> str:
    for name, factor in SIZES:
        if size_bytes % factor == 0:
            return f"{size_bytes // factor}{name}"
    return str(size_bytes)


TABLES: dict[str, Callable[[], str]] = {
    "job": lambda: table(JobProperties),
    "files": lambda: table(FilesOptions, only=_about_all),
    "bucket": lambda: table(StoreOptions),
    "files csv": lambda: table(FilesOptions, only=_about("CSV")),
    "files json": lambda: table(FilesOptions, only=_about("JSON")),
    "kinesis": lambda: table(KinesisOptions),
    "positions": lambda: table(PositionOptions),
    "routine load": lambda: table(RoutineProperties, only=_about_all),
    "routine load csv": lambda: table(RoutineProperties, only=_about("CSV")),
    "routine load json": lambda: table(RoutineProperties, only=_about("JSON")),
}


if __name__ == "__main__":
    main()
