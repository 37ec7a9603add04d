"""Failures that may heal: attempts inside the epoch, then pauses that end by themselves."""

import re
from datetime import timedelta

import pytest

from penstock.errors import Code, ExternalError
from penstock.supervisor.supervisor import RunnerReport, Supervisor
from tests.integration.driving import Failing, attempts, paused, rounds_until, supervised
from tests.integration.job_worlds import STORED, World, of

pytestmark = [pytest.mark.integration, of(*STORED)]

TRIES_PER_EPOCH = 16


def outage() -> None:
    raise ExternalError("the disk did not answer", code=Code.STORAGE_ERR)


def create_failing(world: World, *, times: int) -> None:
    """Create the job with a waiting item; its first tasks fail so often."""
    world.node.work = Failing(first=outage, times=times)
    world.put(1)
    world.create()


def pause_after(supervisor: Supervisor, world: World, *, resumes: int) -> RunnerReport:
    """Return the look at the pause that follows so many resumes, with no time lost."""
    rounds_until(supervisor, lambda looks: looks[0].state.desired.auto_resumes == resumes)
    world.clock.move(seconds=2)
    (look,) = rounds_until(
        supervisor,
        lambda looks: paused(looks) and looks[0].state.desired.auto_resumes == resumes,
    )
    return look


def waited(supervisor: Supervisor, world: World, *, resumes: int) -> float:
    """Let a pause pass; return how many seconds after the last resume the next one follows."""
    look = pause_after(supervisor, world, resumes=resumes)
    resumed_at = look.state.desired.resumed_at
    assert look.resumes_at is not None
    assert resumed_at is not None
    seconds = (look.resumes_at - resumed_at).total_seconds()
    world.clock.move(seconds=seconds)
    return seconds


def test_a_task_that_fails_is_tried_again_inside_its_attempt(world: World) -> None:
    create_failing(world, times=3)

    world.run()

    assert attempts(world.node) == [(1, 1, "COMMITTED")]
    assert world.numbers() == [1]


def test_an_epoch_is_tried_four_times_and_the_ledger_shows_it(world: World) -> None:
    create_failing(world, times=TRIES_PER_EPOCH)

    with supervised(world.node) as supervisor:
        rounds_until(supervisor, lambda looks: looks[0].state.desired.reason is not None)

    assert attempts(world.node) == [(1, number, "FAILED") for number in (1, 2, 3, 4)]
    (told,) = set(world.epochs("reason"))
    assert re.fullmatch(r"SPARK_ERR: .* 4 times: the disk did not answer", str(told))
    assert world.show()["position"] == world.position(None)


def test_the_waits_between_the_attempts_grow(world: World) -> None:
    create_failing(world, times=12)

    world.run()

    assert attempts(world.node)[-1] == (1, 4, "COMMITTED")
    assert sorted(world.clock.runner_waits) == [
        timedelta(milliseconds=milliseconds) for milliseconds in (400, 800, 1600)
    ]


def test_the_first_resume_follows_at_once_and_heals(world: World) -> None:
    create_failing(world, times=TRIES_PER_EPOCH)

    with supervised(world.node, until_caught_up=True) as supervisor:
        rounds_until(supervisor, lambda looks: looks[0].state.desired.auto_resumes == 1)
        world.clock.move(seconds=2)
        rounds_until(supervisor, lambda looks: looks[0].caught_up)

    assert attempts(world.node)[-1] == (2, 1, "COMMITTED")
    assert world.numbers() == [1]
    assert world.show()["position"] == world.position(1)


def test_resumes_wait_longer_each_time_and_end_as_the_kind_says(world: World) -> None:
    create_failing(world, times=11 * TRIES_PER_EPOCH)

    with supervised(world.node) as supervisor:
        waits = [waited(supervisor, world, resumes=number) for number in range(1, 10)]
        last = pause_after(supervisor, world, resumes=10)
    told = world.show()
    world.sql(world.resume)
    world.run()

    assert waits == [10, 20, 40, 80, 160, 300, 300, 300, 300]
    assert last.paused_for_good is world.resumes_end
    begun = "CANNOT_RESUME_ERR: .* 10 times.*" if world.resumes_end else "SPARK_ERR: .*"
    assert re.fullmatch(f"{begun} 4 times: the disk did not answer", str(told["reason"]))
    assert told["position"] == world.position(None)
    assert world.numbers() == [1]
    assert world.job.desired.auto_resumes == 0
    assert world.show()["position"] == world.position(1)


def test_a_pause_does_not_end_before_its_time(world: World) -> None:
    create_failing(world, times=1_000)

    with supervised(world.node) as supervisor:
        pause_after(supervisor, world, resumes=1)
        world.clock.move(seconds=5)
        (early,) = supervisor.round()
        world.clock.move(seconds=5)
        (due,) = rounds_until(supervisor, lambda looks: looks[0].state.desired.state == "RUN")

    assert early.state.desired.state == "PAUSE"
    assert due.state.desired.auto_resumes == 2


def test_the_count_of_resumes_survives_a_restart(world: World) -> None:
    create_failing(world, times=1_000)
    with supervised(world.node) as supervisor:
        waited(supervisor, world, resumes=1)
        before = pause_after(supervisor, world, resumes=2)

    world.restart()
    with supervised(world.node) as supervisor:
        (after,) = supervisor.round()

    assert after.state.desired == before.state.desired
    assert after.resumes_at == before.resumes_at


def test_a_success_begins_the_count_of_resumes_anew(world: World) -> None:
    create_failing(world, times=2 * TRIES_PER_EPOCH)
    with supervised(world.node, until_caught_up=True) as supervisor:
        waited(supervisor, world, resumes=1)
        rounds_until(supervisor, lambda looks: looks[0].state.desired.auto_resumes == 2)
        world.clock.move(seconds=2)
        rounds_until(supervisor, lambda looks: looks[0].caught_up)
    world.node.work = Failing(first=outage, times=TRIES_PER_EPOCH)
    world.put(2)

    with supervised(world.node) as supervisor:
        (look,) = rounds_until(
            supervisor, lambda looks: looks[0].state.desired.reason is not None
        )

    assert look.state.desired.auto_resumes == 0
    assert look.resumes_at == look.state.desired.changed_at
