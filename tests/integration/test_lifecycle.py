"""Behaviour common to all job kinds: statements, states, attempts and owners."""

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
    reports_until,
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
def test_every_row_is_loaded_once_including_later_rows(world: World) -> None:
    world.put(1, 2)
    world.create()
    world.run()
    world.put(3)

    world.run()

    assert world.numbers() == [1, 2, 3]
    assert world.show()["rows_loaded"] == 3
    assert world.show()["position"] == world.position(3)


@of(*KINDS)
def test_a_job_passes_through_the_states_of_its_kind(world: World) -> None:
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
def test_a_duplicate_name_is_refused_and_changes_nothing(world: World) -> None:
    world.put(1)
    before = world.create()

    assert world.refusal(world.statement({}, None, "")) is Code.ALREADY_EXISTS_ERR
    assert world.show() == before


@of(*KINDS)
def test_the_name_of_a_dropped_job_can_be_used_again(world: World) -> None:
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
def test_statements_about_a_dropped_job_are_refused(world: World) -> None:
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
def test_a_table_cannot_be_dropped_while_a_job_loads_it(world: World) -> None:
    world.put(1)
    world.create()

    with pytest.raises(UserError, match=r'"t".* "j"') as refused:
        world.sql("DROP TABLE t")
    world.sql(world.drop, "DROP TABLE t")

    assert refused.value.code is Code.STATE_ERR
    assert world.node.catalog.jobs() == ()
    assert world.node.catalog.secrets() == ()


@of(*EVERY, KINESIS_LOCAL)
def test_a_resumed_job_continues_from_its_position(world: World) -> None:
    world.put(1)
    world.create()
    world.run()
    world.sql(world.pause)
    world.put(2)
    (report,) = world.run()
    before = world.numbers()

    world.sql(world.resume)
    world.run()

    assert report.user_stopped
    assert (before, world.numbers()) == ([1], [1, 2])


def test_a_job_that_is_dropped_during_an_epoch_loads_no_more_rows(world: World) -> None:
    gate = world.node.work = Gate()
    world.put(1)
    world.create()
    with supervised(world.node) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        world.sql(world.drop)
        gate.opened.set()

    assert world.numbers() == []


@of(*KINDS)
def test_t17_show_create_creates_the_same_job(world: World) -> None:
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
    failures_left = [TRIES_PER_ATTEMPT]

    def work(task: str, try_id: str) -> str:
        result = run_task_text(task, try_id)
        if failures_left[0]:
            failures_left[0] -= 1
            raise ExternalError("the task was lost", code=Code.STORAGE_ERR)
        return result

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
        reports_until(supervisor, stopped)
        (report,) = supervisor.round()

    assert report.last_exit is not None
    assert report.last_exit.ending == "lost"
    assert world.numbers() == [1, 2]
    assert world.show()["rows_loaded"] == 2
    assert world.show()["position"] == world.position(2)
    assert attempts(new) == [(1, 1, "CANCELLED"), (2, 1, "COMMITTED")]
    (epoch,) = world.committed_epochs()
    assert epoch.generation.number > overtaken.number
    assert epoch.progress == world.job.progress
    assert [one.number for one in world.chain()] == list(range(1, world.job.number + 1))


@of(*EVERY, KINESIS_LOCAL)
def test_t44_rows_of_an_epoch_interrupted_by_pause_are_loaded_once_after_resume(
    world: World,
) -> None:
    gate = world.node.work = Gate()
    world.put(1, 2)
    start = world.create()["position"]
    with supervised(world.node) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        world.sql(world.pause)
        before = world.numbers()
        gate.opened.set()
        reports_until(supervisor, stopped)
    paused, visible = world.show(), world.numbers()

    world.restart()
    world.sql(world.resume)
    world.run()

    assert (before, visible) == ([], [])
    assert (paused["state"], paused["rows_loaded"]) == ("PAUSED", 0)
    assert paused["position"] == start == world.position(None)
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
def test_t38_a_manual_pause_outlasts_every_backoff(world: World, point: CrashPoint) -> None:
    world.put(1)
    world.create()
    world.run()
    crash_inside(world.node, world.pause, point)
    before = world.remembered()

    world.restart()
    world.put(2)
    world.clock.move(days=30)
    reports = world.run()

    assert all(report.user_stopped for report in reports)
    assert world.remembered() == before
    assert before["state"] == "PAUSED"
    assert str(before["reason"]).startswith(Code.MANUAL_PAUSE_ERR)
    assert before["position"] == world.position(1)
    assert world.numbers() == [1]


@of(*STORED)
def test_t36_a_pause_caused_by_bad_rows_outlasts_every_backoff(
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
        reports = [supervisor.round() for _ in range(5)]

    assert all(report.needs_resume for (report,) in reports)
    assert world.remembered() == before
    assert before["state"] == "PAUSED"
    assert str(before["reason"]).startswith(Code.TOO_MANY_FAILURE_ROWS_ERR)
    assert before["position"] == world.position(2 if world.commits_bad_rows else 1)
    assert world.job.definition == definition


def owned_by_another_node(world: World) -> None:
    """Acquire the lease of the job for another node."""
    state = world.job
    world.node.catalog.acquire_lease(
        state.id,
        node_id="another",
        duration=timedelta(hours=1),
        expected=state.generation,
        generation=next_generation(state.generation),
    )


@of(FILES, S3, DATAGEN)
def test_a_run_until_caught_up_ends_if_the_job_of_another_owner_is_caught_up(
    world: World,
) -> None:
    world.put(1, 2)
    world.create()
    world.run()
    owned_by_another_node(world)

    (report,) = world.node.supervisor().round()

    assert report.caught_up
    assert report.state.cumulative.rows_loaded == 2


@of(FILES, KINESIS)
def test_a_run_does_not_end_if_the_source_of_another_owners_job_is_missing(
    world: World,
) -> None:
    world.put(1, 2)
    world.create()
    owned_by_another_node(world)
    world.lose_source()

    (report,) = world.node.supervisor().round()

    assert not report.caught_up
