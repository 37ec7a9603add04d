"""Tables in a bucket: created, loaded, read, described and dropped there."""

import json
import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.spark.executor import SparkExecutor
from penstock.storage import bucket as bucket_stream
from penstock.storage import bucket_clients
from penstock.storage.bucket import BucketStream
from tests.error_values import raises
from tests.integration.bucket_jobs import (
    Sts,
    access,
    bare_aws,
    bucket_ids,
    bucket_job,
    bucket_node,
    json_lines,
    location_of,
    put_rows,
    read_in_bucket,
    secret,
    signed_by,
    sts_server,
    through_proxy,
    write_profile,
)
from tests.integration.driving import idle, rounds_until, supervised
from tests.node import CREATE_TABLE, Node, numbered
from tests.servers.buckets import Bucket
from tests.servers.proxy import Proxied, Request

pytestmark = pytest.mark.integration

ROLE = "arn:aws:iam::123456789012:role/keeper"
Fetch = Callable[[BucketStream, int], memoryview]
OFTEN = [("max_interval", "1")]
LENIENT = [("session.enable_insert_strict", "false")]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare_aws(monkeypatch, tmp_path)


@pytest.fixture
def stored(bucket: Bucket, tmp_path: Path) -> Iterator[Node]:
    """A node whose tables are in a bucket."""
    with bucket_node(tmp_path / "home", bucket) as node:
        yield node


@pytest.fixture
def open_to_all(moto_bucket: Bucket) -> Iterator[Proxied]:
    """A bucket that accepts any keys, with a proxy that records requests."""
    put_rows(moto_bucket, "in/1.json", 1)
    with through_proxy(moto_bucket) as proxied:
        yield proxied


@pytest.fixture
def in_bucket(bucket: Bucket, tmp_path: Path, spark: SparkExecutor) -> Iterator[Node]:
    """A node whose tables are in a bucket and whose SELECTs run on Spark."""
    with bucket_node(tmp_path / "home", bucket, spark=spark) as node:
        yield node


def load_from(node: Node, bucket: Bucket) -> None:
    node.sql(f"{CREATE_TABLE}; {bucket_job(bucket)}")
    node.run()


def test_the_warehouse_is_accessed_with_keys_of_the_environment(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bucket.storage_options.items():
        monkeypatch.setenv(name, value)
    put_rows(bucket, "in/1.json", 1)
    node = Node(tmp_path / "home", warehouse=bucket.uri("wh"))

    load_from(node, bucket)

    assert bucket_ids(node, bucket) == [1]
    node.catalog.close()


def test_the_warehouse_is_accessed_with_keys_of_a_profile(
    open_to_all: Proxied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", open_to_all.proxy.endpoint)
    monkeypatch.setenv("AWS_PROFILE", "keeping")
    write_profile(tmp_path, "keeping", key="PROFILE")
    node = Node(tmp_path / "home", warehouse=open_to_all.bucket.uri("wh"))

    load_from(node, open_to_all.direct)

    written = [r for r in open_to_all.proxy.requests if r.method == "PUT"]
    assert {signed_by(request) for request in written} == {"PROFILE"}
    assert len(written) > 5
    node.catalog.close()


def test_a_warehouse_without_keys_is_an_error(
    open_to_all: Proxied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", open_to_all.proxy.endpoint)
    node = Node(tmp_path / "home", warehouse=open_to_all.bucket.uri("wh"))

    with raises(PenstockError, Code.GET_REMOTE_DATA_ERROR, "credentials"):
        node.sql(CREATE_TABLE)

    node.catalog.close()


def test_wrong_warehouse_keys_are_an_error_that_does_not_show_them(
    bucket: Bucket, tmp_path: Path
) -> None:
    name = "wh"
    node = Node(tmp_path / "home", warehouse=bucket.uri("wh"), warehouse_secret=name)
    node.sql(secret(name, {**access(bucket), "s3.secret_key": "this-is-not-it"}))

    with raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, "access") as refused:
        node.sql(CREATE_TABLE)

    error_text = f"{refused.value} {refused.value.detail} {refused.value.hint}"
    assert "this-is-not-it" not in error_text
    assert bucket.access_key not in error_text
    node.catalog.close()


def test_a_missing_warehouse_secret_is_an_error(bucket: Bucket, tmp_path: Path) -> None:
    name = "nobody"
    node = Node(tmp_path / "home", warehouse=bucket.uri("wh"), warehouse_secret=name)

    with raises(UserError, Code.META_NOT_FOUND_ERR, '"nobody"'):
        node.sql(CREATE_TABLE)

    node.catalog.close()


@pytest.mark.parametrize(
    ("key", "rule"),
    [("provider", "s3"), ("use_path_style", "auto, true, false"), ("s3.role_arn", "ARN")],
)
def test_a_wrong_value_in_the_warehouse_secret_is_an_error_that_does_not_show_it(
    tmp_path: Path, key: str, rule: str
) -> None:
    name = "wh"
    node = Node(tmp_path / "home", warehouse="s3://orders/wh", warehouse_secret=name)
    node.sql(secret(name, {key: "canary-7f3a"}))

    with raises(UserError, Code.OPTION_ERR, f'"{key}"', rule, "SECRET 'wh'") as refused:
        node.sql(CREATE_TABLE)

    assert "canary" not in f"{refused.value} {refused.value.detail} {refused.value.hint}"
    node.catalog.close()


def test_an_unreachable_warehouse_is_an_error_that_does_not_show_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bucket_clients._RETRIES, "max_retries", 0)
    name = "wh"
    node = Node(tmp_path / "home", warehouse="s3://orders/wh", warehouse_secret=name)
    place = {"s3.endpoint": "http://127.0.0.1:9", "s3.access_key": "a", "s3.secret_key": "b"}
    node.sql(secret(name, place))

    with pytest.raises(ExternalError) as failed:
        node.sql(CREATE_TABLE)

    assert "127.0.0.1" not in f"{failed.value} {failed.value.detail} {failed.value.hint}"
    node.catalog.close()


def test_a_session_token_is_sent_with_every_request_to_the_warehouse(
    open_to_all: Proxied, tmp_path: Path
) -> None:
    node = node_with(tmp_path, open_to_all, {"s3.session_token": "an-hour"})

    load_from(node, open_to_all.direct)

    tokens = {r.headers.get("x-amz-security-token") for r in open_to_all.proxy.requests}
    assert tokens == {"an-hour"}
    node.catalog.close()


@pytest.mark.parametrize("external_id", ["", "shared word"])
def test_every_request_to_the_warehouse_is_signed_with_keys_of_its_role(
    open_to_all: Proxied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, external_id: str
) -> None:
    sts = Sts(life=timedelta(hours=1))
    given = {"s3.role_arn": ROLE, "s3.external_id": external_id}
    node = node_with(tmp_path, open_to_all, {k: v for k, v in given.items() if v})

    with sts_server(sts) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
        load_from(node, open_to_all.direct)

    signers = {
        signed_by(request).rstrip("0123456789") for request in open_to_all.proxy.requests
    }
    assert signers == {"TEMPORARY"}
    assert {form.get("ExternalId", "") for form in sts.requests} == {external_id}
    node.catalog.close()


def test_the_warehouse_role_is_assumed_again_before_its_keys_expire(
    open_to_all: Proxied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Cached keys are not used any more when they expire within six minutes.
    sts = Sts(life=timedelta(minutes=6, seconds=1))
    with sts_server(sts) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
        node = node_with(tmp_path, open_to_all, {"s3.role_arn": ROLE})
        node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.direct, properties=OFTEN)}")
        with supervised(node) as supervisor:
            rounds_until(supervisor, idle)
            before = len(sts.requests)
            generation = node.job("j").generation
            open_to_all.proxy.clear()
            # The third file is polled at least two seconds later, and the keys last one second.
            put_rows(open_to_all.direct, "in/2.json", 2)
            rounds_until(supervisor, lambda _: node.show("j")["rows_loaded"] == 2)
            put_rows(open_to_all.direct, "in/3.json", 3)
            rounds_until(supervisor, lambda _: node.show("j")["rows_loaded"] == 3)

    assert node.job("j").generation == generation
    assert max(number_of(r) for r in logged(open_to_all)) > before
    node.catalog.close()


def number_of(request: Request) -> int:
    """Return the number of the AssumeRole call whose keys signed a request."""
    return int(signed_by(request).removeprefix("TEMPORARY"))


def logged(proxied: Proxied) -> list[Request]:
    """Return the writes of log entries."""
    requests = proxied.proxy.requests
    return [r for r in requests if r.method == "PUT" and "_delta_log" in r.path]


def node_with(tmp_path: Path, proxied: Proxied, options: dict[str, str]) -> Node:
    """Open a node whose warehouse is in a bucket and is accessed with these options."""
    name = "wh"
    node = Node(tmp_path / "home", warehouse=proxied.bucket.uri("wh"), warehouse_secret=name)
    node.sql(secret(name, {**access(proxied.bucket), **options}))
    return node


def test_t41_a_running_job_uses_changed_warehouse_keys_for_the_next_commit(
    open_to_all: Proxied, tmp_path: Path
) -> None:
    node = node_with(tmp_path, open_to_all, {"s3.access_key": "OLD"})
    node.sql(f"{CREATE_TABLE}; {bucket_job(open_to_all.direct, properties=OFTEN)}")
    with supervised(node) as supervisor:
        rounds_until(supervisor, idle)
        generation = node.job("j").generation
        node.sql("ALTER SECRET wh ('s3.access_key' = 'NEW', 's3.secret_key' = 'other')")
        open_to_all.proxy.clear()
        put_rows(open_to_all.direct, "in/2.json", 2)
        rounds_until(supervisor, lambda _: node.show("j")["rows_loaded"] == 2)

    writes = [r for r in open_to_all.proxy.requests if r.method == "PUT"]
    assert {signed_by(request) for request in writes} == {"NEW"}
    assert logged(open_to_all)
    assert node.job("j").generation == generation
    node.catalog.close()


def test_the_warehouse_can_be_accessed_with_virtual_hosted_requests(
    open_to_all: Proxied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The host name does not resolve; the client leaves the connection to this proxy.
    monkeypatch.setenv("HTTP_PROXY", open_to_all.proxy.endpoint)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    hosted = {"s3.endpoint": "http://s3.example.test", "use_path_style": "false"}
    node = node_with(tmp_path, open_to_all, hosted)

    load_from(node, open_to_all.direct)

    expected = f"{open_to_all.bucket.name}.s3.example.test"
    assert {request.headers["host"] for request in open_to_all.proxy.requests} == {expected}
    assert open_to_all.proxy.puts("wh/t-")
    node.catalog.close()


def test_partitions_are_folders_in_the_bucket(stored: Node, bucket: Bucket) -> None:
    rows = [{"id": 1, "city": "Köln"}, {"id": 2, "city": "a/b c%"}, {"id": 3, "city": None}]
    content = "".join(json.dumps(row) + "\n" for row in rows)
    bucket.put("in/1.json", content.encode())
    stored.sql("CREATE TABLE t (id BIGINT NOT NULL, city STRING) PARTITIONED BY (city)")
    job = bucket_job(bucket).replace("SELECT id, note", "SELECT id, city")
    stored.sql(job)

    stored.run()

    found = sorted(read_in_bucket(location_of(stored), bucket), key=lambda row: row["id"])
    assert found == rows
    data = [key for key in bucket.keys("wh/t-") if key.endswith(".parquet")]
    assert len(data) == 3
    assert all("/city=" in key for key in data)


def test_rejects_are_stored_in_the_bucket_too(stored: Node, bucket: Bucket) -> None:
    bucket.put("in/1.json", b'{"id": 1}\n{"id": "one"}\n')
    options = {**access(bucket), "schema": "id BIGINT, note STRING"}
    stored.sql(f"{CREATE_TABLE}; {bucket_job(bucket, options=options, properties=LENIENT)}")

    stored.run()

    rejected = read_in_bucket(bucket.uri(f"wh/_rejects/{stored.job('j').id}"), bucket)
    assert bucket_ids(stored, bucket) == [1]
    assert [(row["file"], row["line"]) for row in rejected] == [("in/1.json", 2)]
    stored.sql("DROP JOB j")
    assert bucket.keys("wh/_rejects/") == []


def test_dropping_a_table_removes_its_keys_and_no_others(stored: Node, bucket: Bucket) -> None:
    put_rows(bucket, "in/1.json", 1)
    load_from(stored, bucket)
    bucket.put(f"{location_of(stored).removeprefix(bucket.uri())}x/kept", b"another's")
    stored.sql("DROP JOB j")

    stored.sql("DROP TABLE t")

    held = bucket.keys("wh/")
    assert [key.rpartition("/")[2] for key in held] == ["kept"]
    assert bucket.keys("in/") == ["in/1.json"]


def test_a_table_can_be_anywhere_in_a_bucket(stored: Node, bucket: Bucket) -> None:
    put_rows(bucket, "in/1.json", 1)
    stored.sql(f"{CREATE_TABLE} LOCATION '{bucket.uri('elsewhere/orders')}'")
    stored.sql(bucket_job(bucket))

    stored.run()

    assert location_of(stored) == bucket.uri("elsewhere/orders")
    assert bucket_ids(stored, bucket) == [1]
    shown = str(stored.sql("SHOW CREATE TABLE t")[0]["create_statement"])
    assert f"LOCATION '{bucket.uri('elsewhere/orders')}'" in shown


@pytest.mark.parametrize(
    ("location", "code"), [("elsewhere", Code.ALREADY_EXISTS_ERR), ("in", Code.TABLE_ERR)]
)
def test_a_location_that_is_in_use_is_refused(
    stored: Node, bucket: Bucket, location: str, code: Code
) -> None:
    put_rows(bucket, "in/1.json", 1)
    stored.sql(f"CREATE TABLE first (id BIGINT) LOCATION '{bucket.uri('elsewhere')}'")

    with raises(UserError, code, bucket.uri(location)):
        stored.sql(f"{CREATE_TABLE} LOCATION '{bucket.uri(location)}'")

    assert bucket.keys("in/") == ["in/1.json"]


def test_a_location_that_shares_a_name_prefix_with_a_table_is_free(
    stored: Node, bucket: Bucket
) -> None:
    stored.sql(f"CREATE TABLE first (id BIGINT) LOCATION '{bucket.uri('orders-old')}'")

    stored.sql(f"{CREATE_TABLE} LOCATION '{bucket.uri('orders')}'")

    assert location_of(stored) == bucket.uri("orders")


def test_a_table_in_a_bucket_is_described(stored: Node, bucket: Bucket) -> None:
    put_rows(bucket, "in/1.json", 1, 2)
    load_from(stored, bucket)

    (detail,) = stored.sql("DESCRIBE DETAIL t")

    size_bytes = sum(len(bucket.get(key)) for key in bucket.keys("wh/") if "part-" in key)
    assert detail["location"] == location_of(stored)
    assert (detail["version"], detail["files"], detail["rows"]) == (3, 1, 2)
    assert detail["bytes"] == size_bytes


def test_other_readers_see_the_same_rows(stored: Node, bucket: Bucket) -> None:
    put_rows(bucket, "in/1.json", 1, 2)
    load_from(stored, bucket)

    frame = pl.scan_delta(location_of(stored), storage_options=bucket.storage_options).collect()

    assert frame.sort("id").to_dicts() == numbered(1, 2)


@pytest.mark.parametrize("pieces", [2.5, 8.0])
def test_parquet_with_several_row_groups_is_read_correctly(
    stored: Node, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, pieces: float
) -> None:
    rows = numbered(*range(20_000))
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, sink, row_group_size=3_000, compression="none")
    content = sink.getvalue().to_pybytes()
    monkeypatch.setattr(bucket_stream, "PIECE_BYTES", int(len(content) / pieces))
    bucket.put("in/1.parquet", content)
    job = bucket_job(bucket, "in/*.parquet", options={**access(bucket), "format": "parquet"})
    stored.sql(f"{CREATE_TABLE}; {job}")

    stored.run()

    found = sorted(read_in_bucket(location_of(stored), bucket), key=lambda row: row["id"])
    assert found == rows


CITIES = b'{"id": 1, "city": "Aachen"}\n{"id": 2, "city": "Bonn"}\n'
ON_SPARK = (
    "SELECT f.id, concat(f.note, ' in ', c.city) FROM S3(OPTIONS) f "
    "LEFT JOIN city c ON f.id = c.id WHERE f.id < 3"
)


def rows_of(node: Node, select: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in node.sql(select)]


def test_tables_in_a_bucket_are_selected_joined_and_loaded_on_spark(
    in_bucket: Node, bucket: Bucket
) -> None:
    bucket.put("cities/1.json", CITIES)
    put_rows(bucket, "in/1.json", 1, 2, 3)
    in_bucket.sql("CREATE TABLE city (id BIGINT, city STRING)")
    cities = bucket_job(bucket, "cities/*.json", name="cities")
    in_bucket.sql(cities.replace("INTO t SELECT id, note", "INTO city SELECT id, city"))
    in_bucket.run()
    job = bucket_job(bucket)
    options = job[job.index("S3(") + 3 : -1]
    select = ON_SPARK.replace("OPTIONS", options)
    in_bucket.sql(f"{CREATE_TABLE}; CREATE JOB j ON STREAMING DO INSERT INTO t {select}")

    in_bucket.run()

    expected = [(1, "row 1 in Aachen"), (2, "row 2 in Bonn")]
    assert rows_of(in_bucket, "SELECT id, note FROM t ORDER BY id") == expected
    joined = "SELECT t.id, city FROM t JOIN city ON t.id = city.id WHERE city = 'Bonn'"
    assert rows_of(in_bucket, joined) == [(2, "Bonn")]
    assert rows_of(in_bucket, "SELECT count(*) FROM t VERSION AS OF 2") == [(0,)]


def test_rejects_in_a_bucket_are_selected_on_spark(in_bucket: Node, bucket: Bucket) -> None:
    bucket.put("in/1.json", b'{"id": 1}\n{"id": "one"}\n')
    options = {**access(bucket), "schema": "id BIGINT, note STRING"}
    in_bucket.sql(f"{CREATE_TABLE}; {bucket_job(bucket, options=options, properties=LENIENT)}")

    in_bucket.run()

    assert rows_of(in_bucket, "SELECT file, line FROM rejects('job' = 'j')") == [
        ("in/1.json", 2)
    ]
    assert rows_of(in_bucket, "SELECT id FROM t") == [(1,)]


def test_a_large_object_is_read_by_two_tasks_of_spark(in_bucket: Node, bucket: Bucket) -> None:
    bucket.put("in/1.json", json_lines(*range(400_000)))
    load_from(in_bucket, bucket)

    (row,) = rows_of(in_bucket, "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM t")

    assert row == (400_000, 400_000, 0, 399_999)
    assert in_bucket.sql("DESCRIBE DETAIL t")[0]["files"] == 2


def test_a_large_object_is_read_by_two_tasks_in_little_memory(
    stored: Node, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = _wide_lines(rows=40_000)
    bucket.put("in/1.json", content)
    monkeypatch.setattr(bucket_stream, "PIECE_BYTES", 2**20)
    held = HeldBytes()
    monkeypatch.setattr(BucketStream, "_fetch", held.watching(BucketStream._fetch))

    load_from(stored, bucket)

    found = read_in_bucket(location_of(stored), bucket)
    assert sorted(row["id"] for row in found) == list(range(40_000))
    assert {len(row["note"]) for row in found} == {1_000}
    assert len(content) > 40_000_000
    assert held.fetched_bytes >= len(content)
    assert held.most_bytes <= 10 * 2**20


class HeldBytes:
    """Counts the bytes of fetched pieces that are in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now_bytes = 0
        self.most_bytes = 0
        self.fetched_bytes = 0

    def watching(self, fetch: Fetch) -> Fetch:
        """Wrap a fetch function: count the bytes of its pieces until they are released."""

        def fetch_counted(stream: BucketStream, number: int) -> memoryview:
            piece = fetch(stream, number)
            self._count(len(piece))
            weakref.finalize(piece, self._count, -len(piece))
            return piece

        return fetch_counted

    def _count(self, size_bytes: int) -> None:
        with self._lock:
            self._now_bytes += size_bytes
            self.most_bytes = max(self.most_bytes, self._now_bytes)
            self.fetched_bytes += max(0, size_bytes)


def _wide_lines(*, rows: int) -> bytes:
    note = "x" * 1_000
    return "".join(f'{{"id": {number}, "note": "{note}"}}\n' for number in range(rows)).encode()
