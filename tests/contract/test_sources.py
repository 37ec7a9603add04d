"""The contract of every source kind: each record is planned once, from stored state only.

A source stores no progress. These tests commit plans to a real catalog, and open each source
again from the catalog, as after a restart.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import PenstockError, StoppedError
from penstock.model.backlog import Backlog, Findings, LagUnit, fix_boundaries, review
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import Attachment, EpochLimits, EpochPlan
from penstock.model.job_kinds import JobProperties, RoutineProperties
from penstock.model.split import Amount, Progress, SplitProgress, total_amount
from penstock.sources.source import EpochResult, Poll, Source
from tests.contract.catalog.building import START
from tests.contract.source_worlds import SPREAD_WORLDS, WORLDS, Change, World

EVERYTHING = EpochLimits(
    items=JobProperties().batch_files_max,
    size_bytes=JobProperties().batch_bytes_max,
    records=RoutineProperties().max_batch_rows,
    duration=RoutineProperties().max_batch_interval,
)
ONE = replace(EVERYTHING, items=1, records=1)
# The units in which an amount decreases; an age also grows with the time.
COUNTED = (LagUnit.ROWS, LagUnit.BYTES)
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
of_reading_ahead = pytest.mark.parametrize(
    "world", [kind for kind in WORLDS if kind.reads_ahead], indirect=True
)
# Tests that do not depend on the order of records also run without an order.
also_of_spread_records = pytest.mark.parametrize(
    "world", [*WORLDS, *SPREAD_WORLDS], indirect=True
)


# One world for each kind: the one with several splits, if it exists.
WIDEST = tuple({world.kind.name: world for world in (*WORLDS, *SPREAD_WORLDS)}.values())
of_widest_worlds = pytest.mark.parametrize("world", WIDEST, indirect=True)


def of_worlds_with(change: Change) -> pytest.MarkDecorator:
    """Run a test for each kind in which a change can happen."""
    worlds = [world for world in WIDEST if change not in world.excluded]
    return pytest.mark.parametrize("world", worlds, indirect=True)


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


# Reading ahead: while an epoch runs, a second thread prepares the next poll.


def read_ahead(source: Source, planned: EpochPlan) -> None:
    """Prepare the poll after an epoch."""
    source.prepare(planned.progress, report=lambda _: None)


@also_of_spread_records
def test_reading_ahead_changes_no_amount_and_no_head(world: World) -> None:
    world.put("a")
    source = world.job.open()
    planned = plan(source, world)
    world.put("b")
    before = (source.waiting(), source.heads())

    read_ahead(source, planned)

    assert (source.waiting(), source.heads()) == before


@of_reading_ahead
def test_records_that_arrive_after_reading_ahead_are_found(world: World) -> None:
    world.put("a")
    source = world.job.open()
    planned = plan(source, world)
    world.put("b")
    read_ahead(source, planned)
    world.put("c")
    world.job.commit(planned, by=source)

    load_all(source, world)

    assert remaining(source).items == 0
    assert world.job.names == ["a", "b", "c"]


@also_of_spread_records
def test_each_record_is_planned_once_by_a_source_that_reads_ahead(world: World) -> None:
    world.put("a", "b")
    source = world.job.open()
    loaded = []
    for name in ("c", "d", "e"):
        planned = plan(source, world, ONE)
        world.put(name)
        read_ahead(source, planned)
        loaded += names(world, planned)
        world.job.commit(planned, by=source)

    load_rest = plan(source, world)

    assert sorted([*loaded, *names(world, load_rest)]) == ["a", "b", "c", "d", "e"]


@also_of_spread_records
def test_a_poll_after_a_failed_epoch_ignores_what_was_read_ahead(world: World) -> None:
    world.put("a")
    source = world.job.open()
    planned = plan(source, world)
    world.put("b")

    read_ahead(source, planned)

    assert names(world, plan(source, world)) == ["a", "b"]


@of_reading_ahead
def test_a_recheck_ignores_what_was_read_ahead(world: World) -> None:
    world.put("a")
    source = world.job.open()
    planned = plan(source, world)
    world.put("b")
    read_ahead(source, planned)
    world.job.commit(planned, by=source)
    world.put("c")

    source.recheck()

    assert sorted(names(world, plan(source, world))) == ["b", "c"]


@of_reading_ahead
def test_reading_ahead_ends_when_the_job_is_stopped(world: World) -> None:
    world.put("a")
    source = world.job.open()
    planned = plan(source, world)
    world.put("b")

    with pytest.raises(StoppedError):
        source.prepare(planned.progress, report=stop_poll)

    world.job.commit(planned, by=source)
    assert names(world, plan(source, world)) == ["b"]


# The backlog: boundaries are heads, and a split is finished when it has passed its boundary.


def findings(source: Source, progress: Progress) -> Findings:
    """Return the state of the splits, as the keeper of the backlog reads it."""
    return Findings(
        progress=progress,
        passed=source.passed,
        remaining={status.split: status.remaining for status in source.statuses()},
        at=START,
    )


def fixed(source: Source, world: World) -> Backlog:
    """Poll, and fix the boundaries at the heads."""
    source.recheck()
    progress = poll(source, world.job.state().progress).progress
    return fix_boundaries(Backlog(), source.heads(), findings(source, progress))


def reviewed(record: Backlog, source: Source, world: World) -> Backlog:
    """Poll, and finish the splits that have passed their boundaries."""
    progress = poll(source, world.job.state().progress).progress
    return review(record, findings(source, progress), marks=None)


def load_all(source: Source, world: World) -> None:
    """Commit epochs until a poll finds nothing."""
    for _ in range(9):
        poll(source, world.job.state().progress)
        planned = source.plan(world.job.state().progress, limits=EVERYTHING)
        if planned is None:
            return
        world.job.commit(planned, by=source)
    raise AssertionError("the source still has records after nine epochs")


def load_one(source: Source, world: World) -> None:
    """Poll, and commit an epoch with at most one record of each split."""
    world.job.commit(plan(source, world, ONE), by=source)


def result_of(planned: EpochPlan, source: Source, world: World) -> EpochResult:
    """Read a plan; return the result before its commit."""
    notes, _ = world.job.read(planned)
    return EpochResult(progress=source.advance(planned, notes), notes=tuple(notes))


def remaining(source: Source) -> Amount:
    """Return the remaining amount of all splits."""
    return total_amount([status.remaining for status in source.statuses()])


def values(amount: Amount, *units: LagUnit) -> list[float]:
    """Return an amount in the units in which the source measures it."""
    found = [unit.of(amount) for unit in units]
    return [value for value in found if value is not None]


def open_splits(record: Backlog) -> list[str]:
    """Return the splits that have not reached their boundaries."""
    return [split.split for split in record.splits if split.open]


def stop_poll(_report: str) -> None:
    raise StoppedError("the poll was stopped")


@of_widest_worlds
def test_t62_a_source_without_records_has_no_backlog(world: World) -> None:
    source = world.job.open()

    record = fixed(source, world)

    assert (record.splits, record.cause) == ((), "")


@of_widest_worlds
def test_t62_a_source_whose_records_are_committed_has_no_backlog(world: World) -> None:
    world.put("a", "b")
    source = world.job.open()
    load_all(source, world)

    again, restarted = fixed(source, world), fixed(world.job.open(), world)

    assert (again.splits, restarted.splits) == ((), ())


@of_worlds_with(Change.SECOND_SPLIT)
def test_t62_an_empty_split_gets_no_boundary(world: World) -> None:
    world.put("a")

    record = fixed(world.job.open(), world)

    assert len(world.job.state().progress) == 2
    assert len(record.splits) == 1


@of_widest_worlds
def test_new_boundaries_include_the_records_that_arrived_since_the_last_ones(
    world: World,
) -> None:
    world.put("a")
    source = world.job.open()
    load_all(source, world)
    world.put("b")
    world.pass_time()

    record = fixed(source, world)

    assert len(open_splits(record)) == 1


@of_widest_worlds
def test_t60_a_split_is_finished_after_its_records_are_committed(world: World) -> None:
    world.put("a")
    source = world.job.open()
    record = fixed(source, world)
    before = reviewed(record, source, world)
    load_all(source, world)

    after = reviewed(record, source, world)

    assert (before, record.cause) == (record, "boundary")
    assert after.cause == ""


@of_worlds_with(Change.SECOND_SPLIT)
def test_t60_a_slow_split_is_not_finished_with_a_fast_one(world: World) -> None:
    fast, slow = world.put_unevenly()
    source = world.job.open()
    record = fixed(source, world)
    load_one(source, world)

    after_one = reviewed(record, source, world)
    load_all(source, world)

    assert sorted(open_splits(record)) == sorted([fast, slow])
    assert open_splits(after_one) == [slow]
    assert open_splits(reviewed(record, source, world)) == []


def test_records_after_a_boundary_do_not_delay_it(world: World) -> None:
    world.put("a")
    source = world.job.open()
    record = fixed(source, world)
    world.pass_time()
    world.put("b", "c")

    load_one(source, world)
    load_one(source, world)

    assert reviewed(record, source, world).cause == ""
    assert names(world, plan(source, world)) == ["c"]


@of_widest_worlds
def test_an_epoch_passes_a_boundary_before_its_commit(world: World) -> None:
    world.put("a", "b")
    source = world.job.open()
    poll(source, world.job.state().progress)
    heads = source.heads()
    planned = source.plan(world.job.state().progress, limits=EVERYTHING)
    assert planned is not None

    result = result_of(planned, source, world)

    assert not all(source.passed(split, head) for split, head in heads.items())
    assert all(source.passed(split, head, result=result) for split, head in heads.items())


@of_worlds_with(Change.SECOND_SPLIT)
def test_t60_an_epoch_passes_only_the_boundaries_that_it_reaches(world: World) -> None:
    fast, slow = world.put_unevenly()
    source = world.job.open()
    poll(source, world.job.state().progress)
    heads = source.heads()
    planned = source.plan(world.job.state().progress, limits=ONE)
    assert planned is not None

    result = result_of(planned, source, world)

    passed = [source.passed(split, heads[split], result=result) for split in (fast, slow)]
    assert passed == [True, False]


def test_an_epoch_does_not_pass_a_boundary_after_its_last_record(world: World) -> None:
    world.put("a", "b")
    source = world.job.open()
    (unfinished,) = open_splits(fixed(source, world))
    head = source.heads()[unfinished]
    planned = source.plan(world.job.state().progress, limits=ONE)
    assert planned is not None

    result = result_of(planned, source, world)

    assert not source.passed(unfinished, head, result=result)


@of_worlds_with(Change.FAILURE)
def test_t60_a_failed_poll_finishes_no_split(world: World) -> None:
    world.put("a", "b")
    source = world.job.open()
    record = fixed(source, world)
    source.plan(world.job.state().progress, limits=EVERYTHING)

    with world.failing(), pytest.raises(PenstockError):
        poll(source, world.job.state().progress)

    assert review(record, findings(source, world.job.state().progress), marks=None) == record
    load_all(source, world)
    assert reviewed(record, source, world).cause == ""


@of_worlds_with(Change.FAILURE)
def test_t60_a_failed_first_poll_of_a_run_finishes_no_split(world: World) -> None:
    world.put("a", "b")
    first = world.job.open()
    record = fixed(first, world)
    source = world.job.open()

    with world.failing(), pytest.raises(PenstockError):
        poll(source, world.job.state().progress)

    assert review(record, findings(source, world.job.state().progress), marks=None) == record


@of_widest_worlds
def test_t60_a_poll_that_was_stopped_finishes_no_split(world: World) -> None:
    world.put("a", "b")
    first = world.job.open()
    record = fixed(first, world)
    source = world.job.open()

    with pytest.raises(StoppedError):
        source.poll(world.job.state().progress, report=stop_poll)

    assert review(record, findings(source, world.job.state().progress), marks=None) == record


@of_widest_worlds
def test_t61_a_boundary_of_an_earlier_run_is_reached(world: World) -> None:
    world.put("a", "b", "c")
    first = world.job.open()
    record = fixed(first, world)
    load_one(first, world)
    world.pass_time()
    source = world.job.open()

    before = reviewed(record, source, world)
    load_all(source, world)

    assert before.cause == "boundary"
    assert reviewed(record, source, world).cause == ""


@of_worlds_with(Change.END)
def test_t59_a_split_that_ended_is_finished(world: World) -> None:
    world.put("a")
    source = world.job.open()
    record = fixed(source, world)
    ended = world.end_split()
    load_all(source, world)

    after = reviewed(record, source, world)

    assert [split.split for split in world.job.state().progress if split.finished][:1] == [
        ended
    ]
    assert (record.cause, after.cause) == ("boundary", "")


@of_worlds_with(Change.END)
def test_t59_a_split_that_ended_gets_no_boundary(world: World) -> None:
    world.put("a")
    source = world.job.open()
    ended = world.end_split()
    load_all(source, world)

    assert ended not in open_splits(fixed(source, world))


@of_worlds_with(Change.NEW_SPLIT)
def test_t62_a_split_that_was_found_later_gets_no_boundary(world: World) -> None:
    world.put("a")
    source = world.job.open()
    record = fixed(source, world)
    new = world.put_into_new_split()
    poll(source, world.job.state().progress)
    world.job.commit(plan(source, world), by=source)

    after = reviewed(record, source, world)

    assert new in source.heads()
    assert new not in {split.split for split in after.splits}
    assert after.cause == ""


@of_worlds_with(Change.NEW_SPLIT)
def test_t59_new_boundaries_are_in_the_split_that_continues_an_ended_one(world: World) -> None:
    world.put("a")
    source = world.job.open()
    new = world.put_into_new_split()
    poll(source, world.job.state().progress)
    world.job.commit(plan(source, world), by=source)

    assert open_splits(fixed(source, world)) == [new]


@of_worlds_with(Change.NEW_SPLIT)
def test_t60_new_boundaries_are_also_in_a_split_that_no_poll_has_found(world: World) -> None:
    world.put("a")
    source = world.job.open()
    poll(source, world.job.state().progress)
    new = world.put_into_new_split()

    assert new in open_splits(fixed(source, world))


@of_widest_worlds
def test_t24_the_remaining_amount_decreases_to_zero(world: World) -> None:
    world.put("a", "b", "c")
    source = world.job.open()
    poll(source, world.job.state().progress)
    first = remaining(source)
    load_one(source, world)
    poll(source, world.job.state().progress)
    second = remaining(source)

    load_all(source, world)

    last = remaining(source)
    measured = [unit for unit in LagUnit if unit.of(first) is not None]
    assert [unit for unit in LagUnit if unit.of(last) is not None] == measured
    counted = [values(one, *COUNTED) for one in (first, second, last)]
    assert all(one > two > three for one, two, three in zip(*counted, strict=True))
    assert set(values(last, *LagUnit)) <= {0}


@of_widest_worlds
def test_t43_the_remaining_amount_is_never_negative(world: World) -> None:
    world.put("a", "b", "c")
    load_one(world.job.open(), world)
    world.turn_clock_back()
    source = world.job.open()

    poll(source, world.job.state().progress)

    assert min(values(remaining(source), *LagUnit), default=0.0) >= 0
