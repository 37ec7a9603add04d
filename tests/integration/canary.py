"""Canaries: values that must never be seen, and the search for them in whatever was written.

A canary consists of parts, each of which begins with the same random tag. Whatever becomes of
the signs between the parts, and wherever a value is cut off, a part or the tag is left to find.
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
_LOOK_SECONDS = 0.03
_TICK_NANOSECONDS = 100_000_000
_COUNTERS = Path("/tmp")  # noqa: S108 - The JVM writes its counters here, whatever it is told.


def random_text(length: int) -> str:
    """Answer a random text of letters and digits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


@dataclass
class Canaries:
    """The values of one test, by what they are used for."""

    tag: str = field(default_factory=lambda: random_text(8))
    parts_by_name: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def key(self, name: str) -> str:
        """Answer a new value of letters and digits."""
        return self.secret(name, joints="")

    def secret(self, name: str, *, joints: str = "/+") -> str:
        """Answer a new value with these signs between its parts."""
        parts = [f"{self.tag}{random_text(12)}" for _ in range(len(joints) + 1)]
        self.parts_by_name[name] = tuple(parts)
        signs = (*joints, "")
        return "".join(f"{part}{sign}" for part, sign in zip(parts, signs, strict=True))

    def adopt(self, name: str, value: str) -> None:
        """Look for a value that somebody else has made, too."""
        self.parts_by_name[name] = (value,)

    def found_in(self, content: bytes) -> set[str]:
        """Answer the names of the canaries of which any part is there in any form."""
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
    """Answer how a text may be written: as it is, in hexadecimal, UTF-16 or base64."""
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
    """Answer what base64 makes of a value in a longer text, whatever stands around it."""
    encoded: bytes = encode(b"\0" * shift + value)
    return encoded[-(-shift * 8 // 6) : (shift + len(value)) * 8 // 6]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Something that was written, and where."""

    place: str
    content: bytes


def leaks(pieces: Iterable[Piece], canaries: Canaries) -> list[str]:
    """Answer which canaries are seen where."""
    return sorted(
        f"{name}: {piece.place}" for piece in pieces for name in _found_in(piece, canaries)
    )


def _found_in(piece: Piece, canaries: Canaries) -> set[str]:
    found = {name for one in unpacked(piece.content) for name in canaries.found_in(one)}
    return found - {A_PIECE} or found


def unpacked(content: bytes) -> Iterator[bytes]:
    """Yield a content, and what can be read out of it if it is packed."""
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
        told = [str(file.metadata.metadata), str(table.schema), *map(str, table.to_pylist())]
    return "\n".join(told).encode()


def _database_text(content: bytes) -> bytes:
    """Answer a database as statements: in its file, long values are cut into pages."""
    # A database in memory has no write-ahead log, so it must not say that it has one.
    alone = content[:18] + b"\1\1" + content[20:]
    database = sqlite3.connect(":memory:")
    try:
        database.deserialize(alone)
        return "\n".join(database.iterdump()).encode("utf-8", "surrogateescape")
    finally:
        database.close()


def folder_pieces(*folders: Path) -> Iterator[Piece]:
    """Yield every file below folders."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield Piece(place=str(path), content=path.read_bytes())


def bucket_pieces(bucket: Bucket, prefix: str = "") -> Iterator[Piece]:
    """Yield every object of a bucket below a prefix; its key is a part of it."""
    for key in bucket.keys(prefix):
        yield Piece(place=bucket.uri(key), content=bucket.get(key))
        yield Piece(place=f"key {bucket.uri(key)}", content=key.encode())


def process_pieces(pid: int) -> Iterator[Piece]:
    """Yield the command lines of a process's descendants, and what a JVM tells of itself."""
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            words = "\0".join(child.cmdline())
            yield Piece(place=f"command line of {child.name()}", content=words.encode())
        for path in _COUNTERS.glob(f"hsperfdata_*/{child.pid}"):
            yield Piece(place="counters of the JVM", content=path.read_bytes())


def typed_out_of(shown: bytes) -> bytes:
    """Answer what a prompt has shown, without the lines in which somebody typed.

    While it lets somebody type, it takes pasted text, and tells the terminal so.
    """
    head, *rest = shown.split(PASTE_ON)
    return b"\n".join([head, *(part.partition(PASTE_OFF)[2] for part in rest)])


class Keeper:
    """Keeps every file that appears below folders, by a link, however short its life is."""

    def __init__(self, *folders: Path, into: Path) -> None:
        self._folders = folders
        self._into = into
        self._known: set[int] = set()
        self._seen: dict[str, tuple[int | None, list[str]]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="keeper")

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
        self.look()

    def look(self) -> None:
        """Keep what is there now."""
        folders = [str(folder) for folder in self._folders]
        while folders:
            # What is gone again was too quick, or has another name and is found by that one.
            with suppress(FileNotFoundError):
                folders += self._look_into(folders.pop())

    def _look_into(self, folder: str) -> list[str]:
        """Keep the files of a folder unless it is as it was; answer the folders in it."""
        changed_at = os.stat(folder).st_mtime_ns  # noqa: PTH116 - Done very often.
        seen_at, inner = self._seen.get(folder, (None, []))
        if seen_at == changed_at:
            return inner
        inner = []
        # Within a tick of its clock, a folder may change again and look the same.
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
        # As long as there is a link, no other file gets the number.
        if entry.inode() not in self._known:
            with suppress(FileNotFoundError):
                (self._into / f"{len(self._known)}-{entry.name}").hardlink_to(entry.path)
                self._known.add(entry.inode())

    def _keep(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self.look()


def ui_pieces(port: int) -> Iterator[Piece]:
    """Yield what Spark's pages and their REST interface answer."""
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
            status, content = _ui_answer(port, path)
            yield Piece(place=f"{status} {path}", content=content)


_UI_LISTS = ("jobs", "stages?details=true", "environment", "allexecutors", "storage/rdd")
_UI_PAGES = ("jobs", "stages", "storage", "environment", "executors", "SQL")


def _stage_path(about: str, stage: dict[str, Any]) -> str:
    return f"/api/v1/{about}/stages/{stage['stageId']}/{stage['attemptId']}?details=true"


def _ui_list(port: int, path: str) -> list[dict[str, Any]]:
    _, content = _ui_answer(port, f"/api/v1/{path}")
    answer: list[dict[str, Any]] = json.loads(content)
    return answer


def _ui_answer(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
