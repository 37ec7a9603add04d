"""Credentials of the default chain: their sources, and errors when there are none."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path

import pytest

from penstock.aws import credentials as aws_credentials
from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.storage.options import StoreOptions
from penstock.storage.store import open_store
from tests.error_values import raises
from tests.integration.bucket_jobs import (
    QuietHandler,
    bare_aws,
    bucket_job,
    ids,
    job_on,
    put_rows,
    serving,
    signed_by,
    through_proxy,
    write_profile,
)
from tests.integration.routine_loads import close_clients
from tests.node import CREATE_TABLE, Node
from tests.servers.buckets import Bucket
from tests.servers.moto import MotoServer
from tests.servers.proxy import Proxied

pytestmark = pytest.mark.integration

ROLE = "arn:aws:iam::123456789012:role/loader"
BUCKET_JOB = job_on("s3://orders/in/", {})
ROUTINE_LOAD = (
    "CREATE ROUTINE LOAD r ON t PROPERTIES('format' = 'json') "
    "FROM KINESIS('aws.region' = 'eu-west-1', 'kinesis_stream' = 'orders'{more})"
)
STATEMENTS = pytest.mark.parametrize(
    "statement", [BUCKET_JOB, ROUTINE_LOAD.format(more="")], ids=["bucket", "stream"]
)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    bare_aws(monkeypatch, tmp_path)
    yield
    close_clients()


@pytest.fixture
def open_to_all(moto_bucket: Bucket) -> Iterator[Proxied]:
    """A bucket with one object, open to all keys, and a proxy that records requests."""
    put_rows(moto_bucket, "in/1.json", 1)
    with through_proxy(moto_bucket) as proxied:
        yield proxied


@dataclass
class Metadata:
    """A server of credentials for a container, or for an instance and its role."""

    # Paths that are not found.
    missing: tuple[str, ...] = ()
    failing: bool = False
    requests: list[str] = field(default_factory=list)

    def respond(self, path: str) -> tuple[int, str]:
        """Return the content of a path."""
        self.requests.append(path)
        if self.failing:
            return HTTPStatus.SERVICE_UNAVAILABLE, "not now"
        if path.startswith(self.missing):
            return HTTPStatus.NOT_FOUND, "nothing"
        if path.endswith("/api/token"):
            return HTTPStatus.OK, "a-token"
        return HTTPStatus.OK, "loader" if path.endswith("credentials/") else _credentials()


def _credentials() -> str:
    ends_at = datetime.now(UTC) + timedelta(hours=1)
    return json.dumps(
        {
            "Code": "Success",
            "AccessKeyId": "TEMPORARY",
            "SecretAccessKey": "hidden",
            "Token": "for-an-hour",
            "Expiration": f"{ends_at:%Y-%m-%dT%H:%M:%SZ}",
        }
    )


@contextmanager
def metadata_server(metadata: Metadata) -> Iterator[str]:
    """Serve the metadata of a machine; yield the address."""

    class Handler(QuietHandler):
        def _respond(self) -> None:
            self.send(*metadata.respond(self.path))

        do_GET = do_PUT = _respond  # noqa: N815 - Called by these names.

    with serving(Handler) as endpoint:
        yield endpoint


def load(node: Node, place: Proxied) -> set[str]:
    """Load the bucket without keys; return the access keys that signed the requests."""
    options = {"s3.endpoint": place.bucket.endpoint}
    node.sql(f"{CREATE_TABLE}; {bucket_job(place.bucket, options=options)}")
    node.run()
    assert ids(node) == [1]
    return {signed_by(request) for request in place.proxy.requests}


def test_without_keys_requests_are_signed_with_keys_of_a_web_identity(
    node: Node,
    open_to_all: Proxied,
    moto: MotoServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text("a known token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto.endpoint)

    signers = load(node, open_to_all)

    assert {name[:4] for name in signers} == {"ASIA"}
    assert all(r.headers["x-amz-security-token"] for r in open_to_all.proxy.requests)


def test_without_keys_requests_are_signed_with_keys_of_a_container(
    node: Node, open_to_all: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = Metadata()
    with metadata_server(metadata) as endpoint:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{endpoint}/mine")

        signers = load(node, open_to_all)

    assert signers == {"TEMPORARY"}
    assert set(metadata.requests) == {"/mine"}
    tokens = {r.headers["x-amz-security-token"] for r in open_to_all.proxy.requests}
    assert tokens == {"for-an-hour"}


@pytest.mark.parametrize("missing", [(), ("/latest/api/",)], ids=["with-token", "without"])
def test_without_keys_requests_are_signed_with_keys_of_an_instance(
    node: Node,
    open_to_all: Proxied,
    monkeypatch: pytest.MonkeyPatch,
    missing: tuple[str, ...],
) -> None:
    metadata = Metadata(missing=missing)
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    with metadata_server(metadata) as endpoint:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{endpoint}/")

        signers = load(node, open_to_all)

    assert signers == {"TEMPORARY"}
    assert "/latest/meta-data/iam/security-credentials/loader" in metadata.requests


@STATEMENTS
def test_one_of_two_keys_in_the_environment_is_an_error_that_names_the_other(
    node: Node, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ONLY")
    node.sql(CREATE_TABLE)

    with raises(UserError, Code.OPTION_ERR, "AWS_SECRET_ACCESS_KEY", "environment") as bad:
        node.sql(statement)

    assert bad.value.hint


@STATEMENTS
def test_a_profile_that_does_not_exist_is_reported(
    node: Node, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "laoding")
    node.sql(CREATE_TABLE)

    with raises(UserError, Code.OPTION_ERR, 'profile "laoding"') as bad:
        node.sql(statement)

    assert "AWS_PROFILE" in bad.value.hint


def test_a_profile_that_does_not_exist_is_reported_despite_given_keys_of_a_stream(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "laoding")
    keys = ", 'aws.access_key' = 'one', 'aws.secret_key' = 'two'"
    node.sql(CREATE_TABLE)

    with raises(UserError, Code.OPTION_ERR, 'profile "laoding"'):
        node.sql(ROUTINE_LOAD.format(more=keys))


def test_a_profile_that_does_not_exist_is_reported_before_a_role_is_assumed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "laoding")
    node.sql(CREATE_TABLE)

    with raises(UserError, Code.OPTION_ERR, "role", 'profile "laoding"'):
        node.sql(job_on("s3://orders/in/", {"s3.role_arn": ROLE}))


def test_one_of_two_keys_in_a_profile_is_reported(
    node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "credentials").write_text("[loading]\naws_access_key_id = ONLY\n")
    monkeypatch.setenv("AWS_PROFILE", "loading")
    node.sql(CREATE_TABLE)

    with raises(UserError, Code.OPTION_ERR, "aws_secret_access_key", "file"):
        node.sql(BUCKET_JOB)


def test_a_file_of_profiles_that_cannot_be_read_is_reported(
    node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("no profile, no value\n")
    monkeypatch.setenv("AWS_PROFILE", "loading")
    node.sql(CREATE_TABLE)

    with raises(UserError, Code.OPTION_ERR, f'"{tmp_path}/config"'):
        node.sql(BUCKET_JOB)


def test_an_address_without_credentials_is_reported(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.com/keys")
    node.sql(CREATE_TABLE)

    with raises(UserError, Code.OPTION_ERR, "AWS_") as bad:
        node.sql(BUCKET_JOB)

    assert "AWS_CONTAINER_CREDENTIALS_FULL_URI" in bad.value.hint


@STATEMENTS
def test_a_container_without_credentials_is_retried(
    node: Node, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    node.sql(CREATE_TABLE)
    with metadata_server(Metadata(failing=True)) as endpoint:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{endpoint}/mine")

        with raises(
            ExternalError,
            Code.GET_REMOTE_DATA_ERROR,
            "CredentialRetrievalError",
            "container-role",
        ):
            node.sql(statement)


@STATEMENTS
def test_a_web_identity_without_its_token_is_retried(
    node: Node, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/no/such/token")
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    node.sql(CREATE_TABLE)

    with raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, '"/no/such/token"', "No such file"):
        node.sql(statement)


@pytest.mark.parametrize(
    ("credentials", "kind", "code"),
    [
        ("[loading]\naws_access_key_id = ONLY\n", UserError, Code.OPTION_ERR),
        ("[other]\n", UserError, Code.OPTION_ERR),
        ("[loading]\n", ExternalError, Code.GET_REMOTE_DATA_ERROR),
    ],
    ids=["half", "no-profile", "nothing"],
)
def test_keys_that_disappear_later_are_reported_by_their_source(
    open_to_all: Proxied,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    credentials: str,
    kind: type[PenstockError],
    code: Code,
) -> None:
    monkeypatch.setattr(aws_credentials, "_CHAIN_LIFE", timedelta(0))
    monkeypatch.setenv("AWS_PROFILE", "loading")
    write_profile(tmp_path, "loading", key="PROFILE")
    options = StoreOptions(endpoint=open_to_all.bucket.endpoint)
    store, _ = open_store(open_to_all.bucket.uri(), options)
    store.read_bytes("in/1.json")

    (tmp_path / "credentials").write_text(credentials)

    with raises(kind, code, "in/1.json", "credentials") as refused:
        store.read_bytes("in/1.json")
    assert refused.value.hint
