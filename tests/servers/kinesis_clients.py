"""Kinesis clients for tests, and the calls that most tests use."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from threading import Event
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import Session as BotocoreSession

from penstock.clock import SystemClock

REGION = "us-east-1"
INVALID, UNKNOWN = "InvalidArgumentException", "ResourceNotFoundException"
MIDDLE = 2**127

_CONFIG = Config(
    connect_timeout=10,
    # The largest pages of kinesis-local are slow on a busy machine.
    read_timeout=120,
    retries={"total_max_attempts": 1},
    max_pool_connections=16,
)
_TIMEOUT = timedelta(seconds=30)
_POLL_PERIOD = timedelta(milliseconds=20)


@contextmanager
def kinesis_client(
    endpoint: str, *, key: str = "test", token: str | None = None
) -> Iterator[Any]:
    """Yield a client without retries that sends milliseconds; close it at the end."""
    inner = BotocoreSession()
    inner.register("creating-serializer.kinesis", _send_milliseconds)
    client = boto3.Session(botocore_session=inner).client(
        "kinesis",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=key,
        aws_secret_access_key="test",  # noqa: S106 - Not checked.
        aws_session_token=token,
        config=_CONFIG,
    )
    try:
        yield client
    finally:
        client.close()


def _send_milliseconds(serializer_kwargs: dict[str, Any], **_rest: Any) -> None:
    serializer_kwargs["timestamp_precision"] = "millisecond"


@dataclass(frozen=True, kw_only=True)
class StreamUnderTest:
    """A stream with its own name, and short methods for tests."""

    client: Any
    name: str

    @property
    def arn(self) -> str:
        """The ARN of the stream."""
        return str(self.summary()["StreamARN"])

    def summary(self) -> dict[str, Any]:
        """Describe the stream."""
        response = self.client.describe_stream_summary(StreamName=self.name)
        summary: dict[str, Any] = response["StreamDescriptionSummary"]
        return summary

    def put(self, data: bytes = b"x", *, key: str = "k", hash_key: int | None = None) -> str:
        """Write a record; return its sequence number."""
        explicit = {} if hash_key is None else {"ExplicitHashKey": str(hash_key)}
        response = self.client.put_record(
            StreamName=self.name, Data=data, PartitionKey=key, **explicit
        )
        return str(response["SequenceNumber"])

    def put_all(self, *records: bytes) -> list[str]:
        """Write records, one call each; return their sequence numbers."""
        return [self.put(record) for record in records]

    def shards(self) -> list[dict[str, Any]]:
        """List all shards."""
        shards: list[dict[str, Any]] = self.client.list_shards(StreamName=self.name)["Shards"]
        return shards

    def shard_ids(self) -> list[str]:
        """List the names of all shards."""
        return [shard["ShardId"] for shard in self.shards()]

    def iterator(self, kind: str = "TRIM_HORIZON", *, shard: int = 0, **where: Any) -> str:
        """Return an iterator for a shard by its number."""
        response = self.client.get_shard_iterator(
            StreamName=self.name,
            ShardId=f"shardId-{shard:012d}",
            ShardIteratorType=kind,
            **where,
        )
        return str(response["ShardIterator"])

    def page(
        self, kind: str = "TRIM_HORIZON", *, shard: int = 0, **where: Any
    ) -> dict[str, Any]:
        """Return the first page from an iterator."""
        return self.follow(self.iterator(kind, shard=shard, **where))

    def follow(self, iterator: str, **how: Any) -> dict[str, Any]:
        """Return the page of an iterator."""
        response: dict[str, Any] = self.client.get_records(ShardIterator=iterator, **how)
        return response

    def read(self, kind: str = "TRIM_HORIZON", *, shard: int = 0, **where: Any) -> list[bytes]:
        """Return the data of the first page from an iterator."""
        return data_of(self.page(kind, shard=shard, **where))

    def to_the_end(
        self, *, shard: int, pages_max: int = 20
    ) -> tuple[list[bytes], dict[str, Any]]:
        """Read a closed shard; return its data and its last page."""
        iterator, found = self.iterator(shard=shard), list[bytes]()
        for _ in range(pages_max):
            page = self.follow(iterator)
            found += data_of(page)
            if page.get("NextShardIterator") is None:
                return found, page
            iterator = page["NextShardIterator"]
        raise AssertionError(f"the shard did not end within {pages_max} pages")

    def split(self, shard: int, at: int) -> None:
        """Split a shard before a hash key, and wait until the split is complete."""
        self.client.split_shard(
            StreamName=self.name,
            ShardToSplit=f"shardId-{shard:012d}",
            NewStartingHashKey=str(at),
        )
        self.wait_until_active()

    def merge(self, shard: int, other: int) -> None:
        """Merge two shards, and wait until the merge is complete."""
        self.client.merge_shards(
            StreamName=self.name,
            ShardToMerge=f"shardId-{shard:012d}",
            AdjacentShardToMerge=f"shardId-{other:012d}",
        )
        self.wait_until_active()

    def create(self, shards: int = 1, **how: Any) -> None:
        """Create the stream and wait until it is active."""
        self.client.create_stream(StreamName=self.name, ShardCount=shards, **how)
        self.wait_until_active()

    def delete(self) -> None:
        """Delete the stream and wait until it no longer exists."""
        self.client.delete_stream(StreamName=self.name)
        wait_until(lambda: self.name not in self.client.list_streams(Limit=1000)["StreamNames"])

    def recreate(self) -> None:
        """Delete and create the stream, at least one second apart, as on AWS."""
        self.delete()
        pause(timedelta(milliseconds=1100))
        self.create()

    def put_apart(self, *records: bytes) -> list[datetime]:
        """Write records with pauses between them; return their arrival times."""
        for record in records:
            self.put(record)
            pause(timedelta(milliseconds=15))
        return [record["ApproximateArrivalTimestamp"] for record in self.page()["Records"]]

    def wait_until_active(self) -> None:
        """Wait until a change is complete."""
        wait_until(lambda: self.summary()["StreamStatus"] == "ACTIVE")


def data_of(page: dict[str, Any]) -> list[bytes]:
    """Return the data of a page's records."""
    return [record["Data"] for record in page["Records"]]


def refusal(call: Callable[[], object]) -> str:
    """Return the error code of a refused call, or an empty text."""
    try:
        call()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def server_time(client: Any) -> datetime:
    """Return the server's time in whole seconds; its clock may have been moved."""
    headers = client.list_streams(Limit=1)["ResponseMetadata"]["HTTPHeaders"]
    return parsedate_to_datetime(headers["date"])


def pause(duration: timedelta) -> None:
    """Wait in real time, for servers that use the machine's clock."""
    SystemClock().wait(Event(), duration)


def new_stream(client: Any, *, shards: int = 1, **how: Any) -> StreamUnderTest:
    """Create a stream with a unique name."""
    stream = StreamUnderTest(client=client, name=f"stream-{secrets.token_hex(6)}")
    stream.create(shards, **how)
    return stream


def wait_until(done: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    clock, never = SystemClock(), Event()
    deadline = clock.monotonic() + _TIMEOUT.total_seconds()
    while not done():
        assert clock.monotonic() < deadline, "it did not come true in time"
        clock.wait(never, _POLL_PERIOD)
