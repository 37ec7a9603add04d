"""A Kinesis without a wire, whose clock stands still until a test moves it."""

import base64
import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.servers.kinesis.control import obey
from tests.servers.kinesis.service import Request, Service
from tests.servers.kinesis.state import State

MIDDLE = 2**127


class StandingClock:
    """Time that does not pass."""

    def now(self) -> datetime:
        return datetime(2026, 3, 1, 12, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:
        del timeout
        return event.is_set()


class RefusedError(Exception):
    """An answer that was an error."""


@dataclass
class Asking:
    """Asks a service as a client would, and orders as a test would."""

    service: Service = field(
        default_factory=lambda: Service(State(clock=StandingClock(), region="us-east-1"))
    )

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Answer the fields of an answer, or raise its code."""
        body = json.dumps(fields).encode()
        answer = self.service.answer(Request(operation=operation, body=body))
        said: dict[str, Any] = json.loads(answer.body or b"{}")
        if answer.status != 200:
            raise RefusedError(said["__type"])
        return said

    def order(self, name: str, **arguments: Any) -> Any:
        """Give an order."""
        return obey(self.service, {"do": name, **arguments})

    def switch(self, **switches: Any) -> None:
        """Set switches."""
        self.order("switch", switches=switches)

    def later(self, **by: float) -> None:
        """Move the clock."""
        self.order("move_clock", seconds=timedelta(**by).total_seconds())

    def create(self, shards: int = 1) -> None:
        """Create the stream of the test."""
        self.ask("CreateStream", StreamName="s", ShardCount=shards)

    def put(self, *records: str, hash_key: int = 0) -> list[str]:
        """Write records; answer their sequence numbers."""
        answers = [
            self.ask(
                "PutRecord",
                StreamName="s",
                Data=base64.b64encode(record.encode()).decode(),
                PartitionKey="k",
                ExplicitHashKey=str(hash_key),
            )
            for record in records
        ]
        return [answer["SequenceNumber"] for answer in answers]

    def iterator(self, kind: str = "TRIM_HORIZON", *, shard: int = 0, **where: Any) -> str:
        """Answer an iterator."""
        answer = self.ask(
            "GetShardIterator",
            StreamName="s",
            ShardId=f"shardId-{shard:012d}",
            ShardIteratorType=kind,
            **where,
        )
        return str(answer["ShardIterator"])

    def page(self, iterator: str, **how: Any) -> dict[str, Any]:
        """Answer a page."""
        return self.ask("GetRecords", ShardIterator=iterator, **how)

    def pages(self, count: int, *, limit: int = 10_000, shard: int = 0) -> list[list[str]]:
        """Answer the records of the first pages of a shard."""
        iterator, found = self.iterator(shard=shard), list[list[str]]()
        for _ in range(count):
            page = self.page(iterator, Limit=limit)
            found.append(texts(page))
            iterator = page["NextShardIterator"]
        return found

    def split(self, shard: int = 0, *, at: int = MIDDLE) -> None:
        """Cut a shard in two."""
        self.ask(
            "SplitShard",
            StreamName="s",
            ShardToSplit=f"shardId-{shard:012d}",
            NewStartingHashKey=str(at),
        )

    def shards(self, **how: Any) -> list[dict[str, Any]]:
        """List the shards."""
        shards: list[dict[str, Any]] = self.ask("ListShards", StreamName="s", **how)["Shards"]
        return shards

    def numbers(self) -> list[int]:
        """List the numbers of the shards."""
        return [int(shard["ShardId"][-12:]) for shard in self.shards()]

    def open_numbers(self) -> list[int]:
        """List the numbers of those that seem to be open."""
        return [
            int(shard["ShardId"][-12:])
            for shard in self.shards()
            if "EndingSequenceNumber" not in shard["SequenceNumberRange"]
        ]

    def status(self) -> str:
        """Answer what the stream does."""
        answer = self.ask("DescribeStreamSummary", StreamName="s")
        return str(answer["StreamDescriptionSummary"]["StreamStatus"])


def texts(page: dict[str, Any]) -> list[str]:
    """Answer the data of a page."""
    return [base64.b64decode(record["Data"]).decode() for record in page["Records"]]
