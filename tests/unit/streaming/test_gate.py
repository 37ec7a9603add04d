"""The gate: the loop decides, and the thread of Spark waits, runs and returns."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from penstock.errors import InvariantError, StoppedError
from penstock.streaming.gate import Gate

SECONDS_MAX = 30


class Query(threading.Thread):
    """A thread that visits the gate once per batch, as the query of Spark does."""

    def __init__(self, gate: Gate[str, str], run: Callable[[str], str]) -> None:
        super().__init__(daemon=True)
        self._gate = gate
        self._run = run
        self.returned: list[int] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for batch in range(3):
                self._gate.visit(batch, self._run)
                self.returned.append(batch)
        except ValueError as error:
            self.error = error


@contextmanager
def query(gate: Gate[str, str], run: Callable[[str], str] = str.upper) -> Iterator[Query]:
    thread = Query(gate, run)
    thread.start()
    yield thread
    thread.join(SECONDS_MAX)
    assert not thread.is_alive()


def test_each_batch_runs_with_the_plan_of_the_loop() -> None:
    gate = Gate[str, str]()
    with query(gate) as spark:
        for batch, plan in enumerate(["a", "b", "c"]):
            assert gate.opened(seconds_max=SECONDS_MAX) == batch
            assert gate.run(plan) == plan.upper()
            assert spark.returned == list(range(batch))
            gate.finish()
    assert spark.returned == [0, 1, 2]


def test_without_an_open_batch_the_wait_ends_in_time() -> None:
    assert Gate[str, str]().opened(seconds_max=0.01) is None


def test_the_error_of_a_run_reaches_the_loop_and_ends_the_query() -> None:
    gate = Gate[str, str]()

    def fail(plan: str) -> str:
        raise ValueError(plan)

    with query(gate, fail) as spark:
        gate.opened(seconds_max=SECONDS_MAX)
        with pytest.raises(ValueError, match="a"):
            gate.run("a")
    assert isinstance(spark.error, ValueError)
    assert spark.returned == []


@pytest.mark.parametrize("ran", [False, True])
def test_s10_an_abandoned_batch_does_not_return(*, ran: bool) -> None:
    gate = Gate[str, str]()
    with query(gate) as spark:
        gate.opened(seconds_max=SECONDS_MAX)
        if ran:
            gate.run("a")
        gate.abandon(ValueError("paused"))
    assert str(spark.error) == "paused"
    assert spark.returned == []


def test_a_query_abandoned_between_batches_ends_at_the_next_batch() -> None:
    gate = Gate[str, str]()
    gate.abandon(ValueError("paused"))
    with query(gate) as spark:
        pass
    assert str(spark.error) == "paused"


def test_s2_a_batch_is_run_exactly_once_before_it_is_finished() -> None:
    gate = Gate[str, str]()
    with query(gate) as spark:
        gate.opened(seconds_max=SECONDS_MAX)
        with pytest.raises(InvariantError):
            gate.finish()
        gate.run("a")
        with pytest.raises(InvariantError):
            gate.run("a")
        gate.abandon(ValueError("end"))
    assert spark.returned == []


def test_the_end_of_the_query_wakes_the_loop() -> None:
    gate = Gate[str, str]()
    gate.ended()
    with pytest.raises(StoppedError):
        gate.opened(seconds_max=SECONDS_MAX)
    gate.ended(ValueError("no source"))
    with pytest.raises(ValueError, match="no source"):
        gate.opened(seconds_max=SECONDS_MAX)
