"""Fixtures for all tests."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.spark.executor import SparkExecutor
from penstock.spark.session import SparkOptions
from tests.node import Node
from tests.servers.buckets import Bucket, create_bucket
from tests.servers.moto import MotoServer
from tests.servers.proxy import FaultProxy, Proxied
from tests.servers.seaweedfs import SeaweedServer


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A Penstock on an empty home, in this process."""
    opened = Node(tmp_path / "home")
    yield opened
    opened.catalog.close()


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
def spark_node(tmp_path: Path, spark: SparkExecutor) -> Iterator[Node]:
    """A Penstock on an empty home, whose tasks and SELECTs run on Spark."""
    opened = Node(tmp_path / "home", spark=spark)
    yield opened
    opened.catalog.close()


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
    server.stop()


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    """One moto for all tests that do not stop it; it accepts any keys, lists as AWS does."""
    server = MotoServer(tmp_path_factory.mktemp("moto"))
    server.start()
    yield server
    server.stop()


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
def proxied(seaweed: SeaweedServer, bucket: Bucket) -> Iterator[Proxied]:
    """An empty bucket on SeaweedFS, reached through a proxy that can make things go wrong."""
    proxy = FaultProxy(seaweed.endpoint)
    proxy.up()
    through = replace(bucket, endpoint=proxy.endpoint)
    yield Proxied(proxy=proxy, bucket=through, direct=bucket)
    through.close()
    proxy.down()
