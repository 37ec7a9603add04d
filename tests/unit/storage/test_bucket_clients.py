"""Endpoints of stores, as users write them and as clients need them."""

import pytest

from penstock.storage.bucket_clients import azure_endpoint, path_style
from penstock.storage.options import StoreOptions


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AZURE_STORAGE_ENDPOINT",
        "AZURE_ENDPOINT",
        "AWS_ENDPOINT_URL_S3",
        "AWS_ENDPOINT_URL",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", ""),
        ("lake.blob.core.windows.net", "https://lake.blob.core.windows.net"),
        ("https://lake.blob.core.windows.net/", "https://lake.blob.core.windows.net"),
        ("http://127.0.0.1:10000/devstoreaccount1", "http://127.0.0.1:10000/devstoreaccount1"),
    ],
)
def test_the_endpoint_of_an_account_can_omit_the_scheme(given: str, expected: str) -> None:
    assert azure_endpoint(StoreOptions(endpoint=given)) == expected


def test_the_endpoint_of_an_account_can_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:10000/devstoreaccount1")

    assert azure_endpoint(StoreOptions()) == "http://127.0.0.1:10000/devstoreaccount1"
    assert azure_endpoint(StoreOptions(endpoint="other.net")) == "https://other.net"


@pytest.mark.parametrize(
    ("endpoint", "in_path"),
    [
        ("", False),
        ("https://s3.eu-west-1.amazonaws.com", False),
        ("s3.dualstack.eu-west-1.amazonaws.com", False),
        ("s3.cn-north-1.amazonaws.com.cn", False),
        ("https://minio.example.com", True),
    ],
)
def test_a_bucket_of_aws_is_part_of_the_host_by_default(
    endpoint: str, *, in_path: bool
) -> None:
    assert path_style(StoreOptions(endpoint=endpoint)) is in_path
