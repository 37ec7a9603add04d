"""The contract of source kinds; every kind passes one suite of tests.

A kind is one frozen value, ``SourceKind``, found by name in the registry. A ``Source`` lives in
the driver, belongs to one runner and stores nothing durable: progress comes from the job's
state and goes back in the attachment of a commit. A ``TaskReader`` runs inside a task and
knows nothing but its ``ReadTask``.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from penstock.clock import Clock
from penstock.errors import PenstockError, UserError
from penstock.model.epoch import EpochLimits, EpochPlan
from penstock.model.formats import Payload
from penstock.model.job import JobState, SourceRef
from penstock.model.job_kinds import Properties
from penstock.model.options import Reveal
from penstock.model.schema import Column
from penstock.model.secrets import Sealed
from penstock.model.split import (
    Amount,
    Note,
    Position,
    Progress,
    SplitRead,
    SplitState,
    SplitStatus,
)

if TYPE_CHECKING:
    import pyarrow as pa

# Called with what a poll has seen so far; it may raise to end the poll.
Seen = Callable[[str], None]
# The values of place columns, in their order; None where a value is not known.
Place = tuple[str | int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """What a poll found."""

    # The given progress, completed by splits that are new.
    progress: Progress
    waiting: Amount
    # Counts beside the rows, by name, such as files that changed after they were loaded.
    notices: tuple[tuple[str, int], ...] = ()


class OnFailure(StrEnum):
    """What follows the failure of one read."""

    RETRY = "retry"
    EXCLUDE = "exclude"
    RAISE = "raise"


class Source(Protocol):
    """A source as the driver sees it; called by one thread.

    A method with a body is the default of the classes that inherit from this one.
    """

    def poll(self, progress: Progress, *, seen: Seen) -> Poll:
        """Find what is new, and forget what an earlier poll left unplanned.

        Raises UserError if records were lost or the source is another one.
        """
        ...

    def poll_due(self, interval: timedelta) -> bool:
        """Return whether to poll although something is left to plan.

        ``interval`` is how often an idle source is polled.
        """
        del interval
        return False

    def poll_delay(self) -> timedelta:
        """Return how long an idle source must at least wait before the next poll."""
        return timedelta(0)

    def plan(self, progress: Progress, *, limits: EpochLimits) -> EpochPlan | None:
        """Take the next epoch from the last poll; None if nothing is left of it."""
        ...

    def share(
        self, plan: EpochPlan, *, tasks: int, needed: Sequence[str]
    ) -> list[tuple[SplitRead, ...]]:
        """Distribute a plan to at most so many tasks; no task is empty."""
        ...

    def advance(self, plan: EpochPlan, notes: Sequence[Note]) -> Progress:
        """Return the progress after a plan; pure.

        Raises InvariantError if the notes do not cover the plan exactly.
        """
        ...

    def committed(self, progress: Progress, notes: Sequence[Note]) -> None:
        """Follow a commit; repeated calls change nothing."""
        del progress, notes

    def failed(self, read: str, error: PenstockError) -> OnFailure:
        """Decide what follows the failure of one read, or of a whole task if empty."""
        del read
        return OnFailure.RAISE if isinstance(error, UserError) else OnFailure.RETRY

    def waiting(self) -> Amount:
        """Return what the last poll found and no plan has taken."""
        ...

    def heads(self) -> Mapping[str, Position]:
        """Return the head of every split at the last poll: where new records arrive."""
        ...

    def passed(self, split: str, boundary: Position) -> bool:
        """Return whether everything of a split before a head is committed."""
        ...

    def statuses(self) -> tuple[SplitStatus, ...]:
        """Return what is known of every split."""
        ...

    def task_access(self) -> Sealed:
        """Return what tasks need to read, with the credentials of this moment."""
        return Sealed()

    def charge(self, requests: int) -> None:
        """Count requests that tasks have sent."""
        del requests

    def take_requests(self) -> int:
        """Return how many requests were sent since the last call."""
        return 0

    def close(self) -> None:
        """Release what the source holds."""
        return


class ItemIndex(Protocol):
    """The items, such as files, that one job has loaded; stored in the catalog."""

    def known(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Return ETags by key of those among the given items that were loaded."""
        ...

    def newest(self, prefix: str) -> str:
        """Return the largest loaded key below a prefix; empty if there is none."""
        ...

    @property
    def pruned_before(self) -> datetime | None:
        """The time before which the index has forgotten items."""
        ...

    def prune(self, before: datetime, *, prefixes: Sequence[str]) -> None:
        """Forget the items written before a time, except the newest of each prefix."""
        ...


class Memory(Protocol):
    """What a source remembers between runs, as the kind's own text; losing it is safe."""

    def load(self) -> str:
        """Return the newest text; empty if there is none."""
        ...

    def store(self, text: str) -> None:
        """Replace the text, unless the job has another owner."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceServices:
    """What a source is opened with."""

    state: JobState
    clock: Clock
    # Ends every wait.
    stop: threading.Event
    # A reference in an option becomes its value.
    reveal: Reveal
    # Values become the ciphertext that tasks receive.
    seal: Callable[[Mapping[str, str]], Sealed]
    items: ItemIndex
    memory: Memory
    # The value that all sources of the kind share in this node.
    shared: object


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A record that gave no row: its place, the reason and its bytes."""

    place: Place
    error: str
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """Rows in the needed columns, the records that gave none, and where each row came from."""

    batch: "pa.RecordBatch"
    place: Callable[[int], Place]
    bad: tuple[BadRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """What one task reads."""

    source: SourceRef
    access: Sealed
    # How the bytes of a record become rows, for kinds that decode.
    payload: Payload | None
    columns: tuple[Column, ...]
    needed: tuple[str, ...]
    reads: tuple[SplitRead, ...]


class TaskReader(Protocol):
    """Reads the reads of one task; defaults as in ``Source``."""

    # One for every finished read.
    notes: list[Note]

    @property
    def requests(self) -> int:
        """How many requests were sent to the source."""
        return 0

    def blocks(self) -> Iterator[RowBlock]:
        """Yield the rows; the notes are complete once the last block was taken."""
        ...

    def close(self) -> None:
        """Release what the reader holds."""
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A source as a statement gives it: options as written, and with values for references."""

    options: Any
    values: Any
    # The columns of the target table.
    table_columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """Where a statement wants reading to start."""

    # Options as written, and with values in the place of references.
    options: Any
    values: Any
    # Start options as written; it may be empty.
    given: Mapping[str, str]
    properties: Properties
    clock: Clock
    reveal: Reveal
    # The source and its progress before an ALTER; None at CREATE.
    before: SourceRef | None = None
    progress: Progress = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRequest:
    """What a kind renders."""

    state: JobState
    # The text that the source remembers.
    memory: str
    at: datetime
    # Progress of recent committed epochs.
    history: tuple[Progress, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceShown:
    """What SHOW prints of a source, in the cells of Apache Doris where it has them."""

    # jobs(): CurrentOffset and EndOffset.
    offset: str = ""
    end_offset: str = ""
    # SHOW ROUTINE LOAD: DataSourceProperties, more counters of Statistic, notes of OtherMsg.
    properties: Mapping[str, str] = field(default_factory=dict)
    statistic: Mapping[str, object] = field(default_factory=dict)
    messages: tuple[str, ...] = ()
    # The start options that SHOW CREATE prints.
    start: tuple[tuple[str, str], ...] = ()


def _open_statuses(request: ShowRequest) -> tuple[SplitStatus, ...]:
    return tuple(
        SplitStatus(
            split=split.split,
            state=SplitState.FINISHED if split.finished else SplitState.OPEN,
        )
        for split in request.state.progress
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """A source kind as one value; functions import their modules when they are called."""

    name: str
    # The names by which statements call it.
    functions: tuple[str, ...]
    # The names of the job kinds that can read it.
    job_kinds: tuple[str, ...]
    # What a split is called, and what a poll counts as waiting.
    split_noun: str
    waiting_noun: str
    # What the source counts as read, and the units in which it can measure what waits.
    read_noun: str = "record"
    measures: tuple[str, ...]
    options: type[Any]
    start_options: type[Any] | None = None
    # Other names of options, and options that ALTER cannot change.
    aliases: Mapping[str, str] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    # What is known of a row beside its content; no part of ``*``.
    metadata_columns: tuple[Column, ...] = ()
    # The columns that locate a rejected row.
    place_columns: tuple[Column, ...]
    # Libraries that a node needs to run such jobs, as capabilities.
    needs: tuple[str, ...] = ()
    # Whether records are bytes that PROPERTIES give a format.
    decodes: bool = False
    # Name the source for people, without secrets; name a place in it.
    place: Callable[[Any], str]
    # Whether the source is on this machine, so that no credentials are needed.
    local: Callable[[Any], bool] = lambda _options: False
    # Put inferred columns into the options that SHOW CREATE prints.
    freeze: Callable[[Any, tuple[Column, ...]], Any] = lambda options, _columns: options
    place_text: Callable[[Place], str]
    # Write positions for SHOW JOBS, and the span of one attempt for tasks().
    position: Callable[[Progress], str]
    span: Callable[[Progress, Progress], str] = lambda _start, _end: ""
    # Return the values of options that may be references, checked together.
    reveal: Callable[[Any, Reveal], Any] = lambda options, _reveal: options
    # Merge the options of an ALTER with those before it.
    merge: Callable[[Mapping[str, str], Mapping[str, str]], dict[str, str]] = (
        lambda before, given: {**before, **given}
    )
    # Check against the real source, and return the columns of its rows. A kind that decodes
    # returns none: its columns are those of the statement.
    define: Callable[[Draft], tuple[Column, ...]]
    # Resolve start positions once; None: positions stay as they are.
    start: Callable[[StartRequest], Progress | None]
    # Carry memory over to a job that continues another one.
    inherit: Callable[[str, JobState, JobState], str] = lambda _memory, _before, _after: ""
    # Create what all sources of the kind share in one node.
    shared: Callable[[Clock], object] = lambda _clock: None
    open: Callable[[SourceServices], Source]
    reader: Callable[[ReadTask], TaskReader]
    # Send the cheapest request that the credentials must allow, given options and values.
    probe: Callable[[Any, Any], None] = lambda _options, _values: None
    show: Callable[[ShowRequest], SourceShown]
    statuses: Callable[[ShowRequest], tuple[SplitStatus, ...]] = _open_statuses
