"""Check what penstock.toml and the environment give, with pydantic-settings.

A node without either needs none of this, so it is imported only where something was given.
"""

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
