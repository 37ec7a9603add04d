"""Streams on the project's own Kinesis server, and the product's access to them."""

from typing import Any

import pytest

from penstock.model.split import Position
from penstock.sources.kinesis.client import (
    Retries,
    StreamAccess,
    StreamClient,
    stream_access,
)
from penstock.sources.kinesis.kind import KinesisOptions
from penstock.sources.kinesis.reading import ShardPages
from tests.integration.driving import MovedClock
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import REGION, StreamUnderTest

SHARD = "shardId-000000000000"


def access_to(stream: str, endpoint: str, **given: Any) -> StreamAccess:
    """Return the access that is built from a job's options."""
    options = {"access_key": "mine", "secret_key": "mine", **given}
    return stream_access(
        KinesisOptions(region=REGION, stream=stream, endpoint=endpoint, **options)
    )


@pytest.fixture
def access(server: KinesisServer, stream: StreamUnderTest) -> StreamAccess:
    return access_to(stream.name, server.endpoint)


@pytest.fixture
def retries() -> Retries:
    return Retries(clock=MovedClock(), jitter=lambda: 1.0)


def pages_of(
    access: StreamAccess,
    retries: Retries,
    position: Position,
    *,
    client: StreamClient | None = None,
    closed: bool = False,
    iterator: str | None = None,
) -> ShardPages:
    """Return the pages of a stream's first shard."""
    return ShardPages(
        client=client or StreamClient(access, retries),
        shard=SHARD,
        position=position,
        is_closed=lambda: closed,
        iterator=iterator,
    )
