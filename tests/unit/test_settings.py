"""Settings of a node: the settings file, the environment, defaults and errors."""

import re
from pathlib import Path

import pytest

from penstock.errors import Code, UserError
from penstock.model.options import option_key
from penstock.secrets.sealing import VARIABLE
from penstock.settings.home import SHOWN_SETTINGS, command_for, settings_file
from penstock.settings.settings import (
    KEY_FILE,
    SETTING_FIELDS,
    Settings,
    home_folder,
    load_settings,
)
from tests.error_values import assert_names, raises

COMMENTED = re.compile(r"^#(?=[a-z])", re.MULTILINE)
SHOWN = {setting.key: setting for setting in SHOWN_SETTINGS}


def test_every_setting_is_explained() -> None:
    declared = {option_key(field) for field in SETTING_FIELDS}

    assert set(SHOWN) == declared | {"home", "secret_key"}
    assert SHOWN["secret_key"].variable == VARIABLE


def test_the_documented_defaults_are_the_defaults_of_a_node() -> None:
    settings = Settings(home=Path("<home>"))

    assert SHOWN["spark.master"].default == settings.spark_master
    assert SHOWN["catalog.url"].default == settings.catalog_url
    assert SHOWN["secret_key"].default == f"<home>/{KEY_FILE}"
    assert settings.warehouse_location.endswith(SHOWN["warehouse"].default)


def write_file(home: Path, text: str) -> Settings:
    (home / "penstock.toml").write_text(text)
    return load_settings(home=home)


def test_a_new_settings_file_sets_nothing(tmp_path: Path) -> None:
    assert write_file(tmp_path, settings_file()) == Settings(home=tmp_path)


def test_every_commented_line_of_the_settings_file_is_valid(tmp_path: Path) -> None:
    settings = write_file(tmp_path, COMMENTED.sub("", settings_file()))

    assert settings.warehouse == "/data/lake"
    assert settings.warehouse_secret == "lake_keys"  # noqa: S105 - The name of a secret.
    assert settings.catalog == "sqlite:////data/catalog.db"
    assert settings.spark_master == Settings(home=tmp_path).spark_master
    assert settings.spark_conf == {"spark.driver.memory": "2g"}


def test_the_environment_overrides_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_WAREHOUSE", "/b")
    monkeypatch.setenv("PENSTOCK_HOMEPAGE", "c")
    monkeypatch.setenv("PENSTOCK_SPARK__CONF", '{"a": "environment"}')

    settings = write_file(
        tmp_path,
        "warehouse = '/a'\nspark = {master = 'local', conf = {a = 'file', b = 'file'}}",
    )

    assert settings.warehouse == "/b"
    assert settings.spark_conf == {"a": "environment", "b": "file"}
    assert settings.origin_by_key == {
        "warehouse": "PENSTOCK_WAREHOUSE",
        "spark.master": "penstock.toml",
        "spark.conf": "PENSTOCK_SPARK__CONF",
    }


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("warehose = 'x'", ('"warehose"',)),
        ("spark = 'local'", ('"spark"',)),
        ("spark.masters = 'local'", ('"spark.masters"',)),
        ("spark.master = 3", ('"spark.master"',)),
        ("spark.conf.a = 3", ('"spark.conf.a"',)),
        ("spark.conf = 'a'", ('"spark.conf"', "Spark")),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, named: tuple[str, ...]) -> None:
    with raises(UserError, Code.SETTINGS_ERR, *named) as refusal:
        write_file(tmp_path, text)

    assert refusal.value.code is Code.SETTINGS_ERR
    assert_names(refusal.value.detail, "penstock.toml")


def test_the_hint_for_a_misspelled_setting_names_the_right_one(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal:
        write_file(tmp_path, "warehose = 'x'")

    assert_names(refusal.value.hint, '"warehouse"')


def test_a_variable_that_is_not_json_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_SPARK__CONF", "spark.driver.memory=2g")

    with raises(
        UserError, Code.SETTINGS_ERR, '"spark.conf"', "PENSTOCK_SPARK__CONF"
    ) as refusal:
        load_settings(home=tmp_path)

    assert_names(refusal.value.detail, "PENSTOCK_SPARK__CONF")


def test_an_empty_setting_means_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_WAREHOUSE", "")

    settings = write_file(tmp_path, "warehouse = '/a'")

    assert settings.warehouse_location == f"{tmp_path}/warehouse"


def test_the_command_omits_the_home_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))

    assert home_folder(None) == tmp_path
    assert command_for(tmp_path) == "penstock"
    assert command_for(Path("/a b")) == "penstock --home '/a b'"
