"""Kinesis service without HTTP, with a clock that only tests move."""

import base64
import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.servers.kinesis.control import execute_command
from tests.servers.kinesis.service import Request, Service
from tests.servers.kinesis.state import State

MIDDLE = 2**127


class FrozenClock:
    """Clock that always returns the same time."""

    def now(self) -> datetime:
        return datetime(2026, 3, 1, 12, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:
        del timeout
        return event.is_set()


class ResponseError(Exception):
    """An error response; the message is its code."""


@dataclass
class InProcessKinesis:
    """Client of a service in the same process, for requests and control commands."""

    service: Service = field(
        default_factory=lambda: Service(State(clock=FrozenClock(), region="us-east-1"))
    )

    def send(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Send a request and return the response; raise ResponseError for an error."""
        body = json.dumps(fields).encode()
        response = self.service.handle(Request(operation=operation, body=body))
        result: dict[str, Any] = json.loads(response.body or b"{}")
        if response.status != 200:
            raise ResponseError(result["__type"])
        return result

    def control(self, name: str, **arguments: Any) -> Any:
        """Execute a control command."""
        return execute_command(self.service, {"do": name, **arguments})

    def switch(self, **switches: Any) -> None:
        """Set switches."""
        self.control("switch", switches=switches)

    def advance(self, **by: float) -> None:
        """Move the clock forward."""
        self.control("move_clock", seconds=timedelta(**by).total_seconds())

    def create(self, shards: int = 1) -> None:
        """Create the stream of the test."""
        self.send("CreateStream", StreamName="s", ShardCount=shards)

    def put(self, *records: str, hash_key: int = 0) -> list[str]:
        """Write records; return their sequence numbers."""
        responses = [
            self.send(
                "PutRecord",
                StreamName="s",
                Data=base64.b64encode(record.encode()).decode(),
                PartitionKey="k",
                ExplicitHashKey=str(hash_key),
            )
            for record in records
        ]
        return [response["SequenceNumber"] for response in responses]

    def iterator(self, kind: str = "TRIM_HORIZON", *, shard: int = 0, **where: Any) -> str:
        """Return an iterator of a shard."""
        response = self.send(
            "GetShardIterator",
            StreamName="s",
            ShardId=f"shardId-{shard:012d}",
            ShardIteratorType=kind,
            **where,
        )
        return str(response["ShardIterator"])

    def page(self, iterator: str, **how: Any) -> dict[str, Any]:
        """Return the page of an iterator."""
        return self.send("GetRecords", ShardIterator=iterator, **how)

    def pages(self, count: int, *, limit: int = 10_000, shard: int = 0) -> list[list[str]]:
        """Return the records of the first pages of a shard."""
        iterator, found = self.iterator(shard=shard), list[list[str]]()
        for _ in range(count):
            page = self.page(iterator, Limit=limit)
            found.append(texts(page))
            iterator = page["NextShardIterator"]
        return found

    def split(self, shard: int = 0, *, at: int = MIDDLE) -> None:
        """Split a shard."""
        self.send(
            "SplitShard",
            StreamName="s",
            ShardToSplit=f"shardId-{shard:012d}",
            NewStartingHashKey=str(at),
        )

    def shards(self, **how: Any) -> list[dict[str, Any]]:
        """Return the listed shards."""
        shards: list[dict[str, Any]] = self.send("ListShards", StreamName="s", **how)["Shards"]
        return shards

    def numbers(self) -> list[int]:
        """Return the numbers of the listed shards."""
        return [int(shard["ShardId"][-12:]) for shard in self.shards()]

    def open_numbers(self) -> list[int]:
        """Return the numbers of the shards that are listed as open."""
        return [
            int(shard["ShardId"][-12:])
            for shard in self.shards()
            if "EndingSequenceNumber" not in shard["SequenceNumberRange"]
        ]

    def status(self) -> str:
        """Return the status of the stream."""
        response = self.send("DescribeStreamSummary", StreamName="s")
        return str(response["StreamDescriptionSummary"]["StreamStatus"])


def texts(page: dict[str, Any]) -> list[str]:
    """Return the decoded data of the records of a page."""
    return [base64.b64decode(record["Data"]).decode() for record in page["Records"]]
