"""The web shop of the demo: a Kinesis stream and a producer that never pauses."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config

from examples.orders import Tally, order, tally_of
from tests.servers.kinesis.server import KinesisServer

STREAM, REGION, SHARDS = "orders", "us-east-1", 2
KEYS = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo"}
TILLS = 16
ORDERS_FIRST = 20_000
ORDERS_PER_PUT, ORDERS_PER_PUT_MAX = 100, 500
PUT_SECONDS = 0.1


class WebShop:
    """A producer that puts some orders into the stream at once, and then more continuously."""

    def __init__(self, client: Any, endpoint: str) -> None:  # noqa: ANN401 - boto3 has no types.
        self._client = client
        self.endpoint = endpoint
        self._tally = Tally(tills=TILLS)
        self._closed = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._sell, daemon=True)

    def open(self) -> None:
        """Create the stream, put the first orders, and start the producer."""
        self._client.create_stream(StreamName=STREAM, ShardCount=SHARDS)
        self._client.get_waiter("stream_exists").wait(StreamName=STREAM)
        while self._tally.rows < ORDERS_FIRST:
            self._put(ORDERS_PER_PUT_MAX)
        self._thread.start()

    def close(self) -> Tally:
        """Stop the producer; return the counts of all orders."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self._tally

    @property
    def sold(self) -> int:
        """Number of orders in the stream."""
        return self._tally.rows

    def split(self) -> str:
        """Split the first shard in the middle; return its name."""
        shard = self._client.list_shards(StreamName=STREAM)["Shards"][0]
        first, last = (
            int(shard["HashKeyRange"][f"{side}HashKey"]) for side in ("Starting", "Ending")
        )
        name = str(shard["ShardId"])
        self._client.split_shard(
            StreamName=STREAM,
            ShardToSplit=name,
            NewStartingHashKey=str((first + last) // 2),
        )
        return name

    def _sell(self) -> None:
        try:
            while not self._closed.wait(PUT_SECONDS):
                self._put(ORDERS_PER_PUT)
        except Exception as error:  # noqa: BLE001 - close() raises it.
            self._failure = error

    def _put(self, count: int) -> None:
        first = self._tally.rows + 1
        orders = [order(n, f"web-{n % TILLS:02d}") for n in range(first, first + count)]
        records = [
            {"Data": json.dumps(one).encode(), "PartitionKey": one["till"]} for one in orders
        ]
        response = self._client.put_records(StreamName=STREAM, Records=records)
        if response["FailedRecordCount"]:
            raise RuntimeError("the stream did not accept all orders")
        self._tally += tally_of(orders, tills=0)


@contextmanager
def opened_shop() -> Iterator[WebShop]:
    """Start a Kinesis server in its own process and yield a shop; stop both at the end."""
    with KinesisServer() as server:
        client = boto3.client(
            "kinesis",
            endpoint_url=server.endpoint,
            region_name=REGION,
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            # A retry of the request would put its records twice.
            config=Config(retries={"total_max_attempts": 1}),
        )
        shop = WebShop(client, server.endpoint)
        try:
            yield shop
        finally:
            shop.close()
            client.close()
