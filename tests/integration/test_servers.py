"""The servers that other tests use behave as documented."""

import http.client
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    ResponseStreamingError,
)

from penstock.clock import SystemClock
from tests.servers.buckets import Bucket, create_bucket, open_client
from tests.servers.child import Child, Command, NotStartedError, bare_environment, free_ports
from tests.servers.containers import Container, ContainerError
from tests.servers.moto import MotoServer
from tests.servers.proxy import (
    Delay,
    LoseResponse,
    Proxied,
    TruncateBody,
    listing,
    method,
    slow_down,
)
from tests.servers.seaweedfs import SeaweedServer

pytestmark = pytest.mark.integration

LARGE = bytes(range(256)) * 4096


@pytest.fixture
def own_seaweed(tmp_path: Path) -> Iterator[SeaweedServer]:
    server = SeaweedServer(tmp_path / "own")
    server.start()
    yield server
    server.kill()


def test_a_bucket_stores_lists_and_deletes_objects(bucket: Bucket) -> None:
    bucket.put("a/1", b"one")
    bucket.put("a/2", b"two")
    bucket.put("b", b"")

    bucket.delete("a/2")

    assert bucket.keys() == ["a/1", "b"]
    assert bucket.keys("a/") == ["a/1"]
    assert bucket.get("a/1") == b"one"
    assert bucket.uri("a/*.json") == f"s3://{bucket.name}/a/*.json"


def test_seaweedfs_refuses_wrong_keys(bucket: Bucket) -> None:
    stranger = replace(bucket, secret_key=bucket.access_key)

    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        stranger.put("a", b"")

    stranger.close()


def test_seaweedfs_keeps_its_data_when_it_is_killed(own_seaweed: SeaweedServer) -> None:
    bucket = create_bucket(own_seaweed)
    bucket.put("kept", LARGE)

    own_seaweed.kill()
    with pytest.raises(EndpointConnectionError):
        bucket.get("kept")
    own_seaweed.start()

    assert bucket.get("kept") == LARGE
    bucket.close()


def test_moto_lists_in_byte_order(moto_bucket: Bucket) -> None:
    keys = ["o/a-b", "o/a/b", "o/a0"]

    moto_bucket.put(keys[1], b"")
    moto_bucket.put(keys[2], b"")
    moto_bucket.put(keys[0], b"")

    assert moto_bucket.keys() == keys


def test_moto_issues_keys_of_a_role(moto: MotoServer) -> None:
    client = open_client("sts", moto)

    issued = client.assume_role(
        RoleArn="arn:aws:iam::123456789012:role/loader", RoleSessionName="test"
    )

    assert issued["Credentials"]["SessionToken"]
    client.close()


def test_moto_loses_all_data_at_a_restart(tmp_path: Path) -> None:
    server = MotoServer(tmp_path)
    server.start()
    bucket = create_bucket(server)

    server.kill()
    server.start()

    with pytest.raises(ClientError, match="NoSuchBucket"):
        bucket.keys()
    bucket.close()
    server.stop()


@pytest.mark.xdist_group("azurite")
def test_a_container_stores_lists_and_deletes_objects(container: Container) -> None:
    container.put("a/1 é", b"one")
    container.put("a/2", b"two")
    container.put("b", b"")

    container.delete("a/2")

    assert container.keys() == ["a/1 é", "b"]
    assert container.keys("a/") == ["a/1 é"]
    assert container.get("a/1 é") == b"one"


@pytest.mark.xdist_group("azurite")
def test_azurite_refuses_wrong_keys(container: Container) -> None:
    stranger = replace(container, secret_key=container.secret_key.swapcase())

    with pytest.raises(ContainerError, match="AuthorizationFailure"):
        stranger.put("a", b"")


def test_a_server_that_ends_at_once_reports_its_output(tmp_path: Path) -> None:
    command = Command(
        words=["sh", "-c", "echo no such luck; exit 7"],
        environment=bare_environment(),
        port=free_ports(1)[0],
        not_ready=lambda: "",
    )

    with pytest.raises(NotStartedError, match=r"ended with 7\nno such luck"):
        Child(tmp_path / "log").start(command)


def test_a_proxy_forwards_and_counts_requests(proxied: Proxied) -> None:
    proxied.bucket.put("in/large", LARGE)
    proxied.bucket.keys()
    proxied.bucket.client.head_object(Bucket=proxied.bucket.name, Key="in/large")

    content = proxied.bucket.get("in/large")

    assert proxied.direct.get("in/large") == content == LARGE
    proxy = proxied.proxy
    assert (proxy.puts(), proxy.listings(), proxy.heads(), proxy.gets("/large")) == (1, 1, 1, 1)
    assert proxy.requests[0].path == f"/{proxied.bucket.name}/in/large"


def test_a_proxy_can_clear_its_requests(proxied: Proxied) -> None:
    proxied.bucket.put("a", b"")

    proxied.proxy.clear()

    assert proxied.proxy.requests == []


def test_a_proxy_forwards_chunked_bodies(proxied: Proxied) -> None:
    connection = http.client.HTTPConnection(proxied.proxy.endpoint.removeprefix("http://"))
    address = proxied.bucket.client.generate_presigned_url(
        "put_object", Params={"Bucket": proxied.bucket.name, "Key": "a"}
    )

    connection.request("PUT", address, body=iter([LARGE, b"end"]), encode_chunked=True)

    assert connection.getresponse().status == 200
    assert proxied.direct.get("a") == LARGE + b"end"
    assert proxied.proxy.requests[0].headers["transfer-encoding"] == "chunked"
    connection.close()


def test_a_client_can_reuse_its_connection_to_a_proxy(proxied: Proxied) -> None:
    connection = http.client.HTTPConnection(proxied.proxy.endpoint.removeprefix("http://"))
    connection.connect()
    socket = connection.sock

    statuses = [status_of(connection) for _ in range(3)]

    assert statuses == [403, 403, 403]
    assert connection.sock is socket
    connection.close()


def status_of(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/")
    with connection.getresponse() as response:
        response.read()
        return response.status


def test_a_fault_affects_the_given_number_of_matching_requests(proxied: Proxied) -> None:
    proxied.bucket.put("a", b"")
    proxied.proxy.inject(slow_down(), when=listing, times=2)

    with pytest.raises(ClientError, match="SlowDown"):
        proxied.bucket.keys()
    with pytest.raises(ClientError, match="SlowDown"):
        proxied.bucket.keys()

    assert proxied.bucket.get("a") == b""
    assert proxied.bucket.keys() == ["a"]


def test_a_proxy_can_clear_its_faults(proxied: Proxied) -> None:
    proxied.proxy.inject(slow_down(), times=100)

    proxied.proxy.clear_faults()

    assert proxied.bucket.keys() == []


def test_a_refused_write_never_reaches_the_server(proxied: Proxied) -> None:
    proxied.proxy.inject(slow_down(), when=method("PUT"))

    with pytest.raises(ClientError, match="SlowDown"):
        proxied.bucket.put("a", LARGE)

    assert proxied.direct.keys() == []


def test_a_request_can_be_delayed(proxied: Proxied) -> None:
    clock = SystemClock()
    proxied.proxy.inject(Delay(seconds=0.3), when=method("PUT"))

    before = clock.monotonic()
    proxied.bucket.put("a", b"")

    assert clock.monotonic() - before >= 0.3
    assert proxied.direct.keys() == ["a"]


def test_a_body_can_be_truncated(proxied: Proxied) -> None:
    proxied.direct.put("a", LARGE)
    proxied.proxy.inject(TruncateBody(after_bytes=1000), when=method("GET"))

    with pytest.raises(ResponseStreamingError, match="1000 bytes read"):
        proxied.bucket.get("a")

    assert proxied.bucket.get("a") == LARGE


def test_a_lost_response_hides_a_completed_write(proxied: Proxied) -> None:
    proxied.proxy.inject(LoseResponse(), when=method("PUT", path="/a"))

    with pytest.raises(ConnectionClosedError):
        proxied.bucket.put("a", LARGE)

    assert proxied.direct.get("a") == LARGE


def test_a_proxy_that_is_down_refuses_connections_until_it_is_up(proxied: Proxied) -> None:
    proxied.bucket.put("a", b"")

    proxied.proxy.down()
    with pytest.raises(EndpointConnectionError):
        proxied.bucket.get("a")
    proxied.proxy.up()

    assert proxied.bucket.get("a") == b""
