"""Switches for tests; by default the server behaves as AWS without faults."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, get_type_hints

from tests.servers.kinesis.stream import StaleListing


class ShardEnd(StrEnum):
    """Which page of a closed shard has no next iterator."""

    WITH_LAST_RECORDS = "with_last_records"
    ON_EMPTY_PAGE = "on_empty_page"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """All switches with their defaults."""

    # How long a stream is CREATING, DELETING or UPDATING.
    create_ms: int = 0
    delete_ms: int = 0
    reshard_ms: int = 0
    # Per second and shard: five GetRecords and 2 MiB; five GetShardIterator.
    limit_reads: bool = False
    limit_iterators: bool = False
    control_calls_per_second: Mapping[str, int] = field(default_factory=dict)
    shard_end: ShardEnd = ShardEnd.WITH_LAST_RECORDS
    # How many ListShards after a reshard are stale, and in which way.
    stale_listings: int = 0
    stale_listing: StaleListing = StaleListing.PARENT_OPEN
    # Empty pages before the first records of a new iterator, and before every later page.
    empty_pages_after_iterator: int = 0
    empty_pages_between_pages: int = 0
    iterators_expire: bool = True
    retention_trims: bool = False
    # Latency of responses by operation; "*" applies to all other operations.
    latency_ms_by_operation: Mapping[str, int] = field(default_factory=dict)
    # Added to the arrival times of records, which may decrease on AWS, too.
    arrival_shift_ms: int = 0
    # Whether records are reported as encrypted with a KMS key.
    encrypted: bool = False

    @property
    def encryption_type(self) -> str:
        """The encryption type of records, as the service reports it."""
        return "KMS" if self.encrypted else "NONE"


def switched(switches: Switches, changes: Mapping[str, Any]) -> Switches:
    """Return switches with changes from JSON; raise ValueError for an unknown switch."""
    known = [one.name for one in fields(Switches)]
    hints = get_type_hints(Switches)
    unknown = sorted(set(changes) - set(known))
    if unknown:
        raise ValueError(
            f"switch {unknown[0]!r} does not exist; allowed are {', '.join(known)}"
        )
    return replace(
        switches, **{name: _parsed(name, hints[name], value) for name, value in changes.items()}
    )


def _parsed(name: str, kind: Any, value: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(value)
    expected = kind if isinstance(kind, type) else dict
    # In Python, True is an int, too.
    if type(value) is not expected:
        raise ValueError(f"switch {name!r} must be of type {expected.__name__}, not {value!r}")
    return value
