"""ALTER of a job of any kind: all or nothing, once, durably."""

from datetime import timedelta

import pytest

from penstock.control.result import Cell
from penstock.crashpoints import CrashPoint
from penstock.errors import Code, UserError
from penstock.model.codec import to_text
from tests.integration.driving import crash_inside, idle, rounds_until, supervised
from tests.integration.job_worlds import FILES, S3, STORED, World, of
from tests.integration.test_refused_jobs import PROPERTIES

pytestmark = pytest.mark.integration


@pytest.fixture
def paused(world: World) -> World:
    """A paused job that has loaded three items in three epochs."""
    world.put(1, 2, 3)
    world.create(batch="1")
    world.run()
    world.sql(world.pause)
    return world


def stored(world: World) -> tuple[str, Cell]:
    """Return the stored state of the job, and the version of its table."""
    return to_text(world.job), world.sql("DESCRIBE DETAIL t")[0]["version"]


@of(*STORED)
def test_t3_a_job_moved_back_loads_later_items_again_after_a_restart(
    paused: World,
) -> None:
    paused.sql(paused.move(2))
    before = paused.show()

    paused.restart()
    restored = paused.show()
    paused.sql(paused.resume)
    paused.run()

    assert restored == before
    assert before["position"] == paused.position(2)
    assert paused.numbers() == [1, 2, 3, 3]
    assert paused.show()["rows_loaded"] == 4
    assert paused.show()["files_loaded"] == 4 * paused.stores_items
    assert paused.show()["position"] == paused.position(3)


@of(*STORED)
def test_t3_a_job_moved_forward_loads_only_later_items(paused: World) -> None:
    paused.put(4, 5)
    paused.sql(paused.move(4))
    paused.restart()
    paused.sql(paused.resume)

    paused.run()

    assert paused.numbers() == [1, 2, 3, 5]
    assert paused.show()["position"] == paused.position(5)


@of(*STORED)
@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.DESIRED_STATE_STORED,
        CrashPoint.STATEMENT_COMMITTED,
        CrashPoint.STATEMENT_APPLIED,
    ],
)
def test_t3_an_alter_is_atomic_at_every_crash_point(paused: World, point: CrashPoint) -> None:
    crash_inside(paused.node, paused.move(2), point)
    paused.restart()
    paused.sql(paused.resume)

    paused.run()

    again = [] if point is CrashPoint.DESIRED_STATE_STORED else [3]
    assert paused.numbers() == [1, 2, 3, *again]
    assert paused.show()["rows_loaded"] == 3 + len(again)
    assert paused.show()["position"] == paused.position(3)


@of(*STORED)
def test_t32_an_alter_with_one_bad_option_changes_nothing(paused: World) -> None:
    before = stored(paused)

    with pytest.raises(UserError, match=rf'"{paused.batch_key}".* 1\b.* 0\b') as refused:
        paused.sql(paused.move(1, interval="3s", batch="0"))

    assert refused.value.code is Code.OPTION_ERR
    assert stored(paused) == before
    assert paused.show()["position"] == paused.position(3)
    paused.restart()
    assert stored(paused) == before


def test_t35_altered_properties_survive_a_restart_and_apply_to_the_next_epochs(
    paused: World,
) -> None:
    paused.sql(paused.alter(interval="3s", batch="2"))
    before = paused.job.definition
    paused.cut_journal()
    paused.put(4, 5, 6)

    paused.restart()
    text = paused.create_text()
    restored = paused.job.definition
    paused.sql(paused.resume)
    paused.run()

    assert restored == before
    assert f"'{paused.interval_key}' = '3s'" in text
    assert f"'{paused.batch_key}' = '2'" in text
    assert paused.epochs("rows") == [1, 1, 1, 2, 1]
    assert paused.show()["position"] == paused.position(6)


@of(FILES, S3)
def test_t35_a_property_set_by_the_user_is_in_show_create(paused: World) -> None:
    paused.sql("ALTER JOB j PROPERTIES('__team' = 'sales')")
    paused.restart()

    assert "'__team' = 'sales'" in paused.create_text()


def test_t34_t35_alter_keeps_options_that_it_does_not_name(paused: World) -> None:
    before = paused.job

    paused.sql(paused.alter(interval="3s"))

    after = paused.job
    assert paused.limits() == (timedelta(seconds=3), 1)
    assert after.definition.source == before.definition.source
    assert after.progress == before.progress
    assert paused.show()["position"] == paused.position(3)


def test_t40_an_altered_interval_applies_to_the_next_poll_after_a_restart(world: World) -> None:
    world.put(1)
    world.create(interval="5s")
    world.sql(world.pause, world.alter(interval="3s"), world.resume)
    world.restart()

    with supervised(world.node) as supervisor:
        rounds_until(
            supervisor, lambda reports: idle(reports) and bool(world.clock.runner_waits)
        )

    assert world.clock.runner_waits == {timedelta(seconds=3)}
    assert world.numbers() == [1]
    assert world.show()["position"] == world.position(1)


def test_t41_an_alter_that_changes_nothing_is_refused(paused: World) -> None:
    before = stored(paused)

    same = [paused.alter(batch="1"), paused.alter(interval=paused.interval_default)]

    assert [paused.refusal(one) for one in same] == [Code.OPTION_ERR, Code.OPTION_ERR]
    assert stored(paused) == before
    assert paused.show()["position"] == paused.position(3)


@pytest.mark.parametrize("key", ["max_intervall", "uri"])
def test_t41_an_unknown_option_is_refused(paused: World, key: str) -> None:
    before = stored(paused)

    with pytest.raises(UserError, match=f'"{key}"') as refused:
        paused.sql(paused.alter(**{key: "3s"}))

    assert refused.value.code is Code.OPTION_ERR
    assert stored(paused) == before
    assert paused.show()["position"] == paused.position(3)


@of(FILES, S3)
def test_t41_an_unknown_option_is_refused_with_the_allowed_options(paused: World) -> None:
    with pytest.raises(UserError) as refused:
        paused.sql(paused.alter(max_intervall="3s"))

    suggested, allowed = refused.value.hint.split("Allowed: ")
    assert '"max_interval"' in suggested
    assert tuple(allowed.rstrip(".").split(", ")) == PROPERTIES


@of(*STORED)
def test_t41_a_running_job_cannot_be_altered(paused: World) -> None:
    paused.sql(paused.resume)
    before = stored(paused)

    assert paused.refusal(paused.move(1)) is Code.STATE_ERR
    assert paused.refusal(paused.alter(batch="2")) is Code.STATE_ERR
    assert stored(paused) == before
    assert paused.show()["position"] == paused.position(3)
