"""A job: a named, durable definition that loads a source into a table."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from penstock.errors import Code
from penstock.model.epoch import ErrorWindow, Generation, Statistics, Tripped
from penstock.model.formats import Payload
from penstock.model.job_kinds import JobKind, JobProperties, RoutineProperties, job_kind
from penstock.model.schema import Column
from penstock.model.secrets import SecretReference, reference_of
from penstock.model.split import Progress
from penstock.model.text import quoted_name


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadColumn:
    """A column of the records or, with an ``expression`` of Spark SQL, one that it computes."""

    name: str
    expression: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProperties:
    """How records become rows; expressions are verbatim Spark SQL, None is not given.

    ``preceding_filter`` sees the columns of the records, ``where`` those of the table.
    """

    separator: str | None = None
    columns: tuple[LoadColumn, ...] | None = None
    preceding_filter: str | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetColumn:
    """A column of the target table and the path of the field that fills it.

    The field is one of the source or, when Spark runs the SELECT, one of its outputs.
    """

    name: str
    path: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRef:
    """The table a job loads: its name for users; id and location identify it."""

    name: str
    id: str
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkQuery:
    """A SELECT that Spark runs, and what its analysis found."""

    # The SELECT with the name of a view instead of the source's call.
    text: str
    view: str
    # The columns of the source, and those that the SELECT uses; others are not read.
    view_columns: tuple[Column, ...]
    needed: tuple[str, ...]
    outputs: tuple[Column, ...]
    lookups: tuple[TableRef, ...]
    operators: tuple[str, ...]
    # Whether a row of the source gives at most one row.
    row_wise: bool
    # Whether its plan means the same in every epoch.
    reusable: bool
    # Whether its outputs fill the columns of the same name.
    by_name: bool = False
    # Whether its outputs are all columns of the source.
    source_starred: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRef:
    """A source: the name of its kind, and its options as text; secrets are references."""

    kind: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefinition:
    """What a user defined, with everything that was inferred."""

    name: str
    comment: str
    revision: int
    job_kind: str
    table: TableRef
    columns: tuple[str, ...] | None
    select: str
    select_source_start: int
    select_source_end: int
    # The name by which the statement calls the source kind.
    function: str
    source: SourceRef
    source_columns: tuple[Column, ...]
    targets: tuple[TargetColumn, ...]
    properties: JobProperties | RoutineProperties
    metadata: tuple[tuple[str, str], ...] = ()
    # None when the SELECT is a plain list of columns, which needs no Spark.
    query: SparkQuery | None = None
    # The clauses of a routine load, from which the SELECT was built.
    load: LoadProperties | None = None
    # The capabilities that a node needs to run the job.
    needs: tuple[str, ...] = ()
    # The columns that locate a rejected row in the source.
    place_columns: tuple[Column, ...] = ()

    @property
    def kind(self) -> JobKind:
        """The traits of the job's kind."""
        return job_kind(self.job_kind)

    @property
    def ending(self) -> str:
        """The statement that ends the job."""
        return self.kind.drop.format(quoted_name(self.name))

    @property
    def resuming(self) -> str:
        """The statement that resumes the job."""
        return self.kind.resume.format(quoted_name(self.name))

    @property
    def keys_by_secret(self) -> dict[str, frozenset[str]]:
        """The secrets that the options refer to, and the keys used of each."""
        found: dict[str, frozenset[str]] = {}
        for key, text in self.source.options:
            reference = reference_of(text)
            if isinstance(reference, SecretReference):
                known = found.get(reference.name, frozenset())
                found[reference.name] = known | {key.lower()}
        return found

    @property
    def payload(self) -> Payload | None:
        """How the bytes of a record become rows, if PROPERTIES declare it."""
        return self.properties.payload(self.load.separator if self.load else None)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns of the source that outputs are computed from."""
        if self.query is not None:
            return self.query.needed
        return tuple(dict.fromkeys(t.path[0] for t in self.targets if t.path))


class DesiredState(StrEnum):
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
class Desired:
    """State and reason as one record, with the counters of auto-resume."""

    state: DesiredState
    reason: Reason | None
    event: int
    changed_at: datetime
    auto_resumes: int = 0
    resumed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """Everything stored of a job: the fold of its events."""

    id: str
    created_at: datetime
    definition: JobDefinition
    generation: Generation
    desired: Desired
    number: int
    progress: Progress
    cumulative: Statistics
    rejects_number: int
    committed_at: datetime | None
    epoch_newest: int
    epoch_committed: int
    succeeded_event: int
    event_number: int
    # Counts that the source reports beside its rows, by name.
    notices: tuple[tuple[str, int], ...] = ()
    notices_event: int = 0
    window: ErrorWindow = ErrorWindow()  # noqa: RUF009 - It is frozen.
    # The limit that the window exceeded last.
    tripped: Tripped | None = None
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
        """Whether a person ended the job and it is kept to be shown."""
        kept = self.definition.kind.kept_after_stop is not None
        return self.desired.state is DesiredState.CLOSED and kept

    @property
    def has_too_many_errors(self) -> bool:
        """Whether the error window exceeded its limit since the desired state last changed."""
        return self.tripped_event > self.desired.event

    @property
    def auto_resumes_in_a_row(self) -> int:
        """How often the job was resumed automatically since it last committed an epoch."""
        return self.desired.auto_resumes if self.desired.event > self.succeeded_event else 0


class StatusCode(StrEnum):
    """What a job does, or why it does not run."""

    # until: when the source is polled next.
    IDLE = "IDLE"
    # node, capability: this node cannot run the job.
    LACKS_CAPABILITY = "LACKS_CAPABILITY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A code and its fields."""

    code: StatusCode
    fields: tuple[tuple[str, str], ...] = ()
