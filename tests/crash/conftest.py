"""Fixtures of the tests that kill and freeze processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import Home
from tests.crash.variants import WITHOUT_SPARK, open_home


@pytest.fixture(params=WITHOUT_SPARK)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """An empty home; whatever still runs on it at the end is killed."""
    opened = open_home(
        request.param, tmp_path, server=lambda: request.getfixturevalue("seaweed")
    )
    yield opened
    opened.close()
