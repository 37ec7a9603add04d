"""Settings of one node: flags, environment, file, defaults, in that order."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import Code, UserError

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
    from penstock.given_settings import check_given

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
