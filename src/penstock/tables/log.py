"""Read single versions of a table's log, for readers that follow the log.

An entry is one small file, so following a log needs neither a listing nor a checkpoint.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from penstock.errors import Code, UserError
from penstock.model.schema import Column
from penstock.storage.store import ObjectMissingError
from penstock.tables.chain import log_entry
from penstock.tables.folder import TableFolder
from penstock.tables.schema import columns_of
from penstock.tables.table import SnapshotFile

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMetadata:
    """The id and the columns of a table after a commit that changed its metadata."""

    table_id: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCommit:
    """One version of a table's log."""

    version: int
    operation: str
    committed_at: datetime
    # The files with new rows, in the order of the log. A compaction has none.
    files: tuple[SnapshotFile, ...]
    # Whether the commit deleted or updated rows of earlier versions.
    rewrites: bool
    # None if the commit did not change the metadata.
    metadata: LogMetadata | None


def read_commit(folder: TableFolder, version: int) -> LogCommit | None:
    """Return one version of the log; None if its entry does not exist."""
    key = folder.key(log_entry(version))
    try:
        content = folder.store.read_bytes(key)
    except ObjectMissingError:
        return None
    actions = _actions(content, version)
    info = next(_of(actions, "commitInfo"), {})
    return LogCommit(
        version=version,
        operation=str(info.get("operation", "")),
        committed_at=_commit_time(info) or _modified_at(folder, key),
        files=tuple(_file(add) for add in _of(actions, "add") if add["dataChange"]),
        rewrites=any(remove["dataChange"] for remove in _of(actions, "remove")),
        metadata=next((_metadata(data) for data in _of(actions, "metaData")), None),
    )


def _actions(content: bytes, version: int) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in content.split(b"\n") if line.strip()]
    except ValueError as error:
        raise UserError(
            f"log entry {version} is not valid JSON",
            code=Code.CANNOT_RESUME_ERR,
            detail=f"{error}.",
        ) from error


def _of(actions: list[dict[str, Any]], kind: str) -> Iterator[dict[str, Any]]:
    return (action[kind] for action in actions if kind in action)


def _commit_time(info: Mapping[str, Any]) -> datetime | None:
    milliseconds = info.get("inCommitTimestamp", info.get("timestamp"))
    if milliseconds is None:
        return None
    return _UNIX_EPOCH + timedelta(milliseconds=milliseconds)


def _modified_at(folder: TableFolder, key: str) -> datetime:
    """Return when an entry was written; the entry of some writers contains no time."""
    entry = folder.store.head(key)
    return _UNIX_EPOCH if entry is None else entry.modified_at


def _file(add: Mapping[str, Any]) -> SnapshotFile:
    # Paths in the log are percent-encoded.
    path = unquote(add["path"])
    return SnapshotFile(
        path=path,
        size_bytes=add["size"],
        partition_values=tuple(
            (name, _partition_value(name, value, path))
            for name, value in add["partitionValues"].items()
        ),
        statistics_json=add.get("stats") or "{}",
    )


def _partition_value(name: str, value: str | None, path: str) -> str | None:
    """Return a partition value; some writers write an empty text for NULL.

    Only the folder name distinguishes an empty text from NULL.
    """
    return value or ("" if f"{name}=" in path.split("/") else None)


def _metadata(data: Mapping[str, Any]) -> LogMetadata:
    return LogMetadata(table_id=data["id"], columns=columns_of(data["schemaString"]))
