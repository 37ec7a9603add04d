"""Values of an epoch: plan, task reports, statistics and attachment."""

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum

from penstock.model.backlog import Backlog
from penstock.model.codec import from_text
from penstock.model.split import Note, Progress, SplitRead


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Counters that only grow; ``+`` adds them field by field."""

    rows_read: int = 0
    rows_skipped: int = 0
    rows_parsed: int = 0
    rows_produced: int = 0
    rows_loaded: int = 0
    # All rejected rows, and the number of them that did not fit the table.
    rows_rejected: int = 0
    rows_misfit: int = 0
    # Rejected rows that belong to another split.
    rows_foreign: int = 0
    # Rows of a stream that are older than the watermark.
    rows_late: int = 0
    records_read: int = 0
    files_read: int = 0
    bytes_read: int = 0
    files_written: int = 0
    bytes_written: int = 0

    def __add__(self, other: "Statistics") -> "Statistics":
        return Statistics(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )

    @property
    def balanced(self) -> bool:
        """Whether every row that was read or produced is accounted for."""
        unreadable = self.rows_rejected - self.rows_misfit
        return (
            self.rows_read == self.rows_parsed + unreadable + self.rows_skipped
            and self.rows_produced == self.rows_loaded + self.rows_misfit
        )

    @property
    def rows_unselected(self) -> int:
        """Rows that a WHERE clause filtered out, if each row produces at most one row."""
        return self.rows_parsed - self.rows_produced

    @property
    def filtered_ratio(self) -> float:
        """The ratio of rejected rows to loaded and rejected rows."""
        total = self.rows_loaded + self.rows_rejected
        return self.rows_rejected / total if total else 0.0


ATTACHMENT_FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The right to commit for a job: a number, and a random id to distinguish equal numbers."""

    number: int
    id: str

    def newer_than(self, mine: "Generation") -> bool:
        """Return whether this generation replaced the owner of generation ``mine``."""
        return self.number > mine.number or (self.number == mine.number and self.id != mine.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedItem:
    """A whole object of a source, such as a file; the ETag identifies the exact content."""

    key: str
    etag: str
    size_bytes: int
    modified_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochLimits:
    """Limits of one epoch; the item or record that crosses a limit is included."""

    size_bytes: int
    # Zero: the limit does not apply to the kind of job.
    items: int = 0
    records: int = 0
    duration: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """The reads of one epoch.

    If the plan is final, ``progress`` is the progress after the epoch. Otherwise the tasks find
    the end positions, and ``progress`` is the progress before the epoch.
    """

    reads: tuple[SplitRead, ...]
    progress: Progress
    items: tuple[LoadedItem, ...] = ()
    final: bool = False

    @property
    def size_bytes(self) -> int:
        """Planned bytes of all reads; a read of unknown size counts as 0."""
        return sum(read.size_bytes for read in self.reads)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A Parquet file that a task wrote for a table, with the values for the table's log."""

    path: str
    size_bytes: int
    rows: int
    modified_at: datetime
    statistics_json: str
    # The partition columns with their values as the log writes them.
    partition_values: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """Report of one task: files written, the notes of its reads, and its rejects."""

    task: int
    files: tuple[DataFile, ...]
    notes: tuple[Note, ...]
    rows_produced: int
    rows_misfit: int = 0
    reject_files: tuple[DataFile, ...] = ()
    first_reject: str = ""


class CommitKind(StrEnum):
    """The five kinds of commits in a job's chain."""

    OPENING = "opening"
    EPOCH = "epoch"
    MOVE = "move"
    FENCE = "fence"
    CLOSING = "closing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds spent in the steps of an epoch before its commit."""

    plan_seconds: float = 0.0
    run_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tripped:
    """The limit that an error window exceeded, with the counts at that moment."""

    limit: str
    limit_value: float
    rows: int
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorWindow:
    """Rows and errors of a job since its error window was opened."""

    rows: int = 0
    errors: int = 0
    # The first error of the latest epoch with errors.
    first: str = ""
    # The exceeded limit, if the commit of this window pauses the job; None otherwise.
    tripped: Tripped | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """The batch of a streaming query that a commit belongs to, and the state after it."""

    checkpoint_id: str
    batch: int
    # In milliseconds since 1970.
    watermark_ms: int
    # The active stream whose event times limit the watermark; empty if all are idle.
    held_by: str = ""
    state_rows: int = 0
    state_bytes: int = 0
    # The plan of the batch as JSON, without the files.
    plan: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """Metadata of a job's commit in the table's log; enough to rebuild the progress."""

    format: int = ATTACHMENT_FORMAT
    kind: CommitKind
    job_id: str
    table_id: str
    number: int
    generation: Generation
    epoch: int
    attempt: int
    attempt_id: str
    revision: int
    progress: Progress
    statistics: Statistics
    cumulative: Statistics
    items: tuple[LoadedItem, ...]
    timings: Timings
    committed_at: datetime
    reject_files: tuple[DataFile, ...] = ()
    # Number of the newest commit with reject files, so that the chain need not be searched.
    rejects_number: int = 0
    window: ErrorWindow = ErrorWindow()
    backlog: Backlog = Backlog()  # noqa: RUF009 - Backlog is frozen.
    # Text of the job's runner: a BatchRecord, or empty for a load.
    runner: str = ""

    @property
    def batch(self) -> BatchRecord | None:
        """The batch of a streaming query; None for a load, and before the first batch."""
        return from_text(BatchRecord, self.runner) if self.runner else None
