"""Jobs that load from a Google bucket, and tables in a Google bucket."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from penstock.errors import Code, ExternalError
from tests.error_values import raises
from tests.integration.bucket_jobs import ids, job_on, put_rows
from tests.integration.driving import idle, rounds_until, supervised
from tests.node import CREATE_TABLE, Node
from tests.servers.google import GoogleBucket, service_account
from tests.servers.proxy import FaultProxy

pytestmark = pytest.mark.integration

NO_KEY = json.dumps(
    {"client_email": "somebody", "private_key_id": "one", "private_key": "canary"}
)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GOOGLE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def proxy(google_bucket: GoogleBucket) -> Iterator[FaultProxy]:
    """A proxy in front of the bucket."""
    proxy_in_front = FaultProxy(google_bucket.server.endpoint)
    proxy_in_front.up()
    yield proxy_in_front
    proxy_in_front.down()


def written(account: str, path: Path) -> dict[str, str]:
    path.write_text(account)
    return {"gs.service_account": f"file:{path}"}


def through(proxy: FaultProxy, bucket: GoogleBucket, folder: Path) -> dict[str, str]:
    """Return the options to access the bucket through the proxy."""
    return written(service_account(proxy.endpoint, bucket.server.key), folder / "proxied.json")


def start(node: Node, bucket: GoogleBucket, options: dict[str, str], **more: str) -> None:
    node.sql(f"{CREATE_TABLE}; {job_on(bucket.uri('in/**/*.json'), {**options, **more})}")


def test_polls_list_only_keys_after_the_loaded_keys(
    node: Node, google_bucket: GoogleBucket, proxy: FaultProxy, tmp_path: Path
) -> None:
    put_rows(google_bucket.direct, "in/a.json", 1)
    job = job_on(
        google_bucket.uri("in/*.json"),
        through(proxy, google_bucket, tmp_path),
        properties=[("max_interval", "1")],
    )
    node.sql(f"{CREATE_TABLE}; {job}")

    with supervised(node) as supervisor:
        rounds_until(supervisor, idle)
        put_rows(google_bucket.direct, "in/b.json", 2)
        rounds_until(supervisor, lambda _: node.show("j")["rows_loaded"] == 2)

    starts = {r.parameters.get("start-after") for r in proxy.requests if r.listing}
    assert {None, "in/a.json"} <= starts
    assert ids(node) == [1, 2]


def test_a_key_of_another_account_is_refused_without_being_shown(
    node: Node, google_bucket: GoogleBucket, tmp_path: Path
) -> None:
    put_rows(google_bucket.direct, "in/a.json", 1)
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    account = service_account(google_bucket.server.endpoint, other)

    with raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, "access") as refused:
        start(node, google_bucket, written(account, tmp_path / "other.json"))

    error_text = f"{refused.value} {refused.value.detail} {refused.value.hint}"
    assert "gs.service_account" in error_text
    assert json.loads(account)["private_key"] not in error_text
    assert node.sql("SHOW JOBS") == []


@pytest.mark.parametrize(
    "account", ["canary", '"canary"', "{}", '{"gcs_base_url": 1}', NO_KEY], ids=range(5)
)
def test_an_invalid_service_account_is_an_error_that_does_not_show_it(
    node: Node, google_bucket: GoogleBucket, tmp_path: Path, account: str
) -> None:
    with raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, "key") as refused:
        start(node, google_bucket, written(account, tmp_path / "odd.json"))

    error_text = f"{refused.value} {refused.value.detail} {refused.value.hint}"
    assert "gs.service_account" in error_text
    assert "canary" not in error_text
