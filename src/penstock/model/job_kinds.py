"""Job kinds: their properties and traits.

Shared code reads a trait of the kind and never compares the kind itself. The names and
defaults of properties are those of Apache Doris.
"""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar

from penstock.errors import InvariantError
from penstock.model.cadence import (
    INTERVAL_KEY,
    BatchLimits,
    CadenceOptions,
    backlog_limit,
    interval_aliases,
)
from penstock.model.epoch import EpochLimits
from penstock.model.formats import (
    CSV_KEYS,
    JSON_KEYS,
    Payload,
    PayloadCompression,
    PayloadFormat,
    format_option,
)
from penstock.model.options import Spelled, group, option

POLL_INTERVAL_MAX = timedelta(seconds=10)
# An epoch that failed this often in a row pauses its job.
FAILURES_MAX = 4
# Doris options that have no effect here; only their defaults are accepted.
FIXED_OPTIONS = {
    "exec_mem_limit": "2147483648",
    "send_batch_parallelism": "1",
    "load_to_single_tablet": "false",
    "partial_columns": "false",
    "unique_key_update_mode": "upsert",
    "partial_update_new_key_behavior": "append",
    "fuzzy_parse": "false",
    "workload_group": "",
}
_TIMEOUT_BATCHES = 10
# With the backlog interval 0, an epoch reads for at most this many normal intervals.
_BACKLOG_INTERVALS = 10
_TIMEOUT_MIN = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProperties:
    """Options of a streaming job, given in PROPERTIES."""

    # None: as many tasks as can run at once, and no time limit.
    tasks_max: ClassVar[int | None] = None
    task_timeout: ClassVar[timedelta | None] = None
    commit_interval: ClassVar[timedelta] = timedelta(0)
    failures_max: ClassVar[int] = FAILURES_MAX

    max_interval: timedelta = option(
        "Longest time between two commits while files arrive, and longest wait before the "
        "source is polled again.",
        default=timedelta(seconds=10),
        at_least=timedelta(seconds=1),
        aliases=interval_aliases("max_interval"),
    )
    batch_files_max: int = option(
        "Maximum number of files in one epoch.",
        key="s3.max_batch_files",
        default=256,
        at_least=1,
    )
    batch_bytes_max: int = option(
        "Size at which an epoch stops adding files. The file that crosses the limit is "
        "included.",
        key="s3.max_batch_bytes",
        default=10 * 2**30,
        at_least=1,
        at_most=10 * 2**30,
        unit="bytes",
    )
    strict: bool = option(
        "Whether a row that cannot be loaded fails its epoch. If false, the row is stored in "
        "rejects().",
        key="session.enable_insert_strict",
        default=True,
    )
    filter_ratio_max: float = option(
        "Maximum ratio of rejected rows in an epoch if session.enable_insert_strict is false. "
        "An epoch above this ratio fails.",
        key="session.insert_max_filter_ratio",
        default=1.0,
        at_least=0.0,
        at_most=1.0,
    )
    time_zone: str = option(
        "Time zone of local times in a SELECT that Spark runs.",
        key="session.time_zone",
        default="UTC",
    )
    python_udfs: str = option(
        "Python module with functions that the SELECT can call. Create the functions with "
        "udf() of pyspark.",
        key="session.python_udfs",
        default="",
    )
    lookup_bytes_max: int = option(
        "Maximum size of a table that the SELECT joins with.",
        key="lookup_max_bytes",
        default=64 * 2**20,
        at_least=1,
        unit="bytes",
    )

    batch_files_backlog: int | None = backlog_limit("s3.max_batch_files")
    batch_bytes_backlog: int | None = backlog_limit("s3.max_batch_bytes", unit="bytes")
    cadence: CadenceOptions = group(CadenceOptions)
    spelled: Spelled = field(default=(), compare=False)

    @property
    def interval(self) -> timedelta:
        """Longest time between two commits while rows flow."""
        return self.max_interval

    @property
    def batch_limits(self) -> BatchLimits:
        """The limits that can have another value during backlog."""
        return {
            "s3.max_batch_files": (self.batch_files_max, self.batch_files_backlog),
            "s3.max_batch_bytes": (self.batch_bytes_max, self.batch_bytes_backlog),
        }

    @property
    def limits(self) -> EpochLimits:
        """The limits of an epoch."""
        return EpochLimits(items=self.batch_files_max, size_bytes=self.batch_bytes_max)

    @property
    def backlog_limits(self) -> EpochLimits:
        """The limits of an epoch during backlog."""
        return EpochLimits(
            items=self.batch_files_backlog or self.batch_files_max,
            size_bytes=self.batch_bytes_backlog or self.batch_bytes_max,
        )

    def payload(self, separator: str | None) -> Payload | None:  # noqa: ARG002 - As below.
        """Return None: the source itself declares its format."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutineProperties:
    """Options of a routine load, given in PROPERTIES."""

    # Rejected rows never fail an epoch: the error window counts them.
    strict: ClassVar[bool] = False
    filter_ratio_max: ClassVar[float] = 1.0
    commit_interval: ClassVar[timedelta] = timedelta(0)
    failures_max: ClassVar[int] = FAILURES_MAX

    tasks_max: int = option(
        "Maximum number of tasks in an epoch; at most one task per shard.",
        key="desired_concurrent_number",
        default=256,
        at_least=1,
    )
    max_error_number: int = option(
        "Maximum number of rejected rows in a window of 10 times max_batch_rows. A job above "
        "the maximum is paused.",
        default=0,
        at_least=0,
    )
    max_filter_ratio: float = option(
        "Maximum ratio of rejected rows in a window of 10 times max_batch_rows. A job above "
        "the maximum is paused.",
        default=1.0,
        at_least=0.0,
        at_most=1.0,
    )
    max_batch_interval: timedelta = option(
        "Maximum time that an epoch reads. An idle source is polled at this interval, but at "
        "least every 10 seconds.",
        default=timedelta(seconds=60),
        at_least=timedelta(seconds=1),
        aliases=interval_aliases("max_batch_interval"),
    )
    max_batch_rows: int = option(
        "Number of records at which an epoch ends. The record that crosses the limit is "
        "included.",
        default=20_000_000,
        at_least=1,
    )
    max_batch_size: int = option(
        "Size at which an epoch ends. The record that crosses the limit is included.",
        default=2**30,
        at_least=1,
        at_most=10 * 2**30,
        unit="bytes",
    )
    strict_mode: bool = option(
        "Stored and shown, but without effect. In both modes, an expression that fails is "
        "NULL, and a row that does not fit the table is rejected.",
        default=False,
    )
    time_zone: str = option(
        "Time zone of start positions and of local times in expressions.",
        key="timezone",
        default="UTC",
    )
    format: PayloadFormat = option("Format of the records.", default=PayloadFormat.CSV)
    compress_type: PayloadCompression = option(
        "Compression of each record.", default=PayloadCompression.NONE
    )
    enclose: str = format_option("enclose")
    escape: str = format_option("escape")
    trim_double_quotes: bool = format_option("trim_double_quotes")
    empty_field_as_null: bool = format_option("empty_field_as_null")
    strip_outer_array: bool = format_option("strip_outer_array")
    json_root: str = format_option("json_root")
    jsonpaths: str = format_option("jsonpaths")
    num_as_string: bool = format_option("num_as_string")
    python_udfs: str = option(
        "Python module with functions that expressions can call. Create the functions with "
        "udf() of pyspark.",
        key="session.python_udfs",
        default="",
    )
    lookup_bytes_max: int = option(
        "Maximum size of a table that expressions read.",
        key="lookup_max_bytes",
        default=64 * 2**20,
        at_least=1,
        unit="bytes",
    )

    batch_rows_backlog: int | None = backlog_limit("max_batch_rows")
    batch_size_backlog: int | None = backlog_limit("max_batch_size", unit="bytes")
    cadence: CadenceOptions = group(CadenceOptions)
    spelled: Spelled = field(default=(), compare=False)

    @property
    def interval(self) -> timedelta:
        """Longest time between two commits while rows flow."""
        return self.max_batch_interval

    @property
    def batch_limits(self) -> BatchLimits:
        """The limits that can have another value during backlog."""
        return {
            "max_batch_rows": (self.max_batch_rows, self.batch_rows_backlog),
            "max_batch_size": (self.max_batch_size, self.batch_size_backlog),
        }

    @property
    def max_interval(self) -> timedelta:
        """Longest wait before an idle source is polled again."""
        return min(self.max_batch_interval, POLL_INTERVAL_MAX)

    @property
    def task_timeout(self) -> timedelta:
        """Time after which an epoch with unfinished tasks is retried."""
        longest = max(self.max_batch_interval, self.backlog_limits.duration)
        return max(longest * _TIMEOUT_BATCHES, _TIMEOUT_MIN)

    @property
    def limits(self) -> EpochLimits:
        """The limits of an epoch."""
        return EpochLimits(
            records=self.max_batch_rows,
            size_bytes=self.max_batch_size,
            duration=self.max_batch_interval,
        )

    @property
    def backlog_limits(self) -> EpochLimits:
        """The limits of an epoch during backlog; the duration is always limited."""
        longer = self.cadence.interval_backlog
        if longer is not None and not longer:
            longer = self.max_batch_interval * _BACKLOG_INTERVALS
        return EpochLimits(
            records=self.batch_rows_backlog or self.max_batch_rows,
            size_bytes=self.batch_size_backlog or self.max_batch_size,
            duration=longer or self.max_batch_interval,
        )

    def payload(self, separator: str | None) -> Payload | None:
        """Return the format of a record's bytes."""
        given: dict[str, Any] = {} if separator is None else {"column_separator": separator}
        options: dict[str, Any] = {key: getattr(self, key) for key in (*CSV_KEYS, *JSON_KEYS)}
        return Payload(format=self.format, compress_type=self.compress_type, **options, **given)


class OutputMode(StrEnum):
    """How a streaming table changes: rows are only appended, or updated by key."""

    APPEND = "append"
    UPDATE = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingTableProperties:
    """Options of a streaming table or a flow, given in WITH or TBLPROPERTIES."""

    # An epoch fails if an expression fails or if a row does not fit the table.
    strict: ClassVar[bool] = True
    filter_ratio_max: ClassVar[float] = 0.0
    tasks_max: ClassVar[int | None] = None

    checkpoint_interval: timedelta = option(
        "Longest time between two commits while rows flow. A bare number is in milliseconds.",
        key=INTERVAL_KEY,
        default=timedelta(seconds=10),
        at_least=timedelta(milliseconds=1),
        unit="milliseconds",
        aliases=interval_aliases(INTERVAL_KEY),
    )
    checkpoint_timeout: timedelta = option(
        "Time after which an epoch with unfinished tasks is cancelled and retried. A bare "
        "number is in milliseconds.",
        key="checkpoint.timeout",
        default=timedelta(minutes=10),
        at_least=timedelta(milliseconds=1),
        unit="milliseconds",
    )
    failures_max: int = option(
        "Number of failures in a row after which the table is paused.",
        key="max_failures",
        default=FAILURES_MAX,
        at_least=1,
    )
    output: OutputMode | None = option(
        "append: rows are only added. update: one current row per key of the topmost GROUP BY. "
        "auto: update for a GROUP BY without an event-time window, otherwise append.",
        default=None,
        none_word="auto",
    )
    parallelism: int | None = option(
        "Number of tasks of an epoch, and of partitions of the state. It cannot be changed. "
        "auto: the number of cores, at most 4.",
        default=None,
        at_least=1,
        at_most=1_000,
        none_word="auto",
    )
    epoch_files_max: int = option(
        "Maximum number of files in one epoch.",
        key="max_files_per_epoch",
        default=1_000,
        at_least=1,
    )
    epoch_bytes_max: int = option(
        "Size at which an epoch stops adding files. The file that crosses the limit is "
        "included.",
        key="max_bytes_per_epoch",
        default=10 * 2**30,
        at_least=1,
        unit="bytes",
    )
    state_ttl: timedelta | None = option(
        "Longest difference of the event times of two joined rows. Only for inner joins of two "
        "streams without a time bound.",
        key="state.ttl",
        default=None,
        at_least=timedelta(milliseconds=1),
        none_word="none",
    )
    idle_timeout: timedelta | None = option(
        "Time without new rows after which a source no longer holds the watermark.",
        key="watermark.idle-timeout",
        default=None,
        at_least=timedelta(milliseconds=1),
        none_word="never",
    )
    max_future: timedelta = option(
        "An event time that is later than the current time by more than this does not move "
        "the watermark.",
        key="watermark.max-future",
        default=timedelta(days=1),
        at_least=timedelta(0),
    )
    time_zone: str = option(
        "Time zone of local times in the query.", key="session.time_zone", default="UTC"
    )
    python_udfs: str = option(
        "Python module with functions that the query can call. Create the functions with "
        "udf() of pyspark.",
        key="session.python_udfs",
        default="",
    )
    lookup_bytes_max: int = option(
        "Maximum size of a static table of the query.",
        key="lookup_max_bytes",
        default=64 * 2**20,
        at_least=1,
        unit="bytes",
    )

    epoch_files_backlog: int | None = backlog_limit("max_files_per_epoch")
    epoch_bytes_backlog: int | None = backlog_limit("max_bytes_per_epoch", unit="bytes")
    cadence: CadenceOptions = group(CadenceOptions)
    spelled: Spelled = field(default=(), compare=False)

    @property
    def interval(self) -> timedelta:
        """Longest time between two commits while rows flow."""
        return self.checkpoint_interval

    @property
    def batch_limits(self) -> BatchLimits:
        """The limits that can have another value during backlog."""
        return {
            "max_files_per_epoch": (self.epoch_files_max, self.epoch_files_backlog),
            "max_bytes_per_epoch": (self.epoch_bytes_max, self.epoch_bytes_backlog),
        }

    @property
    def backlog_limits(self) -> EpochLimits:
        """The limits of an epoch during backlog."""
        return EpochLimits(
            items=self.epoch_files_backlog or self.epoch_files_max,
            size_bytes=self.epoch_bytes_backlog or self.epoch_bytes_max,
        )

    @property
    def commit_interval(self) -> timedelta:
        """Time between the starts of two epochs while rows flow."""
        return self.checkpoint_interval

    @property
    def max_interval(self) -> timedelta:
        """Longest wait before an idle source is polled again."""
        return min(self.checkpoint_interval, POLL_INTERVAL_MAX)

    @property
    def task_timeout(self) -> timedelta:
        """Time after which an epoch with unfinished tasks is retried."""
        return self.checkpoint_timeout

    @property
    def limits(self) -> EpochLimits:
        """The limits of an epoch."""
        return EpochLimits(items=self.epoch_files_max, size_bytes=self.epoch_bytes_max)

    def payload(self, separator: str | None) -> Payload | None:  # noqa: ARG002 - As above.
        """Return None: the source is a table with columns, not a stream of records."""
        return None


Properties = JobProperties | RoutineProperties | StreamingTableProperties


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePolicy:
    """How a job that paused itself is resumed automatically."""

    delay_first: timedelta = timedelta(seconds=10)
    doublings_max: int = 5
    delay_max: timedelta = timedelta(seconds=300)
    # Maximum number of resumes in a row; None: no limit.
    resumes_max: int | None = 10
    # If the last resume is older, the count restarts. None: only a commit resets the count.
    reset_after: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """The traits of a kind of job; ``{}`` in a statement is the job's quoted name."""

    name: str
    noun: str
    # ``title`` is for messages; ``shown`` is for the column ``kind`` of SHOW JOBS.
    title: str
    shown: str
    properties: type[JobProperties] | type[RoutineProperties] | type[StreamingTableProperties]
    create: str
    pause: str
    resume: str
    drop: str
    # The statements of the kind, for the hint if a user typed a statement of another kind.
    statements: str
    resume_policy: ResumePolicy
    # How long a stopped job can still be shown; None: it is deleted at once.
    retention_after_stop: timedelta | None
    # The loop that runs the job.
    runner: str = "load"


STREAMING = JobKind(
    name="STREAMING",
    noun="job",
    title="streaming job",
    shown="STREAMING",
    properties=JobProperties,
    create="CREATE JOB",
    pause="PAUSE JOB {}",
    resume="RESUME JOB {}",
    drop="DROP JOB {}",
    statements="PAUSE, RESUME, ALTER or DROP JOB",
    resume_policy=ResumePolicy(),
    retention_after_stop=None,
)
ROUTINE_LOAD = JobKind(
    name="ROUTINE_LOAD",
    noun="routine load",
    title="routine load",
    shown="ROUTINE LOAD",
    properties=RoutineProperties,
    create="CREATE ROUTINE LOAD",
    pause="PAUSE ROUTINE LOAD FOR {}",
    resume="RESUME ROUTINE LOAD FOR {}",
    drop="STOP ROUTINE LOAD FOR {}",
    statements="SHOW CREATE, PAUSE, RESUME, ALTER or STOP ROUTINE LOAD",
    resume_policy=ResumePolicy(resumes_max=None, reset_after=timedelta(minutes=10)),
    retention_after_stop=timedelta(days=3),
)
STREAMING_TABLE = JobKind(
    name="STREAMING_TABLE",
    noun="streaming table",
    title="streaming table",
    shown="STREAMING TABLE",
    properties=StreamingTableProperties,
    create="CREATE STREAMING TABLE",
    pause="PAUSE STREAMING TABLE {}",
    resume="RESUME STREAMING TABLE {}",
    drop="DROP STREAMING TABLE {}",
    statements="SHOW CREATE, PAUSE, RESUME, ALTER, REFRESH or DROP STREAMING TABLE",
    resume_policy=ResumePolicy(),
    retention_after_stop=None,
    runner="query",
)
FLOW = replace(
    STREAMING_TABLE,
    name="FLOW",
    noun="flow",
    title="flow",
    shown="FLOW",
    create="CREATE FLOW",
    pause="PAUSE FLOW {}",
    resume="RESUME FLOW {}",
    drop="DROP FLOW {}",
    statements="SHOW CREATE, PAUSE, RESUME, ALTER, REFRESH or DROP FLOW",
)
JOB_KINDS = {kind.name: kind for kind in (STREAMING, ROUTINE_LOAD, STREAMING_TABLE, FLOW)}


def job_kind(name: str) -> JobKind:
    """Return a kind by its name."""
    if name not in JOB_KINDS:
        raise InvariantError(f'job kind "{name}" is unknown to this version')
    return JOB_KINDS[name]
