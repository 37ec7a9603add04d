"""What a history of a stream is made of: a setup, and what happens, step by step."""

from dataclasses import dataclass
from enum import StrEnum

from penstock.crashpoints import CrashPoint
from penstock.sources.kinesis.kind import ForeignRecords
from penstock.testing.memory_tables import Fault
from tests.servers.kinesis.stream import StaleListing
from tests.servers.kinesis.switches import ShardEnd

# Their hashes lie at 0.05, 0.57, 0.29, 0.51, 0.88 and 0.56 of all.
KEYS = ("a", "b", "c", "d", "e", "f")


class Start(StrEnum):
    """Where the load begins."""

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


class What(StrEnum):
    """What a record holds."""

    ROW = "a row"
    NOTHING = "nothing"
    NONSENSE = "no JSON"


@dataclass(frozen=True, slots=True)
class Put:
    """Records arrive, one for each key."""

    keys: str
    what: What = What.ROW


@dataclass(frozen=True, slots=True)
class PutTogether:
    """Records arrive inside of one: those of the first key's shard, and maybe another one."""

    keys: str
    stranger: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """An open shard becomes two."""

    number: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Two open shards that lie side by side become one."""

    number: int


@dataclass(frozen=True, slots=True)
class Trim:
    """The stream forgets what is loaded, and what can be told from what is not."""


@dataclass(frozen=True, slots=True)
class Expire:
    """Iterators and tokens of pages expire."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The next requests of a kind are refused."""

    operation: str
    code: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Garble:
    """The next answer with records is none."""

    body: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Stale:
    """The next listings do not know of the last reshard."""

    listings: int
    how: StaleListing


@dataclass(frozen=True, slots=True)
class Gaps:
    """Pages are empty before something comes, from now on."""

    after_iterator: int
    while_behind: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Time passes."""

    seconds: int


@dataclass(frozen=True, slots=True)
class Pause:
    """A person pauses the load."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The process dies."""


Happening = (
    Put
    | PutTogether
    | Split
    | Merge
    | Trim
    | Expire
    | Refuse
    | Garble
    | Stale
    | Gaps
    | Wait
    | Pause
    | Crash
)


@dataclass(frozen=True, slots=True)
class At:
    """Something happens right before a request of a run."""

    request: int
    happening: Happening


@dataclass(frozen=True, slots=True)
class CrashAt:
    """The process dies when it passes a point for the so-manieth time."""

    point: CrashPoint
    passing: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The load runs until it is caught up, or goes on with something new at every idle."""

    meanwhile: tuple[At, ...] = ()
    idle: tuple[Happening, ...] = ()
    crash: CrashAt | None = None
    # The tries of tasks that fail behind their last record, counted from the run's first.
    failing_tries: frozenset[int] = frozenset()
    # What happens to the commits of epochs, counted likewise.
    commits: tuple[Fault, ...] = ()


Step = Happening | Run


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A setup, what was in the stream before, and what happens."""

    setup: Setup
    before: tuple[Step, ...] = ()
    steps: tuple[Step, ...]
