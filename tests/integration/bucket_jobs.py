"""Jobs that load from buckets, small servers for these jobs, and tables in buckets."""

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from penstock.aws.credentials import credentials_for
from penstock.control.result import Cell
from penstock.storage.bucket_clients import client_for
from penstock.storage.options import StoreOptions
from penstock.storage.store import open_store
from tests.integration.driving import TIMEOUT_SECONDS, MovedClock
from tests.node import Node, numbered
from tests.servers.buckets import AnyBucket, Bucket
from tests.servers.child import HOST
from tests.servers.proxy import Delay, FaultProxy, Proxied, Request

Options = Mapping[str, str]


class FastClock(MovedClock):
    """A clock whose wall time and monotonic time move only when the test moves them."""

    def monotonic(self) -> float:
        return super().monotonic() + self._moved.total_seconds()


def access(bucket: AnyBucket) -> dict[str, str]:
    """Return the options to access a bucket."""
    return {
        "s3.endpoint": bucket.endpoint,
        "s3.access_key": bucket.access_key,
        "s3.secret_key": bucket.secret_key,
    }


def secret(name: str, values: Options) -> str:
    """Return a statement that stores values as a secret."""
    return f"CREATE SECRET {name} ({_pairs(values)})"


def bucket_job(
    bucket: AnyBucket,
    pattern: str = "in/*.json",
    *,
    name: str = "j",
    properties: Sequence[tuple[str, str]] = (),
    options: Options | None = None,
) -> str:
    """Return a CREATE JOB for numbered rows in a bucket, by default with the bucket's keys."""
    given = access(bucket) if options is None else options
    return job_on(bucket.uri(pattern), given, name=name, properties=properties)


def job_on(
    uri: str,
    options: Options,
    *,
    name: str = "j",
    properties: Sequence[tuple[str, str]] = (),
) -> str:
    """Return a CREATE JOB for numbered rows at any URI."""
    clause = f"PROPERTIES({_pairs(dict(properties))}) " if properties else ""
    return f"CREATE JOB {name} {clause}ON STREAMING DO {insert_from(uri, options)}"


def insert_from(uri: str, options: Options) -> str:
    """Return the INSERT of a job for numbered rows."""
    source = {"uri": uri, "format": "json", **options}
    return f"INSERT INTO t SELECT id, note FROM S3({_pairs(source)})"  # noqa: S608 - Our own SQL.


def _pairs(values: Options) -> str:
    return ", ".join(f"'{key}' = {_written(value)}" for key, value in values.items())


def _written(value: str) -> str:
    return value if value.startswith("SECRET ") else f"'{value}'"


def json_lines(*numbers: int) -> bytes:
    """Return the numbered rows as JSON lines."""
    return "".join(f"{json.dumps(row)}\n" for row in numbered(*numbers)).encode()


def put_rows(bucket: AnyBucket, key: str, *numbers: int) -> None:
    """Write an object with numbered rows."""
    bucket.put(key, json_lines(*numbers))


def put_many(bucket: Bucket, keys: Iterable[str], content: bytes) -> None:
    """Write many objects with the same content, several at a time."""
    options = StoreOptions(
        endpoint=bucket.endpoint, access_key=bucket.access_key, secret_key=bucket.secret_key
    )
    store, _ = open_store(bucket.uri(), options)
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda key: store.write(key, content), keys):
            continue


def ids(node: Node, table: str = "t") -> list[int]:
    """Return the sorted ids in a local table."""
    return sorted(row["id"] for row in node.rows(table))


def location_of(node: Node, table: str = "t") -> str:
    """Return the location of a table."""
    record = node.catalog.table(table)
    assert record is not None
    return record.location


def read_in_bucket(location: str, bucket: AnyBucket) -> list[dict[str, Any]]:
    """Return the rows of a table in a bucket, read by deltalake."""
    found = DeltaTable(location, storage_options=bucket.storage_options)
    result = QueryBuilder().register("found", found).execute("SELECT * FROM found")
    return pa.table(result.read_all()).to_pylist()


def bucket_ids(node: Node, bucket: AnyBucket, table: str = "t") -> list[int]:
    """Return the sorted ids in a table in a bucket."""
    rows = read_in_bucket(location_of(node, table), bucket)
    return sorted(row["id"] for row in rows)


@contextmanager
def bucket_node(home: Path, bucket: AnyBucket, **parts: Any) -> Iterator[Node]:
    """Yield a node whose warehouse is in a bucket that is accessed with a secret."""
    name = "wh"
    node = Node(home, warehouse=bucket.uri("wh"), warehouse_secret=name, **parts)
    node.sql(secret(name, access(bucket)))
    try:
        yield node
    finally:
        node.catalog.close()


def chain(node: Node, name: str = "j") -> list[tuple[Cell, Cell]]:
    """Return number and kind of the job's commits."""
    rows = node.sql(f"SHOW EPOCHS FOR {name}")
    return [(row["number"], row["kind"]) for row in rows if row["number"] is not None]


def version(node: Node, table: str = "t") -> int:
    """Return the newest version of a table."""
    (row,) = node.sql(f"DESCRIBE DETAIL {table}")
    return cast("int", row["version"])


@contextmanager
def through_proxy(bucket: Bucket) -> Iterator[Proxied]:
    """Yield a bucket that is reached through its own proxy."""
    proxy = FaultProxy(bucket.endpoint)
    proxy.up()
    through = replace(bucket, endpoint=proxy.endpoint)
    try:
        yield Proxied(proxy=proxy, bucket=through, direct=bucket)
    finally:
        through.close()
        proxy.down()


def bare_aws(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Remove all AWS keys, addresses and profiles from the environment."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    patch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    # Credentials are cached per process; drop those of an earlier test.
    client_for.cache_clear()
    credentials_for.cache_clear()


def write_profile(folder: Path, name: str, *, key: str) -> None:
    """Write a profile with keys into the credentials file of the test."""
    lines = [f"[{name}]", f"aws_access_key_id = {key}", "aws_secret_access_key = hidden"]
    (folder / "credentials").write_text("\n".join(lines))


@dataclass
class FirstRequest:
    """Calls a function when the first matching request arrives, before it is forwarded."""

    act: Callable[[], None]
    path: str
    method: str = "GET"
    done: bool = False

    def __call__(self, request: Request) -> bool:
        """Inject no fault. The server responds from the state after the call."""
        matching = request.method == self.method and self.path in request.path
        if matching and not self.done:
            self.done = True
            self.act()
        return False


def on_first_request(proxy: FaultProxy, once: FirstRequest) -> FirstRequest:
    """Run a function once when a matching request passes the proxy."""
    proxy.inject(Delay(seconds=0), when=once)
    return once


def signed_by(request: Request) -> str:
    """Return the access key that signed a request."""
    return _scope(request)[0]


def signed_for(request: Request) -> str:
    """Return the region that a request was signed for."""
    return _scope(request)[2]


def _scope(request: Request) -> list[str]:
    credential = request.headers["authorization"].partition("Credential=")[2]
    return credential.partition(",")[0].split("/")


@dataclass
class Sts:
    """An STS server that issues new role credentials on every call, with a lifetime."""

    life: timedelta = timedelta(hours=1)
    requests: list[dict[str, str]] = field(default_factory=list)
    refusing: bool = False

    def respond(self, form: dict[str, str]) -> tuple[int, str]:
        """Return the response to an AssumeRole request."""
        self.requests.append(form)
        if self.refusing:
            return 403, _STS_REFUSAL
        ends_at = datetime.now(UTC) + self.life
        number = len(self.requests)
        return 200, _STS_RESPONSE.format(number=number, ends_at=f"{ends_at:%Y-%m-%dT%H:%M:%SZ}")


_STS_RESPONSE = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleResult><Credentials><AccessKeyId>TEMPORARY{number}</AccessKeyId>
<SecretAccessKey>secret-{number}</SecretAccessKey><SessionToken>token-{number}</SessionToken>
<Expiration>{ends_at}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""
_STS_REFUSAL = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error>
<Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>"""


@dataclass
class Pages:
    """A server of one bucket with many small objects that supports only listings."""

    keys: int
    requests: int = 0

    def respond(self, parameters: Options) -> str:
        """Return one page of keys."""
        self.requests += 1
        after = parameters.get("continuation-token") or parameters.get("start-after") or ""
        first = int(after[3:11]) + 1 if after else 0
        end = min(first + PAGE_KEYS, self.keys)
        more = f"<NextContinuationToken>{paged_key(end - 1)}</NextContinuationToken>"
        found = "".join(_PAGE_ENTRY % paged_key(number) for number in range(first, end))
        return _PAGE.format(
            found=found,
            truncated=str(end < self.keys).lower(),
            more=more if end < self.keys else "",
        )


PAGE_KEYS = 1_000
PAGED_ETAG = '"d41d8cd98f00b204e9800998ecf8427e"'
_PAGE = """<?xml version="1.0"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>pages</Name>
<Prefix>in/</Prefix><MaxKeys>1000</MaxKeys><IsTruncated>{truncated}</IsTruncated>
{more}{found}</ListBucketResult>"""
_PAGE_ENTRY = (
    "<Contents><Key>%s</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
    "<ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag><Size>10</Size>"
    "<StorageClass>STANDARD</StorageClass></Contents>"
)


def paged_key(number: int) -> str:
    """Return the key of the object with this number."""
    return f"in/{number:08d}.json"


@contextmanager
def page_server(pages: Pages) -> Iterator[Bucket]:
    """Serve pages of keys; yield the bucket."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.send(200, pages.respond(dict(parse_qsl(urlsplit(self.path).query))))

    with serving(Handler) as endpoint:
        keys = {"access_key": "one", "secret_key": "two"}
        yield Bucket(endpoint=endpoint, name="pages", **keys)


def remember_loaded(node: Node, *, keys: int, etag: str = PAGED_ETAG) -> None:
    """Add many objects to the job's index as if epochs had loaded them."""
    with closing(sqlite3.connect(node.home / "catalog.db")) as connection, connection:
        connection.execute(_REMEMBER, {"job": node.job("j").id, "keys": keys, "etag": etag})


_REMEMBER = """
INSERT INTO files (job_id, key, etag, number, modified_at)
WITH RECURSIVE n(number) AS
  (SELECT 0 UNION ALL SELECT number + 1 FROM n WHERE number + 1 < :keys)
SELECT :job, printf('in/%08d.json', number), :etag, 3, '2026-01-01 00:00:00.000000' FROM n
"""


@contextmanager
def sts_server(sts: Sts) -> Iterator[str]:
    """Serve AssumeRole requests; yield the address."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.send(*sts.respond(dict(parse_qsl(content))))

    with serving(Handler) as endpoint:
        yield endpoint


@contextmanager
def silent_sts(requests: list[str], *, entered: threading.Event) -> Iterator[str]:
    """Accept AssumeRole requests and never respond; yield the address."""
    ended = threading.Event()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            requests.append(self.path)
            entered.set()
            ended.wait(TIMEOUT_SECONDS)
            self.close_connection = True

    with serving(Handler) as endpoint:
        try:
            yield endpoint
        finally:
            ended.set()


class QuietHandler(BaseHTTPRequestHandler):
    """Sends XML over persistent connections and logs nothing."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def send(self, status: int, text: str) -> None:
        """Send a response."""
        body = text.encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve HTTP on a free port; yield the address."""
    server = ThreadingHTTPServer((HOST, 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
