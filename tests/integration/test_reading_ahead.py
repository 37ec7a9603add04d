"""Read-ahead: several pieces of a large object are fetched in parallel."""

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.sources.formats.blocks import Wanted
from penstock.sources.formats.parquet_reader import read_parquet
from penstock.storage import bucket as bucket_stream
from penstock.storage.options import StoreOptions
from penstock.storage.store import Store, open_store
from tests.integration.bucket_jobs import through_proxy
from tests.servers.buckets import Bucket
from tests.servers.proxy import HoldTogether, Proxied, Request

pytestmark = pytest.mark.integration

PIECE_BYTES = 4_096
ROWS = 8_192
KEY = "in/large.parquet"
COLUMNS = pa.schema([("id", pa.int64()), ("other", pa.int64())])


@pytest.fixture
def large(moto_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxied]:
    """A bucket with a Parquet file of one row group and many pieces, with a proxy."""
    monkeypatch.setattr(bucket_stream, "PIECE_BYTES", PIECE_BYTES)
    moto_bucket.put(KEY, parquet())
    with through_proxy(moto_bucket) as proxied:
        yield proxied


def parquet() -> bytes:
    numbers = list(range(ROWS))
    table = pa.Table.from_pydict({"id": numbers, "other": numbers}, schema=COLUMNS)
    target = io.BytesIO()
    pq.write_table(table, target, compression="none", use_dictionary=False)
    return target.getvalue()


def store_of(bucket: Bucket) -> Store:
    options = StoreOptions(
        endpoint=bucket.endpoint, access_key=bucket.access_key, secret_key=bucket.secret_key
    )
    return open_store(bucket.uri(), options)[0]


def rows_read(store: Store) -> int:
    with store.open(KEY, etag=None) as stream:
        wanted = Wanted(columns=COLUMNS, names=tuple(COLUMNS.names))
        blocks = read_parquet(stream, wanted=wanted, start=0, end=None)
        return sum(block.lines for block in blocks)


def piece(*numbers: int) -> set[str]:
    """Return the ranges of pieces as they appear in requests."""
    starts = [number * PIECE_BYTES for number in numbers]
    return {f"bytes={start}-{start + PIECE_BYTES - 1}" for start in starts}


def test_several_pieces_of_a_large_parquet_file_are_fetched_in_parallel(large: Proxied) -> None:
    together = HoldTogether(4)
    wanted = piece(1, 2, 3, 4)

    def early(request: Request) -> bool:
        return request.method == "GET" and request.headers.get("range") in wanted

    large.proxy.inject(together, when=early, times=4)

    rows = rows_read(store_of(large.bucket))

    assert together.met
    assert rows == ROWS
