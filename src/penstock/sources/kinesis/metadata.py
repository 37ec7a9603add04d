"""What is known of a record beside its content, as columns."""

from collections.abc import Sequence

import pyarrow as pa

from penstock.model.kinesis import STREAM_COLUMNS
from penstock.sources.kinesis.records import Item
from penstock.storage.arrow_types import AnyArray, arrow_type

_MICROSECONDS = 1_000_000
_TYPE_BY_NAME = {column.name: arrow_type(column.type) for column in STREAM_COLUMNS}


def metadata_of(
    items: Sequence[Item], *, shard: str, needed: Sequence[str]
) -> dict[str, AnyArray]:
    """Answer the needed columns, with one value for every record."""
    return {
        name: pa.array(_values(name, items, shard), _TYPE_BY_NAME[name])
        for name in needed
        if name in _TYPE_BY_NAME
    }


def _values(name: str, items: Sequence[Item], shard: str) -> list[object]:
    match name:
        case "_shard":
            return [shard] * len(items)
        case "_sequence":
            return [item.sequence for item in items]
        case "_partition_key":
            return [item.partition_key for item in items]
        case "_arrived_at":
            return [round(item.arrived_at * _MICROSECONDS) for item in items]
        case _:
            return [item.encryption or "NONE" for item in items]
