"""Run one epoch's tasks and collect their acks."""

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
    """Runs tasks somewhere; Spark in the product, the test's own process in tests.

    A task is a text, and the function that turns it into another text; the function also gets
    the id of the attempt. A task that raises is retried up to the executor's limit; only the
    result of the attempt that succeeded counts. After ``cancel`` of its group, ``run`` raises
    StoppedError soon; tasks may still be ending. Every other failure is an ExternalError.
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
        """Run every task and return their results in order."""
        ...

    def run_query(
        self, tasks: Sequence[str], *, run: QueryRun, halves: Halves, group: str
    ) -> list[str]:
        """Run a SELECT over the shares of the tasks and return the writers' results."""
        ...

    def cancel(self, group: str) -> None:
        """Stop what runs under the group."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTables:
    """The tables that an epoch writes and reads, and how its tasks reach them."""

    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    rejects_root: str
    lookups: tuple[Lookup, ...]
    table_access: Sealed
    source_access: Sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """What runs the tasks, what they do, and what counts their requests."""

    executor: Executor
    work: Work
    charge: Callable[[int], None]


def run_epoch(
    shares: Sequence[Sequence[SplitRead]],
    *,
    state: JobState,
    draft: Attachment,
    tables: EpochTables,
    parts: RunParts,
) -> tuple[Ack, ...]:
    """Run one task for each share and return the acks; the first refusal is raised."""
    definition = state.definition
    _require_targets(definition, tables.columns)
    plans = task_plans(shares, definition=definition, draft=draft, tables=tables)
    tasks = [to_text(task) for task in plans]
    if definition.query is None:
        answers = parts.executor.run(tasks, work=parts.work, group=state.id)
    else:
        run = query_run(definition, definition.query, tables.lookups)
        answers = parts.executor.run_query(tasks, run=run, halves=HALVES, group=state.id)
    results = [result_of(answer) for answer in answers]
    parts.charge(sum(requests_of(result) for result in results))
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
    """Return what Spark needs to run the job's SELECT."""
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
