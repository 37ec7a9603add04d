"""Loads from four Kinesis shards into a table, against threads that only count the records.

The server is the project's own. It runs in its own process and stores all records before the
timing starts. With the limits of AWS enabled, a load is compared with the shortest time that
the limits allow. The requests of an idle minute are counted, over few and over many shards.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import perf_counter
from typing import Any, Protocol

import boto3
from botocore.config import Config
from rich.console import Console

from benchmarks.figures import Comparison, Figure, Goal, of_samples
from benchmarks.product import Product
from penstock.clock import SystemClock
from tests.servers.kinesis.server import KinesisServer

SHARDS = 4
RECORD_BYTES = 1_000
# Read limit of a shard.
SHARD_BYTES_PER_SECOND = 2 * 2**20
POLL_INTERVAL = timedelta(seconds=10)
PAGE_RECORDS = 10_000
COLUMNS = "id BIGINT, text STRING"


class Bench(Protocol):
    """The product to measure, and the console for messages."""

    @property
    def product(self) -> Product: ...

    @property
    def console(self) -> Console: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """The amounts to measure with."""

    records: int
    rounds: int
    # Records of each shard with the limits of AWS.
    limited_records: int = 20_000
    # The number of shards of each idle stream.
    idle_shards: tuple[int, ...] = (SHARDS, 400)


def measure_streams(bench: Bench, amounts: Amounts) -> list[Figure]:
    """Measure loads from Kinesis; return the figures."""
    message = f"loading {amounts.records:,} records of 1 kB from Kinesis …"
    bench.console.print(message, style="dim")
    with KinesisServer() as server, closing(_client(server)) as client:
        return [
            *_throughput(bench, server, client, amounts),
            *_drain(bench, server, client, records=SHARDS * amounts.limited_records),
            *_idle_minutes(bench, server, client, amounts.idle_shards),
        ]


def _client(server: KinesisServer) -> Any:
    return boto3.client(
        "kinesis",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(max_pool_connections=SHARDS, retries={"total_max_attempts": 1}),
    )


def _throughput(
    bench: Bench, server: KinesisServer, client: Any, amounts: Amounts
) -> list[Figure]:
    records = amounts.records
    _create_stream(client, "volume", shards=SHARDS)
    server.control.preload("volume", count=records, size_bytes=RECORD_BYTES)
    raw, loaded, ratios = [], [], []
    for number in range(amounts.rounds + 1):
        raw_rate = records / _counted(client, "volume", records)
        name = f"k{number}"
        bench.product.sql(_create(name, "volume", server))
        measured = bench.product.load(name)
        rate = records / measured.to_visible
        _require_all(bench, name, records)
        # The first round starts workers and imports libraries.
        if number:
            raw.append(raw_rate)
            loaded.append(rate)
            ratios.append(rate / raw_rate)
    whole = of_samples("Penstock, Kinesis into a table", loaded, "records/s")
    return [
        of_samples("boto3, 4 threads, only counting", raw, "records/s"),
        whole.against(
            Comparison(
                ratio=sorted(ratios)[len(ratios) // 2],
                against="boto3 threads",
                goal=Goal(at_least=0.7),
            )
        ),
    ]


def _counted(client: Any, stream: str, records: int) -> float:
    """Fetch and discard all records in threads; return the seconds."""
    started = perf_counter()
    shards = client.list_shards(StreamName=stream)["Shards"]
    with ThreadPoolExecutor(len(shards)) as threads:
        found = sum(threads.map(lambda shard: _count(client, stream, shard["ShardId"]), shards))
    if found != records:
        raise RuntimeError(f"{found} records were counted, not {records}")
    return perf_counter() - started


def _count(client: Any, stream: str, shard: str) -> int:
    iterator = client.get_shard_iterator(
        StreamName=stream, ShardId=shard, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    found = 0
    while True:
        page = client.get_records(ShardIterator=iterator, Limit=PAGE_RECORDS)
        found += len(page["Records"])
        if not page["MillisBehindLatest"]:
            return found
        iterator = page["NextShardIterator"]


def _drain(bench: Bench, server: KinesisServer, client: Any, *, records: int) -> list[Figure]:
    """Load all records of four shards with the limits of AWS enabled."""
    _create_stream(client, "limited", shards=SHARDS)
    server.control.preload("limited", count=records, size_bytes=RECORD_BYTES)
    server.control.limit_as_aws()
    try:
        bench.product.sql(_create("limited", "limited", server))
        measured = bench.product.load("limited")
    finally:
        server.control.heal()
    _require_all(bench, "limited", records)
    least = records * RECORD_BYTES / (SHARDS * SHARD_BYTES_PER_SECOND)
    taken = Figure(name="drain of 4 limited shards", value=measured.to_visible, unit="s")
    return [
        Figure(name="least time at 2 MB/s a shard", value=least, unit="s"),
        taken.against(Comparison(ratio=measured.to_visible / least, against="least time")),
    ]


def _idle_minutes(
    bench: Bench, server: KinesisServer, client: Any, widths: tuple[int, ...]
) -> list[Figure]:
    """Count the requests of a minute in which nothing arrives."""
    figures = []
    for shards in widths:
        name = f"idle{shards}"
        _create_stream(client, name, shards=shards)
        bench.product.sql(_create(name, name, server))
        clock = _MovedClock()
        source = bench.product.source(name, clock=clock)
        progress = bench.product.state(name).progress
        source.poll(progress, report=lambda _: None)
        source.take_requests()
        for _ in range(int(timedelta(minutes=1) / POLL_INTERVAL)):
            clock.passed += POLL_INTERVAL
            source.poll(progress, report=lambda _: None)
        figures.append(
            Figure(
                name=f"an idle minute over {shards} shards",
                value=source.take_requests(),
                unit="requests",
            )
        )
    return figures


class _MovedClock(SystemClock):
    """The system clock plus the time that was waited."""

    def __init__(self) -> None:
        self.passed = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.passed

    def monotonic(self) -> float:
        return super().monotonic() + self.passed.total_seconds()

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:
        self.passed += timeout
        return event.is_set()


def _create_stream(client: Any, stream: str, *, shards: int) -> None:
    client.create_stream(StreamName=stream, ShardCount=shards)
    client.get_waiter("stream_exists").wait(StreamName=stream, WaiterConfig={"Delay": 1})


def _create(name: str, stream: str, server: KinesisServer) -> str:
    return (
        f"CREATE TABLE {name} ({COLUMNS});"
        f"CREATE ROUTINE LOAD {name} ON {name} PROPERTIES('format' = 'json') FROM KINESIS("
        f"'aws.region' = 'us-east-1', 'kinesis_stream' = '{stream}', "
        f"'aws.endpoint' = '{server.endpoint}', 'aws.access_key' = 'a', "
        "'aws.secret_key' = 'b', 'property.kinesis_default_pos' = 'TRIM_HORIZON')"
    )


def _require_all(bench: Bench, name: str, records: int) -> None:
    loaded = bench.product.state(name).cumulative.rows_loaded
    if loaded != records:
        raise RuntimeError(f"{loaded} rows were loaded, not {records}")
