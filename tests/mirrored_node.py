"""A node whose files and tables are in a bucket, for tests that use only local folders.

Tests create, change and delete local files, and name these files in statements. The node copies
the files into the bucket before each statement and poll, under the same paths. Statements are
rewritten to name the copies; results are rewritten to name the local files.
"""

import re
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from deltalake import DeltaTable
from pyarrow.fs import S3FileSystem, SubTreeFileSystem

from penstock.control.result import Cell
from penstock.supervisor.runner import StartThread
from penstock.supervisor.supervisor import Supervisor
from tests.node import Node
from tests.servers.buckets import Bucket

_SECRET = "bucket_keys"  # noqa: S105 - A name, not a password.


class OpenNode(Protocol):
    """Opens the home of a test; can be called several times."""

    def __call__(self, **parts: Any) -> Node: ...


@dataclass
class Mirror:
    """The files in a folder, copied into a bucket under their own paths."""

    folder: Path
    bucket: Bucket
    left_out: Path
    _copied: dict[Path, tuple[int, int, int]] = field(default_factory=dict)

    def copy(self) -> None:
        """Copy new and changed files; remove the copies of deleted files."""
        found = {path: _state(path) for path in self.folder.rglob("*") if self._is_source(path)}
        for path, state in found.items():
            if self._copied.get(path) != state:
                self.bucket.put(self.key(path), path.read_bytes())
        for path in self._copied.keys() - found.keys():
            self.bucket.delete(self.key(path))
        self._copied = found

    def to_bucket(self, statement: str) -> str:
        """Return the statement with the names of the copies."""
        keys = (
            f"'s3.endpoint' = '{self.bucket.endpoint}', 's3.region' = '{self.bucket.region}', "
            f"'s3.access_key' = SECRET '{_SECRET}', 's3.secret_key' = SECRET '{_SECRET}'"
        )
        root = re.escape(str(self.folder))
        named = re.compile(rf"(?P<uri>'uri' = ')?(?P<scheme>file://)?{root}(?P<rest>[^']*')?")

        def to_copy(found: re.Match[str]) -> str:
            uri, scheme, rest = found.group("uri", "scheme", "rest")
            key = (self.bucket.uri() if scheme else "") + self._prefix
            return f"{uri or ''}{key}{rest or ''}{', ' + keys if uri and scheme else ''}"

        return named.sub(to_copy, statement)

    def to_folder(self, cell: Cell) -> Cell:
        """Return the cell with the local name instead of the name of the copy."""
        if not isinstance(cell, str):
            return cell
        named = cell.replace(self.bucket.uri() + self._prefix, self._prefix)
        return named.replace(self._prefix, str(self.folder))

    @property
    def _prefix(self) -> str:
        return self.key(self.folder)

    def key(self, path: Path) -> str:
        """Return the key of a file's copy."""
        return str(path).removeprefix("/")

    def _is_source(self, path: Path) -> bool:
        return path.is_file() and not path.is_relative_to(self.left_out)


def _state(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


@dataclass
class MirroredNode(Node):
    """A node that reads copies of the files, and whose tables are in the bucket too."""

    mirror: Mirror = field(kw_only=True)

    def sql(self, text: str) -> list[dict[str, Cell]]:
        self.mirror.copy()
        rows = super().sql(self.mirror.to_bucket(text))
        to_folder = self.mirror.to_folder
        return [{name: to_folder(cell) for name, cell in row.items()} for row in rows]

    def supervisor(
        self, *, until_caught_up: bool = True, start_runner: StartThread | None = None
    ) -> Supervisor:
        self.mirror.copy()
        return super().supervisor(until_caught_up=until_caught_up, start_runner=start_runner)

    def name_of(self, path: Path) -> str:
        return self.mirror.key(path)

    def exists(self, location: str) -> bool:
        bucket = self.mirror.bucket
        return bool(bucket.keys(location.removeprefix(bucket.uri())))

    def read(self, location: str) -> list[dict[str, Any]]:
        bucket = self.mirror.bucket
        opened = S3FileSystem(
            access_key=bucket.access_key,
            secret_key=bucket.secret_key,
            region=bucket.region,
            endpoint_override=bucket.endpoint,
        )
        files = SubTreeFileSystem(location.removeprefix("s3://"), opened)
        table = DeltaTable(location, storage_options=bucket.storage_options)
        return table.to_pyarrow_table(filesystem=files).to_pylist()


def open_mirrored(root: Path, bucket: Bucket) -> OpenNode:
    """Return a function that opens one home with its files and tables in a bucket.

    The bucket can be shared: no two homes use the same keys.
    """
    home = root / "home"
    mirror = Mirror(root, bucket, left_out=home)
    warehouse = bucket.uri(f"warehouse-{uuid.uuid4().hex[:12]}")
    _store_keys(home, bucket)

    def open_node(**parts: Any) -> Node:
        return MirroredNode(
            home,
            mirror=mirror,
            warehouse=warehouse,
            warehouse_secret=_SECRET,
            **parts,
        )

    return open_node


def open_local(root: Path) -> OpenNode:
    """Return a function that opens one home in a folder."""
    return lambda **parts: Node(root / "home", **parts)


def _store_keys(home: Path, bucket: Bucket) -> None:
    first = Node(home)
    first.sql(bucket.create_secret(_SECRET))
    first.catalog.close()
