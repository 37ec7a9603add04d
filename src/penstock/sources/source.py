"""The contract of source kinds; every kind passes the same contract tests.

A kind is one frozen ``SourceKind``, found by name in the registry. A ``Source`` runs in the
driver and belongs to the runner of one job. The runner calls its methods in this order:

    poll                                      find new records
    plan, distribute, task_access             choose the next epoch and its tasks
    prepare, in a second thread               read ahead for the next poll, during a backlog
    TaskReader.blocks, in each task           read
    count_requests, advance                   check that the tasks read the whole plan
    committed                                 after the table and the catalog are committed

The runner repeats the order from ``plan`` until ``plan`` returns None, and then polls again.
After a failed attempt it calls ``failed`` and polls before it plans again.

Invariant: a ``Source`` stores no progress. Progress comes from the job's state, and the commit
stores the new progress together with the rows. A plan that is not committed must have no
lasting effect, and the next poll must find its records again.

A ``TaskReader`` runs inside a task, possibly in another process. It uses only its ``ReadTask``,
and neither the catalog nor the state of the driver.
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

# Called during a poll with a text for the progress display; can raise to end the poll.
ReportPoll = Callable[[str], None]
# The values of a kind's ``place_columns``, in the same order; None for an unknown value.
Place = tuple[str | int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """The result of a poll."""

    # The progress that was passed in, and an entry for each new split.
    progress: Progress
    waiting: Amount
    # Further counts by name, such as the number of files that changed after they were loaded.
    notices: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochResult:
    """The result of an epoch whose tasks have ended, before its commit."""

    progress: Progress
    notes: tuple[Note, ...]


class OnFailure(StrEnum):
    """The reaction to a failed read."""

    RETRY = "retry"
    EXCLUDE = "exclude"
    RAISE = "raise"


class Source(Protocol):
    """The source of one job in the driver; only the runner's thread calls it.

    ``prepare`` is the exception. Subclasses inherit the methods that have a body as defaults.
    """

    def poll(self, progress: Progress, *, report: ReportPoll) -> Poll:
        """Find new records; discard records of earlier polls that were not planned.

        Called before the first plan, when ``plan`` returned None, when ``poll_due`` returns
        True, and after a failed attempt. ``progress`` is the committed progress of the job.
        Calls ``report`` often enough that a long poll can be stopped.

        Raises UserError if unread records were lost, or if the source was replaced by another
        one of the same name. Must never skip lost records silently.
        """
        ...

    def poll_due(self, interval: timedelta) -> bool:
        """Return whether to poll before the last poll is planned completely.

        Called after every epoch. ``interval`` is the poll interval of an idle source.
        """
        del interval
        return False

    def recheck(self) -> None:
        """Require that the next poll is complete; called before new boundaries are set."""
        return

    def poll_delay(self) -> timedelta:
        """Return the shortest wait before the next poll of an idle source."""
        return timedelta(0)

    def plan(self, progress: Progress, *, limits: EpochLimits) -> EpochPlan | None:
        """Return the next epoch of the last poll; None if all of the poll is planned.

        ``progress`` is the committed progress. Two plans of one poll must not overlap. A plan
        contains at least one read, even if its first record exceeds the limits.
        """
        ...

    def prepare(self, progress: Progress, *, report: ReportPoll) -> None:
        """Fetch what the next poll needs, so that this poll only checks and uses it.

        Called in a second thread after a plan. The call ends before the next call of ``plan``
        or ``poll``. Meanwhile the tasks run, and the epoch is committed. ``progress`` is the
        progress after the plan. Must not change what other methods return. If the plan is not
        committed, the next poll must ignore the result. The caller ignores an error of this
        call. The next poll repeats the requests, and raises the error if it occurs again.
        """
        del progress, report

    def distribute(
        self, plan: EpochPlan, *, tasks: int, needed: Sequence[str]
    ) -> list[tuple[SplitRead, ...]]:
        """Divide a plan into at most ``tasks`` tasks, none of them empty.

        Each part of the plan must be in exactly one task. ``needed`` names the columns that
        the tasks read.
        """
        ...

    def advance(self, plan: EpochPlan, notes: Sequence[Note]) -> Progress:
        """Return the progress after a plan, without changing the source.

        Called with the notes of all tasks before the epoch is committed. Raises InvariantError
        unless the notes cover each part of the plan exactly once.
        """
        ...

    def committed(self, progress: Progress, notes: Sequence[Note]) -> None:
        """Record that an epoch was committed; a repeated call changes nothing.

        Called after the commit, so an exception here cannot undo the epoch.
        """
        del progress, notes

    def failed(self, read: str, error: PenstockError) -> OnFailure:
        """Return the reaction to a failed read; an empty ``read`` means the whole attempt."""
        del read
        return OnFailure.RAISE if isinstance(error, UserError) else OnFailure.RETRY

    def waiting(self) -> Amount:
        """Return the amount that the last poll found and that is not planned yet."""
        ...

    def heads(self) -> Mapping[str, Position]:
        """Return the head of each split at the last poll: the place where new records arrive.

        A run that ends once caught up stores the heads of its first poll. The run ends when all
        these heads are passed. The boundaries of a backlog are heads, too.
        """
        ...

    def passed(
        self, split: str, boundary: Position, *, result: EpochResult | None = None
    ) -> bool:
        """Return whether all records of a split before the boundary are committed.

        With ``result``, count the records of that epoch as committed. ``boundary`` is a value
        that ``heads`` returned, perhaps in an earlier run. Must never return True while a
        record before the boundary is not committed. Otherwise the run would end without this
        record. A poll that failed or is incomplete proves nothing. A split without unread
        records has passed its head.
        """
        ...

    def statuses(self) -> tuple[SplitStatus, ...]:
        """Return the state and the remaining amount of each split."""
        ...

    def task_access(self) -> Sealed:
        """Return the current credentials and options for tasks, encrypted.

        Called for every attempt, so that no task starts with expired credentials.
        """
        return Sealed()

    def watched(self) -> tuple[str, ...]:
        """Return the locations of the tables whose commits end the wait for new records."""
        return ()

    def count_requests(self, requests: int) -> None:
        """Add the number of requests of tasks to the source's own count."""
        del requests

    def take_requests(self) -> int:
        """Return the number of requests since the last call of this method."""
        return 0

    def close(self) -> None:
        """Release connections and threads; called once, also after an error."""
        return


class ItemIndex(Protocol):
    """The items, such as files, that one job has loaded; stored in the catalog.

    Commits add the items of an epoch. A source only reads and prunes the index.
    """

    def known(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Return the ETag by key for each given key that was loaded."""
        ...

    def newest(self, prefix: str) -> str:
        """Return the largest loaded key below a prefix; empty if there is none."""
        ...

    @property
    def pruned_before(self) -> datetime | None:
        """The time before which items were pruned; None if the index is complete."""
        ...

    def prune(self, before: datetime, *, prefixes: Sequence[str]) -> None:
        """Delete items that were written before a time, except the newest of each prefix."""
        ...


class Memory(Protocol):
    """A cache of a source between runs, as text of the kind; losing the text is safe."""

    def load(self) -> str:
        """Return the last stored text; empty if there is none."""
        ...

    def store(self, text: str) -> None:
        """Replace the text, unless another node owns the job now."""
        ...


class TableOpener(Protocol):
    """Opens tables that a source reads; the classes are those of ``penstock.tables``.

    Only the kind that reads tables can import these classes.
    """

    def open(self, location: str) -> Any:  # noqa: ANN401 - A TableHandle.
        """Open a table at its newest version."""
        ...

    def folder(self, location: str) -> Any:  # noqa: ANN401 - A TableFolder.
        """Return the folder of a table."""
        ...

    def task_access(self, location: str) -> Sealed:
        """Return the sealed storage options with which tasks open the files of a table."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceServices:
    """The services that a source uses."""

    state: JobState
    clock: Clock
    # Set to end every wait of the source.
    stop: threading.Event
    # Returns the value of an option that may be a reference to a secret.
    reveal: Reveal
    # Encrypts values for tasks.
    seal: Callable[[Mapping[str, str]], Sealed]
    items: ItemIndex
    memory: Memory
    # The result of ``SourceKind.shared``, one value for all sources of the kind in this node.
    shared: object
    # None in tests of kinds that read no tables.
    tables: TableOpener | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A record that could not be read: its place, the reason and its bytes."""

    place: Place
    error: str
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """Rows in the needed columns, and the records that could not be read."""

    batch: "pa.RecordBatch"
    # Returns the place of a row, given the row's index in the batch.
    place: Callable[[int], Place]
    bad: tuple[BadRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """The input of one task."""

    source: SourceRef
    access: Sealed
    # The format of the records' bytes; None for kinds that do not decode.
    payload: Payload | None
    columns: tuple[Column, ...]
    needed: tuple[str, ...]
    reads: tuple[SplitRead, ...]


class TaskReader(Protocol):
    """Executes the reads of one task; subclasses inherit defaults as in ``Source``."""

    # One note for each finished read.
    notes: list[Note]

    @property
    def requests(self) -> int:
        """Number of requests that this reader sent to the source."""
        return 0

    def blocks(self) -> Iterator[RowBlock]:
        """Yield the rows of all reads; ``notes`` is complete after the last block.

        Called once. A record must be in a batch, in ``bad``, or counted as skipped in a note.
        """
        ...

    def close(self) -> None:
        """Release connections; called once, also after an error."""
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A source of a CREATE or ALTER statement, before the job is stored."""

    # Options as written, and with values in place of references.
    options: Any
    values: Any
    # The columns of the target table.
    table_columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """A statement's request for start positions."""

    # Options as written, and with values in place of references.
    options: Any
    values: Any
    # Start options as written; empty if the statement has none.
    given: Mapping[str, str]
    properties: Properties
    clock: Clock
    reveal: Reveal
    # The source and its progress before an ALTER; None at CREATE.
    before: SourceRef | None = None
    progress: Progress = ()
    # None for kinds that read no tables.
    tables: TableOpener | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRequest:
    """The job that a SHOW statement prints."""

    state: JobState
    # The text in the source's ``Memory``.
    memory: str
    at: datetime
    # Progress of recent committed epochs.
    history: tuple[Progress, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """The texts about a source in SHOW; where possible, in the columns of Apache Doris."""

    # jobs(): CurrentOffset and EndOffset.
    offset: str = ""
    end_offset: str = ""
    # SHOW ROUTINE LOAD: DataSourceProperties, counters in Statistic, lines in OtherMsg.
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
    """Everything that the rest of the code needs of one source kind.

    The functions import their modules when they are called, so that listing the kinds is
    fast. No function changes anything at the source.
    """

    name: str
    # The names of the kind in SQL; the first one is used in messages.
    functions: tuple[str, ...]
    # The names of the job kinds that can read this source kind.
    job_kinds: tuple[str, ...]
    # The nouns for a split, and for the items that a poll counts as waiting.
    split_noun: str
    waiting_noun: str
    # The noun for the items that were read, and the units of the waiting amount.
    read_noun: str = "record"
    measures: tuple[str, ...]
    options: type[Any]
    start_options: type[Any] | None = None
    # Alternative names of options, and options that ALTER cannot change.
    aliases: Mapping[str, str] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    # Columns about the origin of a row; ``*`` does not include them.
    metadata_columns: tuple[Column, ...] = ()
    # The columns that locate a rejected row.
    place_columns: tuple[Column, ...]
    # Libraries that a node needs to run jobs of this kind, as names of capabilities.
    needs: tuple[str, ...] = ()
    # Whether records are bytes whose format is set in PROPERTIES.
    decodes: bool = False
    # Return the name of the source for messages, without secrets.
    place: Callable[[Any], str]
    # Return whether the source is on this machine, so that no credentials are needed.
    local: Callable[[Any], bool] = lambda _options: False
    # Return the options that SHOW CREATE prints, with the inferred columns.
    freeze: Callable[[Any, tuple[Column, ...]], Any] = lambda options, _columns: options
    # Return the place of a record for messages.
    place_text: Callable[[Place], str]
    # Return positions for SHOW JOBS, and the start and end of one attempt for tasks().
    position: Callable[[Progress], str]
    span: Callable[[Progress, Progress], str] = lambda _start, _end: ""
    # Return the values of options that may be references to secrets, checked together.
    reveal: Callable[[Any, Reveal], Any] = lambda options, _reveal: options
    # Return the stored options merged with the options of an ALTER.
    merge: Callable[[Mapping[str, str], Mapping[str, str]], dict[str, str]] = (
        lambda before, given: {**before, **given}
    )
    # Check the options against the real source, and return the columns of its rows. A kind
    # that decodes returns no columns: the statement defines them. Called by CREATE and ALTER.
    define: Callable[[Draft], tuple[Column, ...]]
    # Resolve the start positions once, at CREATE and ALTER; None keeps the stored positions.
    start: Callable[[StartRequest], Progress | None]
    # Return the memory of a job that continues another job, from its memory and both jobs.
    inherit: Callable[[str, JobState, JobState], str] = lambda _memory, _before, _after: ""
    # Create the value that all sources of the kind share in one node.
    shared: Callable[[Clock], object] = lambda _clock: None
    open: Callable[[SourceServices], Source]
    reader: Callable[[ReadTask], TaskReader]
    # Send one cheap request that the credentials must allow, given options and their values.
    probe: Callable[[Any, Any], None] = lambda _options, _values: None
    show: Callable[[ShowRequest], SourceView]
    statuses: Callable[[ShowRequest], tuple[SplitStatus, ...]] = _open_statuses
