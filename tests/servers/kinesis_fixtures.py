"""Fixtures with Kinesis servers."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import kinesis_client
from tests.servers.kinesis_local import KinesisLocal


@pytest.fixture(scope="session")
def own_kinesis() -> Iterator[KinesisServer]:
    """One Kinesis of this project for all tests; who changes its ways heals it."""
    with KinesisServer() as server:
        yield server


@pytest.fixture(scope="module")
def kinesis_of_module() -> Iterator[KinesisServer]:
    """A Kinesis of this project whose clock and ways one module's tests may change."""
    with KinesisServer() as server:
        yield server


@pytest.fixture(scope="module")
def client_of_module(kinesis_of_module: KinesisServer) -> Iterator[Any]:
    """A client of that server: making one takes long."""
    with kinesis_client(kinesis_of_module.endpoint) as client:
        yield client


@pytest.fixture(scope="session")
def kinesis_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KinesisLocal]:
    """One kinesis-local for all tests that do not stop it."""
    server = KinesisLocal(tmp_path_factory.mktemp("kinesis-local"))
    server.start()
    yield server
    server.stop()
