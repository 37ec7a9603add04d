"""References to secret values, and the keys whose values are secret."""

import pytest

from penstock.errors import Code, UserError
from penstock.model.options import option_fields, option_key, parse_options, rule_of
from penstock.model.secrets import (
    EnvironmentReference,
    FileReference,
    Reference,
    SecretReference,
    is_secret_key,
    reference_of,
    reference_text,
    resembles_secret_key,
)
from penstock.sources.files.kind import FilesOptions
from penstock.sources.kinesis.kind import KinesisOptions
from tests.error_values import raises

REFERENCES: list[tuple[str, Reference]] = [
    ("secret:lake", SecretReference(name="lake")),
    ("env:LAKE_KEY", EnvironmentReference(variable="LAKE_KEY")),
    ("file:/run/secrets/lake", FileReference(path="/run/secrets/lake")),
]


@pytest.mark.parametrize(("text", "reference"), REFERENCES)
def test_a_reference_is_read_and_written(text: str, reference: Reference) -> None:
    assert reference_of(text) == reference
    assert reference_text(reference) == text


@pytest.mark.parametrize("text", ["", "AKIA", "a secret:lake", "Secret:lake", "SECRET 'lake'"])
def test_any_other_text_is_a_literal(text: str) -> None:
    assert reference_of(text) is None


def test_names_of_secrets_are_case_insensitive() -> None:
    assert reference_of("secret:Lake") == SecretReference(name="lake")


@pytest.mark.parametrize(
    "key",
    [
        "access_key",
        "s3.secret_key",
        "AWS.Secret_Access_Key",
        "aws.session-token",
        "kinesis.session_key",
        "gs.service_account",
        "azure.sas_token",
        "azure.account_key",
        "client_secret",
        "a.secret",
        "property.sasl.jaas.config",
        "property.ssl.truststore.password",
        "property.ssl.key.pem",
        "rsa.private.key.first",
    ],
)
def test_a_secret_key_is_recognized_by_its_name(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize("key", ["uri", "s3.endpoint", "path_partition_keys", "key", "secrets"])
def test_other_keys_are_not_secret(key: str) -> None:
    assert not is_secret_key(key)


@pytest.mark.parametrize(
    "key", ["s3.secretkey", "s3.acces_key", "secretAccessKey", "fs.s3a.access.key", "tokens"]
)
def test_a_misspelled_or_foreign_key_resembles_a_secret_key(key: str) -> None:
    assert resembles_secret_key(key)


@pytest.mark.parametrize("key", ["uri", "s3.endpoint", "path_partition_keys", "format"])
def test_other_options_do_not_resemble_a_secret_key(key: str) -> None:
    assert not resembles_secret_key(key)


def test_every_option_that_is_declared_a_secret_has_a_secret_key() -> None:
    declared = [option_key(f) for f in option_fields(FilesOptions) if rule_of(f).secret]

    assert declared
    assert [key for key in declared if not is_secret_key(key)] == []


@pytest.mark.parametrize("mask", ["***", "******"])
def test_a_mask_is_refused_as_the_value_of_a_secret(mask: str) -> None:
    given = {"uri": "s3://a/", "format": "json", "s3.secret_key": mask}

    with raises(UserError, Code.OPTION_ERR, "***") as refusal:
        parse_options(FilesOptions, given.items(), what="FILES")

    assert refusal.value.code is Code.OPTION_ERR
    assert refusal.value.hint


def test_a_mask_is_refused_as_the_key_of_a_stream() -> None:
    given = {"aws.region": "eu-west-1", "kinesis_stream": "s", "aws.secret_key": "***"}

    with raises(UserError, Code.OPTION_ERR, '"aws.secret_key"'):
        parse_options(KinesisOptions, given.items(), what="KINESIS")
