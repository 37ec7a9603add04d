"""The settings of a node in words: one table, from which the file and its page are written."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from penstock.settings.settings import HOME_DEFAULT, home_folder

_LINE = 94
_PREFIX = "PENSTOCK_"
_FILE_HEAD = """\
# Settings of this Penstock. To set one, take the # in front of it away. The environment wins
# over this file; penstock doctor tells what is set, and where.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingWords:
    """One setting: how it is called, what it is without being set, and what it means."""

    key: str
    default: str
    meaning: str
    # What follows the key in the settings file; empty for what cannot stand there.
    example: str = ""

    @property
    def variable(self) -> str:
        """The variable of the environment that sets it."""
        return _PREFIX + self.key.upper().replace(".", "__")


SETTING_WORDS = (
    SettingWords(
        key="home",
        default=HOME_DEFAULT,
        meaning="Folder of everything that a node keeps; the flag --home wins.",
    ),
    SettingWords(
        key="warehouse",
        default="warehouse/ in the home",
        meaning="Where new tables are made: a folder, or a place in a bucket, s3://….",
        example=' = "/data/lake"',
    ),
    SettingWords(
        key="warehouse_secret",
        default="none",
        meaning="Name of the secret with the credentials of a warehouse in a bucket; without "
        "it, those of the machine are used.",
        example=' = "lake_keys"',
    ),
    SettingWords(
        key="catalog.url",
        default="sqlite:///<home>/catalog.db",
        meaning="Where jobs and tables are remembered.",
        example=' = "sqlite:////data/catalog.db"',
    ),
    SettingWords(
        key="spark.master",
        default="local[*,4]",
        meaning="Spark master: local[cores,tries]; plain local[*] would not try tasks again.",
        example=' = "local[*,4]"',
    ),
    SettingWords(
        key="spark.conf",
        default="none",
        meaning="Further settings of Spark, each by its name; the variable takes JSON.",
        example='."spark.driver.memory" = "2g"',
    ),
    SettingWords(
        key="secret_key",
        default="secret.key in the home",
        meaning="The key that seals secrets, in place of the file; at least 16 characters.",
    ),
)


def command_for(home: Path) -> str:
    """Answer what to type for a home: one that is not found by itself must be named."""
    found = home == home_folder(None)
    return "penstock" if found else f"penstock --home {shlex.quote(str(home))}"


def settings_file() -> str:
    """Write a settings file that changes nothing, with every setting explained."""
    return "\n".join([_FILE_HEAD, *map(_paragraph, SETTING_WORDS)])


def _paragraph(setting: SettingWords) -> str:
    place = "Environment" if setting.example else "Only in the environment"
    lines = wrap(setting.meaning, _LINE)
    lines.append(f"Default: {setting.default}. {place}: {setting.variable}.")
    # A key with dots needs no heading above it, which would be forgotten.
    typed = f"#{setting.key}{setting.example}\n" if setting.example else ""
    return "".join(f"# {line}\n" for line in lines) + typed


def settings_table() -> str:
    """Write the table of the reference page."""
    rows = [
        f"| {_place(setting)} | `{setting.variable}` | {_typed(setting.default)} "
        f"| {setting.meaning} |\n"
        for setting in SETTING_WORDS
    ]
    head = "| setting | environment | default | meaning |\n| --- | --- | --- | --- |\n"
    return head + "".join(rows)


def _place(setting: SettingWords) -> str:
    if setting.example:
        return f"`{setting.key}`"
    return "`--home` (flag)" if setting.key == "home" else "only there"


def _typed(default: str) -> str:
    return default if " " in default or default == "none" else f"`{default}`"


def origins(from_file: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, str]:
    """Answer for every setting that is given where it comes from; the environment wins."""
    given = set(_keys(from_file))
    variables = {name.upper() for name in environment}
    origin_by_key = {}
    for setting in SETTING_WORDS:
        key, variable = setting.key, setting.variable
        if any(_within(name, variable, "__") for name in variables):
            origin_by_key[key] = variable
        elif any(_within(name, key, ".") for name in given):
            origin_by_key[key] = "penstock.toml"
    return origin_by_key


def _within(name: str, whole: str, separator: str) -> bool:
    return name == whole or name.startswith(whole + separator)


def _keys(settings: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"
