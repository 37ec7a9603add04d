"""Fixtures for all tests."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from penstock.spark.executor import SparkExecutor
from penstock.spark.session import SparkOptions
from tests.mirrored_node import OpenNode, open_local, open_mirrored
from tests.node import Node
from tests.servers.azure_fixtures import azurite, container
from tests.servers.buckets import Bucket, create_bucket
from tests.servers.google import GoogleBucket, GoogleServer
from tests.servers.kinesis_fixtures import (
    changed_client,
    changed_kinesis,
    kinesis_local,
    own_kinesis,
)
from tests.servers.moto import MotoServer
from tests.servers.proxy import FaultProxy, Proxied
from tests.servers.seaweedfs import SeaweedServer
from tests.spark_archive import use_archive

# Fixtures that are defined in other modules.
__all__ = [
    "azurite",
    "changed_client",
    "changed_kinesis",
    "container",
    "kinesis_local",
    "own_kinesis",
]

# A busy machine must not fail a test.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

FILE, S3 = "file", "s3"


def pytest_configure() -> None:
    """Use a class archive, so that Spark starts quickly, also in child processes."""
    use_archive()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a module that defines ON_BUCKETS_TOO on local files and on S3."""
    if "place" in metafunc.fixturenames and hasattr(metafunc.module, "ON_BUCKETS_TOO"):
        metafunc.parametrize("place", [FILE, S3], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the S3 variant of tests marked ``of_local_files``; run slow tests first."""
    wanted = [item for item in items if not _local_only_on_bucket(item)]
    items[:] = sorted(wanted, key=_runs_later)


def _runs_later(item: pytest.Item) -> bool:
    """Return False for slow tests; they run first, so that none is left at the end."""
    return "property" not in item.path.parts


def _local_only_on_bucket(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    on_bucket = call is not None and call.params.get("place") == S3
    return on_bucket and item.get_closest_marker("of_local_files") is not None


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """The place of the test's files and tables: FILE or S3."""
    return getattr(request, "param", FILE)


@pytest.fixture
def open_node(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[OpenNode]:
    """A function that opens the test's home; it can be called several times."""
    with ExitStack() as stack:
        open_one = open_local(tmp_path)
        if place == S3:
            open_one = open_mirrored(tmp_path, request.getfixturevalue("shared_bucket"))

        def opened(**parts: Any) -> Node:
            node = open_one(**parts)
            stack.callback(node.catalog.close)
            return node

        yield opened


@pytest.fixture
def node(open_node: OpenNode) -> Node:
    """A node with an empty home, in this process."""
    return open_node()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkExecutor]:
    """The one Spark session of all tests that need a real one."""
    root = tmp_path_factory.mktemp("spark")
    options = SparkOptions(
        master="local[2,4]", scratch=root / "tmp", log_file=root / "spark.log"
    )
    executor = SparkExecutor(options)
    yield executor
    executor.stop()


@pytest.fixture
def spark_node(open_node: OpenNode, spark: SparkExecutor) -> Node:
    """A node with an empty home whose tasks and SELECTs run on Spark."""
    return open_node(spark=spark)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for source files."""
    created = tmp_path / "in"
    created.mkdir()
    return created


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedServer]:
    """One SeaweedFS for all tests that do not stop the server. SeaweedFS checks keys."""
    server = SeaweedServer(tmp_path_factory.mktemp("seaweed"))
    server.start()
    yield server
    # A clean shutdown takes ten seconds, and the stored data is not needed any more.
    server.kill()


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    """One moto, which accepts any keys, for all tests that do not stop the server."""
    server = MotoServer(tmp_path_factory.mktemp("moto"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def shared_bucket(seaweed: SeaweedServer) -> Iterator[Bucket]:
    """One bucket for all tests that use their own keys: creating a bucket is slow."""
    created = create_bucket(seaweed)
    yield created
    created.close()


@pytest.fixture
def bucket(seaweed: SeaweedServer) -> Iterator[Bucket]:
    """An empty bucket on SeaweedFS."""
    created = create_bucket(seaweed)
    yield created
    # A bucket occupies its own volumes until it is deleted.
    created.client.delete_bucket(Bucket=created.name)
    created.close()


@pytest.fixture
def moto_bucket(moto: MotoServer) -> Iterator[Bucket]:
    """An empty bucket on moto."""
    created = create_bucket(moto)
    yield created
    created.close()


@pytest.fixture
def google_bucket(moto: MotoServer, moto_bucket: Bucket) -> Iterator[GoogleBucket]:
    """An empty bucket on moto that is accessed as a Google bucket."""
    with GoogleServer(moto.endpoint).serving() as server:
        yield GoogleBucket(server=server, direct=moto_bucket)


@pytest.fixture
def proxied(seaweed: SeaweedServer, bucket: Bucket) -> Iterator[Proxied]:
    """An empty bucket on SeaweedFS, reached through a proxy that can inject faults."""
    proxy = FaultProxy(seaweed.endpoint)
    proxy.up()
    through = replace(bucket, endpoint=proxy.endpoint)
    yield Proxied(proxy=proxy, bucket=through, direct=bucket)
    through.close()
    proxy.down()
