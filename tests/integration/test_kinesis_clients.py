"""Clients of streams: how many exist, how long they wait, and which loads they block."""

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.aws import credentials as aws_credentials
from penstock.aws.clients import CONNECTIONS_MAX, SharedClients
from penstock.clock import SystemClock
from penstock.errors import Code, ExternalError
from penstock.sources.kinesis import client as client_module
from penstock.sources.kinesis import reader as reader_module
from penstock.sources.kinesis import source as source_module
from penstock.sources.kinesis.client import (
    CLIENTS,
    StreamAccess,
    StreamClient,
    StreamError,
)
from tests.error_values import assert_names, raises
from tests.integration.bucket_jobs import bare_aws, silent_sts
from tests.integration.driving import paused, rounds_until, supervised
from tests.integration.kinesis_streams import access, access_to
from tests.integration.routine_loads import create, ids, put, shown
from tests.node import Node
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import REGION, StreamUnderTest, new_stream
from tests.servers.proxy import Delay, FaultProxy, Request

__all__ = ["access"]
pytestmark = pytest.mark.integration

TIMEOUT_SECONDS = 60
# The longest time that a user waits when pausing a load.
PAUSE_MAX = timedelta(seconds=10)
ROLE = "arn:aws:iam::123456789012:role/reader"
SHARDS = 64


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare_aws(monkeypatch, tmp_path)


@pytest.fixture
def created_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The process ids in which clients are created."""
    process_ids: list[int] = []

    def open_client(access: StreamAccess) -> Any:
        process_ids.append(os.getpid())
        return client_module._open_client(access)

    counted = SharedClients(open_client, clock=SystemClock())
    monkeypatch.setattr(client_module, "CLIENTS", counted)
    yield process_ids
    counted.close()


@contextmanager
def silent(endpoint: str, *, operation: str) -> Iterator[FaultProxy]:
    """Yield a proxy on which requests of one operation never get a response."""
    proxy = FaultProxy(endpoint)
    proxy.up()

    def wanted(request: Request) -> bool:
        return request.headers.get("x-amz-target", "").endswith(f".{operation}")

    proxy.inject(Delay(seconds=3600), when=wanted, times=1_000)
    try:
        yield proxy
    finally:
        proxy.down()


def test_t79_a_client_never_retries_and_its_timeout_is_shorter_than_a_pause(
    access: StreamAccess,
) -> None:
    with CLIENTS.borrow(access) as client:
        config = client.meta.config

    assert config.retries["total_max_attempts"] == 1
    assert config.connect_timeout + config.read_timeout < PAUSE_MAX.total_seconds()


def test_t79_every_thread_of_a_task_and_of_the_driver_has_its_own_connection() -> None:
    assert CONNECTIONS_MAX >= reader_module._THREADS_MAX
    assert CONNECTIONS_MAX >= source_module._THREADS_MAX


def test_t79_a_request_timeout_is_an_error(
    server: KinesisServer, stream: StreamUnderTest
) -> None:
    with silent(server.endpoint, operation="ListShards") as proxy:
        client = StreamClient(access_to(stream.name, proxy.endpoint, request_timeout_ms=50))

        with raises(
            StreamError, Code.GET_REMOTE_DATA_ERROR, f'"{stream.name}"', proxy.endpoint
        ) as refused:
            client.send_once("list_shards", StreamName=stream.name)

        assert proxy.count() == 1
    assert_names(refused.value.detail, "ReadTimeoutError")
    assert refused.value.transient


def test_t79_a_load_with_an_unresponsive_stream_can_be_paused(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    with silent(server.endpoint, operation="GetRecords") as proxy:
        statement = create(
            stream,
            aws__endpoint=proxy.endpoint,
            property__aws__request__timeout__ms="50",
        )
        loads.sql(statement)
        with supervised(loads) as supervisor:
            rounds_until(supervisor, lambda _: proxy.count(_is_get_records) > 1)
            loads.sql("PAUSE ROUTINE LOAD FOR r")
            rounds_until(supervisor, paused)

    assert (shown(loads)["State"], ids(loads)) == ("PAUSED", [])
    assert shown(loads)["ReasonOfStateChanged"].startswith("MANUAL_PAUSE_ERR")


def _is_get_records(request: Request) -> bool:
    return request.headers.get("x-amz-target", "").endswith(".GetRecords")


def test_t80_parallel_threads_create_one_client(
    access: StreamAccess, stream: StreamUnderTest, created_in: list[int]
) -> None:
    barrier = threading.Barrier(SHARDS)

    def list_shards(_number: int) -> int:
        barrier.wait(TIMEOUT_SECONDS)
        response = StreamClient(access).send_once("list_shards", StreamName=stream.name)
        return len(response.data["Shards"])

    with ThreadPoolExecutor(SHARDS) as threads:
        assert list(threads.map(list_shards, range(SHARDS))) == [1] * SHARDS

    assert created_in == [os.getpid()]


def test_t80_a_load_of_many_shards_has_one_client_in_a_process(
    loads: Node, stream: StreamUnderTest, created_in: list[int]
) -> None:
    wide = new_stream(stream.client, shards=SHARDS)
    width = 2**128 // SHARDS
    for number in range(SHARDS):
        put(wide, number, hash_key=number * width)
    loads.sql(create(wide))

    loads.run()

    assert sorted(ids(loads)) == list(range(SHARDS))
    assert created_in == [os.getpid()]


def test_t80_a_forked_process_creates_its_own_client(
    server: KinesisServer, stream: StreamUnderTest
) -> None:
    context = multiprocessing.get_context("forkserver")
    receiver, sender = context.Pipe(duplex=False)
    parent = context.Process(
        target=_request_before_and_after_a_fork, args=(server.endpoint, stream.name, sender)
    )
    parent.start()
    sender.close()
    before, after = receiver.recv(), receiver.recv()
    parent.join(TIMEOUT_SECONDS)

    assert parent.exitcode == 0
    assert before == {"shards": 1, "same": True}
    assert after == {"shards": 1, "same": False}


def _request_before_and_after_a_fork(endpoint: str, name: str, sender: Any) -> None:
    """Send a request, fork, and send again; report whether the client is the same."""
    access = access_to(name, endpoint)
    with CLIENTS.borrow(access) as first:
        pass

    def send_report() -> None:
        response = StreamClient(access).send_once("list_shards", StreamName=name)
        with CLIENTS.borrow(access) as borrowed:
            sender.send({"shards": len(response.data["Shards"]), "same": borrowed is first})

    send_report()
    child = os.fork()
    if child == 0:
        send_report()
        os._exit(0)
    os.waitpid(child, 0)


def test_an_unresponsive_sts_is_a_timeout_error(
    monkeypatch: pytest.MonkeyPatch, access: StreamAccess
) -> None:
    waits = aws_credentials._CLIENT_CONFIG
    longest = (waits["connect_timeout"] + waits["read_timeout"]) * 2
    monkeypatch.setitem(waits, "read_timeout", 0.05)
    requests: list[str] = []
    assumed = access_to("s", access.endpoint, role_arn=ROLE)

    with silent_sts(requests, entered=threading.Event()) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
        with raises(ExternalError, Code.GET_REMOTE_DATA_ERROR, f'"{ROLE}"') as refused:
            StreamClient(assumed).send_once("list_shards", StreamName="s")

    assert_names(refused.value.message, "ReadTimeoutError")
    assert len(requests) == 2
    assert longest < PAUSE_MAX.total_seconds()


def test_an_unresponsive_sts_does_not_block_other_loads(
    monkeypatch: pytest.MonkeyPatch, access: StreamAccess, stream: StreamUnderTest
) -> None:
    monkeypatch.setitem(aws_credentials._CLIENT_CONFIG, "read_timeout", TIMEOUT_SECONDS)
    entered = threading.Event()
    assumed = access_to("s", access.endpoint, role_arn=ROLE)

    with ThreadPoolExecutor(1) as threads:
        with silent_sts([], entered=entered) as endpoint:
            monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
            hanging = threads.submit(
                StreamClient(assumed).send_once, "list_shards", StreamName="s"
            )
            assert entered.wait(TIMEOUT_SECONDS)

            found = StreamClient(access).send_once("list_shards", StreamName=stream.name)

            assert not hanging.done()
        assert isinstance(hanging.exception(), ExternalError)
    assert len(found.data["Shards"]) == 1
    assert access.region == REGION
