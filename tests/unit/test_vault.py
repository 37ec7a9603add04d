"""Secrets that the vault stores and reveals."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.catalog.catalog import Catalog, open_catalog
from penstock.clock import SystemClock
from penstock.errors import Code, UserError
from penstock.secrets.sealing import VARIABLE, unsealed_with
from penstock.secrets.vault import Vault
from tests.error_values import assert_names, raises

OPTION = "s3.secret_key"


@pytest.fixture(autouse=True)
def _no_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    opened = open_catalog("sqlite://", clock=SystemClock())
    yield opened
    opened.close()


@pytest.fixture
def vault(catalog: Catalog, tmp_path: Path) -> Vault:
    return Vault(catalog, key_file=tmp_path / "secret.key")


def test_a_stored_secret_is_revealed_by_the_option_that_needs_it(vault: Vault) -> None:
    vault.store("lake", {"s3.access_key": "AKIA", "S3.Secret_Key": "wJalr"})

    assert vault.reveal("secret:lake", option="s3.access_key") == "AKIA"
    assert vault.reveal("secret:Lake", option=OPTION) == "wJalr"


def test_the_catalog_holds_no_value(vault: Vault, catalog: Catalog) -> None:
    vault.store("lake", {OPTION: "wJalr"})

    assert "wJalr" not in str(catalog.secrets())


def test_a_changed_secret_keeps_its_other_values(vault: Vault) -> None:
    vault.store("lake", {"s3.access_key": "AKIA", OPTION: "old"})

    vault.change("lake", {OPTION: "new", "s3.session_token": "t"})

    assert vault.reveal("secret:lake", option="s3.access_key") == "AKIA"
    assert vault.reveal("secret:lake", option=OPTION) == "new"
    assert vault.reveal("secret:lake", option="s3.session_token") == "t"


def test_a_literal_is_its_own_value(vault: Vault) -> None:
    assert vault.reveal("wJalr", option=OPTION) == "wJalr"
    assert not vault.key_file.exists()


def test_an_environment_variable_is_resolved(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_KEY", "wJalr")

    assert vault.reveal("env:LAKE_KEY", option=OPTION) == "wJalr"


def test_a_file_is_read_without_its_last_line_break(vault: Vault, tmp_path: Path) -> None:
    file = tmp_path / "lake"
    file.write_text("wJalr\n\n")

    assert vault.reveal(f"file:{file}", option=OPTION) == "wJalr\n"


def test_a_secret_can_refer_to_the_environment(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault.store("lake", {OPTION: "env:LAKE_KEY"})
    monkeypatch.setenv("LAKE_KEY", "wJalr")

    assert vault.reveal("secret:lake", option=OPTION) == "wJalr"


@pytest.mark.parametrize(
    ("text", "named", "code"),
    [
        ("secret:lake", ('"lake"',), Code.META_NOT_FOUND_ERR),
        ("env:NOT_SET_AT_ALL", ('"NOT_SET_AT_ALL"',), Code.META_NOT_FOUND_ERR),
        ("file:/no/such/file", ("No",), Code.META_NOT_FOUND_ERR),
        ("file:lake", ("absolute",), Code.OPTION_ERR),
    ],
)
def test_a_reference_without_a_value_is_refused(
    vault: Vault, text: str, named: tuple[str, ...], code: Code
) -> None:
    with pytest.raises(UserError) as refusal:
        vault.reveal(text, option=OPTION)

    assert_names(str(refusal.value), *named)

    assert refusal.value.code is code
    assert OPTION in refusal.value.message + refusal.value.detail


def test_a_missing_value_is_refused_with_the_existing_keys(vault: Vault) -> None:
    vault.store("lake", {"s3.access_key": "AKIA", "s3.session_token": "t"})

    with raises(UserError, Code.META_NOT_FOUND_ERR, '"lake"', "value") as refusal:
        vault.reveal("secret:lake", option=OPTION)

    assert OPTION in refusal.value.message
    assert_names(refusal.value.detail, "s3.access_key, s3.session_token")


def test_a_binary_file_is_refused_without_showing_its_bytes(
    vault: Vault, tmp_path: Path
) -> None:
    file = tmp_path / "lake"
    file.write_bytes(b"secret\xff")

    with raises(UserError, Code.META_NOT_FOUND_ERR, "UTF-8"):
        vault.reveal(f"file:{file}", option=OPTION)


def test_options_reach_tasks_as_ciphertext(vault: Vault) -> None:
    sealed = vault.sealed_for_tasks({OPTION: "wJalr", "s3.region": "é"})

    assert "wJalr" not in sealed.text
    assert sealed.key_file == str(vault.key_file.absolute())
    options = unsealed_with(sealed.key_file, sealed.text)
    assert options == {OPTION: "wJalr", "s3.region": "é"}


def test_a_lost_key_is_not_replaced_silently(vault: Vault) -> None:
    vault.store("lake", {OPTION: "wJalr"})
    vault.key_file.unlink()

    with raises(UserError, Code.SETTINGS_ERR, 'secret.key"'):
        vault.store("other", {OPTION: "x"})

    assert not vault.key_file.exists()


def test_a_secret_of_a_lost_key_is_repaired_by_setting_all_its_values(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault.store("lake", {"s3.access_key": "AKIA", OPTION: "old"})
    monkeypatch.setenv(VARIABLE, "another key of some length")

    with raises(UserError, Code.SETTINGS_ERR, '"lake"', "key") as refusal:
        vault.change("lake", {OPTION: "new"})
    vault.change("lake", {OPTION: "new", "s3.access_key": "AKIB"})

    assert_names(refusal.value.hint, "s3.access_key, s3.secret_key")
    assert vault.reveal("secret:lake", option=OPTION) == "new"


def test_another_key_reveals_nothing(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    vault.store("lake", {OPTION: "wJalr"})
    monkeypatch.setenv(VARIABLE, "another key of some length")

    with raises(UserError, Code.SETTINGS_ERR, "a secret", "key") as refusal:
        vault.reveal("secret:lake", option=OPTION)

    assert "wJalr" not in refusal.value.message + refusal.value.detail + refusal.value.hint
