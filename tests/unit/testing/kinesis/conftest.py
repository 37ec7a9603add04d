"""Fixtures for the Kinesis server's own ways."""

import pytest

from tests.unit.testing.kinesis.asking import Asking


@pytest.fixture
def kinesis() -> Asking:
    """A Kinesis with an empty stream of one shard, whose clock stands still."""
    made = Asking()
    made.create()
    return made
