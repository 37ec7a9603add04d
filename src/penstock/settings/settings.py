"""Settings of one node: flags, environment, penstock.toml, defaults, in that order."""

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import Code, UserError
from penstock.model.options import option, option_fields, option_key, parse_size

HOME_DEFAULT = "./penstock-home"
FILE_NAME = "penstock.toml"
KEY_FILE = "secret.key"
PREFIX = "PENSTOCK_"
_HOME_VARIABLE = f"{PREFIX}HOME"
# Placeholder for the home in the defaults below.
_HOME = "<home>"
_WAREHOUSE = f"{_HOME}/warehouse"
_CHECKPOINTS = f"{_HOME}/checkpoints"
_CATALOG = f"sqlite:///{_HOME}/catalog.db"
_CONF = "spark.conf"
_STATE_MEMORY_MIN = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a node."""

    home: Path
    warehouse: str | None = option(
        "Location of new tables: a folder, or a bucket with a path, such as s3://bucket/tables.",
        default=None,
        none_word=_WAREHOUSE,
    )
    warehouse_secret: str = option(
        "Name of the secret with the credentials of a warehouse in a bucket. By default, the "
        "credentials of the machine are used.",
        default="",
    )
    catalog: str | None = option(
        "SQLite database with jobs and tables.",
        key="catalog.url",
        default=None,
        none_word=_CATALOG,
    )
    spark_master: str = option(
        "Spark master, local[cores,maxFailures]. With local[*], Spark does not retry tasks.",
        key="spark.master",
        default="local[*,4]",
    )
    spark_conf: Mapping[str, str] = field(
        default_factory=dict,
        metadata=option(
            "Further Spark properties by name. The environment variable is a JSON object.",
            key=_CONF,
        ).metadata,
    )
    checkpoints: str | None = option(
        "Folder with the state of streaming tables. It must be on a local disk or on a shared "
        "mount.",
        default=None,
        none_word=_CHECKPOINTS,
    )
    state_memory: str = option(
        "Memory for the state of all streaming tables of the node, such as 256MB.",
        key="state.memory",
        default="256MB",
    )
    # The variable or file that each setting was read from.
    origin_by_key: Mapping[str, str] = field(default_factory=dict)

    @property
    def catalog_url(self) -> str:
        """URL of the catalog."""
        return self.catalog or _CATALOG.replace(_HOME, str(self.home))

    @property
    def checkpoints_folder(self) -> Path:
        """Absolute folder of the checkpoints."""
        given = self.checkpoints or _CHECKPOINTS.replace(_HOME, str(self.home))
        return Path(given).expanduser().absolute()

    @property
    def state_memory_mb(self) -> int:
        """Memory for the state of streaming tables, in MiB."""
        size_bytes = parse_size(self.state_memory, what='setting "state.memory"')
        if size_bytes < _STATE_MEMORY_MIN:
            raise UserError(
                f'setting "state.memory" must be at least 16MB, not "{self.state_memory}"',
                code=Code.SETTINGS_ERR,
            )
        return size_bytes // 2**20

    @property
    def warehouse_location(self) -> str:
        """Absolute folder or URI in which new tables are created."""
        given = self.warehouse or _WAREHOUSE.replace(_HOME, str(self.home))
        return given.rstrip("/") if "://" in given else str(Path(given).expanduser().absolute())


SETTING_FIELDS = option_fields(Settings)
_KEYS = tuple(option_key(declared) for declared in SETTING_FIELDS)
# Other variables with our prefix are not settings.
_FIRST_WORDS = frozenset(key.partition(".")[0] for key in _KEYS)


def load_settings(*, home: Path | None) -> Settings:
    """Read the settings of a home; environment variables override its file."""
    folder = home_folder(home)
    values: dict[str, Any] = {_CONF: {}}
    origin_by_key = {
        key: variable
        for key in ("home", "secret_key")
        if (variable := PREFIX + key.upper()) in os.environ
    }
    for given in (*_from_file(folder / FILE_NAME), *_from_environment(os.environ)):
        _check(given)
        if given.key in _KEYS:
            values[given.key] = given.value
        else:
            values[_CONF][given.key.removeprefix(f"{_CONF}.")] = given.value
        origin_by_key[given.key if given.key in _KEYS else _CONF] = given.origin
    # An empty value means the default.
    chosen = {f.name: value for f in SETTING_FIELDS if (value := values.get(option_key(f)))}
    return Settings(home=folder, **chosen, origin_by_key=origin_by_key)


def home_folder(given: Path | None) -> Path:
    """Return the absolute home: the given folder, PENSTOCK_HOME or the default."""
    folder = given or Path(os.environ.get(_HOME_VARIABLE) or HOME_DEFAULT)
    return folder.expanduser().absolute()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """A setting and its origin; the keys of nested tables are joined by dots."""

    key: str
    value: object
    origin: str


def _from_environment(environment: Mapping[str, str]) -> Iterator[_Given]:
    for variable, text in environment.items():
        name = variable.upper()
        key = name.removeprefix(PREFIX).lower().replace("__", ".")
        if name.startswith(PREFIX) and key.partition(".")[0] in _FIRST_WORDS:
            value: object = text
            if key == _CONF:
                # _check reports a text that is not JSON.
                with suppress(ValueError):
                    value = json.loads(text)
            yield from _flat(key, value, origin=variable)


def _from_file(path: Path) -> Iterator[_Given]:
    try:
        table = tomllib.loads(path.read_text()) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise UserError(
            f'settings file "{path}" cannot be read: {error}', code=Code.SETTINGS_ERR
        ) from error
    for key, value in table.items():
        yield from _flat(key, value, origin=FILE_NAME)


def _flat(key: str, value: object, *, origin: str) -> Iterator[_Given]:
    if not isinstance(value, Mapping):
        yield _Given(key=key, value=value, origin=origin)
        return
    for name, inner in value.items():
        yield from _flat(f"{key}.{name}", inner, origin=origin)


def _check(given: _Given) -> None:
    """Raise UserError unless the setting exists and is a string.

    The message omits the value, which may be a secret.
    """
    hint = "Put the value in quotes."
    if given.key == _CONF:
        fault = "must map names of Spark properties to values"
        hint = 'Write {"spark.driver.memory": "2g"} in the variable.'
    elif given.key not in _KEYS and not given.key.startswith(f"{_CONF}."):
        fault = "does not exist"
        near = difflib.get_close_matches(given.key, _KEYS, n=1)
        guess = f'Did you mean "{near[0]}"? ' if near else ""
        hint = f"{guess}Known settings: {', '.join(_KEYS)}."
    elif not isinstance(given.value, str):
        fault = "must be a string"
    else:
        return
    raise UserError(
        f'setting "{given.key}" {fault}',
        code=Code.SETTINGS_ERR,
        detail=f"Read from {given.origin}.",
        hint=hint,
    )
