"""Objects in a bucket are found and loaded once, in whatever order the server lists them."""

import json
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.sources.files.kind import FileFormat, FilesOptions
from penstock.sources.files.source import lists_only_new
from penstock.storage.options import StoreOptions
from penstock.storage.uris import parse_uri
from tests.error_values import raises
from tests.integration.bucket_jobs import (
    FastClock,
    access,
    bucket_job,
    ids,
    job_on,
    put_rows,
    through_proxy,
)
from tests.integration.driving import idle, rounds_until, supervised
from tests.node import CREATE_TABLE, Node
from tests.servers.buckets import Bucket

pytestmark = pytest.mark.integration

# A server that lists folder by folder returns a/b before a-b. A listing that starts after a-b
# then misses a/b.
T65_NAMES = ("a.json", "a b.json", "a-b.json", "a/b.json")
T65_ORDERS = list(permutations(T65_NAMES))
T65_PAIRS = [("o/a-b.json", "o/a/b.json"), ("o/a/b.json", "o/a-b.json")]


@pytest.fixture
def moved_node(tmp_path: Path) -> Iterator[Node]:
    opened = Node(tmp_path / "home", clock=FastClock())
    yield opened
    opened.catalog.close()


def ordered(bucket: Bucket, **options: str) -> dict[str, str]:
    return {**access(bucket), "ordered_listing": "true", **options}


def move(node: Node, **parts: float) -> None:
    assert isinstance(node.clock, FastClock)
    node.clock.move(**parts)


def start(node: Node, statement: str) -> None:
    node.sql(f"{CREATE_TABLE}; {statement}")


@pytest.mark.parametrize("listing", ["auto", "true", "false"])
def test_t65_keys_that_arrive_in_any_order_are_loaded_once(
    node: Node, bucket: Bucket, listing: str
) -> None:
    # Every order has its own folder; its keys arrive one by one.
    expected: list[int] = []
    options = {**access(bucket), "ordered_listing": listing}

    def arrive(place: int) -> None:
        for order, names in enumerate(T65_ORDERS):
            number = 10 * order + place
            put_rows(bucket, f"{order:02d}/{names[place]}", number)
            expected.append(number)

    arrive(0)
    start(node, bucket_job(bucket, "**/*.json", options=options))
    for place in (1, 2, 3):
        arrive(place)
        node.run()

    assert ids(node) == sorted(expected)


@pytest.mark.parametrize(("first", "second"), T65_PAIRS)
def test_t65_a_store_of_unknown_order_is_listed_completely_at_every_poll(
    node: Node, bucket: Bucket, first: str, second: str
) -> None:
    put_rows(bucket, first, 1)
    start(node, bucket_job(bucket, "o/**/*.json", properties=[("max_interval", "1")]))

    with supervised(node) as supervisor:
        rounds_until(supervisor, idle)
        generation = node.job("j").generation
        put_rows(bucket, second, 2)
        rounds_until(supervisor, lambda _: node.show("j")["rows_loaded"] == 2)

    assert node.job("j").generation == generation
    assert ids(node) == [1, 2]


@pytest.mark.parametrize(
    ("server", "first", "second"),
    [("bucket", "o/a-b.json", "o/a/b.json"), ("moto_bucket", "o/a/b.json", "o/a-b.json")],
)
def test_t65_with_ordered_listing_the_audit_finds_keys_that_polls_miss(
    moved_node: Node, server: str, first: str, second: str, request: pytest.FixtureRequest
) -> None:
    place: Bucket = request.getfixturevalue(server)
    put_rows(place, first, 1)
    with through_proxy(place) as proxied:
        options = ordered(proxied.bucket, audit_interval="8")
        start(moved_node, bucket_job(proxied.bucket, "o/**/*.json", options=options))
        with supervised(moved_node) as supervisor:
            rounds_until(supervisor, idle)
            generation = moved_node.job("j").generation
            put_rows(place, second, 2)
            proxied.proxy.clear()
            rounds_until(supervisor, lambda _: proxied.proxy.listings() >= 4)
            unseen = moved_node.show("j")["rows_loaded"]
            move(moved_node, seconds=9)
            rounds_until(supervisor, lambda _: moved_node.show("j")["rows_loaded"] == 2)

    assert unseen == 1
    assert moved_node.job("j").generation == generation
    assert ids(moved_node) == [1, 2]


@pytest.mark.parametrize(("first", "second"), T65_PAIRS)
def test_t65_with_ordered_listing_a_restart_finds_keys_that_polls_miss(
    node: Node, bucket: Bucket, first: str, second: str
) -> None:
    put_rows(bucket, first, 1)
    start(node, bucket_job(bucket, "o/**/*.json", options=ordered(bucket)))
    node.run()
    put_rows(bucket, second, 2)

    again = node.restart()
    again.run()

    assert ids(again) == [1, 2]
    again.catalog.close()


@pytest.mark.parametrize(
    ("uri", "endpoint", "expected"),
    [
        ("s3://orders/in/", "", True),
        ("s3://orders/in/", "https://minio.example.com", False),
        ("s3://orders/in/", "s3.amazonaws.com", True),
        ("s3://orders/in/", "https://s3.eu-west-1.amazonaws.com/", True),
        ("s3://orders/in/", "s3.dualstack.eu-west-1.amazonaws.com", True),
        ("s3://orders/in/", "https://s3.cn-north-1.amazonaws.com.cn", True),
        ("s3://orders/in/", "S3-EU-WEST-1.amazonaws.com", True),
        ("s3://orders/in/", "https://s3.eu-west-1.amazonaws.com.example.com", False),
        ("s3://orders/in/", "https://minio.amazonaws.com", False),
        ("s3://orders--use1-az4--x-s3/in/", "s3.us-east-1.amazonaws.com", False),
        # AWS directory buckets list in no order.
        ("s3://orders--use1-az4--x-s3/in/", "", False),
        ("gs://orders/in/", "", True),
        ("az://orders/in/", "", False),
        ("file:///orders/in/", "", False),
    ],
)
def test_t65_only_stores_with_a_known_order_are_listed_from_the_last_key(
    uri: str, endpoint: str, *, expected: bool
) -> None:
    store = StoreOptions(endpoint=endpoint)
    options = FilesOptions(uri=uri, format=FileFormat.JSON, store=store)

    assert lists_only_new(options, parse_uri(uri)) is expected


def test_t65_an_endpoint_of_the_environment_is_a_store_of_unknown_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://minio.example.com")
    options = FilesOptions(uri="s3://orders/in/", format=FileFormat.JSON)

    assert not lists_only_new(options, parse_uri(options.uri))


def test_folder_markers_are_not_files(node: Node, bucket: Bucket) -> None:
    bucket.put("in/", b"")
    bucket.put("in/deep/", b"")
    put_rows(bucket, "in/deep/a.json", 1)
    start(node, bucket_job(bucket, "in/**"))

    node.run()

    assert ids(node) == [1]
    assert node.show("j")["files_loaded"] == 1


@pytest.mark.parametrize("listing", ["false", "true"])
def test_an_empty_object_is_loaded_once_it_has_content(
    node: Node, bucket: Bucket, listing: str
) -> None:
    bucket.put("in/a.json", b"")
    put_rows(bucket, "in/b.json", 1)
    start(node, bucket_job(bucket, options={**access(bucket), "ordered_listing": listing}))
    node.run()

    put_rows(bucket, "in/a.json", 2)
    node.run()

    assert ids(node) == [1, 2]
    assert node.show("j")["files_modified"] == 0


def test_late_files_can_be_ignored(node: Node, bucket: Bucket) -> None:
    put_rows(bucket, "in/b.json", 1)
    options = {**access(bucket), "late_files": "ignore"}
    start(node, bucket_job(bucket, options=options))
    node.run()
    put_rows(bucket, "in/a.json", 2)
    put_rows(bucket, "in/c.json", 3)

    node.run()

    assert ids(node) == [1, 3]


def test_a_file_is_late_only_within_its_window(moved_node: Node, bucket: Bucket) -> None:
    put_rows(bucket, "in/b.json", 1)
    options = {**access(bucket), "late_window": "1 HOUR"}
    start(moved_node, bucket_job(bucket, options=options))
    moved_node.run()
    put_rows(bucket, "in/a.json", 2)
    moved_node.run()

    put_rows(bucket, "in/0.json", 3)
    put_rows(bucket, "in/c.json", 4)
    move(moved_node, hours=2)
    moved_node.run()

    assert ids(moved_node) == [1, 2, 4]
    assert moved_node.catalog.files_of(moved_node.job("j").id).known(["in/a.json"]) == {}


def test_an_object_rewritten_with_the_same_content_counts_as_unchanged(
    node: Node, bucket: Bucket
) -> None:
    put_rows(bucket, "in/a.json", 1)
    start(node, bucket_job(bucket, options={**access(bucket), "modified_files": "fail"}))
    node.run()

    put_rows(bucket, "in/a.json", 1)
    node.run()

    assert ids(node) == [1]
    assert node.show("j")["state"] == "PENDING"


ODD_NAMES = [
    "with space",
    "ümläut",
    "100%",
    "100%25",
    "a#b",
    "a+b",
    "a&b=c",
    "semi;colon",
    "quote'd",
    'double"d',
    "[x]",
    "{x}",
    "a?b",
    "a*b",
    "~tilde",
    "日本",
    "😀",
    "<tag>",
    "a|b",
    "a:b@c,d",
]


@pytest.mark.parametrize("server", ["bucket", "moto_bucket"])
def test_keys_with_any_characters_are_loaded(
    node: Node, server: str, request: pytest.FixtureRequest
) -> None:
    place: Bucket = request.getfixturevalue(server)
    for number, name in enumerate(ODD_NAMES):
        put_rows(place, f"in/{name}/{name}.json", number)
    start(node, bucket_job(place, "in/**/*.json"))

    node.run()
    node.run()

    assert ids(node) == list(range(len(ODD_NAMES)))


def test_a_pattern_can_name_unusual_keys_literally(node: Node, bucket: Bucket) -> None:
    put_rows(bucket, "in a/100%25 + #1.json", 1)
    put_rows(bucket, "in a/100%25 + #2.json", 2)
    put_rows(bucket, "in a/100% + #1.json", 3)
    start(node, bucket_job(bucket, "in a/100%25 + #*.json"))

    node.run()

    assert ids(node) == [1, 2]


def test_alternatives_and_folders_of_any_depth_are_matched(node: Node, bucket: Bucket) -> None:
    keys = ["a/1.json", "b/x/2.json", "b/x/y/3.json", "c/4.json", "a/5.csv", "ab/6.json"]
    for number, key in enumerate(keys, start=1):
        put_rows(bucket, key, number)
    start(node, bucket_job(bucket, "{a,b}/**/*.json"))

    node.run()

    assert ids(node) == [1, 2, 3]


def test_objects_are_loaded_in_the_order_of_their_bytes(
    node: Node, moto_bucket: Bucket
) -> None:
    names = ["a-b", "a/b", "a0", "ä", "\uff5e", "😀"]
    for number, name in enumerate(reversed(names)):
        put_rows(moto_bucket, f"in/{name}.json", number)
    one = [("s3.max_batch_files", "1")]
    start(node, bucket_job(moto_bucket, "in/**/*.json", properties=one))

    node.run()

    epochs = [row for row in node.sql("SHOW EPOCHS FOR j") if row["kind"] == "epoch"]
    assert [row["position"] for row in epochs] == [f"in/{name}.json" for name in names]


@pytest.mark.parametrize("pattern", ["", "*.json"])
def test_the_root_of_a_bucket_can_be_loaded(node: Node, bucket: Bucket, pattern: str) -> None:
    put_rows(bucket, "a.json", 1)
    put_rows(bucket, "deep/b.json", 2)
    start(node, bucket_job(bucket, pattern))

    node.run()

    assert ids(node) == [1]


@pytest.mark.parametrize("scheme", ["s3a", "s3n", "S3"])
def test_the_uri_schemes_of_hadoop_are_accepted(
    node: Node, bucket: Bucket, scheme: str
) -> None:
    put_rows(bucket, "in/a.json", 1)
    start(node, job_on(f"{scheme}://{bucket.name}/in/", access(bucket)))

    node.run()

    assert ids(node) == [1]


@pytest.mark.parametrize("written", ["{key}", "/{key}", "s3://{bucket}/{key}"])
def test_an_offset_names_the_last_object_to_skip(
    node: Node, bucket: Bucket, written: str
) -> None:
    for number in (1, 2, 3):
        put_rows(bucket, f"in/{number}.json", number)
    name = written.format(bucket=bucket.name, key="in/1.json")
    offset = [("offset", json.dumps({"fileName": name}))]
    start(node, bucket_job(bucket, properties=offset))

    node.run()

    assert ids(node) == [2, 3]
    assert '{"fileName": "in/1.json"}' in str(node.sql("SHOW CREATE JOB j"))


def test_objects_are_loaded_again_after_the_offset_is_moved_back(
    node: Node, bucket: Bucket
) -> None:
    for number in (1, 2, 3):
        put_rows(bucket, f"in/{number}.json", number)
    start(node, bucket_job(bucket))
    node.run()

    moved = json.dumps({"fileName": bucket.uri("in/2.json")})
    node.sql(f"PAUSE JOB j; ALTER JOB j PROPERTIES('offset' = '{moved}'); RESUME JOB j")
    node.run()

    assert ids(node) == [1, 2, 3, 3]


@pytest.mark.parametrize("name", ["s3://other/in/1.json", "file:///in/1.json"])
def test_an_offset_outside_of_the_source_is_refused(
    node: Node, bucket: Bucket, name: str
) -> None:
    put_rows(bucket, "in/1.json", 1)
    node.sql(CREATE_TABLE)
    offset = [("offset", json.dumps({"fileName": name}))]

    with raises(UserError, Code.OPTION_ERR, '"offset"', name):
        node.sql(bucket_job(bucket, properties=offset))


@pytest.mark.parametrize(
    "option", ["s3.endpoint", "s3.region", "s3.role_arn", "provider", "use_path_style"]
)
def test_bucket_options_are_refused_for_local_files(
    node: Node, folder: Path, option: str
) -> None:
    values = {"provider": "minio", "use_path_style": "true"}
    node.sql(CREATE_TABLE)

    with raises(UserError, Code.OPTION_ERR, f'"{option}"', "file://"):
        node.sql(job_on(f"file://{folder}/", {option: values.get(option, "arn:x")}))


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("http://host/in/", ["file://, s3://, gs://, az://", "http://"]),
        ("hdfs://host/in/", ["s3://", "hdfs://"]),
        ("bucket/in/", ["file://", "s3://"]),
        ("s3://", ["bucket", '""']),
        ("s3://ab/in/", ["bucket", '"ab"']),
        ("s3://Orders/in/", ["bucket", '"Orders"']),
        ("s3://-orders/in/", ["bucket", '"-orders"']),
        ("s3://or%20ders/in/", ["bucket", "or%20ders"]),
        ("s3://orders//in/", ["path", "/in/"]),
        ("s3://orders/in/../out/", ["path", '".."']),
    ],
)
def test_a_uri_without_a_bucket_is_refused(node: Node, uri: str, named: list[str]) -> None:
    node.sql(CREATE_TABLE)

    with raises(UserError, Code.OPTION_ERR, *named):
        node.sql(job_on(uri, {"s3.access_key": "one", "s3.secret_key": "two"}))


@pytest.mark.parametrize("server", ["bucket", "moto_bucket"])
def test_a_missing_bucket_is_reported(
    node: Node, server: str, request: pytest.FixtureRequest
) -> None:
    place: Bucket = request.getfixturevalue(server)
    node.sql(CREATE_TABLE)

    with raises(
        ExternalError, Code.GET_REMOTE_DATA_ERROR, "s3://no-such-bucket-here/", "exist"
    ) as missing:
        node.sql(job_on("s3://no-such-bucket-here/in/", access(place)))

    assert missing.value.hint


def test_a_prefix_without_files_is_refused_at_create(node: Node, bucket: Bucket) -> None:
    put_rows(bucket, "in/a.csv", 1)
    node.sql(CREATE_TABLE)

    with raises(UserError, Code.META_NOT_FOUND_ERR, bucket.uri("in/*.json")):
        node.sql(bucket_job(bucket))


@pytest.mark.parametrize("key", ["in//a.json", "in/./a.json", "in/tab\there.json"])
def test_a_key_that_cannot_be_written_as_a_path_is_reported(
    node: Node, moto_bucket: Bucket, key: str
) -> None:
    put_rows(moto_bucket, "in/b.json", 1)
    put_rows(moto_bucket, key, 2)
    node.sql(CREATE_TABLE)

    with raises(PenstockError, Code.GET_REMOTE_DATA_ERROR, moto_bucket.uri(), "key") as refused:
        node.sql(bucket_job(moto_bucket))

    assert "Rename" in refused.value.hint
