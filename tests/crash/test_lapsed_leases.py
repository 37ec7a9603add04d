"""A node that stood still for longer than its lease gives the job up before it goes on."""

from pathlib import Path

from penstock.errors import LeaseLostError
from tests.integration.driving import Gate, MovedClock, rounds_until, supervised
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows


def test_a_lease_that_ran_out_is_lost_even_when_nobody_has_taken_it(
    tmp_path: Path, folder: Path
) -> None:
    clock, gate = MovedClock(), Gate()
    node = Node(tmp_path / "home", clock=clock, work=gate)
    write_rows(folder / "a.json", numbered(1, 2))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    with supervised(node, until_caught_up=True) as supervisor:
        supervisor.round()
        assert gate.entered.wait(30)

        clock.move(seconds=20)
        supervisor.round()
        gate.opened.set()
        rounds_until(supervisor, lambda looks: looks[0].progress is None)

        (loss,) = supervisor.take_losses()
        assert isinstance(loss.error, LeaseLostError)
        assert loss.error.message == "the lease has run out"
        assert node.rows("t") == []
    node.catalog.close()


def test_a_job_that_was_given_up_is_taken_again_and_loads_each_row_once(
    tmp_path: Path, folder: Path
) -> None:
    clock, gate = MovedClock(), Gate()
    node = Node(tmp_path / "home", clock=clock, work=gate)
    write_rows(folder / "a.json", numbered(1, 2))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    with supervised(node, until_caught_up=True) as supervisor:
        supervisor.round()
        assert gate.entered.wait(30)
        clock.move(seconds=20)
        supervisor.round()
        gate.opened.set()
        rounds_until(supervisor, lambda looks: looks[0].progress is None)

        clock.move(seconds=2)
        rounds_until(supervisor, lambda looks: looks[0].caught_up)

    assert node.rows("t") == numbered(1, 2)
    assert node.show("j")["rows_loaded"] == 2
    node.catalog.close()
