"""Fixtures for Kinesis servers."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import kinesis_client
from tests.servers.kinesis_local import KinesisLocal


@pytest.fixture(scope="session")
def own_kinesis() -> Iterator[KinesisServer]:
    """The project's own Kinesis server for all tests; they clear faults they inject."""
    with KinesisServer() as server:
        yield server


@pytest.fixture(scope="session")
def changed_kinesis() -> Iterator[KinesisServer]:
    """A Kinesis server whose clock and behaviour tests change; each test resets it first."""
    with KinesisServer() as server:
        yield server


@pytest.fixture(scope="session")
def changed_client(changed_kinesis: KinesisServer) -> Iterator[Any]:
    """A client of changed_kinesis; shared, because creating a client is slow."""
    with kinesis_client(changed_kinesis.endpoint) as client:
        yield client


@pytest.fixture(scope="session")
def kinesis_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KinesisLocal]:
    """One kinesis-local for all tests that do not stop it."""
    server = KinesisLocal(tmp_path_factory.mktemp("kinesis-local"))
    server.start()
    yield server
    server.stop()
