"""The data files of a Delta table's snapshot."""

import json
from collections.abc import Iterator
from typing import Any

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
    return tuple(
        SnapshotFile(
            path=row["path"],
            size_bytes=row["size_bytes"],
            partition_values=tuple((name, values[at]) for name, values in texts),
            statistics_json=json.dumps(dict(_statistics(row)), default=str),
        )
        for at, row in enumerate(rows)
    )


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
