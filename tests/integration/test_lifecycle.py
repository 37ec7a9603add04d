"""What every job does alike: its statements, states, attempts and owners."""

from datetime import timedelta

import pytest

from penstock.crashpoints import CrashPoint
from penstock.epochs.task import run_task_text
from penstock.errors import Code, ExternalError, UserError
from penstock.tables.chain import next_generation
from tests.integration.driving import (
    Gate,
    attempts,
    crash_inside,
    idle,
    looks_until,
    rounds_until,
    stopped,
    supervised,
)
from tests.integration.job_worlds import (
    DATAGEN,
    EVERY,
    FILES,
    KINDS,
    KINESIS,
    KINESIS_LOCAL,
    S3,
    STORED,
    World,
    of,
)

pytestmark = pytest.mark.integration

TRIES_PER_ATTEMPT = 4


@of(*EVERY, KINESIS_LOCAL)
def test_every_row_is_loaded_once_also_those_that_come_later(world: World) -> None:
    world.put(1, 2)
    world.create()
    world.run()
    world.put(3)

    world.run()

    assert world.numbers() == [1, 2, 3]
    assert world.show()["rows_loaded"] == 3
    assert world.show()["position"] == world.position(3)


@of(*KINDS)
def test_a_job_goes_through_the_states_of_its_kind(world: World) -> None:
    world.put(1)
    world.create()
    states = [world.state_shown()]
    with supervised(world.node) as supervisor:
        rounds_until(supervisor, idle)
        states.append(world.state_shown())
        world.sql(world.pause)
        states.append(world.state_shown())
    world.sql(world.resume)
    states.append(world.state_shown())

    world.sql(world.drop)

    states.append(world.state_shown())
    assert states == [world.waiting, "RUNNING", "PAUSED", world.waiting, world.dropped]


@of(*KINDS)
def test_a_name_that_is_taken_is_refused_and_nothing_changes(world: World) -> None:
    world.put(1)
    before = world.create()

    assert world.refusal(world.statement({}, None, "")) is Code.ALREADY_EXISTS_ERR
    assert world.show() == before


@of(*KINDS)
def test_a_name_that_a_dropped_job_had_can_be_used_again(world: World) -> None:
    world.put(1)
    world.create()
    world.run()
    world.sql(world.drop)

    before = world.create()
    world.run()

    assert before["rows_loaded"] == 0
    assert world.numbers() == [1, 1]
    assert world.show()["rows_loaded"] == 1


@of(*KINDS)
def test_a_job_that_was_dropped_takes_no_statement(world: World) -> None:
    world.put(1)
    world.create()
    world.sql(world.drop)

    statements = (world.pause, world.resume, world.drop, world.alter(batch="1"))

    assert [world.refusal(one) for one in statements] == [world.dropped_code] * 4


@of(*KINDS)
def test_a_job_is_paused_once_and_resumed_as_its_kind_allows(world: World) -> None:
    world.put(1)
    world.create()
    resumed = world.refusal(world.resume)
    world.sql(world.pause)

    assert world.refusal(world.pause) is Code.STATE_ERR
    assert world.show()["state"] == "PAUSED"
    assert resumed is world.resumed_code


@of(*KINDS)
def test_a_table_is_kept_while_a_job_loads_it(world: World) -> None:
    world.put(1)
    world.create()

    with pytest.raises(UserError, match=r'"t".* "j"') as kept:
        world.sql("DROP TABLE t")
    world.sql(world.drop, "DROP TABLE t")

    assert kept.value.code is Code.STATE_ERR
    assert world.node.catalog.jobs() == ()
    assert world.node.catalog.secrets() == ()


@of(*EVERY, KINESIS_LOCAL)
def test_a_paused_job_goes_on_where_it_was(world: World) -> None:
    world.put(1)
    world.create()
    world.run()
    world.sql(world.pause)
    world.put(2)
    (look,) = world.run()
    before = world.numbers()

    world.sql(world.resume)
    world.run()

    assert look.left_out
    assert (before, world.numbers()) == ([1], [1, 2])


def test_a_job_that_is_dropped_while_a_batch_runs_loads_nothing_more(world: World) -> None:
    gate = world.node.work = Gate()
    world.put(1)
    world.create()
    with supervised(world.node) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        world.sql(world.drop)
        gate.opened.set()

    assert world.numbers() == []


@of(*KINDS)
def test_t17_the_statement_that_is_shown_makes_the_same_job(world: World) -> None:
    world.put(1, 2)
    world.create(batch="1")
    world.run()
    text, before = world.create_text(), world.job.definition
    world.sql(world.drop)
    world.put(3)

    world.sql(text)
    again = world.job.definition
    world.run()

    assert again.properties == before.properties
    assert again.targets == before.targets
    assert world.show()["position"] == world.position(3)
    assert world.numbers() == ([1, 2, 3] if world.shown_with_position else [1, 1, 2, 2, 3])


@of(*EVERY, KINESIS_LOCAL)
def test_t12_a_failed_attempt_leaves_no_trace(world: World) -> None:
    lost = [TRIES_PER_ATTEMPT]

    def work(task: str, try_id: str) -> str:
        answer = run_task_text(task, try_id)
        if lost[0]:
            lost[0] -= 1
            raise ExternalError("the task was lost", code=Code.STORAGE_ERR)
        return answer

    world.node.work = work
    world.put(1, 2)
    world.create()

    world.run()

    assert world.numbers() == [1, 2]
    assert attempts(world.node) == [(1, 1, "FAILED"), (1, 2, "COMMITTED")]


def test_t39_a_late_commit_of_an_older_owner_is_refused(world: World) -> None:
    gate = Gate()
    old, new = world.open(work=gate), world.open(node_id="node-2")
    world.put(1)
    world.create()
    with supervised(old) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        overtaken = old.job("j").generation
        world.put(2)
        new.run()

        gate.opened.set()
        looks_until(supervisor, stopped)
        (look,) = supervisor.round()

    assert look.last_words is not None
    assert look.last_words.ending == "lost"
    assert world.numbers() == [1, 2]
    assert world.show()["rows_loaded"] == 2
    assert world.show()["position"] == world.position(2)
    assert attempts(new) == [(1, 1, "CANCELLED"), (2, 1, "COMMITTED")]
    (epoch,) = world.committed_epochs()
    assert epoch.generation.number > overtaken.number
    assert epoch.progress == world.job.progress
    assert [one.number for one in world.chain()] == list(range(1, world.job.number + 1))


@of(*EVERY, KINESIS_LOCAL)
def test_t44_rows_of_an_epoch_that_pause_met_are_loaded_once_after_resume(
    world: World,
) -> None:
    gate = world.node.work = Gate()
    world.put(1, 2)
    beginning = world.create()["position"]
    with supervised(world.node) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        world.sql(world.pause)
        before = world.numbers()
        gate.opened.set()
        looks_until(supervisor, stopped)
    paused, visible = world.show(), world.numbers()

    world.restart()
    world.sql(world.resume)
    world.run()

    assert (before, visible) == ([], [])
    assert (paused["state"], paused["rows_loaded"]) == ("PAUSED", 0)
    assert paused["position"] == beginning == world.position(None)
    assert world.numbers() == [1, 2]
    assert world.show()["rows_loaded"] == 2
    assert world.show()["position"] == world.position(2)
    assert attempts(world.node) == [(1, 1, "CANCELLED"), (2, 1, "COMMITTED")]


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.DESIRED_STATE_STORED,
        CrashPoint.STATEMENT_COMMITTED,
        CrashPoint.STATEMENT_APPLIED,
    ],
)
def test_t38_a_manual_pause_holds_beyond_every_back_off(
    world: World, point: CrashPoint
) -> None:
    world.put(1)
    world.create()
    world.run()
    crash_inside(world.node, world.pause, point)
    before = world.remembered()

    world.restart()
    world.put(2)
    world.clock.move(days=30)
    looks = world.run()

    assert all(look.left_out for look in looks)
    assert world.remembered() == before
    assert before["state"] == "PAUSED"
    assert str(before["reason"]).startswith(Code.MANUAL_PAUSE_ERR)
    assert before["position"] == world.position(1)
    assert world.numbers() == [1]


@of(*STORED)
def test_t36_bad_rows_keep_the_job_paused_with_its_reason_beyond_every_back_off(
    world: World,
) -> None:
    world.put(1)
    world.put_bad(2)
    world.create(batch="1", interval="7s")
    world.run()
    before = world.remembered()
    world.cut_journal()
    definition = world.job.definition

    world.restart()
    world.clock.move(days=30)
    with supervised(world.node) as supervisor:
        looks = [supervisor.round() for _ in range(5)]

    assert all(look.paused_for_good for (look,) in looks)
    assert world.remembered() == before
    assert before["state"] == "PAUSED"
    assert str(before["reason"]).startswith(Code.TOO_MANY_FAILURE_ROWS_ERR)
    assert before["position"] == world.position(2 if world.commits_bad_rows else 1)
    assert world.job.definition == definition


def owned_by_another_node(world: World) -> None:
    """Let another node hold the lease of the job."""
    state = world.job
    world.node.catalog.take_lease(
        state.id,
        node_id="another",
        duration=timedelta(hours=1),
        expected=state.generation,
        generation=next_generation(state.generation),
    )


@of(FILES, S3, DATAGEN)
def test_a_run_until_caught_up_ends_beside_another_owner(world: World) -> None:
    world.put(1, 2)
    world.create()
    world.run()
    owned_by_another_node(world)

    (look,) = world.node.supervisor().round()

    assert look.caught_up
    assert look.state.cumulative.rows_loaded == 2


@of(FILES, KINESIS)
def test_a_run_does_not_end_when_the_source_of_another_owner_is_gone(world: World) -> None:
    world.put(1, 2)
    world.create()
    owned_by_another_node(world)
    world.lose_source()

    (look,) = world.node.supervisor().round()

    assert not look.caught_up
