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

# Fixtures that are made elsewhere.
__all__ = [
    "azurite",
    "changed_client",
    "changed_kinesis",
    "container",
    "kinesis_local",
    "own_kinesis",
]

# No test fails because the machine is busy.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

FILE, S3 = "file", "s3"


def pytest_configure() -> None:
    """Let Spark start quickly, also in the processes of the tests."""
    use_archive()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a module that says ON_BUCKETS_TOO in both places."""
    if "place" in metafunc.fixturenames and hasattr(metafunc.module, "ON_BUCKETS_TOO"):
        metafunc.parametrize("place", [FILE, S3], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out on buckets what is told to be of local files; begin with what takes long."""
    wanted = [item for item in items if not _out_of_place(item)]
    items[:] = sorted(wanted, key=_may_wait)


def _may_wait(item: pytest.Item) -> bool:
    """Tell of a test whether others come first: no worker shall wait for one at the end."""
    return "property" not in item.path.parts


def _out_of_place(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    on_bucket = call is not None and call.params.get("place") == S3
    return on_bucket and item.get_closest_marker("of_local_files") is not None


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """Where the files and tables of the test's nodes are."""
    return getattr(request, "param", FILE)


@pytest.fixture
def open_node(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[OpenNode]:
    """Opens the test's home, as often as it is called."""
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
    """A Penstock on an empty home, in this process."""
    return open_node()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkExecutor]:
    """One Spark for all tests that need the real one."""
    root = tmp_path_factory.mktemp("spark")
    options = SparkOptions(
        master="local[2,4]", scratch=root / "tmp", log_file=root / "spark.log"
    )
    executor = SparkExecutor(options)
    yield executor
    executor.stop()


@pytest.fixture
def spark_node(open_node: OpenNode, spark: SparkExecutor) -> Node:
    """A Penstock on an empty home, whose tasks and SELECTs run on Spark."""
    return open_node(spark=spark)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for source files."""
    made = tmp_path / "in"
    made.mkdir()
    return made


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedServer]:
    """One SeaweedFS for all tests that do not stop it; it checks keys."""
    server = SeaweedServer(tmp_path_factory.mktemp("seaweed"))
    server.start()
    yield server
    # An end in good order takes ten seconds, and nobody needs what it has kept.
    server.kill()


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    """One moto for all tests that do not stop it; it accepts any keys, lists as AWS does."""
    server = MotoServer(tmp_path_factory.mktemp("moto"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def shared_bucket(seaweed: SeaweedServer) -> Iterator[Bucket]:
    """One bucket for all tests that use keys of their own: making one takes long."""
    made = create_bucket(seaweed)
    yield made
    made.close()


@pytest.fixture
def bucket(seaweed: SeaweedServer) -> Iterator[Bucket]:
    """An empty bucket on SeaweedFS."""
    made = create_bucket(seaweed)
    yield made
    # Every bucket holds volumes of its own until it goes.
    made.client.delete_bucket(Bucket=made.name)
    made.close()


@pytest.fixture
def moto_bucket(moto: MotoServer) -> Iterator[Bucket]:
    """An empty bucket on moto."""
    made = create_bucket(moto)
    yield made
    made.close()


@pytest.fixture
def google_bucket(moto: MotoServer, moto_bucket: Bucket) -> Iterator[GoogleBucket]:
    """An empty bucket that is asked as one of Google; it lies on moto."""
    with GoogleServer(moto.endpoint).serving() as server:
        yield GoogleBucket(server=server, direct=moto_bucket)


@pytest.fixture
def proxied(seaweed: SeaweedServer, bucket: Bucket) -> Iterator[Proxied]:
    """An empty bucket on SeaweedFS, reached through a proxy that can make things go wrong."""
    proxy = FaultProxy(seaweed.endpoint)
    proxy.up()
    through = replace(bucket, endpoint=proxy.endpoint)
    yield Proxied(proxy=proxy, bucket=through, direct=bucket)
    through.close()
    proxy.down()
