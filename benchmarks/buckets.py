"""Loads from a bucket into a bucket: Penstock and a hand-written pyarrow loop, on SeaweedFS.

The server runs on the same machine and shares the processors with both loads. Then the polls of
a job are measured: the requests and the time of an audit and of an idle poll.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import S3FileSystem

from benchmarks.baselines import PROCESSES, read_orders, split_evenly, write_tables
from benchmarks.environment import Environment
from benchmarks.figures import Comparison, Figure, Goal, of_samples, paired_ratio
from benchmarks.product import Product, Source, create_job
from benchmarks.sample_orders import ARROW_SCHEMA, SQL_COLUMNS, order_line
from benchmarks.throughput import RowComparison
from tests.servers.buckets import Bucket, create_bucket
from tests.servers.seaweedfs import SeaweedServer

FILES = 20
BY_HAND = "pyarrow by hand, bucket to bucket"
PENSTOCK = "Penstock, bucket to bucket"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A bucket with files, and a product whose warehouse is in the bucket."""

    bucket: Bucket
    product: Product
    options: str

    def source(self, pattern: str, *more: str) -> Source:
        """Return a source that reads the bucket."""
        options = ", ".join((self.options, *more))
        return Source(uri=self.bucket.uri(pattern), options=options)


def measure_buckets(
    environment: Environment, *, rows: int, rounds: int, keys: int
) -> list[Figure]:
    """Measure alternate loads, then polls; return the figures."""
    with open_bench(environment) as bench:
        environment.console.print(f"writing {rows:,} rows into a bucket …", style="dim")
        _put_orders(bench.bucket, rows=rows)
        figures = _loads(environment, bench, rows=rows, rounds=rounds)
        environment.console.print(f"writing {keys:,} small objects …", style="dim")
        return figures + _polls(bench, keys=keys)


@contextmanager
def open_bench(environment: Environment) -> Iterator[Bench]:
    """Start a server and open a home whose warehouse is on the server."""
    server = SeaweedServer(environment.fresh_folder("seaweedfs"))
    server.start()
    try:
        bucket = create_bucket(server)
        home = environment.fresh_folder("bucket-home")
        settings = f'warehouse = "{bucket.uri("warehouse")}"\nwarehouse_secret = "bench"\n'
        (home / "penstock.toml").write_text(settings)
        product = Product(home, executor=environment.executor)
        keys = {
            "s3.endpoint": bucket.endpoint,
            "s3.region": bucket.region,
            "s3.access_key": bucket.access_key,
            "s3.secret_key": bucket.secret_key,
        }
        values = ", ".join(f"'{key}' = '{value}'" for key, value in keys.items())
        product.sql(f"CREATE SECRET bench ({values})")
        taken = ", ".join(f"'{key}' = SECRET 'bench'" for key in keys)
        yield Bench(bucket=bucket, product=product, options=f"'format' = 'json', {taken}")
        product.close()
        bucket.close()
    finally:
        server.stop()


def _put_orders(bucket: Bucket, *, rows: int) -> None:
    per_file = rows // FILES
    for file in range(FILES):
        text = "".join(map(order_line, range(file * per_file, (file + 1) * per_file)))
        bucket.put(f"in/orders-{file:06d}.json", text.encode())


def _loads(environment: Environment, bench: Bench, *, rows: int, rounds: int) -> list[Figure]:
    taken: dict[str, list[float]] = {BY_HAND: [], PENSTOCK: []}
    comparison = RowComparison(rows=rows)
    # The first round warms up. Its time is not counted, but its rows are compared.
    for number in range(rounds + 1):
        for name in (BY_HAND, PENSTOCK) if number % 2 else (PENSTOCK, BY_HAND):
            load = _by_hand if name == BY_HAND else _penstock
            seconds, found = load(environment, bench)
            comparison.check(found, name=name, values=number == 0)
            environment.console.print(f"round {number}: {name}: {seconds:.2f} s", style="dim")
            if number:
                taken[name].append(seconds)
    rate = {name: [rows / 1000 / one for one in some] for name, some in taken.items()}
    ratio = paired_ratio(rate[PENSTOCK], rate[BY_HAND])
    compared = Comparison(ratio=ratio, against=BY_HAND, goal=Goal(at_least=0.65))
    return [
        of_samples(BY_HAND, rate[BY_HAND], "k rows/s"),
        of_samples(PENSTOCK, rate[PENSTOCK], "k rows/s").against(compared),
    ]


def _penstock(environment: Environment, bench: Bench) -> tuple[float, pa.Table]:
    del environment
    product = bench.product
    source = bench.source("in/*.json")
    product.sql(create_job("j", columns=SQL_COLUMNS, source=source))
    seconds = product.load("j").to_visible
    found = _rows(bench, product.location("j"))
    product.sql("DROP JOB j; DROP TABLE j")
    return seconds, found


def _by_hand(environment: Environment, bench: Bench) -> tuple[float, pa.Table]:
    bucket = bench.bucket
    location = bucket.uri(f"by-hand-{uuid4().hex}")
    table = DeltaTable.create(
        location, Schema.from_arrow(ARROW_SCHEMA), storage_options=bucket.storage_options
    )
    started = perf_counter()
    keys = [f"{bucket.name}/{key}" for key in bucket.keys("in/")]
    paths = [f"{uuid4().hex}.parquet" for _ in range(PROCESSES)]
    shares = split_evenly(keys, parts=PROCESSES)
    targets = [f"{location.removeprefix('s3://')}/{path}" for path in paths]
    access = [_access(bucket)] * PROCESSES
    written = list(environment.by_hand.map(_write_share, shares, targets, access))
    actions: list[AddAction | RemoveAction] = [
        AddAction(path, size, {}, 0, True, f'{{"numRecords":{rows}}}')  # noqa: FBT003
        for path, (rows, size) in zip(paths, written, strict=True)
    ]
    table.create_write_transaction(actions, mode="append", schema=table.schema())
    return perf_counter() - started, _rows(bench, location)


def _access(bucket: Bucket) -> dict[str, Any]:
    return {
        "access_key": bucket.access_key,
        "secret_key": bucket.secret_key,
        "region": bucket.region,
        "endpoint_override": bucket.endpoint.removeprefix("http://"),
        "scheme": "http",
    }


def _write_share(keys: Sequence[str], target: str, access: dict[str, Any]) -> tuple[int, int]:
    """Read objects of JSON lines and write one Parquet object; return rows and bytes."""
    store = S3FileSystem(**access)
    with store.open_output_stream(target) as sink:
        rows = write_tables((_read(store, key) for key in keys), sink)
        size_bytes = sink.tell()
    return rows, size_bytes


def _read(store: S3FileSystem, key: str) -> pa.Table:
    with store.open_input_stream(key) as stream:
        return read_orders(stream)


def _rows(bench: Bench, location: str) -> pa.Table:
    options = bench.bucket.storage_options
    store = S3FileSystem(**_access(bench.bucket))
    files = DeltaTable(location, storage_options=options).file_uris()
    return pa.concat_tables(
        pq.read_table(file.removeprefix("s3://"), filesystem=store) for file in files
    )


def _polls(bench: Bench, *, keys: int) -> list[Figure]:
    """Load many small objects, then poll the source again as a runner does."""

    def put(number: int) -> None:
        bench.bucket.put(f"small/{number:06d}.json", order_line(number).encode())

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, range(keys)))
    source = bench.source("small/*.json", "'ordered_listing' = 'true'")
    bench.product.sql(
        create_job(
            "small",
            columns=SQL_COLUMNS,
            properties=f"'s3.max_batch_files' = '{keys}'",
            source=source,
        )
    )
    seconds = bench.product.load("small").to_visible
    opened = bench.product.source("small")
    progress = bench.product.state("small").progress
    figures = [
        Figure(name=f"{keys:,} small objects, one epoch", value=keys / seconds, unit="files/s")
    ]
    for name in (f"audit of {keys:,} keys", f"idle poll, {keys:,} keys loaded"):
        started = perf_counter()
        waiting = opened.poll(progress, report=lambda _: None).waiting
        taken = perf_counter() - started
        if waiting.items:
            raise RuntimeError(f"{name}: {waiting.items} files are waiting")
        sent = opened.take_requests()
        figures += [
            Figure(name=name, value=1000 * taken, unit="ms"),
            Figure(name=f"{name}, requests", value=sent, unit="requests"),
        ]
    bench.product.sql("DROP JOB small; DROP TABLE small")
    return figures
