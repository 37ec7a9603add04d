"""Jobs that load from a container of Azure, and tables that lie in one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ExternalError
from penstock.spark.executor import SparkExecutor
from penstock.tables.delta import DeltaTables
from tests.integration.bucket_jobs import (
    Once,
    access,
    bucket_ids,
    bucket_job,
    bucket_node,
    ids,
    job_on,
    location_of,
    meet_once,
    put_rows,
    read_in_bucket,
    secret,
)
from tests.integration.driving import attempts
from tests.node import CREATE_TABLE, Node, numbered
from tests.servers.azurite import ACCOUNT
from tests.servers.containers import Container
from tests.servers.proxy import FaultProxy

# One worker runs all that needs Azurite, because each would start one of its own.
pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("azurite")]

ODD_NAMES = ["with space", "ümläut", "100%25", "a#b", "a+b&c=d", "quote'd", "[x]", "a?b", "😀"]
LENIENT = [("session.enable_insert_strict", "false")]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def stored(container: Container, tmp_path: Path) -> Iterator[Node]:
    """A node whose tables lie in a container."""
    with bucket_node(tmp_path / "home", container) as node:
        yield node


def start(node: Node, statement: str) -> None:
    node.sql(f"{CREATE_TABLE}; {statement}")


@contextmanager
def through_proxy(container: Container) -> Iterator[tuple[FaultProxy, Container]]:
    """Give a proxy and the container behind it."""
    proxy = FaultProxy(container.endpoint.removesuffix(f"/{ACCOUNT}"))
    proxy.up()
    try:
        yield proxy, replace(container, endpoint=f"{proxy.endpoint}/{ACCOUNT}")
    finally:
        proxy.down()


@pytest.mark.parametrize("listing", ["auto", "true"])
def test_a_job_loads_every_row_of_every_object_once(
    node: Node, container: Container, listing: str
) -> None:
    put_rows(container, "in/b.json", 1, 2)
    options = {**access(container), "ordered_listing": listing}
    start(node, bucket_job(container, options=options))
    node.run()
    put_rows(container, "in/a.json", 3)
    put_rows(container, "in/c.json", 4)

    node.run()

    assert node.rows("t") == numbered(1, 2, 3, 4)
    assert node.show("j")["files_loaded"] == 3
    assert node.show("j")["position"] == "in/c.json"


@pytest.mark.parametrize("numbers", [[2], [1]], ids=["other", "same"])
def test_an_object_written_again_has_changed_and_is_not_loaded_again(
    node: Node, container: Container, numbers: list[int]
) -> None:
    put_rows(container, "in/a.json", 1)
    start(node, bucket_job(container))
    node.run()

    put_rows(container, "in/a.json", *numbers)
    node.run()

    assert ids(node) == [1]
    assert node.show("j")["files_modified"] == 1


def test_a_changed_object_can_stop_the_job(node: Node, container: Container) -> None:
    put_rows(container, "in/a.json", 1)
    options = {**access(container), "modified_files": "fail"}
    start(node, bucket_job(container, options=options))
    node.run()

    put_rows(container, "in/a.json", 2)
    node.run()

    assert ids(node) == [1]
    assert node.show("j")["state"] == "PAUSED"
    assert 'file "in/a.json" has changed since it was loaded' in str(node.show("j")["reason"])


def test_an_object_replaced_before_it_is_read_is_planned_anew(
    node: Node, container: Container
) -> None:
    put_rows(container, "in/a.json", 1)
    with through_proxy(container) as (proxy, proxied):
        start(node, bucket_job(proxied))
        replaced = Once(lambda: put_rows(container, "in/a.json", 7, 8), path="in/a.json")
        once = meet_once(proxy, replaced)
        node.run()

    assert once.done
    assert ids(node) == [7, 8]
    assert attempts(node) == [(1, 1, "FAILED"), (1, 2, "COMMITTED")]


def test_an_object_deleted_before_it_is_read_is_planned_without(
    node: Node, container: Container
) -> None:
    put_rows(container, "in/a.json", 1)
    put_rows(container, "in/b.json", 2)
    with through_proxy(container) as (proxy, proxied):
        start(node, bucket_job(proxied))
        deleted = Once(lambda: container.delete("in/a.json"), path="in/a.json")
        once = meet_once(proxy, deleted)
        node.run()

    assert once.done
    assert ids(node) == [2]
    assert node.show("j")["files_loaded"] == 1


def test_keys_with_any_characters_are_loaded(node: Node, container: Container) -> None:
    for number, name in enumerate(ODD_NAMES):
        put_rows(container, f"in/{name}/{name}.json", number)
    start(node, bucket_job(container, "in/**/*.json"))

    node.run()
    node.run()

    assert ids(node) == list(range(len(ODD_NAMES)))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"s3.access_key": "anotheraccount"}, "access was refused"),
        ({"s3.secret_key": "MDEyMzQ1Njc4OWFiY2RlZg=="}, "access was refused"),
        ({"s3.secret_key": "no key at all"}, "the account's key must be Base64"),
    ],
)
def test_wrong_keys_are_refused_at_create_without_being_shown(
    node: Node, container: Container, wrong: dict[str, str], said: str
) -> None:
    put_rows(container, "in/a.json", 1)
    options = {**access(container), **wrong}
    node.sql(CREATE_TABLE)

    with pytest.raises(ExternalError, match=said) as refused:
        node.sql(bucket_job(container, options=options))

    told = f"{refused.value} {refused.value.detail} {refused.value.hint}"
    assert "ALTER SECRET" in told
    assert options["s3.secret_key"] not in told
    assert node.sql("SHOW JOBS") == node.sql("SHOW SECRETS") == []


def test_a_container_that_does_not_exist_is_said_so(node: Node, container: Container) -> None:
    node.sql(CREATE_TABLE)

    with pytest.raises(ExternalError, match="the bucket does not exist") as missing:
        node.sql(job_on("az://no-such-container/in/", access(container)))

    assert "az://no-such-container/" in missing.value.message


def test_rows_are_loaded_from_a_container_into_a_container(
    stored: Node, container: Container
) -> None:
    put_rows(container, "in/1.json", 1, 2)
    start(stored, bucket_job(container))
    stored.run()
    put_rows(container, "in/0.json", 3)

    again = stored.restart()
    again.run()

    rows = read_in_bucket(location_of(again), container)
    assert sorted(rows, key=lambda row: row["id"]) == numbered(1, 2, 3)
    assert location_of(again).startswith(container.uri("wh/t-"))
    again.catalog.close()


def test_a_container_is_opened_with_the_environment(
    container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in container.storage_options.items():
        monkeypatch.setenv(name, value)
    put_rows(container, "in/1.json", 1)
    node = Node(tmp_path / "home", warehouse=container.uri("wh"))

    start(node, bucket_job(container, options={}))
    node.run()

    assert bucket_ids(node, container) == [1]
    node.catalog.close()


def test_a_warehouse_is_tried_before_it_is_trusted(stored: Node, container: Container) -> None:
    assert isinstance(stored.tables, DeltaTables)

    said = stored.tables.probe()

    assert said == f"{container.uri('wh')} can be written and read; of two writers one wins"
    assert container.keys() == []


def test_wrong_keys_of_the_warehouse_are_told_and_not_shown(
    container: Container, tmp_path: Path
) -> None:
    name, wrong = "wh", "MDEyMzQ1Njc4OWFiY2RlZg=="
    node = Node(tmp_path / "home", warehouse=container.uri("wh"), warehouse_secret=name)
    node.sql(secret(name, {**access(container), "s3.secret_key": wrong}))

    with pytest.raises(ExternalError, match="access was refused") as refused:
        node.sql(CREATE_TABLE)

    assert wrong not in f"{refused.value} {refused.value.detail} {refused.value.hint}"
    node.catalog.close()


def test_rejects_and_tables_lie_in_the_container_until_they_are_dropped(
    stored: Node, container: Container
) -> None:
    container.put("in/1.json", b'{"id": 1}\n{"id": "one"}\n')
    options = {**access(container), "schema": "id BIGINT, note STRING"}
    start(stored, bucket_job(container, options=options, properties=LENIENT))
    stored.run()
    rejected = read_in_bucket(container.uri(f"wh/_rejects/{stored.job('j').id}"), container)
    loaded = bucket_ids(stored, container)

    stored.sql("DROP JOB j; DROP TABLE t")

    assert [(row["file"], row["line"]) for row in rejected] == [("in/1.json", 2)]
    assert loaded == [1]
    assert container.keys() == ["in/1.json"]


def test_a_table_in_a_container_is_loaded_and_selected_on_spark(
    container: Container, tmp_path: Path, spark: SparkExecutor
) -> None:
    put_rows(container, "in/1.json", 1, 2, 3)
    with bucket_node(tmp_path / "home", container, spark=spark) as node:
        start(node, bucket_job(container))
        node.run()

        rows = node.sql("SELECT id FROM t WHERE id > 1 ORDER BY id")

    assert [row["id"] for row in rows] == [2, 3]
