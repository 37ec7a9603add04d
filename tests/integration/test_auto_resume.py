"""Failures that may heal: attempts inside the epoch, then pauses that end by themselves."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.errors import Code, ExternalError
from penstock.sources.files import source as files
from penstock.supervisor.supervisor import RunnerReport, Supervisor
from tests.integration.driving import (
    Failing,
    MovedClock,
    attempts,
    paused,
    rounds_until,
    supervised,
)
from tests.mirrored_node import OpenNode
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

ON_BUCKETS_TOO = True

TRIES_PER_EPOCH = 16


def outage() -> None:
    raise ExternalError("the disk did not answer", code=Code.STORAGE_ERR)


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def failing(open_node: OpenNode, clock: MovedClock, folder: Path) -> Callable[..., Node]:
    """Answers a node with a waiting file, whose first tasks fail so often."""

    def opened(*, times: int) -> Node:
        node = open_node(clock=clock, work=Failing(first=outage, times=times))
        write_rows(folder / "a.json", numbered(1))
        node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
        return node

    return opened


def pause_after(supervisor: Supervisor, clock: MovedClock, *, resumes: int) -> RunnerReport:
    """Answer the look at the pause that follows so many resumes, with no time lost."""
    rounds_until(supervisor, lambda looks: looks[0].state.desired.auto_resumes == resumes)
    clock.move(seconds=2)
    (look,) = rounds_until(
        supervisor,
        lambda looks: paused(looks) and looks[0].state.desired.auto_resumes == resumes,
    )
    return look


def delay(look: RunnerReport) -> timedelta | None:
    """Answer how long after the last resume the next one follows."""
    resumed_at = look.state.desired.resumed_at
    return look.resumes_at - resumed_at if look.resumes_at and resumed_at else None


def waited(supervisor: Supervisor, clock: MovedClock, *, resumes: int) -> timedelta | None:
    """Let a pause pass and answer how long it was."""
    look = pause_after(supervisor, clock, resumes=resumes)
    wait = delay(look)
    clock.move(seconds=wait.total_seconds() if wait else 0)
    return wait


def test_a_task_that_fails_is_tried_again_inside_its_attempt(
    failing: Callable[..., Node],
) -> None:
    node = failing(times=3)

    node.run()

    assert attempts(node) == [(1, 1, "COMMITTED")]
    assert node.rows("t") == numbered(1)


def test_an_epoch_is_tried_four_times_and_the_ledger_shows_it(
    failing: Callable[..., Node],
) -> None:
    node = failing(times=TRIES_PER_EPOCH)

    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda looks: looks[0].state.desired.reason is not None)

    assert attempts(node) == [(1, number, "FAILED") for number in (1, 2, 3, 4)]
    reasons = [row["reason"] for row in node.sql("SHOW EPOCHS FOR j") if row["reason"]]
    assert reasons == ["SPARK_ERR: a task failed 4 times: the disk did not answer"] * 4
    assert node.show("j")["position"] == "beginning"


def test_the_waits_between_the_attempts_grow(
    failing: Callable[..., Node], clock: MovedClock
) -> None:
    node = failing(times=12)

    node.run()

    assert attempts(node)[-1] == (1, 4, "COMMITTED")
    assert sorted(clock.runner_waits) == [
        timedelta(milliseconds=milliseconds) for milliseconds in (400, 800, 1600)
    ]


def test_the_first_resume_follows_at_once_and_heals(
    failing: Callable[..., Node], clock: MovedClock, folder: Path
) -> None:
    node = failing(times=TRIES_PER_EPOCH)

    with supervised(node, until_caught_up=True) as supervisor:
        rounds_until(supervisor, lambda looks: looks[0].state.desired.auto_resumes == 1)
        clock.move(seconds=2)
        rounds_until(supervisor, lambda looks: looks[0].caught_up)

    assert attempts(node)[-1] == (2, 1, "COMMITTED")
    assert node.rows("t") == numbered(1)
    assert node.show("j")["position"] == str(folder / "a.json")


def test_resumes_wait_longer_each_time_and_end_after_ten(
    failing: Callable[..., Node], clock: MovedClock
) -> None:
    node = failing(times=1_000)

    with supervised(node) as supervisor:
        waits = [waited(supervisor, clock, resumes=number) for number in range(1, 10)]
        last = pause_after(supervisor, clock, resumes=10)

    seconds = [wait.total_seconds() for wait in waits if wait is not None]
    assert seconds == [10, 20, 40, 80, 160, 300, 300, 300, 300]
    assert last.paused_for_good
    assert node.show("j")["reason"] == (
        "CANNOT_RESUME_ERR: resumed 10 times in vain; the last failure was: "
        "a task failed 4 times: the disk did not answer"
    )
    assert node.show("j")["position"] == "beginning"


def test_a_pause_does_not_end_before_its_time(
    failing: Callable[..., Node], clock: MovedClock
) -> None:
    node = failing(times=1_000)

    with supervised(node) as supervisor:
        pause_after(supervisor, clock, resumes=1)
        clock.move(seconds=5)
        (early,) = supervisor.round()
        clock.move(seconds=5)
        (due,) = rounds_until(supervisor, lambda looks: looks[0].state.desired.state == "RUN")

    assert early.state.desired.state == "PAUSE"
    assert due.state.desired.auto_resumes == 2


def test_the_count_of_resumes_survives_a_restart(
    failing: Callable[..., Node], clock: MovedClock
) -> None:
    node = failing(times=1_000)
    with supervised(node) as supervisor:
        waited(supervisor, clock, resumes=1)
        before = pause_after(supervisor, clock, resumes=2)

    node = node.restart()
    with supervised(node) as supervisor:
        (after,) = supervisor.round()

    assert after.state.desired == before.state.desired
    assert after.resumes_at == before.resumes_at


def test_a_job_whose_resumes_are_used_up_runs_again_after_resume_by_a_person(
    failing: Callable[..., Node], clock: MovedClock, folder: Path
) -> None:
    node = failing(times=11 * TRIES_PER_EPOCH)
    with supervised(node) as supervisor:
        for number in range(1, 10):
            waited(supervisor, clock, resumes=number)
        pause_after(supervisor, clock, resumes=10)

    node.sql("RESUME JOB j")
    node.run()

    assert node.rows("t") == numbered(1)
    assert node.job("j").desired.auto_resumes == 0
    assert node.show("j")["position"] == str(folder / "a.json")


def test_a_success_begins_the_count_of_resumes_anew(
    failing: Callable[..., Node], clock: MovedClock, folder: Path
) -> None:
    node = failing(times=2 * TRIES_PER_EPOCH)
    with supervised(node, until_caught_up=True) as supervisor:
        waited(supervisor, clock, resumes=1)
        rounds_until(supervisor, lambda looks: looks[0].state.desired.auto_resumes == 2)
        clock.move(seconds=2)
        rounds_until(supervisor, lambda looks: looks[0].caught_up)
    node.work = Failing(first=outage, times=TRIES_PER_EPOCH)
    write_rows(folder / "b.json", numbered(2))

    with supervised(node) as supervisor:
        (look,) = rounds_until(
            supervisor, lambda looks: looks[0].state.desired.reason is not None
        )

    assert look.state.desired.auto_resumes == 0
    assert look.resumes_at == look.state.desired.changed_at


@pytest.mark.of_local_files("files appear while a task runs")
def test_the_look_behind_a_failed_attempt_tells_whether_the_job_is_caught_up(
    open_node: OpenNode, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WINDOW_FILES", 2)

    def outage_with_more_files() -> None:
        for number in (2, 3, 4):
            write_rows(folder / f"{number}.json", numbered(number))
        outage()

    node = open_node(clock=MovedClock(), work=Failing(first=outage_with_more_files, times=4))
    write_rows(folder / "1.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")

    node.run()

    assert node.rows("t") == numbered(1, 2, 3, 4)
