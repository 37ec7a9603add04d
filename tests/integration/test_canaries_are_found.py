"""The search for canaries finds every planted canary."""

import gzip
import json
import os
import sqlite3
import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from io import BytesIO
from pathlib import Path
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.bucket_jobs import QuietHandler, serving
from tests.integration.canary import (
    A_PIECE,
    PASTE_OFF,
    PASTE_ON,
    Canaries,
    FileCollector,
    Piece,
    bucket_pieces,
    folder_pieces,
    leaks,
    process_pieces,
    ui_pieces,
    without_typed_lines,
)
from tests.servers.buckets import Bucket

BOTH = ["one: here", "two: here"]
ENCODINGS = ("utf-8", "utf-16-le", "utf-16-be")
WRITINGS: dict[str, Callable[[str], bytes]] = {
    **{name: partial(str.encode, encoding=name) for name in ENCODINGS},
    "quoted in a URL": lambda value: quote(value, safe="").encode(),
    "quoted in a form": lambda value: quote_plus(value).encode(),
    "JSON": lambda value: json.dumps(json.dumps(value)).encode(),
    "Python": lambda value: repr(repr(value)).encode(),
    "hexadecimal": lambda value: value.encode().hex().encode(),
    "lower case": lambda value: value.lower().encode(),
    "base64": lambda value: b64encode(value.encode()),
    "base64 after one byte": lambda value: b64encode(b"a" + value.encode() + b"b"),
    "base64 after two bytes": lambda value: b64encode(b"ab" + value.encode() + b"cd"),
    "base64 of a URL": lambda value: urlsafe_b64encode(b"\xff" + value.encode() + b"\xff"),
    "first half": lambda value: value.encode()[: len(value) // 2],
    "second half": lambda value: value.encode()[len(value) // 2 - 1 :],
}


@pytest.fixture
def canaries() -> Canaries:
    """An empty set of canaries."""
    return Canaries()


def in_content(content: bytes, canaries: Canaries) -> list[str]:
    return leaks([Piece(place="here", content=content)], canaries)


@pytest.mark.parametrize("writing", list(WRITINGS))
def test_a_canary_is_found_in_every_encoding(canaries: Canaries, writing: str) -> None:
    value = canaries.secret("one", joints="/&")
    canaries.secret("two")

    content = b"before " + WRITINGS[writing](value) + b" after"

    assert in_content(content, canaries) == ["one: here"]


def test_a_truncated_canary_is_found(canaries: Canaries) -> None:
    value = canaries.secret("one")

    assert in_content(value[:10].encode(), canaries) == [f"{A_PIECE}: here"]


def test_an_adopted_value_is_found(canaries: Canaries) -> None:
    canaries.adopt("one", "0123456789abcdef")

    assert in_content(b"x0123456789abcdefx", canaries) == ["one: here"]


def test_content_without_a_canary_is_not_reported(canaries: Canaries) -> None:
    canaries.secret("one")

    assert not in_content(Canaries().secret("two").encode(), canaries)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_canary_is_found_in_compressed_content(canaries: Canaries, codec: str) -> None:
    value = canaries.secret("one").encode()

    packed = gzip.compress(value) if codec == "gzip" else pa.Codec("zstd").compress(value)

    assert in_content(bytes(packed), canaries) == ["one: here"]


def test_a_canary_is_found_in_rows_and_metadata_of_parquet(canaries: Canaries) -> None:
    row, head = canaries.secret("one"), canaries.secret("two")
    table = pa.table({"note": [row] * 1000}).replace_schema_metadata({"key": head})

    target = BytesIO()
    pq.write_table(table, target, compression="zstd")

    assert in_content(target.getvalue(), canaries) == BOTH


def test_a_canary_is_found_across_the_pages_of_a_database(canaries: Canaries) -> None:
    value = canaries.key("one")

    texts = (f"{value:x>{at}}".ljust(20_000, "x") for at in range(1_000, 20_000))
    databases = map(database_with, texts)
    content = next(one for one in databases if value.encode() not in one)

    assert in_content(content, canaries) == ["one: here"]


def database_with(text: str) -> bytes:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE t (a)")
        database.execute("INSERT INTO t VALUES (?)", [text])
        database.commit()
        return database.serialize()


def test_a_canary_is_found_in_a_deleted_file(canaries: Canaries, tmp_path: Path) -> None:
    deep = tmp_path / "watched" / "deep"
    deep.mkdir(parents=True)

    with FileCollector(tmp_path / "watched", into=tmp_path / "kept") as collector:
        (deep / "short-lived").write_text(canaries.secret("one"))
        collector.collect()
        (deep / "short-lived").unlink()

    assert leaks(folder_pieces(tmp_path / "watched"), canaries) == []
    assert leaks(folder_pieces(tmp_path / "kept"), canaries) == [
        f"one: {tmp_path}/kept/0-short-lived"
    ]


def test_later_writes_to_a_collected_file_are_collected_too(
    canaries: Canaries, tmp_path: Path
) -> None:
    (tmp_path / "watched").mkdir()
    file = tmp_path / "watched" / "growing"

    with FileCollector(tmp_path / "watched", into=tmp_path / "kept") as collector:
        file.touch()
        collector.collect()
        file.write_text(canaries.secret("one"))
        file.unlink()

    assert leaks(folder_pieces(tmp_path / "kept"), canaries)


@pytest.mark.integration
def test_a_canary_is_found_in_an_object_and_in_its_key(
    canaries: Canaries, bucket: Bucket
) -> None:
    in_key = f"a/{canaries.key('one')}"
    bucket.put(in_key, canaries.secret("two").encode())

    found = leaks(bucket_pieces(bucket), canaries)

    assert found == [f"one: key {bucket.uri(in_key)}", f"two: {bucket.uri(in_key)}"]


@pytest.fixture
def child(canaries: Canaries) -> Iterator[None]:
    """A process with a canary on its command line."""
    words = [sys.executable, "-c", "input()", canaries.secret("one")]
    process = subprocess.Popen(words, stdin=subprocess.PIPE)
    yield
    process.communicate(b"\n")


@pytest.mark.usefixtures("child")
def test_a_canary_is_found_on_a_command_line(canaries: Canaries) -> None:
    found = leaks(process_pieces(os.getpid()), canaries)

    assert [leak.partition(":")[0] for leak in found] == ["one"]


def test_a_canary_is_found_in_the_output_of_a_prompt(canaries: Canaries) -> None:
    typed, answered = canaries.secret("one").encode(), canaries.secret("two").encode()

    shown = b"Hello\n%b> %b%b\n%b\n%b> " % (PASTE_ON, typed, PASTE_OFF, answered, PASTE_ON)

    assert in_content(without_typed_lines(shown), canaries) == ["two: here"]
    assert in_content(shown, canaries) == BOTH


def test_a_canary_is_found_on_pages_of_the_spark_ui(canaries: Canaries) -> None:
    responses = {"/api/v1/applications/a/environment": canaries.secret("one")}
    responses["/SQL/execution/?id=7"] = canaries.secret("two")
    lists = {
        "/api/v1/applications": [{"id": "a"}],
        "/api/v1/applications/a/stages": [{"stageId": 1, "attemptId": 0}],
    }

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802 - Called by this name.
            response = lists.get(self.path, [{"id": 7}] if "/sql?" in self.path else [])
            self.send(200, responses.get(self.path, json.dumps(response)))

    with serving(Handler) as endpoint:
        found = leaks(ui_pieces(int(endpoint.rpartition(":")[2])), canaries)

    assert found == [f"{n}: 200 {p}" for n, p in zip(("one", "two"), responses, strict=True)]
