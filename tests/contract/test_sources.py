"""What every source kind must do: plan each record once, from what was stored alone.

A source stores nothing durable. What a plan says becomes progress by being committed to a
real catalog, and every source is opened again from that catalog, as after a restart.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.model.codec import from_text, to_text
from penstock.model.epoch import Attachment, EpochLimits, EpochPlan
from penstock.model.job_kinds import JobProperties, RoutineProperties
from penstock.model.split import SplitProgress
from penstock.sources.source import Poll, Source
from tests.contract.source_worlds import SPREAD_WORLDS, WORLDS, World

EVERYTHING = EpochLimits(
    items=JobProperties().batch_files_max,
    size_bytes=JobProperties().batch_bytes_max,
    records=RoutineProperties().max_batch_rows,
    duration=RoutineProperties().max_batch_interval,
)
ONE = replace(EVERYTHING, items=1, records=1)
NEXT_TO_NOTHING = replace(EVERYTHING, size_bytes=1)


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A world of every kind, or of those for which a test holds."""
    kind: type[World] = request.param
    with contextmanager(kind.opened)(tmp_path, request) as opened:
        yield opened


# What holds of some kinds only is tested with those.
of_final_plans = pytest.mark.parametrize(
    "world", [kind for kind in WORLDS if kind.plans_are_final], indirect=True
)
of_counted_records = pytest.mark.parametrize(
    "world", [kind for kind in WORLDS if kind.counts_records], indirect=True
)
# What does not depend on the order of records is also tested where there is none.
also_of_spread_records = pytest.mark.parametrize(
    "world", [*WORLDS, *SPREAD_WORLDS], indirect=True
)


def poll(source: Source, progress: tuple[SplitProgress, ...]) -> Poll:
    """Poll the source, whatever it reports meanwhile."""
    return source.poll(progress, seen=lambda _seen: None)


def caught_up(source: Source) -> bool:
    """Return whether everything before the heads is committed."""
    return all(source.passed(split, head) for split, head in source.heads().items())


def plan(source: Source, world: World, limits: EpochLimits = EVERYTHING) -> EpochPlan:
    """Poll, and take the next epoch's worth."""
    poll(source, world.job.state().progress)
    planned = source.plan(world.job.state().progress, limits=limits)
    assert planned is not None
    return planned


def names(world: World, planned: EpochPlan | None) -> list[str]:
    """Return what tasks read that are given a plan."""
    found = [] if planned is None else world.job.read(planned)[1]
    return found if world.ordered else sorted(found)


def load(world: World, limits: EpochLimits = EVERYTHING) -> Attachment:
    """Open the source, poll, and commit the next epoch's worth."""
    source = world.job.open()
    return world.job.commit(plan(source, world, limits), by=source)


def load_one_of_a_poll(source: Source, world: World) -> Sequence[str]:
    """Commit one record of what the last poll has found; return its name."""
    planned = source.plan(world.job.state().progress, limits=ONE)
    if planned is None:
        return []
    found = names(world, planned)
    world.job.commit(planned, by=source)
    return found


@also_of_spread_records
def test_a_source_with_nothing_new_gives_no_plan(world: World) -> None:
    source = world.job.open()

    waiting = poll(source, world.job.state().progress).waiting

    assert (waiting.items, waiting.size_bytes or 0, waiting.complete) == (0, 0, True)
    assert source.plan(world.job.state().progress, limits=EVERYTHING) is None


def test_everything_is_planned_once_and_in_order(world: World) -> None:
    world.put("b", "c", "a")
    source = world.job.open()
    poll(source, world.job.state().progress)

    loaded = [load_one_of_a_poll(source, world) for _ in range(4)]

    assert loaded == [["a"], ["b"], ["c"], []]


@of_counted_records
def test_what_is_planned_no_longer_waits(world: World) -> None:
    world.put("a", "b")
    source = world.job.open()
    before = poll(source, world.job.state().progress).waiting

    source.plan(world.job.state().progress, limits=ONE)

    after = source.waiting()
    assert (before.items, after.items) == (2, 1)
    assert 0 < (after.size_bytes or 0) < (before.size_bytes or 0)


@also_of_spread_records
def test_nothing_waits_once_all_is_planned(world: World) -> None:
    world.put("a", "b")
    source = world.job.open()
    before = poll(source, world.job.state().progress).waiting

    source.plan(world.job.state().progress, limits=EVERYTHING)

    assert (before.items or 0) > 0
    assert source.waiting().items == 0


@also_of_spread_records
def test_a_plan_that_was_not_committed_is_made_again_by_the_next_poll(world: World) -> None:
    world.put("a", "b")
    source = world.job.open()
    first = plan(source, world)

    second = plan(source, world)

    assert second == first
    assert names(world, second) == ["a", "b"]


def test_what_was_read_in_vain_is_planned_again_by_the_next_poll(world: World) -> None:
    world.put("a", "b", "c")
    source = world.job.open()
    read_in_vain = names(world, plan(source, world, ONE))

    again = plan(source, world)

    assert read_in_vain == ["a"]
    assert names(world, again) == ["a", "b", "c"]


def test_a_poll_forgets_what_an_earlier_poll_left_unplanned(world: World) -> None:
    world.put("a", "b")
    source = world.job.open()
    plan(source, world, ONE)
    world.put("c")

    again = plan(source, world)

    assert names(world, again) == ["a", "b", "c"]
    assert source.waiting().items == 0


@of_final_plans
def test_what_came_after_the_poll_waits_for_the_next_one(world: World) -> None:
    world.put("a")
    source = world.job.open()
    poll(source, world.job.state().progress)
    world.put("b")

    planned = source.plan(world.job.state().progress, limits=EVERYTHING)

    assert names(world, planned) == ["a"]


def test_t11_a_source_opened_again_goes_on_behind_what_was_committed(world: World) -> None:
    world.put("a", "b", "c")
    load(world, ONE)

    planned = plan(world.job.open(), world)

    assert names(world, planned) == ["b", "c"]


@also_of_spread_records
def test_t11_a_source_opened_again_plans_nothing_when_all_was_committed(world: World) -> None:
    world.put("a", "b")
    load(world)
    source = world.job.open()

    found = poll(source, world.job.state().progress)

    assert found.waiting.items == 0
    assert source.plan(world.job.state().progress, limits=EVERYTHING) is None


@also_of_spread_records
def test_t11_a_source_is_caught_up_when_all_was_committed(world: World) -> None:
    world.put("a", "b")
    source = world.job.open()
    poll(source, world.job.state().progress)
    before = caught_up(source)
    world.job.commit(plan(source, world), by=source)

    poll(source, world.job.state().progress)

    assert (before, caught_up(source)) == (False, True)


@also_of_spread_records
def test_t11_a_commit_moves_the_position_and_a_poll_or_a_plan_does_not(world: World) -> None:
    world.put("a", "b")
    before = world.job.state().progress
    source = world.job.open()
    planned = plan(source, world)
    polled = world.job.state().progress

    committed = world.job.commit(planned, by=source)

    assert polled == before
    assert world.job.state().progress == committed.progress != before


def test_t11_positions_that_were_written_and_read_give_the_same_plan(world: World) -> None:
    world.put("a", "b")
    load(world, ONE)
    progress = world.job.state().progress
    written = tuple(from_text(SplitProgress, to_text(split)) for split in progress)
    source = world.job.open()
    poll(source, written)

    planned = source.plan(written, limits=EVERYTHING)

    assert written == progress
    assert names(world, planned) == names(world, plan(world.job.open(), world)) == ["b"]


def test_t11_a_commit_that_is_replayed_changes_nothing(world: World) -> None:
    world.put("a", "b")
    first = load(world, ONE)
    load(world, ONE)
    before = world.job.state()

    world.job.apply(first)

    assert world.job.state() == before
    assert poll(world.job.open(), before.progress).waiting.items == 0


def test_t11_a_position_moved_back_plans_the_later_ones_again(world: World) -> None:
    world.put("a", "b", "c")
    load(world)
    world.job.move(*world.after("a"))

    planned = plan(world.job.open(), world)

    assert names(world, planned) == ["b", "c"]


def test_t11_a_position_moved_forward_leaves_out_what_lies_before(world: World) -> None:
    world.put("a", "b", "c")
    world.job.move(*world.after("b"))

    planned = plan(world.job.open(), world)

    assert names(world, planned) == ["c"]


def test_t11_progress_stays_behind_the_moved_position_when_plans_are_committed(
    world: World,
) -> None:
    world.put("a", "b", "c")
    world.job.move(*world.after("a"))
    load(world, ONE)

    planned = plan(world.job.open(), world)

    assert names(world, planned) == ["c"]


def test_a_plan_reaches_at_least_one_however_small_the_limits(world: World) -> None:
    world.put("a", "b")

    planned = plan(world.job.open(), world, NEXT_TO_NOTHING)

    assert names(world, planned) == ["a"]


@of_counted_records
def test_what_was_loaded_and_changed_is_counted_and_not_planned(world: World) -> None:
    world.put("a", "b")
    load(world)
    world.change("a")
    source = world.job.open()

    found = poll(source, world.job.state().progress)

    assert found.waiting.items == 0
    assert [count for _, count in found.notices] == [1]


@of_counted_records
def test_each_poll_counts_the_changed_ones_anew(world: World) -> None:
    world.put("a")
    load(world)
    world.change("a")
    source = world.job.open()

    poll(source, world.job.state().progress)
    again = poll(source, world.job.state().progress)

    assert [count for _, count in again.notices] == [1]
