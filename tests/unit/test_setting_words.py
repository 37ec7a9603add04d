"""The words about settings agree with the settings."""

import re
from pathlib import Path

import pytest

from penstock.secrets.sealing import VARIABLE
from penstock.settings.home import SETTING_WORDS, command_for, origins, settings_file
from penstock.settings.settings import (
    KEY_FILE,
    Settings,
    _Given,
    home_folder,
    load_settings,
)

COMMENTED = re.compile(r"^#(?=[a-z])", re.MULTILINE)
WORDS = {setting.key: setting for setting in SETTING_WORDS}


def declared_keys() -> set[str]:
    """Answer every setting that is checked when it is given."""
    inner = {
        name: getattr(field.annotation, "model_fields", {})
        for name, field in _Given.model_fields.items()
    }
    nested = {f"{name}.{key}" for name, keys in inner.items() for key in keys}
    return nested | {name for name, keys in inner.items() if not keys}


def test_every_setting_is_explained_and_nothing_else() -> None:
    assert set(WORDS) == declared_keys() | {"secret_key"}
    assert WORDS["secret_key"].variable == VARIABLE


def test_the_defaults_are_those_that_a_node_has() -> None:
    settings = Settings(home=Path("<home>"))

    assert WORDS["spark.master"].default == settings.spark.master
    assert WORDS["catalog.url"].default == settings.catalog_url
    assert WORDS["secret_key"].default == f"{KEY_FILE} in the home"
    assert settings.warehouse_location.endswith("<home>/warehouse")


def write_file(home: Path, text: str) -> Settings:
    (home / "penstock.toml").write_text(text)
    return load_settings(home=home)


def test_the_file_sets_nothing(tmp_path: Path) -> None:
    assert write_file(tmp_path, settings_file()) == Settings(home=tmp_path)


def test_every_line_of_the_file_can_be_taken_as_it_is(tmp_path: Path) -> None:
    settings = write_file(tmp_path, COMMENTED.sub("", settings_file()))

    assert settings.warehouse == "/data/lake"
    assert settings.warehouse_secret == "lake_keys"  # noqa: S105 - The name of a secret.
    assert settings.catalog.url == "sqlite:////data/catalog.db"
    assert settings.spark.master == Settings(home=tmp_path).spark.master
    assert settings.spark.conf == {"spark.driver.memory": "2g"}


def test_the_environment_wins_over_the_file() -> None:
    found = origins(
        {"warehouse": "/a", "spark": {"master": "local", "conf": {"a": "b"}}},
        {"PENSTOCK_WAREHOUSE": "/b", "PENSTOCK_HOMEPAGE": "c"},
    )

    assert found == {
        "warehouse": "PENSTOCK_WAREHOUSE",
        "spark.master": "penstock.toml",
        "spark.conf": "penstock.toml",
    }


def test_a_home_that_is_found_by_itself_need_not_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))

    assert home_folder(None) == tmp_path
    assert command_for(tmp_path) == "penstock"
    assert command_for(Path("/a b")) == "penstock --home '/a b'"
