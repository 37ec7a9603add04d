"""Streams of the project's own server, and how the product asks for them."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from penstock.aws.credentials import AwsKeys
from penstock.model.split import Position
from penstock.sources.kinesis.client import CLIENTS, Patience, StreamAccess, StreamClient
from penstock.sources.kinesis.reading import ShardPages
from tests.integration.driving import MovedClock
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import REGION, StreamUnderTest, kinesis_client, new_stream

SHARD = "shardId-000000000000"


@pytest.fixture
def server(kinesis_of_module: KinesisServer) -> Iterator[KinesisServer]:
    """That server as new, and no client of it left behind."""
    kinesis_of_module.control.reset()
    yield kinesis_of_module
    CLIENTS.of_this_process().close()


@pytest.fixture
def stream(server: KinesisServer) -> Iterator[StreamUnderTest]:
    with kinesis_client(server.endpoint) as client:
        yield new_stream(client)


def keys(**given: str) -> AwsKeys:
    return AwsKeys(
        region=REGION,
        needed_for="the stream",
        access_key_option="aws.access_key",
        secret_key_option="aws.secret_key",  # noqa: S106 - A name and no password.
        external_id_option="property.aws.external.id",
        **{"access_key": "mine", "secret_key": "mine", **given},
    )


@pytest.fixture
def access(server: KinesisServer, stream: StreamUnderTest) -> StreamAccess:
    return StreamAccess(keys=keys(), stream=stream.name, endpoint=server.endpoint)


@pytest.fixture
def patience() -> Patience:
    return Patience(clock=MovedClock(), give_up_after=timedelta(seconds=20), chance=lambda: 1.0)


def pages_of(
    access: StreamAccess,
    patience: Patience,
    position: Position,
    *,
    client: StreamClient | None = None,
    closed: bool = False,
    iterator: str | None = None,
) -> ShardPages:
    """Answer the pages of a stream's first shard."""
    return ShardPages(
        client or StreamClient(access),
        access,
        SHARD,
        position,
        patience=patience,
        is_closed=lambda: closed,
        iterator=iterator,
    )
