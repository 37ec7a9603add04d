"""The statements, each as a frozen class."""

from dataclasses import dataclass, field
from typing import Literal

from penstock.model.job import LoadProperties
from penstock.model.job_kinds import FLOW, STREAMING, STREAMING_TABLE, JobKind
from penstock.model.schema import Column, DataType

Properties = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """The event time of a stream: its column, and how late a row can be."""

    column: str
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """CREATE TABLE."""

    name: str
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()
    location: str | None = None
    comment: str = ""
    if_not_exists: bool = False
    watermark: Watermark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTableWatermark:
    """ALTER TABLE … SET WATERMARK, or DROP WATERMARK, for which ``watermark`` is None."""

    name: str
    watermark: Watermark | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable:
    """DROP TABLE."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTables:
    """SHOW TABLES."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTable:
    """DESCRIBE: the columns of a table."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeDetail:
    """DESCRIBE DETAIL: the location and size of a table."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreateTable:
    """SHOW CREATE TABLE."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectItem:
    """A column or a nested field of the source, with its alias."""

    path: tuple[str, ...]
    alias: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCall:
    """A source with its options; ``start`` and ``end`` are its offsets in a SELECT."""

    function: str
    options: Properties
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """INSERT INTO … SELECT; ``select`` is its verbatim text.

    ``plain``: the SELECT only lists columns. ``items``: these columns, None for ``*``.
    ``starred``: the outermost SELECT is only ``*``. ``source_starred``: the outermost SELECT is
    only ``*`` and reads from the source itself. ``names``: all names in it, in lower case.
    ``stars``: the SELECT has a star other than count(*). ``select_at``: the line and column of
    the SELECT in the script, None if the SELECT is not part of a script.
    """

    table: str
    columns: tuple[str, ...] | None
    select: str
    items: tuple[SelectItem, ...] | None
    source: SourceCall
    plain: bool = True
    starred: bool = False
    source_starred: bool = False
    names: frozenset[str] = field(default=frozenset(), compare=False)
    stars: bool = field(default=False, compare=False)
    select_at: tuple[int, int] | None = field(default=(1, 1), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutineBody:
    """ON table, clauses about records, FROM source; ALTER can omit any of them."""

    table: str | None = None
    load: LoadProperties = field(default_factory=LoadProperties)
    source: SourceCall | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateJob:
    """CREATE JOB … ON STREAMING DO INSERT, or CREATE ROUTINE LOAD … ON … FROM."""

    kind: JobKind = STREAMING
    name: str
    body: Insert | RoutineBody
    properties: Properties = ()
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterJob:
    """ALTER JOB, or ALTER ROUTINE LOAD FOR; parts that are None or empty do not change."""

    kind: JobKind = STREAMING
    name: str
    properties: Properties = ()
    body: Insert | RoutineBody | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainJob:
    """EXPLAIN JOB."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseJob:
    """PAUSE of a job of any kind; ``name`` is None for PAUSE ALL."""

    kind: JobKind = STREAMING
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeJob:
    """RESUME of a job of any kind; ``name`` is None for RESUME ALL."""

    kind: JobKind = STREAMING
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropJob:
    """DROP of a job of any kind, or STOP ROUTINE LOAD FOR.

    ``keep_table``: DROP STREAMING TABLE does not delete the rows.
    """

    kind: JobKind = STREAMING
    name: str
    if_exists: bool = False
    keep_table: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowJobs:
    """SHOW JOBS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreateJob:
    """SHOW CREATE of a job of any kind; ``all`` includes ended jobs."""

    kind: JobKind = STREAMING
    name: str
    all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowEpochs:
    """SHOW EPOCHS FOR: the ledger of a job."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowEvents:
    """SHOW EVENTS FOR: the journal of a job."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSecret:
    """CREATE SECRET; its ``repr`` omits the values."""

    name: str
    values: Properties = field(repr=False)
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSecret:
    """ALTER SECRET: values to add or replace."""

    name: str
    values: Properties = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSecret:
    """DROP SECRET."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSecrets:
    """SHOW SECRETS: the names and keys of all secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewQuery:
    """SELECT … FROM jobs(…) or tasks(…); ``start`` and ``end`` are offsets of the call."""

    select: str
    view: Literal["jobs", "tasks"]
    options: Properties
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectsRead:
    """rejects("job" = "…") in a SELECT; ``start`` and ``end`` are offsets of the call."""

    job: str
    start: int
    end: int
    aliased: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRead:
    """A table with VERSION AS OF in a SELECT; ``start`` and ``end`` are its offsets."""

    table: str
    version: int
    start: int
    end: int
    aliased: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuery:
    """A SELECT over tables; ``reads`` are the parts that Spark cannot resolve, in order.

    ``select_at`` is the line and column of the SELECT in the script.
    """

    select: str
    reads: tuple[RejectsRead | VersionRead, ...] = ()
    select_at: tuple[int, int] = field(default=(1, 1), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRoutineLoad:
    """SHOW ROUTINE LOAD; ``all`` includes stopped loads."""

    name: str | None = None
    like: str | None = None
    all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRoutineLoadTask:
    """SHOW ROUTINE LOAD TASK."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowShards:
    """SHOW SHARDS FOR: the position of each shard of a routine load."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamColumn:
    """A column of a streaming table; if ``type`` is None, the query determines the type."""

    name: str
    type: DataType | None = None
    comment: str = ""
    nullable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamUse:
    """One ``STREAM table`` in a query.

    ``start`` and ``end`` are the offsets from STREAM to the end of the watermark. The alias
    is not included, so a view can replace this part. ``alias`` is None if there is no alias.
    """

    table: str
    start: int
    end: int
    watermark: Watermark | None
    alias: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamQueryText:
    """The verbatim query of a streaming table; ``at`` is its line and column in the script."""

    text: str
    at: tuple[int, int] = field(default=(1, 1), compare=False)
    streams: tuple[StreamUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateStreamingTable:
    """CREATE STREAMING TABLE; ``options`` are those of WITH and of TBLPROPERTIES."""

    kind: JobKind = STREAMING_TABLE
    name: str
    query: StreamQueryText
    columns: tuple[StreamColumn, ...] = ()
    partition_by: tuple[str, ...] = ()
    comment: str = ""
    location: str | None = None
    options: Properties = ()
    if_not_exists: bool = False
    or_refresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFlow:
    """CREATE FLOW: a query that appends to a table; columns are matched by name."""

    kind: JobKind = FLOW
    name: str
    table: str
    query: StreamQueryText
    comment: str = ""
    options: Properties = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterStreamingTable:
    """ALTER STREAMING TABLE, or ALTER FLOW: options to change, or a watermark to advance.

    ``advance`` is FINAL or the text of a timestamp. ``datetime.fromisoformat`` parses the text.
    """

    kind: JobKind = STREAMING_TABLE
    name: str
    options: Properties = ()
    advance: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshStreamingTable:
    """REFRESH STREAMING TABLE, or REFRESH FLOW."""

    kind: JobKind = STREAMING_TABLE
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainStreamingTable:
    """EXPLAIN STREAMING TABLE: an existing table, or a query after AS."""

    name: str | None = None
    query: StreamQueryText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowStreamingTables:
    """SHOW STREAMING TABLES."""

    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetBacklog:
    """ALTER … RESET BACKLOG: set the boundaries of the backlog to the current heads."""

    kind: JobKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowBacklog:
    """SHOW BACKLOG: the backlog of all jobs, or the splits of one job."""

    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCheckpoints:
    """SHOW CHECKPOINTS FOR: the checkpoints of a streaming table or a flow."""

    name: str


Statement = (
    CreateTable
    | AlterTableWatermark
    | DropTable
    | ShowTables
    | DescribeTable
    | DescribeDetail
    | ShowCreateTable
    | CreateJob
    | AlterJob
    | ExplainJob
    | PauseJob
    | ResumeJob
    | DropJob
    | ShowJobs
    | ShowCreateJob
    | ShowEpochs
    | ShowEvents
    | CreateSecret
    | AlterSecret
    | DropSecret
    | ShowSecrets
    | ViewQuery
    | TableQuery
    | ShowRoutineLoad
    | ShowRoutineLoadTask
    | ShowShards
    | CreateStreamingTable
    | CreateFlow
    | AlterStreamingTable
    | RefreshStreamingTable
    | ExplainStreamingTable
    | ShowStreamingTables
    | ShowCheckpoints
    | ResetBacklog
    | ShowBacklog
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedStatement:
    """A statement, its verbatim text, and its line and column, counted from 1."""

    statement: Statement
    text: str
    line: int
    column: int
    # Whether to print the result vertically.
    vertical: bool = False
