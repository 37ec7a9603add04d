"""Fixtures of the tests that kill and freeze processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """An empty home; whatever still runs on it at the end is killed."""
    opened = Home(tmp_path)
    yield opened
    opened.close()
