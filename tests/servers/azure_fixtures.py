"""Fixtures for Azure containers."""

from collections.abc import Iterator

import pytest

from tests.servers.azurite import Azurite
from tests.servers.containers import Container, create_container, remove_container


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """One Azurite, which checks keys, for all tests that do not stop it."""
    server = Azurite(tmp_path_factory.mktemp("azurite"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def container(azurite: Azurite) -> Iterator[Container]:
    """An empty container on Azurite."""
    created = create_container(azurite)
    yield created
    remove_container(created)
