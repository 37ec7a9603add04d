"""Keys, roles, regions and addresses of buckets, and how soon a change takes effect."""

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.aws import credentials as aws_credentials
from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.storage import bucket_clients
from tests.error_values import assert_names, raises
from tests.integration.bucket_jobs import (
    Sts,
    access,
    bare_aws,
    bucket_job,
    ids,
    insert_from,
    job_on,
    put_rows,
    secret,
    signed_by,
    signed_for,
    sts_server,
    through_proxy,
    write_profile,
)
from tests.integration.driving import idle, rounds_until, supervised
from tests.node import CREATE_TABLE, Node
from tests.servers.buckets import Bucket
from tests.servers.child import HOST
from tests.servers.moto import MotoServer
from tests.servers.proxy import Proxied

pytestmark = pytest.mark.integration

ROLE = "arn:aws:iam::123456789012:role/loader"
OFTEN = [("max_interval", "1")]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare_aws(monkeypatch, tmp_path)


@pytest.fixture
def _no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try an unreachable server only once."""
    monkeypatch.setitem(bucket_clients._RETRIES, "max_retries", 0)


@pytest.fixture
def open_to_all(moto_bucket: Bucket) -> Iterator[Proxied]:
    """A bucket with one object that accepts any keys, with a proxy that records requests."""
    put_rows(moto_bucket, "in/1.json", 1)
    with through_proxy(moto_bucket) as proxied:
        yield proxied


def keys(name: str) -> dict[str, str]:
    return {"s3.access_key": name, "s3.secret_key": f"secret of {name}"}


def test_an_endpoint_is_accessed_with_its_scheme(node: Node, bucket: Bucket) -> None:
    put_rows(bucket, "in/1.json", 1, 2)

    node.sql(f"{CREATE_TABLE}; {bucket_job(bucket)}")
    node.run()

    assert bucket.endpoint.startswith("http://")
    assert ids(node) == [1, 2]


@pytest.mark.usefixtures("_no_retries")
def test_an_endpoint_without_a_scheme_is_accessed_with_tls(node: Node) -> None:
    received: list[bytes] = []
    with socket.create_server((HOST, 0)) as server:
        listener = threading.Thread(target=lambda: received.append(_first_bytes(server)))
        listener.start()
        options = {"s3.endpoint": f"{HOST}:{server.getsockname()[1]}", **keys("one")}
        node.sql(CREATE_TABLE)

        with raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, "s3://orders/"):
            node.sql(job_on("s3://orders/in/", options))

        listener.join()
    handshake = b"\x16\x03"
    assert received[0].startswith(handshake)


def _first_bytes(server: socket.socket) -> bytes:
    connection, _ = server.accept()
    with connection:
        return connection.recv(16)


def test_requests_are_signed_for_the_given_region(node: Node, open_to_all: Proxied) -> None:
    options = {**access(open_to_all.bucket), "s3.region": "eu-west-3"}

    node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket, options=options)}")
    node.run()

    assert {signed_for(request) for request in open_to_all.proxy.requests} == {"eu-west-3"}


def test_requests_are_signed_for_the_region_of_the_environment(
    node: Node, open_to_all: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "sa-east-1")

    node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket)}")

    assert {signed_for(request) for request in open_to_all.proxy.requests} == {"sa-east-1"}


def test_requests_are_signed_for_us_east_1_otherwise(node: Node, open_to_all: Proxied) -> None:
    node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket)}")

    assert {signed_for(request) for request in open_to_all.proxy.requests} == {"us-east-1"}


@pytest.mark.parametrize("wrong", ["s3.access_key", "s3.secret_key"])
def test_wrong_keys_are_refused_at_create_without_being_shown(
    node: Node, bucket: Bucket, wrong: str
) -> None:
    put_rows(bucket, "in/1.json", 1)
    options = {**access(bucket), wrong: "0123456789abcdef"}
    node.sql(CREATE_TABLE)

    with raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, "refused") as refused:
        node.sql(bucket_job(bucket, options=options))

    error_text = f"{refused.value} {refused.value.detail} {refused.value.hint}"
    assert "ALTER SECRET" in error_text
    assert not [value for key, value in options.items() if "key" in key and value in error_text]
    assert node.sql("SHOW JOBS") == []
    assert node.sql("SHOW SECRETS") == []


@pytest.mark.parametrize(
    ("given", "lacking"),
    [("s3.access_key", "s3.secret_key"), ("s3.secret_key", "s3.access_key")],
)
def test_an_access_key_without_a_secret_key_or_the_reverse_is_refused(
    node: Node, given: str, lacking: str
) -> None:
    node.sql(CREATE_TABLE)

    with raises(UserError, Code.OPTION_ERR, f'"{given}"', f'"{lacking}"'):
        node.sql(job_on("s3://orders/in/", {given: "only"}))


def test_a_session_token_is_sent_with_every_request(node: Node, open_to_all: Proxied) -> None:
    options = {**access(open_to_all.bucket), "s3.session_token": "token-of-an-hour"}

    node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket, options=options)}")
    node.run()

    tokens = {r.headers.get("x-amz-security-token") for r in open_to_all.proxy.requests}
    assert tokens == {"token-of-an-hour"}


def test_a_session_token_without_keys_is_refused(node: Node) -> None:
    node.sql(CREATE_TABLE)

    with raises(UserError, Code.OPTION_ERR, '"s3.session_token"', '"s3.access_key"'):
        node.sql(job_on("s3://orders/in/", {"s3.session_token": "token"}))


def test_requests_are_signed_with_the_keys_of_an_assumed_role(
    node: Node, open_to_all: Proxied, moto: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto.endpoint)
    options = {**access(open_to_all.bucket), "s3.role_arn": ROLE}

    node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket, options=options)}")
    node.run()

    signers = {signed_by(request) for request in open_to_all.proxy.requests}
    assert [name[:4] for name in signers] == ["ASIA"]
    assert all(r.headers["x-amz-security-token"] for r in open_to_all.proxy.requests)
    assert ids(node) == [1]


def test_a_role_is_assumed_with_its_external_id(
    node: Node, open_to_all: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    sts = Sts()
    role = {"s3.role_arn": ROLE, "s3.external_id": "shared word"}
    options = {**access(open_to_all.bucket), **role}

    with sts_server(sts) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
        node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket, options=options)}")

    form = sts.requests[0]
    assert (form["RoleArn"], form["ExternalId"]) == (ROLE, "shared word")
    assert all(signed_by(r).startswith("TEMPORARY") for r in open_to_all.proxy.requests)


def test_a_role_is_assumed_once_while_its_keys_are_valid(
    node: Node, open_to_all: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    sts = Sts(life=timedelta(hours=1))
    options = {**access(open_to_all.bucket), "s3.role_arn": ROLE}

    with sts_server(sts) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
        node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket, options=options)}")
        node.run()
        node.run()

    assert len(sts.requests) <= 2
    assert len(open_to_all.proxy.requests) >= 5


def test_a_role_is_assumed_again_before_its_keys_expire(
    node: Node, open_to_all: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    sts = Sts(life=timedelta(seconds=30))
    options = {**access(open_to_all.bucket), "s3.role_arn": ROLE}
    job = bucket_job(open_to_all.bucket, options=options, properties=OFTEN)

    with sts_server(sts) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
        node.sql(f"{CREATE_TABLE}; {job}")
        before = len(sts.requests)
        with supervised(node) as supervisor:
            rounds_until(supervisor, lambda _: len(sts.requests) >= before + 2)
            rounds_until(supervisor, lambda _: node.show("j")["rows_loaded"] == 1)

    signers = {signed_by(request) for request in open_to_all.proxy.requests}
    assert f"TEMPORARY{before + 1}" in signers
    assert ids(node) == [1]


def test_a_refused_role_is_an_error_with_the_reason(
    node: Node, open_to_all: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**access(open_to_all.bucket), "s3.role_arn": ROLE}
    node.sql(CREATE_TABLE)

    with sts_server(Sts(refusing=True)) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
        with raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, f'"{ROLE}"', "AccessDenied"):
            node.sql(bucket_job(open_to_all.bucket, options=options))

    assert not open_to_all.proxy.requests


def test_a_role_that_is_refused_later_pauses_the_job_with_the_reason(
    node: Node, open_to_all: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    sts = Sts(life=timedelta(seconds=30))
    options = {**access(open_to_all.bucket), "s3.role_arn": ROLE}

    with sts_server(sts) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
        node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket, options=options)}")
        sts.refusing = True
        # The first pause resumes at once, so the reason is read as soon as it appears.
        with supervised(node) as supervisor:
            reports = rounds_until(
                supervisor, lambda reports: reports[0].state.desired.reason is not None
            )

    reason = reports[0].state.desired.reason
    assert reason is not None
    assert_names(reason.message, f'"{ROLE}"')


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"s3.external_id": "x"}, ('"s3.external_id"', '"s3.role_arn"')),
        ({"s3.role_arn": "loader"}, ('"s3.role_arn"', "ARN", '"loader"')),
        ({"s3.endpoint": "ftp://host"}, ('"s3.endpoint"', "https://", "http://")),
        ({"use_path_style": "yes"}, ("use_path_style",)),
        ({"provider": "dropbox"}, ("provider",)),
        ({"s3.acces_key": "x"}, ("s3.acces_key",)),
    ],
)
def test_options_without_effect_are_refused(
    node: Node, options: dict[str, str], named: tuple[str, ...]
) -> None:
    node.sql(CREATE_TABLE)

    with raises(UserError, Code.OPTION_ERR, *named):
        node.sql(job_on("s3://orders/in/", options))


@pytest.mark.parametrize("style", ["auto", "true"])
def test_requests_to_a_custom_endpoint_are_path_style(
    node: Node, open_to_all: Proxied, style: str
) -> None:
    options = {**access(open_to_all.bucket), "use_path_style": style}

    node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket, options=options)}")

    host = open_to_all.proxy.endpoint.removeprefix("http://")
    assert {request.headers["host"] for request in open_to_all.proxy.requests} == {host}
    assert all(open_to_all.bucket.name in r.path for r in open_to_all.proxy.requests)


@pytest.mark.parametrize(
    "options",
    [{"use_path_style": "false"}, {"provider": "oss"}, {"provider": "cos"}],
    ids=lambda options: "-".join(options.values()),
)
def test_requests_are_virtual_hosted_style_by_option_or_by_default(
    node: Node, open_to_all: Proxied, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    # The host name does not resolve; the client leaves the connection to this proxy.
    monkeypatch.setenv("HTTP_PROXY", open_to_all.proxy.endpoint)
    given = {**access(open_to_all.bucket), "s3.endpoint": "http://s3.example.test", **options}

    node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket, options=given)}")

    expected = f"{open_to_all.bucket.name}.s3.example.test"
    assert {request.headers["host"] for request in open_to_all.proxy.requests} == {expected}
    assert not [r for r in open_to_all.proxy.requests if open_to_all.bucket.name in r.path]


@pytest.mark.parametrize("provider", ["minio", "ceph", "gcp", "aws", "s3"])
def test_requests_to_other_providers_are_path_style(
    node: Node, open_to_all: Proxied, provider: str
) -> None:
    options = {**access(open_to_all.bucket), "provider": provider}

    node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket, options=options)}")

    assert all(open_to_all.bucket.name in r.path for r in open_to_all.proxy.requests)


def test_without_keys_requests_are_signed_with_keys_of_the_environment(
    node: Node, open_to_all: Proxied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "for-an-hour")
    options = {"s3.endpoint": open_to_all.bucket.endpoint}

    node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket, options=options)}")
    node.run()

    requests = open_to_all.proxy.requests
    assert {signed_by(request) for request in requests} == {"ENVIRONMENT"}
    assert {r.headers["x-amz-security-token"] for r in requests} == {"for-an-hour"}
    assert ids(node) == [1]


def test_without_keys_requests_are_signed_with_keys_of_a_profile(
    node: Node, open_to_all: Proxied, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "loading")
    write_profile(tmp_path, "loading", key="PROFILE1")
    options = {"s3.endpoint": open_to_all.bucket.endpoint}

    node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket, options=options)}")

    assert {signed_by(request) for request in open_to_all.proxy.requests} == {"PROFILE1"}


def test_changed_keys_in_a_profile_are_used_in_time(
    node: Node, open_to_all: Proxied, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(aws_credentials, "_CHAIN_LIFE", timedelta(seconds=1))
    monkeypatch.setenv("AWS_PROFILE", "loading")
    write_profile(tmp_path, "loading", key="PROFILE1")
    options = {"s3.endpoint": open_to_all.bucket.endpoint}
    job = bucket_job(open_to_all.bucket, options=options, properties=OFTEN)
    node.sql(f"{CREATE_TABLE}; {job}")

    write_profile(tmp_path, "loading", key="PROFILE2")

    with supervised(node) as supervisor:
        rounds_until(
            supervisor, lambda _: signed_by(open_to_all.proxy.requests[-1]) == "PROFILE2"
        )


def test_missing_keys_are_an_error_that_lists_where_they_were_searched(
    node: Node, open_to_all: Proxied
) -> None:
    options = {"s3.endpoint": open_to_all.bucket.endpoint}
    node.sql(CREATE_TABLE)

    with raises(
        PenstockError, Code.GET_REMOTE_DATA_ERROR, "credentials", "environment, profile"
    ) as lacking:
        node.sql(bucket_job(open_to_all.bucket, options=options))

    assert "AWS_ACCESS_KEY_ID" in lacking.value.hint
    assert not open_to_all.proxy.requests


def test_t41_a_running_job_uses_a_changed_secret_in_the_next_poll_and_epoch(
    node: Node, open_to_all: Proxied
) -> None:
    node.sql(secret("s", keys("OLD")))
    options = {
        "s3.endpoint": open_to_all.bucket.endpoint,
        "s3.access_key": "SECRET 's'",
        "s3.secret_key": "SECRET 's'",
    }
    job = bucket_job(open_to_all.bucket, options=options, properties=OFTEN)
    node.sql(f"{CREATE_TABLE}; {job}")

    with supervised(node) as supervisor:
        rounds_until(supervisor, idle)
        generation = node.job("j").generation
        node.sql("ALTER SECRET s ('s3.access_key' = 'NEW', 's3.secret_key' = 'other')")
        open_to_all.proxy.clear()
        put_rows(open_to_all.direct, "in/2.json", 2)
        rounds_until(supervisor, lambda _: node.show("j")["rows_loaded"] == 2)

    assert {signed_by(request) for request in open_to_all.proxy.requests} == {"NEW"}
    assert open_to_all.proxy.listings()
    assert open_to_all.proxy.gets("in/2.json")
    assert node.job("j").generation == generation


def test_t41_new_keys_of_an_alter_are_used_in_the_next_poll_and_epoch(
    node: Node, open_to_all: Proxied
) -> None:
    options = {"s3.endpoint": open_to_all.bucket.endpoint, **keys("OLD")}
    node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket, options=options)}; PAUSE JOB j")
    open_to_all.proxy.clear()
    altered = insert_from(open_to_all.bucket.uri("in/*.json"), {**options, **keys("NEW")})

    node.sql(f"ALTER JOB j {altered}; RESUME JOB j")
    node.run()

    assert {signed_by(request) for request in open_to_all.proxy.requests} == {"NEW"}
    assert ids(node) == [1]
    shown = str(node.sql("SHOW CREATE JOB j")[0]["create_statement"])
    assert "secret of NEW" not in shown
    assert "'s3.secret_key' = SECRET 'j_credentials'" in shown


def test_t41_an_alter_with_the_same_keys_changes_nothing_else(
    node: Node, open_to_all: Proxied
) -> None:
    options = {"s3.endpoint": open_to_all.bucket.endpoint, **keys("SAME")}
    node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket, options=options)}; PAUSE JOB j")
    before = node.sql("SHOW CREATE JOB j")

    node.sql(f"ALTER JOB j {insert_from(open_to_all.bucket.uri('in/*.json'), options)}")

    assert node.sql("SHOW CREATE JOB j") == before
    assert [row["name"] for row in node.sql("SHOW SECRETS")] == ["j_credentials"]


def test_t41_a_job_altered_to_use_a_secret_stores_no_keys(
    node: Node, open_to_all: Proxied
) -> None:
    node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket)}; PAUSE JOB j")
    assert [row["name"] for row in node.sql("SHOW SECRETS")] == ["j_credentials"]
    node.sql("CREATE SECRET lake ('s3.access_key' = 'a', 's3.secret_key' = 'b')")

    options = {**access(open_to_all.bucket), **dict.fromkeys(keys(""), "secret:lake")}
    node.sql(f"ALTER JOB j {insert_from(open_to_all.bucket.uri('in/*.json'), options)}")

    secrets = [(row["name"], row["used_by"]) for row in node.sql("SHOW SECRETS")]
    assert secrets == [("lake", "j")]


def test_keys_of_a_job_are_not_stored_in_its_home_in_plain_text(
    node: Node, open_to_all: Proxied
) -> None:
    options = {"s3.endpoint": open_to_all.bucket.endpoint, **keys("one")}

    node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.bucket, options=options)}")
    node.run()

    found = [p for p in node.home.rglob("*") if p.is_file() and holds(p, b"secret of one")]
    assert not found
    assert "secret of one" not in str(node.sql("SHOW EVENTS FOR j"))


def holds(path: Path, text: bytes) -> bool:
    return text in path.read_bytes()
