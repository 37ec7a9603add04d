"""Settings of one node, read from flags, the environment and penstock.toml.

A node without either needs none of this, so it is imported only where something was given.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from penstock.errors import Code, UserError


class _Catalog(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str | None = None


class _Spark(BaseModel):
    model_config = ConfigDict(extra="forbid")

    master: str | None = None
    conf: dict[str, str] = Field(default_factory=dict)


class _Given(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="PENSTOCK_", env_nested_delimiter="__", extra="forbid"
    )

    home: Path | None = None
    warehouse: str | None = None
    warehouse_secret: str | None = None
    catalog: _Catalog = _Catalog()
    spark: _Spark = _Spark()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment win over what was read from the file."""
        del settings_cls, dotenv_settings, file_secret_settings
        return env_settings, init_settings


def check_given(from_file: dict[str, object], *, path: Path) -> dict[str, Any]:
    """Answer what was given, the environment over the file, or say what is wrong with it."""
    try:
        given = _Given.model_validate(from_file)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f'setting "{name}": {first["msg"].lower()}',
            code=Code.SETTINGS_ERR,
            detail=f"Read from {path} and the environment (PENSTOCK_…).",
            hint=(
                "Known settings: warehouse, warehouse_secret, [catalog] url, [spark] master, "
                "[spark.conf] …."
            ),
        ) from error
    return given.model_dump(exclude_none=True)


HOME_DEFAULT = "./penstock-home"
FILE_NAME = "penstock.toml"
KEY_FILE = "secret.key"
_PREFIX = "PENSTOCK_"
_HOME = f"{_PREFIX}HOME"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """Where jobs and tables are remembered."""

    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Which Spark runs the loads."""

    master: str = "local[*,4]"
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set about a node."""

    home: Path
    # A folder, or the URI of a bucket's.
    warehouse: str | None = None
    warehouse_secret: str = ""
    catalog: CatalogSettings = field(default_factory=CatalogSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)

    @property
    def catalog_url(self) -> str:
        """The catalog's URL."""
        return self.catalog.url or f"sqlite:///{self.home / 'catalog.db'}"

    @property
    def warehouse_location(self) -> str:
        """Where new tables are made."""
        given = self.warehouse or str(self.home / "warehouse")
        return given.rstrip("/") if "://" in given else str(Path(given).expanduser().absolute())


def load_settings(*, home: Path | None) -> Settings:
    """Read the settings of a home: the flag, PENSTOCK_…, penstock.toml, defaults."""
    folder = home_folder(home)
    path = folder / FILE_NAME
    from_file = _read_file(path)
    from_environment = any(k.startswith(_PREFIX) and k != _HOME for k in os.environ)
    if not from_file and not from_environment:
        return Settings(home=folder)
    # REMOVED

    given = check_given(from_file, path=path)
    return Settings(
        home=folder,
        warehouse=given.get("warehouse"),
        warehouse_secret=given.get("warehouse_secret", ""),
        catalog=CatalogSettings(**given["catalog"]),
        spark=SparkSettings(**given["spark"]),
    )


def home_folder(given: Path | None) -> Path:
    """Answer the home: the flag's, that of the environment, the default."""
    folder = given or Path(os.environ.get(_HOME) or HOME_DEFAULT)
    return folder.expanduser().absolute()


def _read_file(path: Path) -> dict[str, object]:
    if not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(
            f'settings file "{path}" cannot be read: {error}', code=Code.SETTINGS_ERR
        ) from error
