"""Behaviour common to all object stores: S3, Azure and Google."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from penstock.errors import Code, ExternalError
from penstock.tables.delta import DeltaTables
from tests.error_values import raises
from tests.integration.bucket_jobs import (
    FirstRequest,
    Options,
    access,
    ids,
    job_on,
    location_of,
    on_first_request,
    put_rows,
    read_in_bucket,
    secret,
)
from tests.integration.driving import attempts
from tests.node import CREATE_TABLE, Node, numbered
from tests.servers.azurite import ACCOUNT
from tests.servers.buckets import Bucket
from tests.servers.containers import Container
from tests.servers.google import GoogleBucket, service_account
from tests.servers.proxy import FaultProxy

pytestmark = pytest.mark.integration

S3, GOOGLE = "s3", "google"
# One worker runs all tests with Azurite, because every worker would start its own server.
AZURE = pytest.param("azure", marks=pytest.mark.xdist_group("azurite"))
ODD_NAMES = ["with space", "ümläut", "100%25", "a#b", "a+b&c=d", "quote'd", "[x]", "a?b", "😀"]


@dataclass(frozen=True, kw_only=True)
class ObjectStore:
    """A bucket of one kind of store."""

    # The bucket itself, without a proxy.
    direct: Bucket | Container
    root: str
    options: Options
    endpoint: str
    # Returns the options to access the bucket through a proxy.
    through: Callable[[str], Options]
    # The text that identifies the object in/a.json in the path of a request.
    in_path: str = "in/a.json"

    def job(self, options: Options | None = None, **more: str) -> str:
        """Return statements that create a table and a job that loads it."""
        given = {**(options or self.options), **more}
        return f"{CREATE_TABLE}; {job_on(f'{self.root}in/**/*.json', given)}"

    @contextmanager
    def before_read(self, node: Node, act: Callable[[], None]) -> Iterator[FirstRequest]:
        """Create a job that uses a proxy; call a function before in/a.json is read."""
        proxy = FaultProxy(self.endpoint)
        proxy.up()
        try:
            node.sql(self.job(self.through(proxy.endpoint)))
            yield on_first_request(proxy, FirstRequest(act, path=self.in_path))
        finally:
            proxy.down()

    def rows(self, node: Node) -> list[dict[str, object]]:
        """Return the rows of a table in the bucket."""
        location = location_of(node).replace("gs://", "s3://")
        return sorted(read_in_bucket(location, self.direct), key=lambda row: row["id"])


@pytest.fixture(params=[S3, AZURE, GOOGLE])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ObjectStore:
    """An empty bucket of each kind, or of the kinds that the test names."""
    for name in [name for name in os.environ if name.startswith(("AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    match request.param:
        case "s3":
            return s3_store(request.getfixturevalue("bucket"))
        case "azure":
            return azure_store(request.getfixturevalue("container"))
        case _:
            return google_store(request.getfixturevalue("google_bucket"), tmp_path)


def s3_store(bucket: Bucket) -> ObjectStore:
    return ObjectStore(
        direct=bucket,
        root=bucket.uri(),
        options=access(bucket),
        endpoint=bucket.endpoint,
        through=lambda endpoint: access(replace(bucket, endpoint=endpoint)),
    )


def azure_store(container: Container) -> ObjectStore:
    return ObjectStore(
        direct=container,
        root=container.uri(""),
        options=access(container),
        endpoint=container.endpoint.removesuffix(f"/{ACCOUNT}"),
        through=lambda at: access(replace(container, endpoint=f"{at}/{ACCOUNT}")),
    )


def google_store(bucket: GoogleBucket, folder: Path) -> ObjectStore:
    def through(endpoint: str) -> Options:
        file = folder / "account.json"
        file.write_text(service_account(endpoint, bucket.server.key))
        return {"gs.service_account": f"file:{file}"}

    return ObjectStore(
        direct=bucket.direct,
        root=bucket.uri(),
        options=through(bucket.server.endpoint),
        endpoint=bucket.server.endpoint,
        through=through,
        in_path="in%2Fa",
    )


@pytest.fixture
def stored(store: ObjectStore, tmp_path: Path) -> Iterator[Node]:
    """A node whose tables are in the bucket."""
    name = "wh"
    node = Node(tmp_path / "home", warehouse=f"{store.root}wh", warehouse_secret=name)
    node.sql(secret(name, store.options))
    yield node
    node.catalog.close()


@pytest.mark.parametrize("listing", ["auto", "true", "false"])
def test_a_job_loads_every_row_of_every_object_once(
    node: Node, store: ObjectStore, listing: str
) -> None:
    put_rows(store.direct, "in/b.json", 1, 2)
    node.sql(store.job(ordered_listing=listing))
    node.run()
    put_rows(store.direct, "in/a.json", 3)
    put_rows(store.direct, "in/c.json", 4)

    node.run()

    assert node.rows("t") == numbered(1, 2, 3, 4)
    assert (node.show("j")["files_loaded"], node.show("j")["rows_loaded"]) == (3, 4)
    assert node.show("j")["position"] == "in/c.json"


def test_a_changed_object_is_counted_and_not_loaded_again(
    node: Node, store: ObjectStore
) -> None:
    put_rows(store.direct, "in/a.json", 1)
    node.sql(store.job())
    node.run()

    put_rows(store.direct, "in/a.json", 2)
    node.run()

    assert ids(node) == [1]
    assert node.show("j")["files_modified"] == 1


def test_a_changed_object_can_stop_the_job(node: Node, store: ObjectStore) -> None:
    put_rows(store.direct, "in/a.json", 1)
    node.sql(store.job(modified_files="fail"))
    node.run()

    put_rows(store.direct, "in/a.json", 2)
    (report,) = node.run()

    assert ids(node) == [1]
    assert node.show("j")["state"] == "PAUSED"
    assert report.state.desired.reason is not None
    assert report.state.desired.reason.code is Code.CANNOT_RESUME_ERR
    assert '"in/a.json"' in report.state.desired.reason.message


def test_an_epoch_is_planned_again_if_an_object_is_replaced_before_it_is_read(
    node: Node, store: ObjectStore
) -> None:
    put_rows(store.direct, "in/a.json", 1)

    with store.before_read(node, lambda: put_rows(store.direct, "in/a.json", 7, 8)) as once:
        node.run()
        assert once.done
        assert ids(node) == [7, 8]
        assert attempts(node) == [(1, 1, "FAILED"), (1, 2, "COMMITTED")]
        node.run()
    assert node.show("j")["files_modified"] == 0


def test_an_epoch_is_planned_without_an_object_deleted_before_it_is_read(
    node: Node, store: ObjectStore
) -> None:
    put_rows(store.direct, "in/a.json", 1)
    put_rows(store.direct, "in/b.json", 2)

    with store.before_read(node, lambda: store.direct.delete("in/a.json")) as once:
        node.run()

    assert once.done
    assert ids(node) == [2]
    assert node.show("j")["files_loaded"] == 1


def test_keys_with_any_characters_are_loaded(node: Node, store: ObjectStore) -> None:
    for number, name in enumerate(ODD_NAMES):
        put_rows(store.direct, f"in/{name}/{name}.json", number)
    node.sql(store.job())

    node.run()
    node.run()

    assert ids(node) == list(range(len(ODD_NAMES)))


def test_a_missing_bucket_is_reported_by_name(node: Node, store: ObjectStore) -> None:
    missing = f"{store.root.partition('//')[0]}//no-such-bucket-here/"
    node.sql(CREATE_TABLE)

    with raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, missing, "bucket does not exist"):
        node.sql(job_on(f"{missing}in/", store.options))


def test_rows_are_loaded_from_a_bucket_into_a_bucket(stored: Node, store: ObjectStore) -> None:
    put_rows(store.direct, "in/1.json", 1, 2)
    stored.sql(store.job())
    stored.run()
    put_rows(store.direct, "in/0.json", 3)

    again = stored.restart()
    again.run()

    assert store.rows(again) == numbered(1, 2, 3)
    assert location_of(again).startswith(f"{store.root}wh/t-")
    again.catalog.close()


def test_a_warehouse_is_probed_before_use(stored: Node, store: ObjectStore) -> None:
    assert isinstance(stored.tables, DeltaTables)

    finding = stored.tables.probe()

    assert finding == f"{store.root}wh is readable and writable; conditional writes work"
    assert store.direct.keys() == []


def test_a_dropped_table_leaves_nothing_in_the_bucket(stored: Node, store: ObjectStore) -> None:
    put_rows(store.direct, "in/1.json", 1)
    stored.sql(store.job())
    stored.run()

    stored.sql("DROP JOB j; DROP TABLE t")

    assert store.direct.keys() == ["in/1.json"]
