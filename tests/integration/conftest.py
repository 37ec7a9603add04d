"""Fixtures for tests of the whole product."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.job_worlds import world
from tests.integration.routine_loads import load, loads, server, stream

# Fixtures that are defined in other modules.
__all__ = ["load", "loads", "server", "stream", "world"]


@pytest.fixture
def foreign() -> Iterator[Path]:
    """A folder that other users can access, unlike the folders of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
