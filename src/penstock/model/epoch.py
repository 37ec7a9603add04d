"""One atomic step of a job: plan, task reports, statistics and attachment."""

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum

from penstock.model.split import ShardPart, ShardRead, SplitProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Counters that only grow; two of them add up field by field."""

    rows_read: int = 0
    rows_skipped: int = 0
    rows_parsed: int = 0
    rows_produced: int = 0
    rows_loaded: int = 0
    # By the reader, and by the writer because they did not fit the table.
    rows_rejected: int = 0
    rows_misfit: int = 0
    # Of the rejected ones, those that belong to another shard.
    rows_foreign: int = 0
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
        """Rows that a WHERE dropped; only of a SELECT that makes at most one row of one."""
        return self.rows_parsed - self.rows_produced

    @property
    def filtered_ratio(self) -> float:
        """The share of rejected rows among those that were to be loaded."""
        wanted = self.rows_loaded + self.rows_rejected
        return self.rows_rejected / wanted if wanted else 0.0


ATTACHMENT_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Who may commit for a job: a number, and a random id that tells equal numbers apart."""

    number: int
    id: str

    def newer_than(self, mine: "Generation") -> bool:
        """Tell whether a holder of ``mine`` cannot have known this generation."""
        return self.number > mine.number or (self.number == mine.number and self.id != mine.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file as the listing saw it; the ETag pins exactly these bytes."""

    key: str
    etag: str
    size_bytes: int
    modified_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead:
    """What one task reads of one file: the lines that begin in [start, end)."""

    file: SourceFile
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochLimits:
    """How much an epoch takes at most; what crosses a limit is included whole."""

    size_bytes: int
    # Of files alone.
    files: int = 0
    # Of streams alone.
    records: int = 0
    duration: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """What one epoch will load, and where its splits stand once it has.

    Where a shard ends is found by reading: its progress is that before the epoch.
    """

    files: tuple[SourceFile, ...] = ()
    shards: tuple[ShardRead, ...] = ()
    progress: tuple[SplitProgress, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """The part of a file that a task has read."""

    key: str
    etag: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What the reading half of a task leaves for the writing half: which part, which counts."""

    part: FilePart | ShardPart
    rows_read: int
    rows_parsed: int
    rows_skipped: int = 0
    rows_rejected: int = 0
    # Of the rejected ones, those that belong to another shard.
    rows_foreign: int = 0
    # What was read of a stream; files are counted by the plan.
    records: int = 0
    size_bytes: int = 0
    # How often a bucket or a stream was asked.
    requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A Parquet file that a task wrote below the table, with what the table's log records."""

    path: str
    size_bytes: int
    rows: int
    modified_at: datetime
    statistics_json: str
    # The partition columns with their values as the log writes them.
    partition_values: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """What one task reports: files written, the notes of what it read, and its rejects."""

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
class ErrorWindow:
    """Rows of a routine load since its window of errors was opened."""

    rows: int = 0
    errors: int = 0
    # The first error of the latest epoch that had any.
    first: str = ""
    # Why the commit that this stands in pauses the job; empty if it does not.
    tripped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """What a commit of a job leaves in the table's log; progress is rebuilt from it alone."""

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
    progress: tuple[SplitProgress, ...]
    statistics: Statistics
    cumulative: Statistics
    files: tuple[SourceFile, ...]
    timings: Timings
    committed_at: datetime
    reject_files: tuple[DataFile, ...] = ()
    # The newest commit with reject files, so that nobody must search the chain for it.
    rejects_number: int = 0
    window: ErrorWindow = ErrorWindow()
