"""Addresses of stores, as they are written and as clients take them."""

import pytest

from penstock.model.store_options import StoreOptions
from penstock.storage.bucket_clients import azure_endpoint


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("", ""),
        ("lake.blob.core.windows.net", "https://lake.blob.core.windows.net"),
        ("https://lake.blob.core.windows.net/", "https://lake.blob.core.windows.net"),
        ("http://127.0.0.1:10000/devstoreaccount1", "http://127.0.0.1:10000/devstoreaccount1"),
    ],
)
def test_the_address_of_an_account_may_be_written_without_a_scheme(
    given: str, taken: str
) -> None:
    assert azure_endpoint(StoreOptions(endpoint=given)) == taken


def test_the_address_of_an_account_may_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:10000/devstoreaccount1")

    assert azure_endpoint(StoreOptions()) == "http://127.0.0.1:10000/devstoreaccount1"
    assert azure_endpoint(StoreOptions(endpoint="other.net")) == "https://other.net"
