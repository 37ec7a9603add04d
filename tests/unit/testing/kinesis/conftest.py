"""Fixtures for tests of the Kinesis test server."""

import pytest

from tests.unit.testing.kinesis.in_process import InProcessKinesis


@pytest.fixture
def kinesis() -> InProcessKinesis:
    """Kinesis with an empty stream of one shard and a frozen clock."""
    kinesis = InProcessKinesis()
    kinesis.create()
    return kinesis
