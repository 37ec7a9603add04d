"""A node that was frozen for longer than its lease gives up the job before it continues."""

import pytest

from penstock.errors import LeaseLostError
from tests.crash.harness import Home, assert_exact
from tests.error_values import assert_names
from tests.integration.driving import Gate, MovedClock, rounds_until, supervised

pytestmark = pytest.mark.crash


def test_an_expired_lease_is_lost_even_if_no_other_node_acquired_it(home: Home) -> None:
    clock, gate = MovedClock(), Gate()
    node = home.reopen(clock=clock, work=gate)
    home.write(1)
    home.create()
    with supervised(node, until_caught_up=True) as supervisor:
        supervisor.round()
        assert gate.entered.wait(30)

        clock.move(seconds=20)
        supervisor.round()
        gate.opened.set()
        rounds_until(supervisor, lambda reports: reports[0].progress is None)

        (loss,) = supervisor.pop_lost_jobs()
        assert isinstance(loss.error, LeaseLostError)
        assert_names(loss.error.message, "lease")
        assert home.rows == []


def test_a_job_that_was_given_up_is_taken_over_again_and_loads_each_row_once(
    home: Home,
) -> None:
    clock, gate = MovedClock(), Gate()
    node = home.reopen(clock=clock, work=gate)
    home.write(1)
    home.create()
    with supervised(node, until_caught_up=True) as supervisor:
        supervisor.round()
        assert gate.entered.wait(30)
        clock.move(seconds=20)
        supervisor.round()
        gate.opened.set()
        rounds_until(supervisor, lambda reports: reports[0].progress is None)

        clock.move(seconds=2)
        rounds_until(supervisor, lambda reports: reports[0].caught_up)

    assert_exact(home, 1)
