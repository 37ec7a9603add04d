"""The statements, each as a frozen class."""

from dataclasses import dataclass, field
from typing import Literal

from penstock.model.job import LoadProperties
from penstock.model.job_kinds import STREAMING, JobKind
from penstock.model.schema import Column

Properties = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """CREATE TABLE."""

    name: str
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()
    location: str | None = None
    comment: str = ""
    if_not_exists: bool = False


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
    """ALTER JOB, or ALTER ROUTINE LOAD FOR; None or empty parts do not change."""

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
    """PAUSE JOB, or PAUSE ROUTINE LOAD FOR; ``name`` is None for PAUSE ALL."""

    kind: JobKind = STREAMING
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeJob:
    """RESUME JOB, or RESUME ROUTINE LOAD FOR; ``name`` is None for RESUME ALL."""

    kind: JobKind = STREAMING
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropJob:
    """DROP JOB, or STOP ROUTINE LOAD FOR."""

    kind: JobKind = STREAMING
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowJobs:
    """SHOW JOBS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreateJob:
    """SHOW CREATE JOB, or SHOW CREATE ROUTINE LOAD FOR; ``all`` includes ended jobs."""

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


Statement = (
    CreateTable
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
