"""Parts of a history: a setup, and actions on the stream and the load."""

from dataclasses import dataclass
from enum import StrEnum

from penstock.crashpoints import CrashPoint
from penstock.sources.kinesis.kind import ForeignRecords
from penstock.testing.memory_tables import Fault
from tests.servers.kinesis.stream import StaleListing
from tests.servers.kinesis.switches import ShardEnd

# Their hashes are at 0.05, 0.57, 0.29, 0.51, 0.88 and 0.56 of the range of hash keys.
KEYS = ("a", "b", "c", "d", "e", "f")


class Start(StrEnum):
    """Start position of the load."""

    TRIM_HORIZON = "TRIM_HORIZON"
    LATEST = "LATEST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The stream, and the options of the load."""

    shards: int = 1
    start: Start = Start.TRIM_HORIZON
    rows_max: int = 3
    tasks_max: int = 8
    page_records_max: int = 10_000
    page_shards_max: int = 1_000
    foreign: ForeignRecords = ForeignRecords.REJECT
    shard_end: ShardEnd = ShardEnd.WITH_LAST_RECORDS


class Content(StrEnum):
    """Content of a record."""

    ROW = "a row"
    EMPTY = "empty"
    INVALID = "not JSON"


@dataclass(frozen=True, slots=True)
class Put:
    """Add records, one for each key."""

    keys: str
    content: Content = Content.ROW


@dataclass(frozen=True, slots=True)
class PutAggregate:
    """Add an aggregate with records of the first key's shard.

    With ``foreign``, the aggregate also has a record of another shard.
    """

    keys: str
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """Split an open shard."""

    number: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge two adjacent open shards."""

    number: int


@dataclass(frozen=True, slots=True)
class Trim:
    """Trim loaded records, as far as the load can still prove that no others were lost."""


@dataclass(frozen=True, slots=True)
class Expire:
    """Expire iterators and page tokens."""


@dataclass(frozen=True, slots=True)
class FailRequests:
    """Return errors to the next requests of an operation."""

    operation: str
    code: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class MalformedResponse:
    """Return a malformed body to the next GetRecords."""

    body: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Stale:
    """Omit the next reshard from the next listings."""

    listings: int
    how: StaleListing


@dataclass(frozen=True, slots=True)
class EmptyPages:
    """Return empty pages before pages with records, from now on."""

    after_iterator: int
    between_pages: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Move the clock forward."""

    seconds: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause the load by a statement."""


@dataclass(frozen=True, slots=True)
class Crash:
    """Kill the process."""


Action = (
    Put
    | PutAggregate
    | Split
    | Merge
    | Trim
    | Expire
    | FailRequests
    | MalformedResponse
    | Stale
    | EmptyPages
    | Wait
    | Pause
    | Crash
)


@dataclass(frozen=True, slots=True)
class At:
    """An action right before a request of a run."""

    request: int
    action: Action


@dataclass(frozen=True, slots=True)
class CrashAt:
    """Kill the process at the given occurrence of a crash point."""

    point: CrashPoint
    occurrence: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Run the load until it is caught up.

    With ``idle`` actions, the load keeps running and executes one action each time it is idle.
    """

    meanwhile: tuple[At, ...] = ()
    idle: tuple[Action, ...] = ()
    crash: CrashAt | None = None
    # The task attempts that fail after their last record, counted from the first of the run.
    failing_attempts: frozenset[int] = frozenset()
    # The faults of the commits of epochs, in their order.
    commits: tuple[Fault, ...] = ()


Step = Action | Run


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A setup, steps before the load is created, and steps after that."""

    setup: Setup
    before: tuple[Step, ...] = ()
    steps: tuple[Step, ...]
