"""The servers that replace AWS; every test of this folder runs on each server."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.contract.kinesis.deviations import DEVIATIONS
from tests.servers.kinesis_clients import StreamUnderTest, kinesis_client, new_stream

OWN, LOCAL = "own_kinesis", "kinesis_local"


# One worker runs all tests of kinesis-local, because every worker would start a server.
_ON_LOCAL = (pytest.mark.integration, pytest.mark.xdist_group("kinesis-local"))


@pytest.fixture(params=[OWN, pytest.param(LOCAL, marks=_ON_LOCAL)])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client of one of the servers."""
    server = request.getfixturevalue(request.param)
    with kinesis_client(server.endpoint) as opened:
        yield opened


@pytest.fixture
def stream(client: Any) -> StreamUnderTest:
    """A new stream with one shard."""
    return new_stream(client)


@pytest.fixture
def two_shards(client: Any) -> StreamUnderTest:
    """A new stream with two shards."""
    return new_stream(client, shards=2)


@pytest.fixture
def expected(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Returns the result of AWS, or the known deviation of the server."""
    deviation = DEVIATIONS.get(request.node.originalname)
    on_local = request.node.callspec.params["client"] == LOCAL
    return lambda aws_result: deviation[1] if deviation and on_local else aws_result
