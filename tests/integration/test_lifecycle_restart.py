"""State that a restart, a truncated journal or a replay could lose or restore wrongly.

A restart keeps no state in memory. Every test compares the position as well as the counts.
"""

from dataclasses import fields

import pytest

from penstock.crashpoints import CrashPoint
from penstock.model.codec import to_text
from penstock.model.epoch import Statistics
from penstock.model.events import Committed, apply
from penstock.model.job import DesiredState, JobState
from tests.integration.driving import attempts, crash_at, crash_inside
from tests.integration.job_worlds import (
    EVERY,
    FILES,
    KINESIS,
    S3,
    STORED,
    FilesWorld,
    World,
    of,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def loaded(world: World) -> World:
    """A job that has loaded three items in three epochs."""
    world.put(1, 2, 3)
    world.create(batch="1")
    world.run()
    return world


def folded(world: World, *, backwards: bool = False) -> JobState:
    """Fold the job's journal; ``backwards``: fold the events after the first in reverse."""
    first, *rest = world.node.catalog.events(world.job.id)
    state = apply(None, first)
    for event in reversed(rest) if backwards else rest:
        state = apply(state, event)
    return state


def test_t1_the_position_survives_a_truncated_journal(loaded: World) -> None:
    before = loaded.show()
    loaded.cut_journal()

    loaded.restart()

    assert loaded.node.catalog.events(loaded.job.id) == ()
    assert loaded.show() == before
    assert before["position"] == loaded.position(3)
    loaded.put(4)
    loaded.run()
    assert loaded.numbers() == [1, 2, 3, 4]
    assert attempts(loaded.node)[-1] == (4, 1, "COMMITTED")
    assert loaded.show()["position"] == loaded.position(4)


@of(*STORED)
def test_t2_every_statistic_survives_a_truncated_journal_and_a_restart(world: World) -> None:
    size = world.put_mixed()
    world.create(**world.lenient)
    world.run()
    before = world.job.cumulative
    world.cut_journal()

    world.restart()

    counted = {f.name: getattr(before, f.name) for f in fields(Statistics)}
    assert world.job.cumulative == before
    assert [name for name, count in counted.items() if not count] == world.uncounted
    names = ("rows_read", "rows_skipped", "rows_loaded", "rows_rejected", "bytes_read")
    assert [counted[name] for name in names] == [6, 2, 2, 2, size]
    assert counted["records_read"] == (0 if world.stores_items else 6)
    assert world.show()["position"] == world.position(1)


@of(*STORED)
def test_t4_commits_replayed_after_alter_do_not_restore_the_old_position(
    loaded: World,
) -> None:
    loaded.sql(loaded.pause, loaded.move(1))
    altered = loaded.job

    for attachment in reversed(loaded.chain()):
        loaded.node.catalog.apply_commit(
            altered.id, attachment, table_version=1, commit_seconds=None
        )

    assert loaded.job == altered
    assert loaded.show()["position"] == loaded.position(1)
    assert loaded.items_stored() == (1 if loaded.stores_items else 0)


@of(*STORED)
def test_t4_the_journal_folds_to_the_same_state_in_any_order(loaded: World) -> None:
    loaded.sql(loaded.pause, loaded.move(1))

    state = folded(loaded, backwards=True)

    assert state == loaded.job
    assert state.progress[0].position == state.progress[0].floor


def test_t5_a_newer_snapshot_overrides_an_older_commit_in_the_journal(loaded: World) -> None:
    newest = loaded.job
    older = [
        event
        for event in loaded.node.catalog.events(newest.id)
        if isinstance(event.body, Committed) and event.body.attachment.number < newest.number
    ]

    state = newest
    for event in older:
        state = apply(state, event)

    assert len(older) == 3
    assert state == newest
    assert loaded.show()["position"] == loaded.position(3)


def test_t6_the_snapshot_of_a_replayed_copy_equals_the_live_snapshot(loaded: World) -> None:
    loaded.sql(loaded.pause, loaded.alter(interval="3s"))

    replayed = folded(loaded)

    assert to_text(replayed) == to_text(loaded.job)


def test_t7_a_waiting_job_keeps_its_position_after_a_restart(
    loaded: World,
) -> None:
    before = loaded.show()

    loaded.restart()

    assert loaded.show() == before
    assert before["state"] == "PENDING"
    loaded.run()
    assert loaded.numbers() == [1, 2, 3]
    assert loaded.show()["rows_loaded"] == 3


def test_t7_a_paused_job_continues_from_its_position_after_a_restart(
    loaded: World,
) -> None:
    loaded.sql(loaded.pause)
    before = loaded.show()
    loaded.put(4)

    loaded.restart()

    assert loaded.show() == before
    assert before["state"] == "PAUSED"
    loaded.sql(loaded.resume)
    loaded.run()
    assert loaded.numbers() == [1, 2, 3, 4]
    assert loaded.show()["position"] == loaded.position(4)


@of(*STORED)
def test_t7_a_job_paused_by_bad_rows_continues_from_its_position_after_a_restart(
    loaded: World,
) -> None:
    loaded.put_bad(4)
    loaded.run()
    before = loaded.show()
    reached = loaded.position(4 if loaded.commits_bad_rows else 3)

    loaded.restart()

    assert loaded.show() == before
    assert (before["state"], before["position"]) == ("PAUSED", reached)
    loaded.put(4)
    loaded.sql(loaded.resume)
    loaded.run()
    assert loaded.numbers() == [1, 2, 3, 4]


def test_t7_a_running_job_continues_from_its_position_after_a_crash(
    loaded: World,
) -> None:
    loaded.put(4)
    crash_at(loaded.node, CrashPoint.EPOCH_STARTED)
    before = loaded.show()

    loaded.restart()

    assert loaded.show() == before
    assert (before["state"], before["position"]) == ("RUNNING", loaded.position(3))
    loaded.run()
    assert loaded.numbers() == [1, 2, 3, 4]
    assert attempts(loaded.node)[-2:] == [(4, 1, "CANCELLED"), (5, 1, "COMMITTED")]


@of(FILES, S3)
def test_t7_a_job_in_the_middle_of_a_drop_keeps_its_position_after_a_restart(
    loaded: World,
) -> None:
    crash_inside(loaded.node, loaded.drop, CrashPoint.DESIRED_STATE_STORED)
    before = loaded.show()

    loaded.restart()

    assert loaded.show() == before
    assert before["state"] == "DROPPING"
    assert before["position"] == loaded.position(3)
    loaded.sql(loaded.drop)
    assert loaded.sql("SHOW JOBS") == []


@pytest.mark.parametrize(
    "point", [CrashPoint.TABLE_COMMITTED, CrashPoint.CATALOG_APPLIED, CrashPoint.COPY_WRITTEN]
)
def test_t10_position_and_counts_are_restored_from_the_table(
    loaded: World, point: CrashPoint
) -> None:
    loaded.put(4)
    crash_at(loaded.node, point)
    stored = loaded.job.progress
    loaded.restart()

    loaded.run()

    state, epoch, last = loaded.job, loaded.committed_epochs()[-1], loaded.chain()[-1]
    assert loaded.numbers() == [1, 2, 3, 4]
    assert (stored == epoch.progress) is (point is not CrashPoint.TABLE_COMMITTED)
    assert state.progress == epoch.progress == last.progress
    assert state.cumulative == epoch.cumulative == last.cumulative
    assert state.cumulative.rows_loaded == 4
    assert loaded.show()["position"] == loaded.position(4)
    assert state.cumulative.files_read == loaded.items_stored() == 4 * loaded.stores_items


@pytest.mark.parametrize(
    ("world", "how"),
    [
        *((name, "") for name in EVERY),
        (KINESIS, "by shard"),
        (KINESIS, "by default"),
    ],
    indirect=["world"],
)
def test_t37_a_restart_does_not_apply_the_start_position_again(world: World, how: str) -> None:
    world.put(1, 2, 3)
    world.create_after(1, how=how)
    world.run()
    world.sql(world.pause)
    before = world.show()

    world.restart()
    restored = world.show()
    world.put(4)
    world.sql(world.resume)
    world.run()

    assert restored == before
    assert (before["position"], before["rows_loaded"]) == (world.position(3), 2)
    assert world.numbers() == [2, 3, 4]
    assert world.show()["position"] == world.position(4)


@of(FILES)
def test_t43_an_epoch_without_rows_does_not_count_as_caught_up(world: World) -> None:
    assert isinstance(world, FilesWorld)
    world.path(1).touch()
    world.path(2).write_text("\n\n")
    world.put(3)
    world.create(batch="1")

    world.run()

    assert world.numbers() == [3]
    assert world.epochs("rows") == [0, 0, 1]
    assert world.show()["position"] == world.position(3)
    assert world.show()["files_loaded"] == 3


@of(FILES, S3)
def test_t43_an_aborted_epoch_moves_nothing_and_its_number_is_not_reused(loaded: World) -> None:
    before = loaded.job
    loaded.put_bad(4)
    loaded.run()
    after = loaded.job
    aborted, rows = attempts(loaded.node)[-1], loaded.numbers()

    loaded.put(4)
    loaded.restart()
    loaded.sql(loaded.resume)
    loaded.run()

    assert after.desired.state is DesiredState.PAUSE
    assert (after.progress, after.cumulative) == (before.progress, before.cumulative)
    assert (aborted, rows) == ((4, 1, "FAILED"), [1, 2, 3])
    assert attempts(loaded.node)[-2:] == [(4, 1, "FAILED"), (5, 1, "COMMITTED")]
    assert loaded.show()["position"] == loaded.position(4)
    assert loaded.numbers() == [1, 2, 3, 4]
