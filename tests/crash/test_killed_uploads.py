"""Kills during uploads to a bucket: multipart uploads and lost responses."""

import base64
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.crashpoints import CrashPoint
from penstock.tables.chain import log_entry
from tests.crash.harness import KILLED, Home, assert_exact, assert_lasting, crash, until
from tests.crash.places import BucketPlace
from tests.crash.variants import opened
from tests.node import numbered
from tests.servers.proxy import Delay, LoseResponse, Proxied, Request, method

pytestmark = pytest.mark.crash

# Two tasks share the file, and the Parquet of each is sent in parts of 8 MiB.
LARGE_ROWS = 32_000
NOTE_BYTES = 768
SECOND_EPOCH = method("PUT", path=log_entry(4))


@pytest.fixture
def home(tmp_path: Path, proxied: Proxied) -> Iterator[Home]:
    """An empty home whose bucket is reached through the proxy."""
    with opened(tmp_path, BucketPlace(proxied.bucket)) as home:
        yield home


def test_a_kill_during_a_multipart_upload_leaves_no_object(
    home: Home, proxied: Proxied
) -> None:
    write_large(home)
    home.create()
    proxied.proxy.inject(Delay(seconds=30), when=part, times=100)
    process = home.start_run()
    until(lambda: proxied.proxy.count(part) > 0)

    process.kill()
    unfinished = uploads(proxied)
    proxied.proxy.clear_faults()
    assert home.run().code == 0

    assert unfinished
    assert home.written_files() == home.files_at(home.location)
    assert_large(home)


def test_an_object_completed_after_the_kill_is_not_in_the_table(
    home: Home, proxied: Proxied
) -> None:
    write_large(home)
    home.create()
    proxied.proxy.inject(Delay(seconds=2), when=completion)
    process = home.start_run()
    until(lambda: proxied.proxy.count(completion) > 0)

    process.kill()
    assert home.run().code == 0
    until(lambda: len(home.written_files()) == 3)

    assert len(home.files_at(home.location)) == 2
    assert_large(home)


def test_a_commit_whose_response_was_lost_before_a_kill_is_recognized(
    home: Home, proxied: Proxied
) -> None:
    home.write(1, 2, 3)
    home.create()
    proxied.proxy.inject(LoseResponse(), when=SECOND_EPOCH)

    killed = home.run(crash_at=crash(CrashPoint.TABLE_COMMITTED, count=2))
    assert home.run().code == 0

    assert killed.code == KILLED
    shown = assert_exact(home, 1, 2, 3)
    assert {row["attempt"] for row in shown.epochs if row["kind"] == "epoch"} == {1}
    assert_lasting(home, shown)


def test_a_commit_that_was_retried_during_a_kill_is_applied_once(
    home: Home, proxied: Proxied
) -> None:
    home.write(1, 2, 3)
    home.create()
    proxied.proxy.inject(LoseResponse(), when=SECOND_EPOCH)
    proxied.proxy.inject(Delay(seconds=2), when=SECOND_EPOCH)
    process = home.start_run()
    until(lambda: proxied.proxy.count(SECOND_EPOCH) == 2)

    process.kill()
    assert home.run().code == 0

    assert_lasting(home, assert_exact(home, 1, 2, 3))


def part(request: Request) -> bool:
    """Match a part of an object."""
    return request.method == "PUT" and "partNumber" in request.parameters


def completion(request: Request) -> bool:
    """Match the request that completes a multipart upload."""
    return request.method == "POST" and "uploadId" in request.parameters


def uploads(proxied: Proxied) -> list[str]:
    """Return the keys of unfinished multipart uploads."""
    bucket = proxied.direct
    response = bucket.client.list_multipart_uploads(Bucket=bucket.name)
    return [upload["Key"] for upload in response.get("Uploads", ())]


def write_large(home: Home) -> None:
    """Write one source file with rows that do not compress well."""
    source = random.Random(1)  # noqa: S311 - Not for security.
    rows = (
        {**row, "note": base64.b64encode(source.randbytes(NOTE_BYTES)).decode()}
        for row in numbered(*range(LARGE_ROWS))
    )
    home.write_text(1, "".join(f"{json.dumps(row)}\n" for row in rows))


def assert_large(home: Home) -> None:
    """Require that every row of the large file was loaded once."""
    assert sorted(row["id"] for row in home.rows) == list(range(LARGE_ROWS))
    assert home.shown().job["rows_loaded"] == LARGE_ROWS
