"""A fake executor in the calling thread; it passes the contract suite of executors."""

from collections.abc import Callable, Sequence
from itertools import count

from penstock.errors import Code, ExternalError, InvariantError, StoppedError
from penstock.model.query import QueryRun
from penstock.spark.job_session import Halves

TASK_TRIES_MAX = 4


class InProcessExecutor:
    """An executor that runs tasks one after the other, with as many attempts as Spark."""

    def __init__(self, *, parallelism: int = 2) -> None:
        self._parallelism = parallelism
        self._cancelled: set[str] = set()
        self._try_ids = count(1)

    @property
    def ready(self) -> bool:
        return True

    @property
    def parallelism(self) -> int:
        return self._parallelism

    def run(
        self, tasks: Sequence[str], *, work: Callable[[str, str], str], group: str
    ) -> list[str]:
        self._cancelled.discard(group)
        return [self._run_one(task, work, group) for task in tasks]

    def run_query(
        self, tasks: Sequence[str], *, run: QueryRun, halves: Halves, group: str
    ) -> list[str]:
        del tasks, run, halves, group
        raise InvariantError("the executor without Spark cannot run a SELECT")

    def cancel(self, group: str) -> None:
        self._cancelled.add(group)

    def _run_one(self, task: str, work: Callable[[str, str], str], group: str) -> str:
        last: Exception | None = None
        for _ in range(TASK_TRIES_MAX):
            try:
                result = work(task, str(next(self._try_ids)))
            except Exception as error:  # noqa: BLE001 - Spark catches every error of a task.
                last = error
                continue
            finally:
                if group in self._cancelled:
                    raise StoppedError("the tasks were cancelled")
            return result
        raise ExternalError(
            f"a task failed {TASK_TRIES_MAX} times: {last}", code=Code.SPARK_ERR
        ) from last
