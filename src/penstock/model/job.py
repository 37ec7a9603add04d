"""A job: a named, durable definition that loads a source into a table."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from penstock.errors import Code
from penstock.model.backlog import Backlog
from penstock.model.epoch import BatchRecord, ErrorWindow, Generation, Statistics, Tripped
from penstock.model.formats import Payload
from penstock.model.job_kinds import (
    JobKind,
    JobProperties,
    OutputMode,
    RoutineProperties,
    StreamingTableProperties,
    job_kind,
)
from penstock.model.schema import Column
from penstock.model.secrets import SecretReference, reference_of
from penstock.model.split import Progress, SplitStatus
from penstock.model.text import quoted_name


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadColumn:
    """A column of the records, or a column that a Spark SQL ``expression`` computes."""

    name: str
    expression: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProperties:
    """Clauses of a routine load that convert records to rows; None for an omitted clause.

    Expressions are verbatim Spark SQL. ``preceding_filter`` uses the columns of the records,
    and ``where`` uses the columns of the table.
    """

    separator: str | None = None
    columns: tuple[LoadColumn, ...] | None = None
    preceding_filter: str | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetColumn:
    """A column of the target table and the path of the field that fills it.

    The field belongs to the source or, if Spark runs the SELECT, to the SELECT's output.
    """

    name: str
    path: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRef:
    """A table of a job: a name for users, and the id and location that identify the table."""

    name: str
    id: str
    location: str
    # The columns that a joined table had when the query was defined. Empty for other tables.
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkQuery:
    """A SELECT that Spark runs, and the results of its analysis."""

    # The SELECT, in which the name of a view replaces the call of the source function.
    text: str
    view: str
    # All columns of the source, and the columns that the SELECT uses. Other columns are not
    # read.
    view_columns: tuple[Column, ...]
    needed: tuple[str, ...]
    outputs: tuple[Column, ...]
    lookups: tuple[TableRef, ...]
    operators: tuple[str, ...]
    # Whether each row of the source produces at most one row.
    row_wise: bool
    # Whether every epoch can use the same plan.
    reusable: bool
    # Whether outputs fill columns by name instead of by position.
    by_name: bool = False
    # Whether the outputs are all columns of the source.
    source_starred: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamView:
    """One STREAM of a streaming query: the view that Spark reads, and its event time."""

    # The split of the source, such as s1, and the name of the view in the text of the query.
    split: str
    view: str
    # All columns of the table, and the columns that the query uses. Others are not read.
    columns: tuple[Column, ...]
    needed: tuple[str, ...] = ()
    event_time: str | None = None
    delay_ms: int = 0


# The value of ``until`` for an operator whose state no watermark closes.
NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator of a streaming query, for EXPLAIN."""

    name: str
    detail: str = ""
    # The content of the state, and the time at which a row of the state is deleted. Both are
    # empty if the operator has no state.
    keeps: str = ""
    until: str = ""
    # Rows that the operator never returns, although the same query over a table returns them.
    notice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingQuery:
    """The query of a streaming table, and the results of its analysis."""

    # The query with names of views in place of STREAM ….
    text: str
    views: tuple[StreamView, ...]
    outputs: tuple[Column, ...]
    # The static tables.
    lookups: tuple[TableRef, ...]
    output: OutputMode
    # The key columns of update output; a global aggregate has none.
    key: tuple[str, ...]
    # The number of reader tasks and of partitions of the state.
    parallelism: int
    operators: tuple[Operator, ...]
    # The id of the checkpoint, chosen by CREATE; empty before that.
    checkpoint_id: str = ""
    # Whether the query uses the current time.
    uses_now: bool = False
    # Maximum difference of the event times of two joined rows. None: only the conditions
    # of the query limit the difference.
    state_ttl: timedelta | None = None

    @property
    def writes_late(self) -> bool:
        """Whether rows of the state are results that wait for the watermark.

        An inner join has no such rows: it writes a result as soon as both rows are read.
        """
        kept = [one for one in self.operators if one.keeps]
        return any(one.name != "join" or not one.detail.startswith("INNER") for one in kept)

    @property
    def closes_state(self) -> bool:
        """Whether the watermark ends windows or deletes rows of the state."""
        return any(one.keeps and one.until != NEVER for one in self.operators)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRef:
    """A source: the name of its kind, and its options as text; secrets are references."""

    kind: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefinition:
    """Definition of a job: the user's statement, and everything inferred from it."""

    name: str
    comment: str
    revision: int
    job_kind: str
    table: TableRef
    columns: tuple[str, ...] | None
    select: str
    select_source_start: int
    select_source_end: int
    # The source's function name in the statement.
    function: str
    source: SourceRef
    source_columns: tuple[Column, ...]
    targets: tuple[TargetColumn, ...]
    properties: JobProperties | RoutineProperties | StreamingTableProperties
    metadata: tuple[tuple[str, str], ...] = ()
    # None if the SELECT is a plain list of columns, which needs no Spark.
    query: SparkQuery | None = None
    # The clauses of a routine load, from which the SELECT was built.
    load: LoadProperties | None = None
    # The capabilities that a node needs to run the job.
    needs: tuple[str, ...] = ()
    # The columns that locate a rejected row in the source.
    place_columns: tuple[Column, ...] = ()
    # The query of a streaming table or flow; its verbatim text is ``select``.
    streaming: StreamingQuery | None = None

    @property
    def kind(self) -> JobKind:
        """The traits of the job's kind."""
        return job_kind(self.job_kind)

    @property
    def drop_statement(self) -> str:
        """The statement that drops or stops the job."""
        return self.kind.drop.format(quoted_name(self.name))

    @property
    def resume_statement(self) -> str:
        """The statement that resumes the job."""
        return self.kind.resume.format(quoted_name(self.name))

    @property
    def keys_by_secret(self) -> dict[str, frozenset[str]]:
        """The keys that the options use, by the name of the secret."""
        found: dict[str, frozenset[str]] = {}
        for key, text in self.source.options:
            reference = reference_of(text)
            if isinstance(reference, SecretReference):
                known = found.get(reference.name, frozenset())
                found[reference.name] = known | {key.lower()}
        return found

    @property
    def payload(self) -> Payload | None:
        """The format of a record's bytes, if PROPERTIES declare one."""
        return self.properties.payload(self.load.separator if self.load else None)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns of the source that are needed to compute the outputs."""
        if self.query is not None:
            return self.query.needed
        return tuple(dict.fromkeys(t.path[0] for t in self.targets if t.path))


class DesiredState(StrEnum):
    """The state that a job should be in."""

    RUN = "RUN"
    PAUSE = "PAUSE"
    DROP = "DROP"
    CLOSED = "CLOSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The reason for a job's state: a code for programs and a sentence for users."""

    code: Code
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The desired state and its reason, with the counters of auto-resume."""

    state: DesiredState
    reason: Reason | None
    event: int
    changed_at: datetime
    auto_resumes: int = 0
    resumed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """Everything stored about a job: the fold of its events."""

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
    # Counts that the source reports in addition to rows, by name.
    notices: tuple[tuple[str, int], ...] = ()
    notices_event: int = 0
    window: ErrorWindow = ErrorWindow()  # noqa: RUF009 - ErrorWindow is frozen.
    # The limit that the error window exceeded last.
    tripped: Tripped | None = None
    tripped_event: int = 0
    # Number of rejected rows when a user last resumed the job.
    rejected_before: int = 0
    rejected_before_event: int = 0
    # The newest request of a user to run an epoch, and the highest requested watermark in
    # milliseconds since 1970.
    requested_event: int = 0
    advance_ms: int | None = None
    # The newest batch, and the newest start of the streaming query; None for a load.
    batch: BatchRecord | None = None
    query_started_at: datetime | None = None
    backlog: Backlog = Backlog()  # noqa: RUF009 - Backlog is frozen.
    # The newest event that requires boundaries. Requests up to ``armed_event`` are fulfilled.
    arm_event: int = 0
    armed_event: int = 0
    # Why and since when the job is in backlog; empty if it is not.
    backlog_cause: str = ""
    backlog_since: datetime | None = None
    backlog_event: int = 0

    @property
    def name(self) -> str:
        """The name of the job."""
        return self.definition.name

    @property
    def boundaries_due(self) -> bool:
        """Whether the boundaries of the backlog must be fixed before the next plan."""
        return self.arm_event > self.armed_event

    @property
    def stopped(self) -> bool:
        """Whether a user stopped the job and SHOW can still list it."""
        retained = self.definition.kind.retention_after_stop is not None
        return self.desired.state is DesiredState.CLOSED and retained

    @property
    def has_too_many_errors(self) -> bool:
        """Whether the error window exceeded its limit since the desired state last changed."""
        return self.tripped_event > self.desired.event

    @property
    def auto_resumes_in_a_row(self) -> int:
        """How often the job was resumed automatically since it last committed an epoch."""
        return self.desired.auto_resumes if self.desired.event > self.succeeded_event else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceReport:
    """The amount that a running job has not read yet, its rate, and its next epoch."""

    at: datetime
    remaining: tuple[SplitStatus, ...] = ()
    # Rows or bytes per second, or seconds of arrival time per second; None if unknown.
    rate: float | None = None
    rate_unit: str = ""
    eta: timedelta | None = None
    # The interval of the cadence; the loop chooses it if the job has a target lag.
    interval: timedelta | None = None
    next_epoch_at: datetime | None = None


class StatusCode(StrEnum):
    """The activity of a job, or the reason why the job does not run."""

    # Field until: the time of the next poll of the source.
    IDLE = "IDLE"
    # Rows wait for the next epoch, or an epoch runs; ``pace`` has the details.
    LOADING = "LOADING"
    # Fields node, capability: the node lacks a capability that the job needs.
    LACKS_CAPABILITY = "LACKS_CAPABILITY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A code and its fields."""

    code: StatusCode
    fields: tuple[tuple[str, str], ...] = ()
    pace: PaceReport | None = None
