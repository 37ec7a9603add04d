"""Options of a bucket: contradictions are refused, and referenced values are never shown."""

from dataclasses import replace

import pytest

from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.model.options import from_sealed_pairs, sealed_pairs
from penstock.storage.bucket import bucket_failures
from penstock.storage.options import (
    Choice,
    Provider,
    StoreOptions,
    hidden_values,
    require_applicable,
    resolve_store_options,
)
from tests.error_values import assert_names, raises

CANARY = "canary-7f3a"


def given(_key: str, text: str) -> str:
    """Reveal every reference as the same value."""
    return CANARY if text.startswith(("secret:", "env:", "file:")) else text


def all_texts(error: PenstockError) -> str:
    return f"{error} {error.detail} {error.hint}"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (StoreOptions(role_arn="env:ROLE"), ("ARN", "env:ROLE")),
        (StoreOptions(role_arn="secret:s"), ("ARN", "SECRET")),
        (StoreOptions(role_arn="file:/k"), ("ARN", "file:/k")),
        (StoreOptions(role_arn="loader"), ("ARN", '"loader"')),
        (StoreOptions(endpoint="ftp://host"), ("http://", '"ftp://host"')),
    ],
)
def test_a_wrong_value_is_shown_as_it_is_written(
    options: StoreOptions, named: tuple[str, ...]
) -> None:
    with raises(UserError, Code.OPTION_ERR, *named) as refused:
        resolve_store_options(options, given)

    assert CANARY not in all_texts(refused.value)


def test_a_wrong_referenced_address_is_not_shown() -> None:
    options = StoreOptions(endpoint="env:PLACE")

    with raises(UserError, Code.OPTION_ERR, "http://", "env:PLACE") as refused:
        resolve_store_options(options, lambda *_: f"ftp://{CANARY}")

    assert CANARY not in all_texts(refused.value)


def test_references_are_sent_to_tasks_with_their_values() -> None:
    options = resolve_store_options(StoreOptions(endpoint="env:PLACE", region="here"), given)

    again = from_sealed_pairs(StoreOptions, sealed_pairs(options), what="a bucket")

    assert again == options
    assert again.origins == (("s3.endpoint", "env:PLACE"),)


def test_a_referenced_value_in_an_error_of_a_library_is_not_shown() -> None:
    options = resolve_store_options(
        StoreOptions(endpoint="env:PLACE", region="here"), lambda *_: f"http://{CANARY}:1/"
    )

    with pytest.raises(ExternalError) as failed, bucket_failures("request failed", options):
        raise OSError(f"error sending request for url (http://{CANARY}:1/bucket) here")

    assert_names(failed.value.detail, "(***bucket)")
    assert CANARY not in all_texts(failed.value)


def test_only_secrets_and_referenced_values_are_hidden() -> None:
    options = StoreOptions(
        endpoint="http://minio:9000",
        region="moon",
        access_key="one",
        origins=(("s3.region", "env:AWS_REGION"),),
    )

    assert set(hidden_values(options)) == {"one", "moon"}


KEYS = StoreOptions(access_key="one", secret_key="two")  # noqa: S106 - No password.


@pytest.mark.parametrize(
    ("uri", "options", "key"),
    [
        ("file:///in/", KEYS, "s3.access_key"),
        ("s3://orders/in/", StoreOptions(service_account="{}"), "gs.service_account"),
        ("gs://orders/in/", KEYS, "s3.access_key"),
        ("gs://orders/in/", StoreOptions(endpoint="minio"), "s3.endpoint"),
        ("gs://orders/in/", StoreOptions(region="here"), "s3.region"),
        ("gs://orders/in/", StoreOptions(role_arn="arn:x"), "s3.role_arn"),
        ("az://orders/in/", StoreOptions(region="here"), "s3.region"),
        ("az://orders/in/", replace(KEYS, session_token="three"), "s3.session_token"),  # noqa: S106
        ("az://orders/in/", StoreOptions(role_arn="arn:x"), "s3.role_arn"),
        ("az://orders/in/", StoreOptions(path_style=Choice.TRUE), "use_path_style"),
        ("az://orders/in/", StoreOptions(service_account="{}"), "gs.service_account"),
    ],
)
def test_an_option_of_another_store_is_refused(
    uri: str, options: StoreOptions, key: str
) -> None:
    scheme = uri.partition("/")[0]

    with raises(UserError, Code.OPTION_ERR, f'"{key}"', f"{scheme}//"):
        require_applicable(uri, options)


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://orders/in/", replace(KEYS, endpoint="minio", provider=Provider.GCP)),
        ("s3://orders/in/", StoreOptions(role_arn="arn:x", external_id="x", region="here")),
        ("gs://orders/in/", StoreOptions(service_account="{}", provider=Provider.GCP)),
        ("az://orders/in/", replace(KEYS, endpoint="lake", provider=Provider.AZURE)),
    ],
)
def test_options_of_the_store_are_accepted(uri: str, options: StoreOptions) -> None:
    require_applicable(uri, options)


@pytest.mark.parametrize(
    ("uri", "provider", "named"),
    [
        ("s3://orders/in/", Provider.AZURE, ("s3://", '"azure"')),
        ("gs://orders/in/", Provider.AWS, ("gs://", '"aws"')),
        ("az://orders/in/", Provider.GCP, ("az://", '"gcp"')),
    ],
)
def test_the_provider_of_another_store_is_refused(
    uri: str, provider: Provider, named: tuple[str, ...]
) -> None:
    with raises(UserError, Code.OPTION_ERR, *named) as refused:
        require_applicable(uri, StoreOptions(provider=provider))

    assert "az://container/" in refused.value.hint
