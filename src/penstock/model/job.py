"""A job: a named, durable definition that loads a source into a table."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from penstock.errors import Code, InvariantError
from penstock.model.epoch import EpochLimits, ErrorWindow, Generation, Statistics
from penstock.model.formats import Payload
from penstock.model.job_kinds import RoutineProperties
from penstock.model.options import option, print_options
from penstock.model.schema import Column, quoted_name
from penstock.model.secrets import SecretReference, reference_of
from penstock.model.split import SplitProgress
from penstock.sources.files.options import FilesOptions
from penstock.sources.kinesis.options import KinesisOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadColumn:
    """A column of the records or, with an ``expression`` of Spark SQL, one that it computes."""

    name: str
    expression: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProperties:
    """How records become rows; expressions are verbatim Spark SQL, None is what was not said.

    ``preceding_filter`` sees the columns of the records, ``where`` those of the table.
    """

    separator: str | None = None
    columns: tuple[LoadColumn, ...] | None = None
    preceding_filter: str | None = None
    where: str | None = None


# What a node can do that has the library of AWS.
KINESIS_CAPABILITY = "kinesis"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProperties:
    """Options of a streaming job, given in PROPERTIES."""

    max_interval: timedelta = option(
        "Longest wait before the source is looked at again.",
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
        """How much an epoch takes at most."""
        return EpochLimits(files=self.batch_files_max, size_bytes=self.batch_bytes_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetColumn:
    """A column of the target table and the path of the field that fills it.

    The field is one of the source or, when Spark runs the SELECT, one of its outputs.
    """

    name: str
    path: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRef:
    """The table a job loads: its name for people, its id and location for the truth."""

    name: str
    id: str
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkQuery:
    """A SELECT that Spark runs, and what was found out about it."""

    # The SELECT with the name of a view in the place of the source's call.
    text: str
    view: str
    # The columns that it sees of the source, and those that it looks at; others are not read.
    view_columns: tuple[Column, ...]
    needed: tuple[str, ...]
    outputs: tuple[Column, ...]
    lookups: tuple[TableRef, ...]
    operators: tuple[str, ...]
    # Whether a row of the source gives at most one row.
    row_wise: bool
    # Whether its plan means the same in every epoch.
    reusable: bool
    # Whether its outputs fill the columns that are called like them.
    by_name: bool = False
    # Whether they are the columns of the source, all of them.
    source_starred: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefinition:
    """What a person asked for, with everything that was inferred frozen into it."""

    name: str
    comment: str
    revision: int
    table: TableRef
    columns: tuple[str, ...] | None
    select: str
    select_source_start: int
    select_source_end: int
    function: str
    source: FilesOptions | KinesisOptions
    source_columns: tuple[Column, ...]
    targets: tuple[TargetColumn, ...]
    properties: JobProperties | RoutineProperties
    metadata: tuple[tuple[str, str], ...] = ()
    # None when the SELECT is a plain list of columns, which needs no Spark.
    query: SparkQuery | None = None
    # The clauses of a routine load, from which the SELECT was made.
    load: LoadProperties | None = None

    @property
    def kind(self) -> str:
        """What the job is called in messages."""
        return "job" if self.load is None else "routine load"

    @property
    def ending(self) -> str:
        """The statement that ends the job."""
        name = quoted_name(self.name)
        return f"DROP JOB {name}" if self.load is None else f"STOP ROUTINE LOAD FOR {name}"

    @property
    def resuming(self) -> str:
        """The statement that lets the job run again."""
        name = quoted_name(self.name)
        return f"RESUME JOB {name}" if self.load is None else f"RESUME ROUTINE LOAD FOR {name}"

    @property
    def keys_by_secret(self) -> dict[str, frozenset[str]]:
        """The secrets that its options refer to, and the keys that they take of each."""
        found: dict[str, frozenset[str]] = {}
        for key, text in print_options(self.source):
            reference = reference_of(text)
            if isinstance(reference, SecretReference):
                known = found.get(reference.name, frozenset())
                found[reference.name] = known | {key.lower()}
        return found

    @property
    def needs(self) -> frozenset[str]:
        """The capabilities that a node must have to run the job."""
        streams = isinstance(self.source, KinesisOptions)
        return frozenset({KINESIS_CAPABILITY}) if streams else frozenset()

    @property
    def files(self) -> FilesOptions:
        """The source of a streaming job."""
        if not isinstance(self.source, FilesOptions):
            raise InvariantError(f'job "{self.name}" loads no files')
        return self.source

    @property
    def stream(self) -> KinesisOptions:
        """The source of a routine load."""
        if not isinstance(self.source, KinesisOptions):
            raise InvariantError(f'job "{self.name}" loads no stream')
        return self.source

    @property
    def routine_properties(self) -> RoutineProperties:
        """The properties of a routine load."""
        if not isinstance(self.properties, RoutineProperties):
            raise InvariantError(f'job "{self.name}" is no routine load')
        return self.properties

    @property
    def payload(self) -> Payload | None:
        """How the records of a stream become rows."""
        if self.load is None:
            return None
        return self.routine_properties.payload(self.load.separator)

    @property
    def source_name(self) -> str:
        """What the source is called for people."""
        return self.source.uri if isinstance(self.source, FilesOptions) else self.source.stream


class Wish(StrEnum):
    """What is wanted of a job."""

    RUN = "RUN"
    PAUSE = "PAUSE"
    DROP = "DROP"
    CLOSED = "CLOSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a job is in its state: a code for programs and a sentence for people."""

    code: Code
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WishRecord:
    """State and reason as one record, with what auto-resume needs to know."""

    wish: Wish
    reason: Reason | None
    event: int
    changed_at: datetime
    auto_resumes: int = 0
    resumed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """Everything remembered of a job: the fold of its events."""

    id: str
    created_at: datetime
    definition: JobDefinition
    generation: Generation
    wish: WishRecord
    number: int
    progress: tuple[SplitProgress, ...]
    cumulative: Statistics
    rejects_number: int
    committed_at: datetime | None
    epoch_newest: int
    epoch_committed: int
    succeeded_event: int
    modified_files: int
    modified_files_event: int
    event_number: int
    window: ErrorWindow = ErrorWindow()  # noqa: RUF009 - It is frozen.
    # What was said when the window was last too full.
    tripped: str = ""
    tripped_event: int = 0
    # How many rows had been rejected when a person last resumed the job.
    rejected_before: int = 0
    rejected_before_event: int = 0

    @property
    def name(self) -> str:
        """The name a person gave the job."""
        return self.definition.name

    @property
    def stopped(self) -> bool:
        """Whether the job is a routine load that a person has ended."""
        return self.wish.wish is Wish.CLOSED and self.definition.load is not None

    @property
    def has_too_many_errors(self) -> bool:
        """Whether the window was found too full since somebody last wanted the job to run."""
        return self.tripped_event > self.wish.event

    @property
    def auto_resumes_in_a_row(self) -> int:
        """How often the job was resumed by itself since it last committed an epoch."""
        return self.wish.auto_resumes if self.wish.event > self.succeeded_event else 0
