"""Settings of one node: flags, environment, file, defaults, in that order."""

import os
import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from penstock.errors import Code, UserError

HOME_DEFAULT = "./penstock-home"
FILE_NAME = "penstock.toml"


class CatalogSettings(BaseModel):
    """Where jobs and tables are remembered."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str | None = Field(
        default=None, description="SQLAlchemy URL; default: catalog.db in home."
    )


class SparkSettings(BaseModel):
    """Which Spark runs the loads."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    master: str = Field(default="local[*,4]", description="Spark master.")
    conf: dict[str, str] = Field(default_factory=dict, description="Further Spark settings.")


class Settings(BaseSettings):
    """Everything that can be set about a node."""

    model_config = SettingsConfigDict(
        env_prefix="PENSTOCK_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    home: Path
    warehouse: Path | None = Field(default=None, description="Folder of new tables.")
    catalog: CatalogSettings = CatalogSettings()
    spark: SparkSettings = SparkSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment win over what ``load_settings`` read from the file."""
        del settings_cls, dotenv_settings, file_secret_settings
        return env_settings, init_settings

    @property
    def catalog_url(self) -> str:
        """The catalog's URL."""
        return self.catalog.url or f"sqlite:///{self.home / 'catalog.db'}"

    @property
    def warehouse_path(self) -> Path:
        """The folder that new tables are made in."""
        return self.warehouse or self.home / "warehouse"


def load_settings(*, home: Path | None) -> Settings:
    """Read the settings of a home: the flag, PENSTOCK_…, penstock.toml, defaults."""
    folder = home or Path(os.environ.get("PENSTOCK_HOME") or HOME_DEFAULT)
    folder = folder.expanduser().absolute()
    path = folder / FILE_NAME
    given = _read_file(path)
    try:
        settings = Settings.model_validate({**given, "home": folder})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f'setting "{name}": {first["msg"].lower()}',
            code=Code.SETTINGS_ERR,
            detail=f"Read from {path} and the environment (PENSTOCK_…).",
            hint="Known settings: warehouse, [catalog] url, [spark] master, [spark.conf] ….",
        ) from error
    return settings.model_copy(update={"home": folder})


def _read_file(path: Path) -> dict[str, object]:
    if not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(
            f'settings file "{path}" cannot be read: {error}', code=Code.SETTINGS_ERR
        ) from error
