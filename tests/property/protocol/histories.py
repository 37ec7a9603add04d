"""Histories told step by step; a wrong version of the protocol does not survive them all."""

from collections.abc import Callable
from datetime import timedelta

from penstock.testing.memory_tables import Fault
from tests.property.protocol.actors import Actor
from tests.property.protocol.checks import check_at_rest
from tests.property.protocol.machine import ProtocolMachine

History = Callable[[ProtocolMachine], None]
COMMIT = "handle.commit"
FILES = 5
EPOCHS = 3


def tell(history: History) -> None:
    """Play a history on a fresh world, check every step, and bring it to rest."""
    machine = ProtocolMachine()
    try:
        for _ in range(FILES):
            machine.world.files.add()
        machine.world.create()
        history(machine)
        machine.come_to_rest()
        check_at_rest(machine.world)
    finally:
        machine.world.close()


def a_runner_frozen_before_its_commit_wakes_after_pause(machine: ProtocolMachine) -> None:
    """PAUSE returns while an owner stands right before its commit."""
    runner = start_runner(machine, until=COMMIT)
    through(machine, "pause", machine.world.pause)
    machine.move(runner, "nowhere")


def a_runner_frozen_before_its_commit_wakes_after_drop(machine: ProtocolMachine) -> None:
    """DROP returns while an owner stands right before its commit."""
    runner = start_runner(machine, until=COMMIT)
    through(machine, "drop", machine.world.drop)
    machine.move(runner, "nowhere")


def a_runner_frozen_before_its_commit_wakes_after_alter(machine: ProtocolMachine) -> None:
    """ALTER moves the position back while an older owner still stands before its commit."""
    runner = start_runner(machine, until=COMMIT)
    machine.move(runner, COMMIT)
    through(machine, "pause", machine.world.pause)
    through(machine, "alter", lambda: machine.world.alter(machine.world.files.keys[0]))
    machine.move(runner, "nowhere")


def a_runner_wakes_after_its_job_was_taken_over(machine: ProtocolMachine) -> None:
    """Another node owns the job; its fence has the number that we are about to use."""
    frozen = start_runner(machine, until=COMMIT)
    expire(machine)
    start_runner(machine, node=1, until="catalog.append")
    machine.move(frozen, "catalog.append")
    machine.move(frozen, "nowhere")


def the_old_owner_commits_during_the_takeover(machine: ProtocolMachine) -> None:
    """A commit lands between the new owner's look and its fence."""
    frozen = start_runner(machine, until=COMMIT)
    expire(machine)
    successor = start_runner(machine, node=1, until="catalog.take_lease")
    machine.move(frozen, "catalog.apply_commit")
    machine.move(successor, "clock.wait")


def a_job_is_taken_over_in_the_middle_of_pause(machine: ProtocolMachine) -> None:
    """A runner becomes owner between the two effects of PAUSE."""
    pause = machine.begin("pause", machine.world.pause)
    machine.move(pause, "catalog.append")
    machine.world.clock.advance(timedelta(seconds=20))
    machine.world.nodes[0].supervisor._keeper.renew()
    runner = start_runner(machine, until=COMMIT)
    machine.finish(pause)
    machine.move(runner, "nowhere")


def a_statement_dies_between_table_and_catalog(machine: ProtocolMachine) -> None:
    """A fence stands in the table that the catalog has not seen, and a commit behind it."""
    start_runner(machine, until="clock.wait").crash()
    pause = machine.begin("pause", machine.world.pause)
    machine.move(pause, "catalog.apply_commit")
    pause.crash()


def the_answer_of_a_commit_is_late(machine: ProtocolMachine) -> None:
    """A commit is given up, planned again, and lands after all before the next one."""
    runner = start_runner(machine, until=COMMIT)
    machine.world.next_fault = Fault.LATE
    machine.move(runner, "tables.missing_files")
    machine.world.tables.land_late_writes()
    machine.move(runner, COMMIT)
    machine.move(runner, "nowhere")


def a_runner_crashes_before_its_commit(machine: ProtocolMachine) -> None:
    """Nothing of the attempt may be remembered anywhere."""
    runner = start_runner(machine, until=COMMIT)
    machine.world.next_fault = Fault.LATE
    machine.move(runner, "tables.open")
    runner.crash()
    machine.world.tables.foreign_commit(machine.world.table.location)


def a_runner_crashes_before_its_rejects(machine: ProtocolMachine) -> None:
    """The last rows are in the table; what was rejected with them is not visible yet."""
    runner = start_runner(machine, until=COMMIT)
    for _ in range(EPOCHS):
        machine.move(runner, "tables.open_rejects")
    runner.crash()


def the_catalog_is_rolled_back_behind_a_pause(machine: ProtocolMachine) -> None:
    """A runner has looked at the table; then PAUSE returns, and the catalog is restored."""
    runner = start_runner(machine, until="catalog.take_lease")
    backup = machine.world.backup()
    through(machine, "pause", machine.world.pause)
    machine.world.restore(backup)
    machine.move(runner, "clock.wait")


def start_runner(machine: ProtocolMachine, *, node: int = 0, until: str) -> Actor:
    """Let a node start a runner and bring it to where it shall stand."""
    chosen = machine.world.nodes[node]
    chosen.supervisor.round()
    runner = chosen.runners[-1]
    if until == COMMIT:
        # The first commit of a runner is its fence; an epoch begins with an event before it.
        machine.move(runner, "catalog.append")
    machine.move(runner, until)
    return runner


def through(machine: ProtocolMachine, kind: str, statement: Callable[[], object]) -> None:
    """Say a statement and let it return."""
    machine.finish(machine.begin(kind, statement))


def expire(machine: ProtocolMachine) -> None:
    """Let the first node's lease run out."""
    machine.world.clock.advance(timedelta(seconds=20))
    machine.world.nodes[1].supervisor._keeper.renew()


HISTORIES: tuple[History, ...] = (
    a_runner_frozen_before_its_commit_wakes_after_pause,
    a_runner_frozen_before_its_commit_wakes_after_drop,
    a_runner_frozen_before_its_commit_wakes_after_alter,
    a_runner_wakes_after_its_job_was_taken_over,
    the_old_owner_commits_during_the_takeover,
    a_job_is_taken_over_in_the_middle_of_pause,
    a_statement_dies_between_table_and_catalog,
    the_answer_of_a_commit_is_late,
    a_runner_crashes_before_its_commit,
    a_runner_crashes_before_its_rejects,
    the_catalog_is_rolled_back_behind_a_pause,
)
