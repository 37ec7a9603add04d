"""Jobs that load from an Azure container, and tables in a container."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import Code, ExternalError
from penstock.spark.executor import SparkExecutor
from tests.error_values import raises
from tests.integration.bucket_jobs import (
    access,
    bucket_ids,
    bucket_job,
    bucket_node,
    ids,
    put_rows,
    read_in_bucket,
    secret,
)
from tests.node import CREATE_TABLE, Node
from tests.servers.containers import Container

# One worker runs all tests with Azurite, because every worker would start its own server.
pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("azurite")]

LENIENT = [("session.enable_insert_strict", "false")]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def stored(container: Container, tmp_path: Path) -> Iterator[Node]:
    """A node whose tables are in a container."""
    with bucket_node(tmp_path / "home", container) as node:
        yield node


def start(node: Node, statement: str) -> None:
    node.sql(f"{CREATE_TABLE}; {statement}")


def test_an_object_rewritten_with_the_same_content_counts_as_changed(
    node: Node, container: Container
) -> None:
    put_rows(container, "in/a.json", 1)
    start(node, bucket_job(container))
    node.run()

    put_rows(container, "in/a.json", 1)
    node.run()

    assert ids(node) == [1]
    assert node.show("j")["files_modified"] == 1


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"s3.access_key": "anotheraccount"}, "access"),
        ({"s3.secret_key": "MDEyMzQ1Njc4OWFiY2RlZg=="}, "access"),
        ({"s3.secret_key": "no key at all"}, "Base64"),
    ],
)
def test_wrong_keys_are_refused_at_create_without_being_shown(
    node: Node, container: Container, wrong: dict[str, str], named: str
) -> None:
    put_rows(container, "in/a.json", 1)
    options = {**access(container), **wrong}
    node.sql(CREATE_TABLE)

    with raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, named) as refused:
        node.sql(bucket_job(container, options=options))

    error_text = f"{refused.value} {refused.value.detail} {refused.value.hint}"
    assert "ALTER SECRET" in error_text
    assert options["s3.secret_key"] not in error_text
    assert node.sql("SHOW JOBS") == node.sql("SHOW SECRETS") == []


def test_a_container_is_accessed_with_keys_of_the_environment(
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


def test_wrong_warehouse_keys_are_an_error_that_does_not_show_them(
    container: Container, tmp_path: Path
) -> None:
    name, wrong = "wh", "MDEyMzQ1Njc4OWFiY2RlZg=="
    node = Node(tmp_path / "home", warehouse=container.uri("wh"), warehouse_secret=name)
    node.sql(secret(name, {**access(container), "s3.secret_key": wrong}))

    with raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, "access") as refused:
        node.sql(CREATE_TABLE)

    assert wrong not in f"{refused.value} {refused.value.detail} {refused.value.hint}"
    node.catalog.close()


def test_rejects_and_tables_are_in_the_container_until_they_are_dropped(
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
