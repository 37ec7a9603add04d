"""Fixtures of the tests that kill and freeze processes."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.crash.harness import Home
from tests.crash.variants import WITHOUT_SPARK, opened_home


@pytest.fixture(params=WITHOUT_SPARK)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """An empty home, without Spark unless the test chooses another variant."""
    bucket = partial(request.getfixturevalue, "shared_bucket")
    with opened_home(request.param, tmp_path, bucket=bucket) as opened:
        yield opened
