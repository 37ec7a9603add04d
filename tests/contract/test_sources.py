"""What every kind of source must do: plan each record once, from what was stored alone.

A source remembers nothing durable. What a plan says becomes progress by being committed to a
real catalog, and every source is opened again from that catalog, as after a restart.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from penstock.model.codec import from_text, to_text
from penstock.model.epoch import Attachment, EpochLimits, EpochPlan
from penstock.model.job import JobProperties
from penstock.model.job_kinds import RoutineProperties
from penstock.model.split import SplitProgress
from penstock.sources.source import Backlog, Source
from tests.contract.source_worlds import (
    FilesWorld,
    KinesisWorld,
    SpreadKinesisWorld,
    World,
    kinesis_world,
)
from tests.servers.kinesis.server import KinesisServer

EVERYTHING = EpochLimits(
    files=JobProperties().batch_files_max,
    size_bytes=JobProperties().batch_bytes_max,
    records=RoutineProperties().max_batch_rows,
    duration=RoutineProperties().max_batch_interval,
)
ONE = EpochLimits(
    files=1,
    size_bytes=EVERYTHING.size_bytes,
    records=1,
    duration=EVERYTHING.duration,
)
NEXT_TO_NOTHING = EpochLimits(
    files=EVERYTHING.files,
    size_bytes=1,
    records=EVERYTHING.records,
    duration=EVERYTHING.duration,
)

Kind = type[FilesWorld] | type[KinesisWorld]
KINDS: tuple[Kind, ...] = (FilesWorld, KinesisWorld)


@pytest.fixture(params=KINDS)
def world(
    request: pytest.FixtureRequest, tmp_path: Path, own_kinesis: KinesisServer
) -> Iterator[World]:
    """A world of every kind, or of those that can say what a test asks for."""
    kind: Kind = request.param
    if issubclass(kind, FilesWorld):
        yield FilesWorld(tmp_path)
        return
    with kinesis_world(kind, tmp_path, own_kinesis) as made:
        yield made


# What only some kinds can say is asked of those.
of_final_plans = pytest.mark.parametrize(
    "world", [kind for kind in KINDS if kind.plans_are_final], indirect=True
)
of_counted_records = pytest.mark.parametrize(
    "world", [kind for kind in KINDS if kind.counts_records], indirect=True
)
# What has nothing to do with the order of records is asked where there is none, too.
also_of_spread_records = pytest.mark.parametrize(
    "world", [*KINDS, SpreadKinesisWorld], indirect=True
)


def look(source: Source, progress: tuple[SplitProgress, ...]) -> Backlog:
    """Look at the source anew, whatever it says meanwhile."""
    return source.discover(progress, listed=lambda _seen: None)


def plan(source: Source, world: World, limits: EpochLimits = EVERYTHING) -> EpochPlan:
    """Look, and take the next epoch's worth."""
    look(source, world.state().progress)
    planned = source.plan(world.state().progress, limits=limits)
    assert planned is not None
    return planned


def load(world: World, limits: EpochLimits = EVERYTHING) -> Attachment:
    """Open the source, look, and commit the next epoch's worth."""
    source = world.open()
    return world.commit(plan(source, world, limits), by=source)


def load_one_of_a_look(source: Source, world: World) -> Sequence[str]:
    """Commit one record of what the last look has found; answer its name."""
    planned = source.plan(world.state().progress, limits=ONE)
    if planned is None:
        return []
    names = world.names(planned)
    world.commit(planned, by=source)
    return names


@also_of_spread_records
def test_a_source_with_nothing_new_gives_no_plan(world: World) -> None:
    source = world.open()

    backlog = look(source, world.state().progress)

    assert (backlog.files, backlog.size_bytes, backlog.complete) == (0, 0, True)
    assert source.plan(world.state().progress, limits=EVERYTHING) is None


def test_everything_is_planned_once_and_in_order(world: World) -> None:
    world.put("b", "c", "a")
    source = world.open()
    look(source, world.state().progress)

    loaded = [load_one_of_a_look(source, world) for _ in range(4)]

    assert loaded == [["a"], ["b"], ["c"], []]


@of_counted_records
def test_what_is_planned_no_longer_waits(world: World) -> None:
    world.put("a", "b")
    source = world.open()
    before = look(source, world.state().progress)

    source.plan(world.state().progress, limits=ONE)

    assert (before.files, source.waiting().files) == (2, 1)
    assert 0 < source.waiting().size_bytes < before.size_bytes


@also_of_spread_records
def test_nothing_waits_once_all_is_planned(world: World) -> None:
    world.put("a", "b")
    source = world.open()
    before = look(source, world.state().progress)

    source.plan(world.state().progress, limits=EVERYTHING)

    assert before.files > source.waiting().files == 0


@also_of_spread_records
def test_a_plan_that_was_not_committed_is_made_again_by_the_next_look(world: World) -> None:
    world.put("a", "b")
    source = world.open()
    first = plan(source, world)

    second = plan(source, world)

    assert second == first
    assert world.names(second) == ["a", "b"]


def test_what_was_read_in_vain_is_planned_again_by_the_next_look(world: World) -> None:
    world.put("a", "b", "c")
    source = world.open()
    read_in_vain = world.names(plan(source, world, ONE))

    again = plan(source, world)

    assert read_in_vain == ["a"]
    assert world.names(again) == ["a", "b", "c"]


def test_a_look_forgets_what_an_earlier_look_left_unplanned(world: World) -> None:
    world.put("a", "b")
    source = world.open()
    plan(source, world, ONE)
    world.put("c")

    again = plan(source, world)

    assert world.names(again) == ["a", "b", "c"]
    assert source.waiting().files == 0


@of_final_plans
def test_what_came_after_the_look_waits_for_the_next_one(world: World) -> None:
    world.put("a")
    source = world.open()
    look(source, world.state().progress)
    world.put("b")

    planned = source.plan(world.state().progress, limits=EVERYTHING)

    assert world.names(planned) == ["a"]


def test_t11_a_source_opened_again_goes_on_behind_what_was_committed(world: World) -> None:
    world.put("a", "b", "c")
    load(world, ONE)

    planned = plan(world.open(), world)

    assert world.names(planned) == ["b", "c"]


@also_of_spread_records
def test_t11_a_source_opened_again_plans_nothing_when_all_was_committed(world: World) -> None:
    world.put("a", "b")
    load(world)
    source = world.open()

    backlog = look(source, world.state().progress)

    assert backlog.files == 0
    assert source.plan(world.state().progress, limits=EVERYTHING) is None


@also_of_spread_records
def test_t11_a_source_is_caught_up_when_all_was_committed(world: World) -> None:
    world.put("a", "b")
    source = world.open()
    look(source, world.state().progress)
    before = source.caught_up()
    world.commit(plan(source, world), by=source)

    look(source, world.state().progress)

    assert (before, source.caught_up()) == (False, True)


@also_of_spread_records
def test_t11_a_commit_moves_the_position_and_a_look_or_a_plan_does_not(world: World) -> None:
    world.put("a", "b")
    before = world.state().progress
    source = world.open()
    planned = plan(source, world)
    looked = world.state().progress

    committed = world.commit(planned, by=source)

    assert looked == before
    assert world.state().progress == committed.progress != before


def test_t11_positions_that_were_written_and_read_give_the_same_plan(world: World) -> None:
    world.put("a", "b")
    load(world, ONE)
    progress = world.state().progress
    written = tuple(from_text(SplitProgress, to_text(split)) for split in progress)
    source = world.open()
    look(source, written)

    planned = source.plan(written, limits=EVERYTHING)

    assert written == progress
    assert world.names(planned) == world.names(plan(world.open(), world)) == ["b"]


def test_t11_a_commit_that_is_replayed_changes_nothing(world: World) -> None:
    world.put("a", "b")
    first = load(world, ONE)
    load(world, ONE)
    before = world.state()

    world.replay(first)

    assert world.state() == before
    assert look(world.open(), before.progress).files == 0


def test_t11_a_position_moved_back_plans_the_later_ones_again(world: World) -> None:
    world.put("a", "b", "c")
    load(world)
    world.move("a")

    planned = plan(world.open(), world)

    assert world.names(planned) == ["b", "c"]


def test_t11_a_position_moved_forward_leaves_out_what_lies_before(world: World) -> None:
    world.put("a", "b", "c")
    world.move("b")

    planned = plan(world.open(), world)

    assert world.names(planned) == ["c"]


def test_t11_progress_stays_behind_the_moved_position_when_plans_are_committed(
    world: World,
) -> None:
    world.put("a", "b", "c")
    world.move("a")
    load(world, ONE)

    planned = plan(world.open(), world)

    assert world.names(planned) == ["c"]


def test_a_plan_reaches_at_least_one_however_small_the_limits(world: World) -> None:
    world.put("a", "b")

    planned = plan(world.open(), world, NEXT_TO_NOTHING)

    assert world.names(planned) == ["a"]


@of_counted_records
def test_what_was_loaded_and_changed_is_counted_and_not_planned(world: World) -> None:
    world.put("a", "b")
    load(world)
    world.change("a")
    source = world.open()

    backlog = look(source, world.state().progress)

    assert backlog.files == 0
    assert source.modified_files == 1


@of_counted_records
def test_each_look_counts_the_changed_ones_anew(world: World) -> None:
    world.put("a")
    load(world)
    world.change("a")
    source = world.open()

    look(source, world.state().progress)
    look(source, world.state().progress)

    assert source.modified_files == 1
