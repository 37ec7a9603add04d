"""Run the tasks of one epoch and collect their acks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.epochs.output import TaskPlan
from penstock.epochs.task import Refusal, read_half, requests_of, result_of, write_half
from penstock.errors import Code, UserError
from penstock.model.codec import to_text
from penstock.model.epoch import Ack, Attachment
from penstock.model.job import JobDefinition, JobState, SparkQuery
from penstock.model.query import Lookup, QueryRun, query_text
from penstock.model.schema import Column
from penstock.model.secrets import Sealed
from penstock.model.split import SplitRead
from penstock.sources.source import ReadTask
from penstock.spark.job_session import Halves
from penstock.tables.scan import read_lookup

Work = Callable[[str, str], str]


class Executor(Protocol):
    """The service that runs tasks: Spark in the product, the test process in tests.

    A task is a text. A function converts the text, and the id of the task attempt, to a result
    text. If the function raises, the task is retried up to the executor's limit. Only the
    result of the successful attempt is returned. After ``cancel`` of the group, ``run`` soon
    raises StoppedError, possibly before all tasks have ended. Any other failure is an
    ExternalError.
    """

    @property
    def ready(self) -> bool:
        """Whether the executor is started; otherwise the first task starts it."""
        ...

    @property
    def parallelism(self) -> int:
        """The number of tasks that run at the same time."""
        ...

    def run(self, tasks: Sequence[str], *, work: Work, group: str) -> list[str]:
        """Run every task and return their results in order."""
        ...

    def run_query(
        self, tasks: Sequence[str], *, run: QueryRun, halves: Halves, group: str
    ) -> list[str]:
        """Run a SELECT over the shares of the tasks; return the writing halves' results."""
        ...

    def cancel(self, group: str) -> None:
        """Cancel the tasks of the group."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTables:
    """The tables that an epoch writes and joins, with the sealed options to open them."""

    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    rejects_root: str
    lookups: tuple[Lookup, ...]
    table_access: Sealed
    source_access: Sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """The executor, the function that a task runs, and the counter of requests."""

    executor: Executor
    work: Work
    count_requests: Callable[[int], None]


def run_epoch(
    shares: Sequence[Sequence[SplitRead]],
    *,
    state: JobState,
    draft: Attachment,
    tables: EpochTables,
    parts: RunParts,
) -> tuple[Ack, ...]:
    """Run one task for each share and return the acks; raise the error of the first refusal."""
    definition = state.definition
    _require_targets(definition, tables.columns)
    plans = task_plans(shares, definition=definition, draft=draft, tables=tables)
    tasks = [to_text(task) for task in plans]
    if definition.query is None:
        texts = parts.executor.run(tasks, work=parts.work, group=state.id)
    else:
        run = query_run(definition, definition.query, tables.lookups)
        texts = parts.executor.run_query(tasks, run=run, halves=HALVES, group=state.id)
    results = [result_of(text) for text in texts]
    parts.count_requests(sum(requests_of(result) for result in results))
    acks = []
    for result in results:
        if isinstance(result, Refusal):
            raise result.error
        acks.append(result)
    return tuple(acks)


HALVES = Halves(read=read_half, write=write_half, read_lookup=read_lookup)


def query_run(
    definition: JobDefinition, query: SparkQuery, lookups: tuple[Lookup, ...]
) -> QueryRun:
    """Return the input with which Spark runs the job's SELECT."""
    text = query_text(
        query.text,
        view=query.view,
        columns=query.view_columns,
        properties=definition.properties,
    )
    return QueryRun(query=text, lookups=lookups, needed=query.needed, reusable=query.reusable)


def task_plans(
    shares: Sequence[Sequence[SplitRead]],
    *,
    definition: JobDefinition,
    draft: Attachment,
    tables: EpochTables,
) -> list[TaskPlan]:
    """Return the plan of each task."""
    query = definition.query
    return [
        TaskPlan(
            task=task,
            attempt_id=draft.attempt_id,
            number=draft.number,
            epoch=draft.epoch,
            table_root=definition.table.location,
            rejects_root=tables.rejects_root,
            table_access=tables.table_access,
            strict=definition.properties.strict,
            columns=tables.columns,
            partition_by=tables.partition_by,
            targets=definition.targets,
            place_columns=definition.place_columns,
            view_columns=query.view_columns if query else (),
            output_names=tuple(column.name for column in query.outputs) if query else (),
            read=ReadTask(
                source=definition.source,
                access=tables.source_access,
                payload=definition.payload,
                columns=definition.source_columns,
                needed=definition.needed,
                reads=tuple(reads),
            ),
        )
        for task, reads in enumerate(shares)
    ]


def _require_targets(definition: JobDefinition, columns: tuple[Column, ...]) -> None:
    """Raise UserError if the table no longer has a column that the job fills."""
    names = {column.name for column in columns}
    missing = [t.name for t in definition.targets if t.path is not None and t.name not in names]
    if missing:
        raise UserError(
            f'table "{definition.table.name}" no longer has column "{missing[0]}"',
            code=Code.TABLE_CHANGED_ERR,
            detail=f"The job writes to {', '.join(missing)}; these values would be lost.",
            hint=(
                f"Add the columns to the table again, or run {definition.drop_statement} and "
                "create the job again."
            ),
        )
