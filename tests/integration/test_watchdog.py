"""Tasks that do not end are cancelled, and their data is read again."""

from datetime import timedelta

import pytest

from penstock.epochs.progress import Step
from penstock.errors import Code
from penstock.supervisor.supervisor import Supervisor
from tests.integration.driving import Gate, rounds_until, supervised
from tests.integration.routine_loads import Load

pytestmark = pytest.mark.integration


def pass_minute(load: Load, supervisor: Supervisor) -> None:
    """Move the clock by seventy seconds, in steps so small that the lease is renewed."""
    for _ in range(7):
        load.clock.move(seconds=10)
        rounds_until(
            supervisor,
            lambda _: all(
                lease.expires_at > load.clock.now() + timedelta(seconds=10)
                for lease in load.node.catalog.leases().values()
            ),
        )


def test_t39_tasks_of_a_load_that_take_too_long_are_cancelled_and_restarted(
    load: Load,
) -> None:
    gate = load.node.work = Gate()
    load.put(1, 2)
    load.create(properties={"max_batch_interval": "1s"})
    with supervised(load.node) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        pass_minute(load, supervisor)
        gate.opened.set()

        rounds_until(supervisor, lambda _: load.ids() == [1, 2])

    ledger = load.node.catalog.ledger(load.node.job("r").id)
    assert [entry.reason.code for entry in ledger if entry.reason] == [Code.TASKS_ABORT_ERR]
    assert load.statistic()["abortedTaskNum"] == 1


def test_tasks_of_a_load_have_a_timeout_of_ten_times_its_interval(load: Load) -> None:
    gate = load.node.work = Gate()
    load.put(1)
    load.create(properties={"max_batch_interval": "10s"})
    with supervised(load.node) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        pass_minute(load, supervisor)
        (report,) = supervisor.round()
        gate.opened.set()

        rounds_until(supervisor, lambda _: load.ids() == [1])

    assert report.progress is not None
    assert report.progress.step is Step.LOADING
    assert load.statistic()["abortedTaskNum"] == 0
