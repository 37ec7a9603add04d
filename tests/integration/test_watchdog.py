"""Tasks that do not end are given up, and what they read is read again."""

from datetime import timedelta

import pytest

from penstock.epochs.progress import Step
from penstock.errors import Code
from penstock.model.ledger import LedgerEntry
from penstock.supervisor.supervisor import Supervisor
from tests.integration.driving import Gate, MovedClock, rounds_until, supervised
from tests.integration.routine_loads import (
    BLINK,
    CREATE_TABLE,
    create,
    ids,
    put,
    server,
    statistic,
    stream,
)
from tests.mirrored_node import OpenNode
from tests.node import Node
from tests.servers.kinesis_clients import StreamUnderTest

# Fixtures that are made elsewhere.
__all__ = ["server", "stream"]

pytestmark = pytest.mark.integration


def ledger(node: Node) -> tuple[LedgerEntry, ...]:
    state = node.catalog.job("r")
    assert state is not None
    return node.catalog.ledger(state.id)


def pass_time(node: Node, clock: MovedClock, supervisor: Supervisor) -> None:
    """Let ten seconds pass, within which the lease is renewed."""
    clock.move(seconds=10)
    rounds_until(
        supervisor,
        lambda _: all(
            lease.expires_at > clock.now() + timedelta(seconds=10)
            for lease in node.catalog.leases().values()
        ),
    )


def test_t39_tasks_of_a_load_that_take_too_long_are_given_up_and_begun_anew(
    open_node: OpenNode, stream: StreamUnderTest
) -> None:
    gate, clock = Gate(), MovedClock()
    node = open_node(clock=clock, read_interval=BLINK, work=gate)
    put(stream, 1, 2)
    node.sql(f"{CREATE_TABLE}; {create(stream, properties={'max_batch_interval': '1s'})}")
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        for _ in range(7):
            pass_time(node, clock, supervisor)
        gate.opened.set()

        rounds_until(supervisor, lambda _: ids(node) == [1, 2])

    assert [entry.reason.code for entry in ledger(node) if entry.reason] == [
        Code.TASKS_ABORT_ERR
    ]
    assert statistic(node)["abortedTaskNum"] == 1


def test_tasks_of_a_load_have_ten_times_its_interval(
    open_node: OpenNode, stream: StreamUnderTest
) -> None:
    gate, clock = Gate(), MovedClock()
    node = open_node(clock=clock, read_interval=BLINK, work=gate)
    put(stream, 1)
    node.sql(f"{CREATE_TABLE}; {create(stream, properties={'max_batch_interval': '10s'})}")
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        for _ in range(7):
            pass_time(node, clock, supervisor)
        (look,) = supervisor.round()
        gate.opened.set()

        rounds_until(supervisor, lambda _: ids(node) == [1])

    assert look.progress is not None
    assert look.progress.step is Step.LOADING
    assert statistic(node)["abortedTaskNum"] == 0
