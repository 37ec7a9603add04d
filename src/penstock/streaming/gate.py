"""The meeting point of a loop and the query that Spark runs for it.

Spark opens a batch and calls a function in its own thread. This function waits at the gate. The
loop decides what the batch reads, and when. Spark's thread only waits, runs and returns. All
decisions and commits belong to the loop's thread.

A batch must be run exactly once before it is finished. Spark would otherwise store a checkpoint
of a batch whose state was never written. To end the query, the loop abandons the batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from penstock.errors import InvariantError, StoppedError

Plan = TypeVar("Plan")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Opened:
    batch: int


@dataclass(frozen=True, slots=True)
class _Ran(Generic[Result]):
    result: Result


@dataclass(frozen=True, slots=True)
class _Ended:
    error: BaseException


@dataclass(frozen=True, slots=True)
class _Run(Generic[Plan]):
    plan: Plan


@dataclass(frozen=True, slots=True)
class _Finish:
    pass


class Gate(Generic[Plan, Result]):
    """One gate serves one run of a query, with one loop and one thread of Spark."""

    def __init__(self) -> None:
        self._to_loop: SimpleQueue[_Opened | _Ran[Result] | _Ended] = SimpleQueue()
        self._to_spark: SimpleQueue[_Run[Plan] | _Finish | _Ended] = SimpleQueue()
        # Whether the open batch was run; None if no batch is open. Only the loop uses it.
        self._ran: bool | None = None

    def opened(self, *, seconds_max: float) -> int | None:
        """Return the number of the batch that waits at the gate; None after the timeout.

        Raise the query's error if the query has ended.
        """
        try:
            message = self._to_loop.get(timeout=seconds_max)
        except Empty:
            return None
        if isinstance(message, _Opened):
            self._ran = False
            return message.batch
        raise _unexpected(message, expected="an open batch")

    def run(self, plan: Plan) -> Result:
        """Run the open batch and return its result; raise the error of the run."""
        if self._ran is not False:
            raise InvariantError("a batch can be run only once, after it was opened")
        self._to_spark.put(_Run(plan))
        message = self._to_loop.get()
        if isinstance(message, _Ran):
            self._ran = True
            return message.result
        raise _unexpected(message, expected="the result of the batch")

    def finish(self) -> None:
        """Allow Spark to commit the batch to its checkpoint and to open the next batch."""
        if not self._ran:
            raise InvariantError("a batch must be run before it is finished")
        self._ran = None
        self._to_spark.put(_Finish())

    def abandon(self, error: BaseException) -> None:
        """End the query with an error, at the open batch or, if none is open, at the next."""
        self._ran = None
        self._to_spark.put(_Ended(error))

    def visit(self, batch: int, run: Callable[[Plan], Result]) -> None:
        """Wait for the loop's decisions about a batch; called in the thread of Spark.

        ``run`` runs the batch. An error of ``run`` ends the query. The loop receives the error,
        too.
        """
        self._to_loop.put(_Opened(batch))
        while True:
            message = self._to_spark.get()
            if isinstance(message, _Finish):
                return
            if isinstance(message, _Ended):
                raise message.error
            try:
                result = run(message.plan)
            except BaseException as error:
                self._to_loop.put(_Ended(error))
                raise
            self._to_loop.put(_Ran(result))

    def ended(self, error: BaseException | None = None) -> None:
        """Report the end of the query, so that the loop does not wait for another batch."""
        self._to_loop.put(_Ended(error or StoppedError("the query has ended")))


def _unexpected(message: object, *, expected: str) -> BaseException:
    if isinstance(message, _Ended):
        return message.error
    return InvariantError(f"the gate received {message}, expected {expected}")
