"""Fixtures for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.spark.executor import SparkExecutor
from penstock.spark.session import SparkOptions
from tests.node import Node


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
