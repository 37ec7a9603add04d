"""Temporary failures: attempts inside the epoch, then pauses that end by themselves."""

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
    raise ExternalError("the disk did not respond", code=Code.STORAGE_ERR)


def create_failing(world: World, *, times: int) -> None:
    """Create the job with a waiting item; its first tasks fail, ``times`` times."""
    world.node.work = Failing(first=outage, times=times)
    world.put(1)
    world.create()


def pause_after(supervisor: Supervisor, world: World, *, resumes: int) -> RunnerReport:
    """Return the report of the pause after so many resumes, without further waiting."""
    rounds_until(supervisor, lambda reports: reports[0].state.desired.auto_resumes == resumes)
    world.clock.move(seconds=2)
    (report,) = rounds_until(
        supervisor,
        lambda reports: paused(reports) and reports[0].state.desired.auto_resumes == resumes,
    )
    return report


def wait_for_resume(supervisor: Supervisor, world: World, *, resumes: int) -> float:
    """Move the clock past a pause; return the seconds between the last resume and the next."""
    report = pause_after(supervisor, world, resumes=resumes)
    resumed_at = report.state.desired.resumed_at
    assert report.resumes_at is not None
    assert resumed_at is not None
    seconds = (report.resumes_at - resumed_at).total_seconds()
    world.clock.move(seconds=seconds)
    return seconds


def test_a_failed_task_is_retried_inside_its_attempt(world: World) -> None:
    create_failing(world, times=3)

    world.run()

    assert attempts(world.node) == [(1, 1, "COMMITTED")]
    assert world.numbers() == [1]


def test_an_epoch_has_four_attempts_in_the_ledger(world: World) -> None:
    create_failing(world, times=TRIES_PER_EPOCH)

    with supervised(world.node) as supervisor:
        rounds_until(supervisor, lambda reports: reports[0].state.desired.reason is not None)

    assert attempts(world.node) == [(1, number, "FAILED") for number in (1, 2, 3, 4)]
    (shown,) = set(world.epochs("reason"))
    assert re.fullmatch(r"SPARK_ERR: .* 4 times: the disk did not respond", str(shown))
    assert world.show()["position"] == world.position(None)


def test_the_waits_between_attempts_grow(world: World) -> None:
    create_failing(world, times=12)

    world.run()

    assert attempts(world.node)[-1] == (1, 4, "COMMITTED")
    assert sorted(world.clock.runner_waits) == [
        timedelta(milliseconds=milliseconds) for milliseconds in (400, 800, 1600)
    ]


def test_the_first_resume_follows_at_once_and_succeeds(world: World) -> None:
    create_failing(world, times=TRIES_PER_EPOCH)

    with supervised(world.node, until_caught_up=True) as supervisor:
        rounds_until(supervisor, lambda reports: reports[0].state.desired.auto_resumes == 1)
        world.clock.move(seconds=2)
        rounds_until(supervisor, lambda reports: reports[0].caught_up)

    assert attempts(world.node)[-1] == (2, 1, "COMMITTED")
    assert world.numbers() == [1]
    assert world.show()["position"] == world.position(1)


def test_resumes_wait_longer_each_time_up_to_the_limit_of_the_kind(world: World) -> None:
    create_failing(world, times=11 * TRIES_PER_EPOCH)

    with supervised(world.node) as supervisor:
        waits = [wait_for_resume(supervisor, world, resumes=number) for number in range(1, 10)]
        last = pause_after(supervisor, world, resumes=10)
    shown = world.show()
    world.sql(world.resume)
    world.run()

    assert waits == [10, 20, 40, 80, 160, 300, 300, 300, 300]
    assert last.needs_resume is world.resumes_end
    prefix = "CANNOT_RESUME_ERR: .* 10 resumes.*" if world.resumes_end else "SPARK_ERR: .*"
    assert re.fullmatch(f"{prefix} 4 times: the disk did not respond", str(shown["reason"]))
    assert shown["position"] == world.position(None)
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
        (due,) = rounds_until(
            supervisor, lambda reports: reports[0].state.desired.state == "RUN"
        )

    assert early.state.desired.state == "PAUSE"
    assert due.state.desired.auto_resumes == 2


def test_the_count_of_resumes_survives_a_restart(world: World) -> None:
    create_failing(world, times=1_000)
    with supervised(world.node) as supervisor:
        wait_for_resume(supervisor, world, resumes=1)
        before = pause_after(supervisor, world, resumes=2)

    world.restart()
    with supervised(world.node) as supervisor:
        (after,) = supervisor.round()

    assert after.state.desired == before.state.desired
    assert after.resumes_at == before.resumes_at


def test_a_success_resets_the_count_of_resumes(world: World) -> None:
    create_failing(world, times=2 * TRIES_PER_EPOCH)
    with supervised(world.node, until_caught_up=True) as supervisor:
        wait_for_resume(supervisor, world, resumes=1)
        rounds_until(supervisor, lambda reports: reports[0].state.desired.auto_resumes == 2)
        world.clock.move(seconds=2)
        rounds_until(supervisor, lambda reports: reports[0].caught_up)
    world.node.work = Failing(first=outage, times=TRIES_PER_EPOCH)
    world.put(2)

    with supervised(world.node) as supervisor:
        (report,) = rounds_until(
            supervisor, lambda reports: reports[0].state.desired.reason is not None
        )

    assert report.state.desired.auto_resumes == 0
    assert report.resumes_at == report.state.desired.changed_at
