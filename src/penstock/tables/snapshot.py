"""The data files of a Delta table's snapshot."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from penstock.tables.table import SnapshotFile

_PARTITION = "partition."
_BOUNDS = {"min.": "minValues", "max.": "maxValues", "null_count.": "nullCount"}


def snapshot_files(table: DeltaTable) -> tuple[SnapshotFile, ...]:
    """Answer the files of the snapshot, with partition values as texts and statistics."""
    actions = pa.table(table.get_add_actions(flatten=True))
    texts = [
        (name.removeprefix(_PARTITION), pc.cast(actions[name], pa.string()).to_pylist())
        for name in actions.column_names
        if name.startswith(_PARTITION)
    ]
    rows: list[dict[str, Any]] = actions.to_pylist()
    # The log encodes paths as in a URL.
    paths = [unquote(row["path"]) for row in rows]
    return tuple(
        SnapshotFile(
            path=paths[at],
            size_bytes=row["size_bytes"],
            partition_values=tuple(
                (name, _partition_value(name, values[at], paths[at])) for name, values in texts
            ),
            statistics_json=json.dumps(dict(_statistics(row)), default=str),
        )
        for at, row in enumerate(rows)
    )


def _partition_value(name: str, value: str | None, path: str) -> str | None:
    """Tell the empty text from NULL, which delta-rs takes for the same; its folder does not."""
    return "" if value is None and f"{name}=" in path.split("/") else value


def _statistics(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if row.get("num_records") is not None:
        yield "numRecords", row["num_records"]
    for prefix, key in _BOUNDS.items():
        yield (
            key,
            {
                name.removeprefix(prefix): value
                for name, value in row.items()
                if name.startswith(prefix) and value is not None
            },
        )
