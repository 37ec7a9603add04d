"""The project's own Kinesis server as a process: protocol, control interface, shutdown."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from penstock.clock import SystemClock
from tests.servers.kinesis.control import ControlError
from tests.servers.kinesis.control_client import KinesisControl
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import (
    INVALID,
    MIDDLE,
    StreamUnderTest,
    data_of,
    kinesis_client,
    new_stream,
    refusal,
    wait_until,
)

pytestmark = pytest.mark.integration

MEGABYTE = bytes(2**20)
THROTTLED = "ProvisionedThroughputExceededException"


@pytest.fixture
def started(changed_kinesis: KinesisServer) -> KinesisServer:
    return changed_kinesis


@pytest.fixture
def control(started: KinesisServer) -> KinesisControl:
    started.control.reset()
    return started.control


@pytest.fixture
def client(started: KinesisServer, control: KinesisControl) -> Iterator[Any]:
    del control
    with kinesis_client(started.endpoint) as client_of_server:
        yield client_of_server


@pytest.fixture
def stream(client: Any) -> StreamUnderTest:
    return new_stream(client)


def reachable(endpoint: str) -> bool:
    try:
        KinesisControl(endpoint).now()
    except (OSError, HTTPException):
        # The server can end in the middle of a response.
        return False
    return True


def test_a_server_ends_with_its_with_block() -> None:
    with KinesisServer() as server, kinesis_client(server.endpoint) as client:
        assert client.list_streams()["StreamNames"] == []

    with kinesis_client(server.endpoint) as client, pytest.raises(EndpointConnectionError):
        client.list_streams()


def test_a_server_ends_with_the_process_that_started_it() -> None:
    program = (
        "import os\n"
        "from tests.servers.kinesis.server import KinesisServer\n"
        "server = KinesisServer()\n"
        "server.start()\n"
        "print(server.endpoint, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )

    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)

    wait_until(lambda: not reachable(ended.stdout.strip()))


def test_a_port_in_use_is_an_error(started: KinesisServer) -> None:
    second = KinesisServer(port=int(started.endpoint.rpartition(":")[2]))

    with pytest.raises(RuntimeError, match="did not start"):
        second.start()


def test_the_help_shows_an_example() -> None:
    command = [sys.executable, "-m", "tests.servers.kinesis", "--help"]

    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "aws kinesis create-stream" in output
    assert "/control" in output


def test_the_server_listens_only_on_the_loopback_address(started: KinesisServer) -> None:
    assert started.endpoint.startswith("http://127.0.0.1:")


def test_the_date_of_a_response_is_the_clock_of_the_server(
    client: Any, control: KinesisControl
) -> None:
    control.move_clock(timedelta(days=3))

    headers = client.list_streams()["ResponseMetadata"]["HTTPHeaders"]

    assert abs(parsedate_to_datetime(headers["date"]) - control.now()) < timedelta(minutes=1)
    assert control.now() - SystemClock().now() > timedelta(days=2)


def test_an_iterator_expires_when_the_clock_moves(
    stream: StreamUnderTest, control: KinesisControl
) -> None:
    iterator = stream.iterator()

    control.move_clock(timedelta(minutes=6))

    assert refusal(lambda: stream.follow(iterator)) == "ExpiredIteratorException"


def test_iterators_and_tokens_expire_on_demand(client: Any, control: KinesisControl) -> None:
    stream = new_stream(client, shards=2)
    iterator = stream.iterator()
    token = client.list_shards(StreamName=stream.name, MaxResults=1)["NextToken"]

    control.expire_iterators()
    control.expire_tokens()

    expired = refusal(lambda: client.list_shards(NextToken=token))
    assert expired == "ExpiredNextTokenException"
    assert refusal(lambda: stream.follow(iterator)) == "ExpiredIteratorException"


def test_limits_are_those_of_aws(stream: StreamUnderTest, control: KinesisControl) -> None:
    control.preload(stream.name, count=11, size_bytes=2**20)
    control.limit_as_aws()
    page = stream.page()

    throttled = refusal(lambda: stream.follow(page["NextShardIterator"]))
    control.move_clock(timedelta(seconds=5))

    assert throttled == THROTTLED
    assert len(stream.follow(page["NextShardIterator"])["Records"]) == 1


@pytest.mark.parametrize(
    ("code", "message", "status"),
    [
        ("InternalFailure", "", 500),
        ("ServiceUnavailable", "", 503),
        ("ExpiredTokenException", "The security token is expired", 400),
        ("KMSThrottlingException", "Rate exceeded", 400),
        ("AccessDeniedException", "not authorized: kinesis:GetRecords", 400),
        ("InvalidSignatureException", "Signature expired: 1 is now earlier than 2", 403),
    ],
)
def test_any_error_can_be_injected(
    stream: StreamUnderTest, control: KinesisControl, code: str, message: str, status: int
) -> None:
    control.inject("DescribeStreamSummary", code, message=message, status=status)

    with pytest.raises(ClientError) as caught:
        stream.summary()

    response = caught.value.response
    assert response["Error"]["Code"] == code
    assert response["Error"]["Message"] == message
    assert response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert stream.summary()["StreamStatus"] == "ACTIVE"


def test_a_response_can_be_malformed(stream: StreamUnderTest, control: KinesisControl) -> None:
    control.inject_body("GetRecords", "{}")
    iterator = stream.iterator()

    page = stream.follow(iterator)

    assert set(page) == {"ResponseMetadata"}
    assert stream.follow(iterator)["NextShardIterator"]


def test_a_key_and_a_token_are_refused_after_some_calls(
    started: KinesisServer, control: KinesisControl
) -> None:
    control.refuse("old-key", after_calls=1)
    control.refuse("old-token")

    with kinesis_client(started.endpoint, key="old-key") as old:
        refusals = [refusal(old.list_streams), refusal(old.list_streams)]
    with kinesis_client(started.endpoint, token="old-token") as old:  # noqa: S106 - Not a secret.
        refusals.append(refusal(old.list_streams))

    assert refusals == ["", "ExpiredTokenException", "ExpiredTokenException"]


def test_requests_are_logged_with_their_key(
    started: KinesisServer, control: KinesisControl
) -> None:
    with kinesis_client(started.endpoint, key="me", token="mine") as client:  # noqa: S106 - Not a secret.
        stream = new_stream(client)
        control.clear_requests()
        stream.page()

    first, second = control.requests()

    assert (first.operation, second.operation) == ("GetShardIterator", "GetRecords")
    assert {first.access_key_id, second.access_key_id} == {"me"}
    assert {first.session_token, second.session_token} == {"mine"}
    assert {first.shard, second.shard} == {"shardId-000000000000"}
    assert control.requests("ListShards") == []


def test_responses_can_be_delayed(stream: StreamUnderTest, control: KinesisControl) -> None:
    control.switch(latency_ms_by_operation={"DescribeStreamSummary": 300})
    clock = SystemClock()
    start = clock.monotonic()

    stream.summary()

    assert clock.monotonic() - start >= 0.3


def test_a_slow_operation_does_not_block_other_operations(
    stream: StreamUnderTest, control: KinesisControl
) -> None:
    control.switch(latency_ms_by_operation={"DescribeStreamSummary": 3_000})

    with ThreadPoolExecutor() as threads:
        slow = threads.submit(stream.summary)
        shards = stream.shards()
        waiting = not slow.done()

    assert shards
    assert waiting


def test_switches_reach_the_server(stream: StreamUnderTest, control: KinesisControl) -> None:
    stream.put(b"one")
    control.switch(empty_pages_after_iterator=1, stale_listings=1, shard_end="on_empty_page")

    stream.split(0, at=MIDDLE)
    listed = stream.shard_ids()
    found, last = stream.to_the_end(shard=0)

    assert listed == ["shardId-000000000000"]
    assert found == [b"one"]
    assert data_of(last) == []


def test_records_of_a_shard_can_be_trimmed_on_demand(
    stream: StreamUnderTest, control: KinesisControl
) -> None:
    stream.put_all(b"one", b"two")

    control.trim(stream.name, stream.shard_ids()[0], count=1)

    assert stream.read() == [b"two"]


def test_an_invalid_control_request_is_refused(control: KinesisControl) -> None:
    with pytest.raises(ControlError, match="switch 'speed' does not exist"):
        control.switch(speed=1)


def test_put_records_accepts_ten_mebibytes(stream: StreamUnderTest) -> None:
    entry = {"Data": MEGABYTE[:-1], "PartitionKey": "k"}

    more = refusal(
        lambda: stream.client.put_records(StreamName=stream.name, Records=[entry] * 11)
    )

    assert more == INVALID


def test_a_stream_can_be_created_for_larger_records(client: Any) -> None:
    stream = new_stream(client, shards=1, MaxRecordSizeInKiB=10_240)
    large = MEGABYTE * 10

    stream.put(large)

    assert stream.read() == [large]


def test_a_page_holds_ten_thousand_records(
    stream: StreamUnderTest, control: KinesisControl
) -> None:
    control.preload(stream.name, count=10_001, size_bytes=50)

    page = stream.page()

    assert len(page["Records"]) == 10_000
    assert len(stream.follow(page["NextShardIterator"])["Records"]) == 1


def test_threads_write_and_read_at_once(client: Any) -> None:
    stream = new_stream(client, shards=4)

    with ThreadPoolExecutor(8) as threads:
        numbers = list(threads.map(lambda n: stream.put(key=str(n)), range(200)))

    pages = [stream.page(shard=shard)["Records"] for shard in range(4)]
    found = [record["SequenceNumber"] for page in pages for record in page]
    assert sorted(found) == sorted(numbers)
    assert len(set(found)) == 200
