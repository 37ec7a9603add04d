"""Jobs that load from a bucket of Google, and tables that lie in one."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from penstock.errors import ExternalError
from penstock.tables.delta import DeltaTables
from tests.integration.bucket_jobs import (
    Once,
    ids,
    job_on,
    location_of,
    meet_once,
    put_rows,
    read_in_bucket,
    secret,
)
from tests.integration.driving import attempts, idle, rounds_until, supervised
from tests.node import CREATE_TABLE, Node, numbered
from tests.servers.google import GoogleBucket, service_account
from tests.servers.proxy import FaultProxy

pytestmark = pytest.mark.integration

ODD_NAMES = ["with space", "ümläut", "100%25", "a#b", "a+b&c=d", "quote'd", "[x]", "a?b", "😀"]

NO_KEY = json.dumps(
    {"client_email": "somebody", "private_key_id": "one", "private_key": "canary"}
)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GOOGLE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def account(google_bucket: GoogleBucket, tmp_path: Path) -> dict[str, str]:
    """The options that open the bucket: the key file of a service account."""
    return written(google_bucket.account, tmp_path / "account.json")


@pytest.fixture
def stored(
    google_bucket: GoogleBucket, account: dict[str, str], tmp_path: Path
) -> Iterator[Node]:
    """A node whose tables lie in the bucket."""
    name = "wh"
    node = Node(tmp_path / "home", warehouse=google_bucket.uri("wh"), warehouse_secret=name)
    node.sql(secret(name, account))
    yield node
    node.catalog.close()


@pytest.fixture
def proxy(google_bucket: GoogleBucket) -> Iterator[FaultProxy]:
    """A proxy before the bucket."""
    made = FaultProxy(google_bucket.server.endpoint)
    made.up()
    yield made
    made.down()


def written(account: str, path: Path) -> dict[str, str]:
    path.write_text(account)
    return {"gs.service_account": f"file:{path}"}


def through(proxy: FaultProxy, bucket: GoogleBucket, folder: Path) -> dict[str, str]:
    """Answer the options that open the bucket behind the proxy."""
    return written(service_account(proxy.endpoint, bucket.server.key), folder / "proxied.json")


def start(node: Node, bucket: GoogleBucket, options: dict[str, str], **more: str) -> None:
    node.sql(f"{CREATE_TABLE}; {job_on(bucket.uri('in/**/*.json'), {**options, **more})}")


def stored_rows(node: Node, bucket: GoogleBucket) -> list[dict[str, object]]:
    """Answer the rows of the table, read past the server of this process."""
    place = location_of(node).replace("gs://", "s3://")
    return sorted(read_in_bucket(place, bucket.direct), key=lambda row: row["id"])


@pytest.mark.parametrize("listing", ["auto", "false"])
def test_a_job_loads_every_row_of_every_object_once(
    node: Node, google_bucket: GoogleBucket, account: dict[str, str], listing: str
) -> None:
    put_rows(google_bucket.direct, "in/b.json", 1, 2)
    start(node, google_bucket, account, ordered_listing=listing)
    node.run()
    put_rows(google_bucket.direct, "in/a.json", 3)
    put_rows(google_bucket.direct, "in/c.json", 4)

    node.run()

    assert node.rows("t") == numbered(1, 2, 3, 4)
    assert node.show("j")["files_loaded"] == 3
    assert node.show("j")["position"] == "in/c.json"


def test_looks_ask_only_for_keys_behind_the_loaded_ones(
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

    begins = {r.parameters.get("start-after") for r in proxy.requests if r.listing}
    assert {None, "in/a.json"} <= begins
    assert ids(node) == [1, 2]


def test_keys_with_any_characters_are_loaded(
    node: Node, google_bucket: GoogleBucket, account: dict[str, str]
) -> None:
    for number, name in enumerate(ODD_NAMES):
        put_rows(google_bucket.direct, f"in/{name}/{name}.json", number)
    start(node, google_bucket, account)

    node.run()
    node.run()

    assert ids(node) == list(range(len(ODD_NAMES)))


def test_an_object_replaced_before_it_is_read_is_planned_anew(
    node: Node, google_bucket: GoogleBucket, proxy: FaultProxy, tmp_path: Path
) -> None:
    put_rows(google_bucket.direct, "in/a.json", 1)
    start(node, google_bucket, through(proxy, google_bucket, tmp_path))

    replaced = Once(lambda: put_rows(google_bucket.direct, "in/a.json", 7, 8), path="in%2Fa")
    once = meet_once(proxy, replaced)
    node.run()

    assert once.done
    assert ids(node) == [7, 8]
    assert attempts(node) == [(1, 1, "FAILED"), (1, 2, "COMMITTED")]


def test_a_key_of_another_account_is_refused_without_being_shown(
    node: Node, google_bucket: GoogleBucket, tmp_path: Path
) -> None:
    put_rows(google_bucket.direct, "in/a.json", 1)
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    account = service_account(google_bucket.server.endpoint, other)

    with pytest.raises(ExternalError, match="access was refused") as refused:
        start(node, google_bucket, written(account, tmp_path / "other.json"))

    told = f"{refused.value} {refused.value.detail} {refused.value.hint}"
    assert "gs.service_account" in told
    assert json.loads(account)["private_key"] not in told
    assert node.sql("SHOW JOBS") == []


@pytest.mark.parametrize(
    "account", ["canary", '"canary"', "{}", '{"gcs_base_url": 1}', NO_KEY], ids=range(5)
)
def test_what_is_no_key_of_an_account_is_told_without_being_shown(
    node: Node, google_bucket: GoogleBucket, tmp_path: Path, account: str
) -> None:
    with pytest.raises(ExternalError, match="the service account's key") as refused:
        start(node, google_bucket, written(account, tmp_path / "odd.json"))

    told = f"{refused.value} {refused.value.detail} {refused.value.hint}"
    assert "gs.service_account" in told
    assert "canary" not in told


def test_a_bucket_that_does_not_exist_is_said_so(node: Node, account: dict[str, str]) -> None:
    node.sql(CREATE_TABLE)

    with pytest.raises(ExternalError, match="the bucket does not exist") as missing:
        node.sql(job_on("gs://no-such-bucket-here/in/", account))

    assert "gs://no-such-bucket-here/" in missing.value.message


def test_rows_are_loaded_from_a_bucket_into_a_bucket(
    stored: Node, google_bucket: GoogleBucket, account: dict[str, str]
) -> None:
    put_rows(google_bucket.direct, "in/1.json", 1, 2)
    start(stored, google_bucket, account)
    stored.run()
    put_rows(google_bucket.direct, "in/0.json", 3)

    again = stored.restart()
    again.run()

    assert stored_rows(again, google_bucket) == numbered(1, 2, 3)
    assert location_of(again).startswith(google_bucket.uri("wh/t-"))
    again.catalog.close()


def test_a_warehouse_is_tried_before_it_is_trusted(
    stored: Node, google_bucket: GoogleBucket
) -> None:
    assert isinstance(stored.tables, DeltaTables)

    said = stored.tables.probe()

    place = google_bucket.uri("wh")
    assert said == f"{place} can be written and read; of two writers one wins"
    assert google_bucket.direct.keys() == []


def test_a_dropped_table_leaves_nothing_in_the_bucket(
    stored: Node, google_bucket: GoogleBucket, account: dict[str, str]
) -> None:
    put_rows(google_bucket.direct, "in/1.json", 1)
    start(stored, google_bucket, account)
    stored.run()

    stored.sql("DROP JOB j; DROP TABLE t")

    assert google_bucket.direct.keys() == ["in/1.json"]
