"""Run one epoch's tasks and collect their acks."""

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.engine.plan import share_out
from penstock.engine.task import Refusal, TaskPlan, TaskResult, error_of, result_of
from penstock.errors import Code, UserError
from penstock.model.codec import to_text
from penstock.model.epoch import Ack, EpochPlan
from penstock.model.job import JobDefinition, JobState
from penstock.model.schema import Column

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

    def cancel(self, group: str) -> None:
        """Stop what runs under the group."""
        ...


def run_epoch(
    plan: EpochPlan,
    *,
    state: JobState,
    columns: tuple[Column, ...],
    attempt_id: str,
    executor: Executor,
    work: Work,
) -> tuple[Ack, ...]:
    """Share the plan out, run it and answer the acks; the first refusal is raised."""
    definition = state.definition
    _require_targets(definition, columns)
    shares = share_out(plan.files, tasks=executor.parallelism)
    plans = [
        TaskPlan(
            task=task,
            attempt_id=attempt_id,
            uri=definition.source.uri,
            table_root=definition.table.location,
            columns=columns,
            targets=definition.targets,
            source_columns=definition.source_columns,
            reads=reads,
        )
        for task, reads in enumerate(shares)
    ]
    answers = executor.run([to_text(task) for task in plans], work=work, group=state.id)
    return tuple(_ack(result_of(answer)) for answer in answers)


def _require_targets(definition: JobDefinition, columns: tuple[Column, ...]) -> None:
    """Require that the table still has every column that the job fills."""
    names = {column.name for column in columns}
    gone = [t.name for t in definition.targets if t.path is not None and t.name not in names]
    if gone:
        raise UserError(
            f'table "{definition.table.name}" has no column "{gone[0]}" any more',
            code=Code.TABLE_CHANGED_ERR,
            detail=f"The job fills {', '.join(gone)}, which would be lost.",
            hint="Give the table its columns back, or drop the job and create it again.",
        )


def _ack(result: TaskResult) -> Ack:
    if isinstance(result, Refusal):
        raise error_of(result)
    return result
