"""Canaries: secret values that must never appear in output, and the search for these values.

A canary consists of parts that all start with the same random tag. Even if a value is truncated
or its separators are changed, a part or the tag can still be found.
"""

import gzip
import http.client
import json
import os
import secrets
import sqlite3
import string
import threading
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from tests.servers.buckets import Bucket
from tests.servers.child import HOST

A_PIECE = "a piece of a canary"

_ALPHABET = string.ascii_letters + string.digits
_PARQUET, _SQLITE = b"PAR1", b"SQLite format 3\0"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
PASTE_ON, PASTE_OFF = b"\x1b[?2004h", b"\x1b[?2004l"
_SCAN_SECONDS = 0.03
_TICK_NANOSECONDS = 100_000_000
_COUNTERS = Path("/tmp")  # noqa: S108 - The JVM always writes its counters here.


def random_text(length: int) -> str:
    """Return a random text of letters and digits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


@dataclass
class Canaries:
    """The canaries of one test, by their purpose."""

    tag: str = field(default_factory=lambda: random_text(8))
    parts_by_name: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def key(self, name: str) -> str:
        """Return a new value of letters and digits."""
        return self.secret(name, joints="")

    def secret(self, name: str, *, joints: str = "/+") -> str:
        """Return a new value whose parts are separated by these characters."""
        parts = [f"{self.tag}{random_text(12)}" for _ in range(len(joints) + 1)]
        self.parts_by_name[name] = tuple(parts)
        signs = (*joints, "")
        return "".join(f"{part}{sign}" for part, sign in zip(parts, signs, strict=True))

    def adopt(self, name: str, value: str) -> None:
        """Also search for a value that was generated elsewhere."""
        self.parts_by_name[name] = (value,)

    def found_in(self, content: bytes) -> set[str]:
        """Return the names of the canaries of which any part occurs in any encoding."""
        tagged = _holds(content, self.tag)
        found = {
            name
            for name, parts in self.parts_by_name.items()
            if (tagged or not parts[0].startswith(self.tag))
            and any(_holds(content, part) for part in parts)
        }
        return found or ({A_PIECE} if tagged else set())


def _holds(content: bytes, text: str) -> bool:
    return any(form in content for form in forms(text))


@cache
def forms(text: str) -> frozenset[bytes]:
    """Return the encodings of a text: plain, hexadecimal, UTF-16 and base64."""
    value = text.encode()
    wide = (text.encode(encoding) for encoding in ("utf-16-le", "utf-16-be"))
    hexadecimal = value.hex().encode()
    plain = {value, value.lower(), value.upper(), hexadecimal, hexadecimal.upper(), *wide}
    return frozenset(plain) | {
        _inside(encode, value, shift)
        for encode in (b64encode, urlsafe_b64encode)
        for shift in range(3)
    }


def _inside(encode: Any, value: bytes, shift: int) -> bytes:
    """Return the base64 characters that depend only on the value, not on its surroundings."""
    encoded: bytes = encode(b"\0" * shift + value)
    return encoded[-(-shift * 8 // 6) : (shift + len(value)) * 8 // 6]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Written content and its place."""

    place: str
    content: bytes


def leaks(pieces: Iterable[Piece], canaries: Canaries) -> list[str]:
    """Return which canaries occur in which places."""
    return sorted(
        f"{name}: {piece.place}" for piece in pieces for name in _found_in(piece, canaries)
    )


def _found_in(piece: Piece, canaries: Canaries) -> set[str]:
    found = {name for text in unpacked(piece.content) for name in canaries.found_in(text)}
    return found - {A_PIECE} or found


def unpacked(content: bytes) -> Iterator[bytes]:
    """Yield the content, and its unpacked text if it is packed."""
    yield content
    if content.startswith(_GZIP):
        yield gzip.decompress(content)
    elif content.startswith(_ZSTD):
        with pa.input_stream(BytesIO(content), compression="zstd") as stream:
            yield stream.read()
    elif content.startswith(_PARQUET) and content.endswith(_PARQUET):
        yield _parquet_text(content)
    elif content.startswith(_SQLITE):
        yield _database_text(content)


def _parquet_text(content: bytes) -> bytes:
    with pq.ParquetFile(BytesIO(content)) as file:
        table = file.read()
        texts = [str(file.metadata.metadata), str(table.schema), *map(str, table.to_pylist())]
    return "\n".join(texts).encode()


def _database_text(content: bytes) -> bytes:
    """Return a database as SQL statements. In the file, long values are split across pages."""
    # A database in memory has no write-ahead log, so the header must not announce one.
    alone = content[:18] + b"\1\1" + content[20:]
    database = sqlite3.connect(":memory:")
    try:
        database.deserialize(alone)
        return "\n".join(database.iterdump()).encode("utf-8", "surrogateescape")
    finally:
        database.close()


def folder_pieces(*folders: Path) -> Iterator[Piece]:
    """Yield every file in folders and their subfolders."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield Piece(place=str(path), content=path.read_bytes())


def bucket_pieces(bucket: Bucket, prefix: str = "") -> Iterator[Piece]:
    """Yield every object of a bucket below a prefix; the key is part of the content."""
    for key in bucket.keys(prefix):
        yield Piece(place=bucket.uri(key), content=bucket.get(key))
        yield Piece(place=f"key {bucket.uri(key)}", content=key.encode())


def process_pieces(pid: int) -> Iterator[Piece]:
    """Yield the command lines of a process's descendants, and the counters of their JVMs."""
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            words = "\0".join(child.cmdline())
            yield Piece(place=f"command line of {child.name()}", content=words.encode())
        for path in _COUNTERS.glob(f"hsperfdata_*/{child.pid}"):
            yield Piece(place="counters of the JVM", content=path.read_bytes())


def without_typed_lines(shown: bytes) -> bytes:
    """Return the output of a prompt without the lines that were typed.

    The prompt enables bracketed paste while it reads input, and disables it afterwards.
    """
    head, *rest = shown.split(PASTE_ON)
    return b"\n".join([head, *(part.partition(PASTE_OFF)[2] for part in rest)])


class FileCollector:
    """Retains every file that appears in folders, by hard links, even short-lived files."""

    def __init__(self, *folders: Path, into: Path) -> None:
        self._folders = folders
        self._into = into
        self._known: set[int] = set()
        self._seen: dict[str, tuple[int | None, list[str]]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper")

    def __enter__(self) -> Self:
        self._into.mkdir()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.collect()

    def collect(self) -> None:
        """Link the files that exist now."""
        folders = [str(folder) for folder in self._folders]
        while folders:
            # The file was deleted too early, or it was renamed and is found under its new name.
            with suppress(FileNotFoundError):
                folders += self._collect_from(folders.pop())

    def _collect_from(self, folder: str) -> list[str]:
        """Link the files of a folder if it has changed; return its subfolders."""
        changed_at = os.stat(folder).st_mtime_ns  # noqa: PTH116 - Done very often.
        seen_at, inner = self._seen.get(folder, (None, []))
        if seen_at == changed_at:
            return inner
        inner = []
        # A folder can change again within one clock tick without a new modification time.
        settled = time.time_ns() - changed_at > _TICK_NANOSECONDS
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    inner.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    self._link(entry)
        self._seen[folder] = (changed_at if settled else None, inner)
        return inner

    def _link(self, entry: "os.DirEntry[str]") -> None:
        # While the link exists, no other file can get this inode number.
        if entry.inode() not in self._known:
            with suppress(FileNotFoundError):
                (self._into / f"{len(self._known)}-{entry.name}").hardlink_to(entry.path)
                self._known.add(entry.inode())

    def _run(self) -> None:
        while not self._ended.wait(_SCAN_SECONDS):
            self.collect()


def ui_pieces(port: int) -> Iterator[Piece]:
    """Yield the pages of the Spark UI and of its REST interface."""
    for application in _ui_list(port, "applications"):
        about = f"applications/{application['id']}"
        stages = _ui_list(port, f"{about}/stages")
        queries = _ui_list(port, f"{about}/sql?details=true&planDescription=true&length=1000")
        paths = [
            *(f"/api/v1/{about}/{name}" for name in _UI_LISTS),
            *(_stage_path(about, stage) for stage in stages),
            f"/api/v1/{about}/sql?details=true&planDescription=true&length=1000",
            *(f"/{page}/" for page in _UI_PAGES),
            *(f"/stages/stage/?id={s['stageId']}&attempt={s['attemptId']}" for s in stages),
            *(f"/SQL/execution/?id={query['id']}" for query in queries),
        ]
        for path in paths:
            status, content = _ui_response(port, path)
            yield Piece(place=f"{status} {path}", content=content)


_UI_LISTS = ("jobs", "stages?details=true", "environment", "allexecutors", "storage/rdd")
_UI_PAGES = ("jobs", "stages", "storage", "environment", "executors", "SQL")


def _stage_path(about: str, stage: dict[str, Any]) -> str:
    return f"/api/v1/{about}/stages/{stage['stageId']}/{stage['attemptId']}?details=true"


def _ui_list(port: int, path: str) -> list[dict[str, Any]]:
    _, content = _ui_response(port, f"/api/v1/{path}")
    response: list[dict[str, Any]] = json.loads(content)
    return response


def _ui_response(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
