"""Run one epoch's tasks and collect their acks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from penstock.epochs.task import (
    Refusal,
    TaskResult,
    error_of,
    read_half,
    requests_of,
    result_of,
    write_half,
)
from penstock.epochs.task_plan import TaskPlan
from penstock.errors import Code, UserError
from penstock.model.codec import to_text
from penstock.model.epoch import Ack, Attachment, EpochPlan
from penstock.model.job import JobDefinition, JobState, SparkQuery
from penstock.model.query import Lookup, QueryRun, query_text
from penstock.model.schema import Column
from penstock.model.secrets import Sealed
from penstock.model.split import ShardRead
from penstock.sources.files.reader import needed_columns, share_out, splittable
from penstock.spark.job_session import Halves
from penstock.tables.scan import read_lookup

Work = Callable[[str, str], str]


class Executor(Protocol):
    """Runs tasks somewhere; Spark in the product, the test's own process in tests.

    A task is a text and the function that turns it into another text; the function also gets
    an id of the try. A task that raises is tried again up to the executor's limit; only the
    answer of the try that succeeded counts. After ``cancel`` of its group, ``run`` raises
    StoppedError soon; tasks may still be ending. Everything else that goes wrong is an
    ExternalError.
    """

    @property
    def ready(self) -> bool:
        """Whether tasks start at once; otherwise the executor is started first."""
        ...

    @property
    def parallelism(self) -> int:
        """How many tasks run at the same time."""
        ...

    def run(self, tasks: Sequence[str], *, work: Work, group: str) -> list[str]:
        """Run every task and answer their results in order."""
        ...

    def run_query(
        self, tasks: Sequence[str], *, run: QueryRun, halves: Halves, group: str
    ) -> list[str]:
        """Run a SELECT over the shares of the tasks and answer the writers' results."""
        ...

    def cancel(self, group: str) -> None:
        """Stop what runs under the group."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTables:
    """What is known of the tables that an epoch writes and looks at."""

    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    rejects_root: str
    lookups: tuple[Lookup, ...]
    table_access: Sealed
    source_access: Sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """Who runs tasks, what they do, and who hears how often they asked the source."""

    executor: Executor
    work: Work
    charge: Callable[[int], None]


def run_epoch(
    plan: EpochPlan,
    *,
    state: JobState,
    draft: Attachment,
    tables: EpochTables,
    parts: RunParts,
) -> tuple[Ack, ...]:
    """Share the plan out, run it and answer the acks; the first refusal is raised."""
    executor = parts.executor
    definition = state.definition
    _require_targets(definition, tables.columns)
    count = executor.parallelism
    plans = task_plans(plan, state=state, draft=draft, tables=tables, count=count)
    tasks = [to_text(task) for task in plans]
    if definition.query is None:
        answers = executor.run(tasks, work=parts.work, group=state.id)
    else:
        run = query_run(definition, definition.query, tables.lookups)
        answers = executor.run_query(tasks, run=run, halves=HALVES, group=state.id)
    results = [result_of(answer) for answer in answers]
    parts.charge(sum(requests_of(result) for result in results))
    return tuple(_ack(result) for result in results)


HALVES = Halves(read=read_half, write=write_half, read_lookup=read_lookup)


def query_run(
    definition: JobDefinition, query: SparkQuery, lookups: tuple[Lookup, ...]
) -> QueryRun:
    """Answer what Spark is told about the job's SELECT."""
    text = query_text(
        query.text,
        view=query.view,
        columns=query.view_columns,
        properties=definition.properties,
    )
    return QueryRun(query=text, lookups=lookups, needed=query.needed, reusable=query.reusable)


def task_plans(
    plan: EpochPlan, *, state: JobState, draft: Attachment, tables: EpochTables, count: int
) -> list[TaskPlan]:
    """Cut an epoch into what each task is told."""
    definition = state.definition
    query = definition.query
    needed = needed_columns(definition)
    whole = TaskPlan(
        task=0,
        attempt_id=draft.attempt_id,
        number=draft.number,
        epoch=draft.epoch,
        table_root=definition.table.location,
        rejects_root=tables.rejects_root,
        table_access=tables.table_access,
        source_access=tables.source_access,
        strict=definition.properties.strict,
        columns=tables.columns,
        partition_by=tables.partition_by,
        targets=definition.targets,
        source=definition.source,
        payload=definition.payload,
        source_columns=definition.source_columns,
        needed=needed,
        view_columns=query.view_columns if query else (),
        output_names=tuple(column.name for column in query.outputs) if query else (),
    )
    if plan.shards:
        shards = deal(plan.shards, hands=min(count, definition.routine_properties.tasks_max))
        return [replace(whole, task=task, shards=hand) for task, hand in enumerate(shards)]
    shares = share_out(
        plan.files,
        tasks=count,
        splittable=partial(splittable, source=definition.files, needed=needed),
    )
    return [replace(whole, task=task, reads=reads) for task, reads in enumerate(shares)]


def deal(reads: tuple[ShardRead, ...], *, hands: int) -> list[tuple[ShardRead, ...]]:
    """Deal shards out to tasks, one after the other; no task is left without one."""
    return [reads[hand::hands] for hand in range(min(hands, len(reads)))]


def _require_targets(definition: JobDefinition, columns: tuple[Column, ...]) -> None:
    """Require that the table still has every column that the job fills."""
    names = {column.name for column in columns}
    gone = [t.name for t in definition.targets if t.path is not None and t.name not in names]
    if gone:
        raise UserError(
            f'table "{definition.table.name}" has no column "{gone[0]}" any more',
            code=Code.TABLE_CHANGED_ERR,
            detail=f"The job fills {', '.join(gone)}, which would be lost.",
            hint=(
                f"Give the table its columns back, or write {definition.ending} and create "
                "it again."
            ),
        )


def _ack(result: TaskResult) -> Ack:
    if isinstance(result, Refusal):
        raise error_of(result)
    return result
