"""The settings of a node as text, for the file of a new home and the reference page."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from penstock.model.options import option_key, rule_of
from penstock.settings.settings import (
    HOME_DEFAULT,
    KEY_FILE,
    PREFIX,
    SETTING_FIELDS,
    home_folder,
)

_LINE = 94
_FILE_HEAD = """\
# Settings of this Penstock node. Uncomment a line to set it. Environment variables override
# this file. penstock doctor lists the settings that are set, and where each one is set.
"""
# The text after the key in each commented line of the file.
_EXAMPLE_BY_KEY = {
    "warehouse": ' = "/data/lake"',
    "warehouse_secret": ' = "lake_keys"',
    "catalog.url": ' = "sqlite:////data/catalog.db"',
    "spark.master": ' = "local[*,4]"',
    "checkpoints": ' = "/data/checkpoints"',
    "state.memory": ' = "256MB"',
    "spark.conf": '."spark.driver.memory" = "2g"',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSetting:
    """One setting for the documentation; without ``example``, the file cannot contain it."""

    key: str
    default: str
    meaning: str
    example: str = ""

    @property
    def variable(self) -> str:
        """The environment variable of the setting."""
        return PREFIX + self.key.upper().replace(".", "__")


SHOWN_SETTINGS = (
    ShownSetting(
        key="home",
        default=HOME_DEFAULT,
        meaning="Folder with all files of the node. The flag --home overrides this setting.",
    ),
    *(
        ShownSetting(
            key=option_key(declared),
            default=rule_of(declared).none_word
            or (declared.default if isinstance(declared.default, str) else "")
            or "none",
            meaning=rule_of(declared).explanation,
            example=_EXAMPLE_BY_KEY[option_key(declared)],
        )
        for declared in SETTING_FIELDS
    ),
    ShownSetting(
        key="secret_key",
        default=f"<home>/{KEY_FILE}",
        meaning="Key that encrypts secrets, instead of the key file; at least 16 characters.",
    ),
)


def command_for(home: Path) -> str:
    """Return the penstock command for a home, with --home unless the home is the default."""
    found = home == home_folder(None)
    return "penstock" if found else f"penstock --home {shlex.quote(str(home))}"


def settings_file() -> str:
    """Return a settings file that explains every setting and changes none."""
    return "\n".join([_FILE_HEAD, *map(_paragraph, SHOWN_SETTINGS)])


def _paragraph(setting: ShownSetting) -> str:
    place = "Environment" if setting.example else "Only in the environment"
    lines = wrap(setting.meaning, _LINE)
    lines.append(f"Default: {setting.default}. {place}: {setting.variable}.")
    # A dotted key works without a table heading, which is easily forgotten.
    typed = f"#{setting.key}{setting.example}\n" if setting.example else ""
    return "".join(f"# {line}\n" for line in lines) + typed
