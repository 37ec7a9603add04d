"""The contract of every source kind: each record is planned once, from stored state only.

A source stores no progress. These tests commit plans to a real catalog, and open each source
again from the catalog, as after a restart.
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
    """A world of each source kind, or of the kinds that a test selects."""
    kind: type[World] = request.param
    with contextmanager(kind.opened)(tmp_path, request) as opened:
        yield opened


# Some rules apply only to some kinds.
of_final_plans = pytest.mark.parametrize(
    "world", [kind for kind in WORLDS if kind.plans_are_final], indirect=True
)
of_counted_records = pytest.mark.parametrize(
    "world", [kind for kind in WORLDS if kind.counts_records], indirect=True
)
# Tests that do not depend on the order of records also run without an order.
also_of_spread_records = pytest.mark.parametrize(
    "world", [*WORLDS, *SPREAD_WORLDS], indirect=True
)


def poll(source: Source, progress: tuple[SplitProgress, ...]) -> Poll:
    """Poll the source, and ignore its progress reports."""
    return source.poll(progress, report=lambda _: None)


def caught_up(source: Source) -> bool:
    """Return whether everything before the heads is committed."""
    return all(source.passed(split, head) for split, head in source.heads().items())


def plan(source: Source, world: World, limits: EpochLimits = EVERYTHING) -> EpochPlan:
    """Poll, and return the plan of the next epoch."""
    poll(source, world.job.state().progress)
    planned = source.plan(world.job.state().progress, limits=limits)
    assert planned is not None
    return planned


def names(world: World, planned: EpochPlan | None) -> list[str]:
    """Return the names of the records in a plan."""
    found = [] if planned is None else world.job.read(planned)[1]
    return found if world.ordered else sorted(found)


def load(world: World, limits: EpochLimits = EVERYTHING) -> Attachment:
    """Open the source, poll, and commit the next epoch."""
    source = world.job.open()
    return world.job.commit(plan(source, world, limits), by=source)


def load_one_of_a_poll(source: Source, world: World) -> Sequence[str]:
    """Commit one record of the last poll; return its name."""
    planned = source.plan(world.job.state().progress, limits=ONE)
    if planned is None:
        return []
    found = names(world, planned)
    world.job.commit(planned, by=source)
    return found


@also_of_spread_records
def test_a_source_without_new_records_returns_no_plan(world: World) -> None:
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
def test_planned_records_no_longer_wait(world: World) -> None:
    world.put("a", "b")
    source = world.job.open()
    before = poll(source, world.job.state().progress).waiting

    source.plan(world.job.state().progress, limits=ONE)

    after = source.waiting()
    assert (before.items, after.items) == (2, 1)
    assert 0 < (after.size_bytes or 0) < (before.size_bytes or 0)


@also_of_spread_records
def test_nothing_waits_after_everything_is_planned(world: World) -> None:
    world.put("a", "b")
    source = world.job.open()
    before = poll(source, world.job.state().progress).waiting

    source.plan(world.job.state().progress, limits=EVERYTHING)

    assert (before.items or 0) > 0
    assert source.waiting().items == 0


@also_of_spread_records
def test_an_uncommitted_plan_is_repeated_after_the_next_poll(world: World) -> None:
    world.put("a", "b")
    source = world.job.open()
    first = plan(source, world)

    second = plan(source, world)

    assert second == first
    assert names(world, second) == ["a", "b"]


def test_records_that_were_read_but_not_committed_are_planned_again(world: World) -> None:
    world.put("a", "b", "c")
    source = world.job.open()
    uncommitted = names(world, plan(source, world, ONE))

    again = plan(source, world)

    assert uncommitted == ["a"]
    assert names(world, again) == ["a", "b", "c"]


def test_a_poll_replaces_unplanned_records_of_earlier_polls(world: World) -> None:
    world.put("a", "b")
    source = world.job.open()
    plan(source, world, ONE)
    world.put("c")

    again = plan(source, world)

    assert names(world, again) == ["a", "b", "c"]
    assert source.waiting().items == 0


@of_final_plans
def test_records_that_arrive_after_a_poll_wait_for_the_next_poll(world: World) -> None:
    world.put("a")
    source = world.job.open()
    poll(source, world.job.state().progress)
    world.put("b")

    planned = source.plan(world.job.state().progress, limits=EVERYTHING)

    assert names(world, planned) == ["a"]


def test_t11_a_reopened_source_continues_after_the_last_commit(world: World) -> None:
    world.put("a", "b", "c")
    load(world, ONE)

    planned = plan(world.job.open(), world)

    assert names(world, planned) == ["b", "c"]


@also_of_spread_records
def test_t11_a_reopened_source_plans_nothing_if_everything_is_committed(world: World) -> None:
    world.put("a", "b")
    load(world)
    source = world.job.open()

    found = poll(source, world.job.state().progress)

    assert found.waiting.items == 0
    assert source.plan(world.job.state().progress, limits=EVERYTHING) is None


@also_of_spread_records
def test_t11_a_source_is_caught_up_after_everything_is_committed(world: World) -> None:
    world.put("a", "b")
    source = world.job.open()
    poll(source, world.job.state().progress)
    before = caught_up(source)
    world.job.commit(plan(source, world), by=source)

    poll(source, world.job.state().progress)

    assert (before, caught_up(source)) == (False, True)


@also_of_spread_records
def test_t11_only_a_commit_moves_the_position(world: World) -> None:
    world.put("a", "b")
    before = world.job.state().progress
    source = world.job.open()
    planned = plan(source, world)
    polled = world.job.state().progress

    committed = world.job.commit(planned, by=source)

    assert polled == before
    assert world.job.state().progress == committed.progress != before


def test_t11_stored_positions_lead_to_the_same_plan(world: World) -> None:
    world.put("a", "b")
    load(world, ONE)
    progress = world.job.state().progress
    written = tuple(from_text(SplitProgress, to_text(split)) for split in progress)
    source = world.job.open()
    poll(source, written)

    planned = source.plan(written, limits=EVERYTHING)

    assert written == progress
    assert names(world, planned) == names(world, plan(world.job.open(), world)) == ["b"]


def test_t11_a_replayed_commit_changes_nothing(world: World) -> None:
    world.put("a", "b")
    first = load(world, ONE)
    load(world, ONE)
    before = world.job.state()

    world.job.apply(first)

    assert world.job.state() == before
    assert poll(world.job.open(), before.progress).waiting.items == 0


def test_t11_records_after_a_position_moved_back_are_planned_again(world: World) -> None:
    world.put("a", "b", "c")
    load(world)
    world.job.move(*world.after("a"))

    planned = plan(world.job.open(), world)

    assert names(world, planned) == ["b", "c"]


def test_t11_records_before_a_position_moved_forward_are_skipped(world: World) -> None:
    world.put("a", "b", "c")
    world.job.move(*world.after("b"))

    planned = plan(world.job.open(), world)

    assert names(world, planned) == ["c"]


def test_t11_commits_continue_from_a_moved_position(
    world: World,
) -> None:
    world.put("a", "b", "c")
    world.job.move(*world.after("a"))
    load(world, ONE)

    planned = plan(world.job.open(), world)

    assert names(world, planned) == ["c"]


def test_a_plan_contains_at_least_one_record(world: World) -> None:
    world.put("a", "b")

    planned = plan(world.job.open(), world, NEXT_TO_NOTHING)

    assert names(world, planned) == ["a"]


@of_counted_records
def test_changed_records_are_counted_and_not_planned(world: World) -> None:
    world.put("a", "b")
    load(world)
    world.change("a")
    source = world.job.open()

    found = poll(source, world.job.state().progress)

    assert found.waiting.items == 0
    assert [count for _, count in found.notices] == [1]


@of_counted_records
def test_each_poll_counts_the_changed_records_again(world: World) -> None:
    world.put("a")
    load(world)
    world.change("a")
    source = world.job.open()

    poll(source, world.job.state().progress)
    again = poll(source, world.job.state().progress)

    assert [count for _, count in again.notices] == [1]
