"""Chosen histories of the protocol; a wrong protocol fails at least one of them."""

from collections.abc import Callable
from datetime import timedelta

from penstock.testing.memory_tables import Fault
from tests.property.protocol.actors import Actor
from tests.property.protocol.checks import check_final_state
from tests.property.protocol.machine import ProtocolMachine

History = Callable[[ProtocolMachine], None]
COMMIT = "handle.commit"
FILES = 5
EPOCHS = 3


def play(history: History) -> None:
    """Run a history in a new world; check every step and the final state."""
    machine = ProtocolMachine()
    try:
        for _ in range(FILES):
            machine.world.files.add()
        machine.world.create()
        history(machine)
        machine.finish_everything()
        check_final_state(machine.world)
    finally:
        machine.world.close()


def a_runner_frozen_before_its_commit_wakes_after_pause(machine: ProtocolMachine) -> None:
    """PAUSE returns while an owner is stopped directly before its commit."""
    runner = start_runner(machine, until=COMMIT)
    run_statement(machine, "pause", machine.world.pause)
    machine.move(runner, "nowhere")


def a_runner_frozen_before_its_commit_wakes_after_drop(machine: ProtocolMachine) -> None:
    """DROP returns while an owner is stopped directly before its commit."""
    runner = start_runner(machine, until=COMMIT)
    run_statement(machine, "drop", machine.world.drop)
    machine.move(runner, "nowhere")


def a_runner_frozen_before_its_commit_wakes_after_alter(machine: ProtocolMachine) -> None:
    """ALTER moves the position back while an older owner is stopped before its commit."""
    runner = start_runner(machine, until=COMMIT)
    machine.move(runner, COMMIT)
    run_statement(machine, "pause", machine.world.pause)
    run_statement(machine, "alter", lambda: machine.world.alter(machine.world.files.keys[0]))
    machine.move(runner, "nowhere")


def a_runner_wakes_after_its_job_was_taken_over(machine: ProtocolMachine) -> None:
    """Another node owns the job; its fence has the number of the frozen commit."""
    frozen = start_runner(machine, until=COMMIT)
    expire(machine)
    start_runner(machine, node=1, until="catalog.append")
    machine.move(frozen, "catalog.append")
    machine.move(frozen, "nowhere")


def the_old_owner_commits_during_the_takeover(machine: ProtocolMachine) -> None:
    """The old owner commits between the new owner's check of the table and its fence."""
    frozen = start_runner(machine, until=COMMIT)
    expire(machine)
    successor = start_runner(machine, node=1, until="catalog.acquire_lease")
    machine.move(frozen, "catalog.apply_commit")
    machine.move(successor, "clock.wait")


def a_job_is_taken_over_in_the_middle_of_pause(machine: ProtocolMachine) -> None:
    """A runner becomes owner between the two effects of PAUSE."""
    pause = machine.start_statement("pause", machine.world.pause)
    machine.move(pause, "catalog.append")
    machine.world.clock.advance(timedelta(seconds=20))
    machine.world.nodes[0].supervisor._keeper.renew()
    runner = start_runner(machine, until=COMMIT)
    machine.finish(pause)
    machine.move(runner, "nowhere")


def a_statement_crashes_between_table_and_catalog(machine: ProtocolMachine) -> None:
    """The table has an epoch and a fence that the catalog has not applied."""
    start_runner(machine, until="clock.wait").crash()
    pause = machine.start_statement("pause", machine.world.pause)
    machine.move(pause, "catalog.apply_commit")
    pause.crash()


def a_late_commit_appears_before_its_retry(machine: ProtocolMachine) -> None:
    """A commit seems to fail, is planned again, and then succeeds before its retry."""
    runner = start_runner(machine, until=COMMIT)
    machine.world.next_fault = Fault.LATE
    machine.move(runner, "tables.missing_files")
    machine.world.tables.apply_late_writes()
    machine.move(runner, COMMIT)
    machine.move(runner, "nowhere")


def a_runner_crashes_before_its_commit(machine: ProtocolMachine) -> None:
    """The next owner must not use any state of the crashed attempt."""
    runner = start_runner(machine, until=COMMIT)
    machine.world.next_fault = Fault.LATE
    machine.move(runner, "tables.open")
    runner.crash()
    machine.world.tables.foreign_commit(machine.world.table.location)


def a_runner_crashes_before_its_rejects(machine: ProtocolMachine) -> None:
    """The last epoch is in the table, but its rejects are not visible yet."""
    runner = start_runner(machine, until=COMMIT)
    for _ in range(EPOCHS):
        machine.move(runner, "tables.open_rejects")
    runner.crash()


def the_catalog_is_rolled_back_after_a_pause(machine: ProtocolMachine) -> None:
    """A runner has checked the table; then PAUSE returns, and a backup is restored."""
    runner = start_runner(machine, until="catalog.acquire_lease")
    backup = machine.world.backup()
    run_statement(machine, "pause", machine.world.pause)
    machine.world.restore(backup)
    machine.move(runner, "clock.wait")


def start_runner(machine: ProtocolMachine, *, node: int = 0, until: str) -> Actor:
    """Start a runner on a node and run it until the given effect."""
    chosen = machine.world.nodes[node]
    chosen.supervisor.round()
    runner = chosen.runners[-1]
    if until == COMMIT:
        # The first commit of a runner is its fence. An epoch starts with an event.
        machine.move(runner, "catalog.append")
    machine.move(runner, until)
    return runner


def run_statement(machine: ProtocolMachine, kind: str, statement: Callable[[], object]) -> None:
    """Start a statement and run it to its end."""
    machine.finish(machine.start_statement(kind, statement))


def expire(machine: ProtocolMachine) -> None:
    """Expire the lease of the first node."""
    machine.world.clock.advance(timedelta(seconds=20))
    machine.world.nodes[1].supervisor._keeper.renew()


HISTORIES: tuple[History, ...] = (
    a_runner_frozen_before_its_commit_wakes_after_pause,
    a_runner_frozen_before_its_commit_wakes_after_drop,
    a_runner_frozen_before_its_commit_wakes_after_alter,
    a_runner_wakes_after_its_job_was_taken_over,
    the_old_owner_commits_during_the_takeover,
    a_job_is_taken_over_in_the_middle_of_pause,
    a_statement_crashes_between_table_and_catalog,
    a_late_commit_appears_before_its_retry,
    a_runner_crashes_before_its_commit,
    a_runner_crashes_before_its_rejects,
    the_catalog_is_rolled_back_after_a_pause,
)
