"""Job kinds: their properties and traits.

Shared code reads a trait of the kind and never compares the kind itself. The names and
defaults of properties are those of Apache Doris.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from penstock.errors import InvariantError
from penstock.model.epoch import EpochLimits
from penstock.model.formats import (
    CSV_KEYS,
    JSON_KEYS,
    Payload,
    PayloadCompression,
    PayloadFormat,
    format_option,
)
from penstock.model.options import option

POLL_INTERVAL_MAX = timedelta(seconds=10)
# Options of Doris without a meaning here; only their defaults are accepted.
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
_TIMEOUT_MIN = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProperties:
    """Options of a streaming job, given in PROPERTIES."""

    # As many tasks as run at once, without a time limit.
    tasks_max: ClassVar[int | None] = None
    task_timeout: ClassVar[timedelta | None] = None

    max_interval: timedelta = option(
        "Longest wait before the source is polled again.",
        default=timedelta(seconds=10),
        at_least=timedelta(seconds=1),
    )
    batch_files_max: int = option(
        "Most files in one epoch.", key="s3.max_batch_files", default=256, at_least=1
    )
    batch_bytes_max: int = option(
        "Bytes after which an epoch takes no further file; the file that crosses is included.",
        key="s3.max_batch_bytes",
        default=10 * 2**30,
        at_least=1,
        at_most=10 * 2**30,
        unit="bytes",
    )
    strict: bool = option(
        "Whether a row that cannot be loaded fails its epoch; if not, it is kept in rejects().",
        key="session.enable_insert_strict",
        default=True,
    )
    filter_ratio_max: float = option(
        "Not strict: the largest share of rejected rows with which an epoch is committed.",
        key="session.insert_max_filter_ratio",
        default=1.0,
        at_least=0.0,
        at_most=1.0,
    )
    time_zone: str = option(
        "The time zone in which a SELECT that needs Spark sees local times.",
        key="session.time_zone",
        default="UTC",
    )
    python_udfs: str = option(
        "A Python module whose functions made with pyspark's udf() the SELECT may call.",
        key="session.python_udfs",
        default="",
    )
    lookup_bytes_max: int = option(
        "Most bytes of a table that the SELECT joins with.",
        key="lookup_max_bytes",
        default=64 * 2**20,
        at_least=1,
        unit="bytes",
    )

    @property
    def limits(self) -> EpochLimits:
        """The limits of an epoch."""
        return EpochLimits(items=self.batch_files_max, size_bytes=self.batch_bytes_max)

    def payload(self, separator: str | None) -> Payload | None:  # noqa: ARG002 - As below.
        """Return None: the source itself declares its format."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutineProperties:
    """How a routine load reads, and how many bad rows it tolerates."""

    # Rejected rows never fail an epoch: the error window counts them.
    strict: ClassVar[bool] = False
    filter_ratio_max: ClassVar[float] = 1.0

    tasks_max: int = option(
        "Most tasks of an epoch; never more than there are shards.",
        key="desired_concurrent_number",
        default=256,
        at_least=1,
    )
    max_error_number: int = option(
        "Most rejected rows in a window of ten times max_batch_rows; one more pauses the job.",
        default=0,
        at_least=0,
    )
    max_filter_ratio: float = option(
        "Largest share of rejected rows in that window; more of them pause the job.",
        default=1.0,
        at_least=0.0,
        at_most=1.0,
    )
    max_batch_interval: timedelta = option(
        "Longest time that an epoch reads; also how often an idle source is asked, though at "
        "least every 10 seconds.",
        default=timedelta(seconds=60),
        at_least=timedelta(seconds=1),
    )
    max_batch_rows: int = option(
        "Records after which an epoch ends; the record that crosses is included.",
        default=20_000_000,
        at_least=1,
    )
    max_batch_size: int = option(
        "Bytes after which an epoch ends; the record that crosses is included.",
        default=2**30,
        at_least=1,
        at_most=10 * 2**30,
        unit="bytes",
    )
    strict_mode: bool = option(
        "Kept and shown, without an effect: in either mode an expression that fails is NULL, "
        "and a row that does not fit the table is rejected.",
        default=False,
    )
    time_zone: str = option(
        "The time zone of start positions, and in which expressions see local times.",
        key="timezone",
        default="UTC",
    )
    format: PayloadFormat = option("Format of the records.", default=PayloadFormat.CSV)
    compress_type: PayloadCompression = option(
        "How every record is compressed.", default=PayloadCompression.NONE
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
        "A Python module whose functions made with pyspark's udf() expressions may call.",
        key="session.python_udfs",
        default="",
    )
    lookup_bytes_max: int = option(
        "Most bytes of a table that expressions look at.",
        key="lookup_max_bytes",
        default=64 * 2**20,
        at_least=1,
        unit="bytes",
    )

    @property
    def max_interval(self) -> timedelta:
        """Longest wait before an idle source is polled again."""
        return min(self.max_batch_interval, POLL_INTERVAL_MAX)

    @property
    def task_timeout(self) -> timedelta:
        """How long the tasks of an epoch may take before it is retried."""
        return max(self.max_batch_interval * _TIMEOUT_BATCHES, _TIMEOUT_MIN)

    @property
    def limits(self) -> EpochLimits:
        """The limits of an epoch."""
        return EpochLimits(
            records=self.max_batch_rows,
            size_bytes=self.max_batch_size,
            duration=self.max_batch_interval,
        )

    def payload(self, separator: str | None) -> Payload | None:
        """Return how the bytes of a record become rows."""
        given: dict[str, Any] = {} if separator is None else {"column_separator": separator}
        options: dict[str, Any] = {key: getattr(self, key) for key in (*CSV_KEYS, *JSON_KEYS)}
        return Payload(format=self.format, compress_type=self.compress_type, **options, **given)


Properties = JobProperties | RoutineProperties


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePolicy:
    """How a job that paused itself is resumed automatically."""

    delay_first: timedelta = timedelta(seconds=10)
    doublings_max: int = 5
    delay_max: timedelta = timedelta(seconds=300)
    # Most resumes in a row; None: no limit.
    resumes_max: int | None = 10
    # A quiet time after which the count starts again; None: only a commit resets it.
    forgotten_after: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """A kind of job as its traits; ``{}`` in a statement is the job's quoted name."""

    name: str
    noun: str
    # The name in messages, and in the column kind of SHOW JOBS.
    title: str
    shown: str
    properties: type[JobProperties] | type[RoutineProperties]
    create: str
    pause: str
    resume: str
    drop: str
    # The statements of the kind, for a hint to a user of another kind's statement.
    statements: str
    resume_policy: ResumePolicy
    # How long a job can be shown after it was ended; None: it is deleted at once.
    kept_after_stop: timedelta | None
    # Which loop runs the job.
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
    kept_after_stop=None,
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
    statements="SHOW CREATE, PAUSE, RESUME, ALTER or STOP ROUTINE LOAD FOR it",
    resume_policy=ResumePolicy(resumes_max=None, forgotten_after=timedelta(minutes=10)),
    kept_after_stop=timedelta(days=3),
)
JOB_KINDS = {kind.name: kind for kind in (STREAMING, ROUTINE_LOAD)}


def job_kind(name: str) -> JobKind:
    """Return a kind by its name."""
    if name not in JOB_KINDS:
        raise InvariantError(f'job kind "{name}" is unknown to this version')
    return JOB_KINDS[name]
