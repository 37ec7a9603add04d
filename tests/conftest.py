"""Fixtures for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A Penstock on an empty home, in this process."""
    opened = Node(tmp_path / "home")
    yield opened
    opened.catalog.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for source files."""
    made = tmp_path / "in"
    made.mkdir()
    return made
