"""What can be said: one frozen value for each statement."""

from dataclasses import dataclass, field
from typing import Literal

from penstock.model.job import LoadProperties
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
    """DESCRIBE DETAIL: where a table is and how much is in it."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreateTable:
    """SHOW CREATE TABLE."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectItem:
    """A column of the source, or a field inside one, and the name it gets if another."""

    path: tuple[str, ...]
    alias: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCall:
    """The source that is read; ``start`` and ``end`` are offsets of the call in the SELECT."""

    function: str
    options: Properties
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """INSERT INTO … SELECT; ``select`` is its verbatim text.

    A ``plain`` SELECT is a list of columns, ``items``, or ``*`` for None; ``starred`` tells
    that ``*`` is all that the outermost SELECT gives, ``source_starred`` that it is the star of
    the source itself. ``names`` are the names in it, ``stars`` tells whether a star stands for
    columns. ``select_at`` is the line and column at which it begins in the script, None if it
    does not stand there.
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
class CreateJob:
    """CREATE JOB … ON STREAMING DO INSERT."""

    name: str
    insert: Insert
    properties: Properties = ()
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterJob:
    """ALTER JOB … [PROPERTIES(…)] [INSERT INTO …]."""

    name: str
    properties: Properties = ()
    insert: Insert | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainJob:
    """EXPLAIN JOB."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseJob:
    """PAUSE JOB."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeJob:
    """RESUME JOB."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropJob:
    """DROP JOB."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowJobs:
    """SHOW JOBS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreateJob:
    """SHOW CREATE JOB."""

    name: str


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
    """CREATE SECRET; its values are part of no text that shows the statement."""

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
    """SHOW SECRETS: names and keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewQuery:
    """SELECT … FROM jobs(…) or tasks(…); ``start`` and ``end`` are offsets of that call."""

    select: str
    view: Literal["jobs", "tasks"]
    options: Properties
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectsRead:
    """rejects("job" = "…") in a SELECT; ``start`` and ``end`` are offsets of that call."""

    job: str
    start: int
    end: int
    aliased: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRead:
    """A table VERSION AS OF a number in a SELECT; ``start`` and ``end`` are its offsets."""

    table: str
    version: int
    start: int
    end: int
    aliased: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuery:
    """A SELECT over tables; ``reads`` are what Spark cannot find by itself, in their order.

    ``select_at`` is the line and column at which the SELECT begins in the script.
    """

    select: str
    reads: tuple[RejectsRead | VersionRead, ...] = ()
    select_at: tuple[int, int] = field(default=(1, 1), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRoutineLoad:
    """CREATE ROUTINE LOAD … ON … FROM; ``source`` is KINESIS or KAFKA."""

    name: str
    table: str
    load: LoadProperties = field(default_factory=LoadProperties)
    properties: Properties = ()
    source: str
    options: Properties
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterRoutineLoad:
    """ALTER ROUTINE LOAD FOR; what is None or empty stays as it is."""

    name: str
    load: LoadProperties = field(default_factory=LoadProperties)
    properties: Properties = ()
    source: str | None = None
    options: Properties = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRoutineLoad:
    """PAUSE ROUTINE LOAD FOR; None for PAUSE ALL."""

    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRoutineLoad:
    """RESUME ROUTINE LOAD FOR; None for RESUME ALL."""

    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRoutineLoad:
    """STOP ROUTINE LOAD FOR."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRoutineLoad:
    """SHOW ROUTINE LOAD; ``all`` shows those that have ended, too."""

    name: str | None = None
    like: str | None = None
    all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRoutineLoadTask:
    """SHOW ROUTINE LOAD TASK."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreateRoutineLoad:
    """SHOW CREATE ROUTINE LOAD FOR; ``all`` finds those that have ended, too."""

    name: str
    all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowShards:
    """SHOW SHARDS FOR: how far each shard of a routine load was read."""

    name: str


RoutineLoadStatement = (
    CreateRoutineLoad
    | AlterRoutineLoad
    | PauseRoutineLoad
    | ResumeRoutineLoad
    | StopRoutineLoad
    | ShowRoutineLoad
    | ShowRoutineLoadTask
    | ShowCreateRoutineLoad
    | ShowShards
)
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
    | RoutineLoadStatement
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedStatement:
    """A statement, its verbatim text, and where it begins in the script, counted from 1."""

    statement: Statement
    text: str
    line: int
    column: int
    # Whether its result is to be printed vertically.
    vertical: bool = False
