"""What a test can change; by default the server behaves as AWS does on a good day."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, get_type_hints

from tests.servers.kinesis.stream import StaleListing


class ShardEnd(StrEnum):
    """When the missing iterator tells that a closed shard is read."""

    WITH_LAST_RECORDS = "with_last_records"
    ON_EMPTY_PAGE = "on_empty_page"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """All switches, with what they are by default."""

    # How long a stream is CREATING, DELETING or UPDATING.
    create_ms: int = 0
    delete_ms: int = 0
    reshard_ms: int = 0
    # Five GetRecords and 2 MiB per second and shard; five GetShardIterator likewise.
    limit_reads: bool = False
    limit_iterators: bool = False
    control_calls_per_second: Mapping[str, int] = field(default_factory=dict)
    shard_end: ShardEnd = ShardEnd.WITH_LAST_RECORDS
    # So many ListShards after a reshard do not know of it, in one of three ways.
    stale_listings: int = 0
    stale_listing: StaleListing = StaleListing.PARENT_OPEN
    # Empty pages before the first records of a new iterator, and before every further page.
    empty_pages_after_iterator: int = 0
    empty_pages_while_behind: int = 0
    iterators_expire: bool = True
    retention_trims: bool = False
    # How long answers take, by operation; "*" stands for those not named.
    latency_ms_by_operation: Mapping[str, int] = field(default_factory=dict)
    # Added to the arrival of records, which on AWS need not grow.
    arrival_shift_ms: int = 0
    # Whether records are kept as those of a stream that is encrypted with a key.
    encrypted: bool = False

    @property
    def encryption_type(self) -> str:
        """How records are kept, as the service calls it."""
        return "KMS" if self.encrypted else "NONE"


def switched(switches: Switches, changes: Mapping[str, Any]) -> Switches:
    """Answer the switches with changes as JSON carries them; say which one is unknown."""
    known = [one.name for one in fields(Switches)]
    hints = get_type_hints(Switches)
    unknown = sorted(set(changes) - set(known))
    if unknown:
        raise ValueError(f"switch {unknown[0]!r} does not exist; there are {', '.join(known)}")
    return replace(
        switches, **{name: _parsed(name, hints[name], value) for name, value in changes.items()}
    )


def _parsed(name: str, kind: Any, value: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(value)
    wanted = kind if isinstance(kind, type) else dict
    # For Python True is a number, too.
    if type(value) is not wanted:
        raise ValueError(f"switch {name!r} must be of type {wanted.__name__}, not {value!r}")
    return value
